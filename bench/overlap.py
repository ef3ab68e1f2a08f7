"""When communication should run beside backward: ddp, which chooses, against naive, which never does; and over a slow network.

    python3 bench/overlap.py --build build/release [--runs 7] [--json FILE] [--quick] [--only REGEX]

Sections, to be chosen by --only:
    never     ddp is never slower than naive: four models, 2 and 4 ranks, through shared memory and over sockets
    network   two hosts (network namespaces) on a link of 1 Gbit/s: the step of ddp against what the naive run of the same round
              says is possible: forward + max(backward, communication) + communication of the last bucket + optimizer

Every side runs in turn, round after round, so that a slow minute of the machine hits all of them. A figure is the median step
over the rounds. Exit code: 0 all goals met, 3 a goal missed, 2 something could not be measured.
"""
import collections
import contextlib
import dataclasses
import re
import statistics
import sys

import comparison
import ddp
import hosts
from comparison import absent, number, print_columns

MIDDLE = ("--dim", 512)
RATE = "1gbit"


@dataclasses.dataclass(frozen=True)
class Row:
    section: str
    model: tuple
    batch: int
    ranks: int
    transport: str
    goal: float
    steps: int = 30

    @property
    def what(self):
        return ddp.Side("", "", self.model, self.batch, self.ranks).what

    @property
    def name(self):
        return f"{self.section}-{self.what}-{self.ranks}-{self.transport}".replace(" ", "-")

    def words(self, build, strategy):
        words = [build / "lockstep", "train", "--strategy", strategy, *self.model, "--batch", self.batch, "--steps", self.steps,
                 "--json"]
        if self.section == "network":
            return words + (["--bucket-mb", 1] if strategy == "ddp" else [])
        return [*words, "--ranks", self.ranks, "--transport", self.transport]


def read(documents):
    document = documents[0]
    if not document["weights_agree"]:
        raise RuntimeError("ranks ended with different weights")
    line = {"step_ms": document["step_ms"]["p50"], **document["phase_ms"]}
    if document["strategy"] == "ddp":
        travels = document["backward"]["travels"]
        line["last"] = travels[-1]["bytes"] / sum(travel["bytes"] for travel in travels)
        line["overlap"] = document["backward"]["overlap"]
    return [line]


ROWS = [
    *(Row("never", model, batch, ranks, transport, 1.02, steps)
      for model, batch, steps in ((ddp.SMALL, 32, 300), (MIDDLE, 64, 60), (ddp.LARGE, 64, 25), (ddp.CNN, 64, 40))
      for ranks in (2, 4) for transport in ("shm", "tcp")),
    *(Row("network", MIDDLE, batch, 2, RATE, 1.10, 12) for batch in (64, 512, 1024)),
]


def limit_of(naive, last):
    """The step that is possible, from the medians of a naive run and the last bucket's share of the bytes."""
    return (naive["forward"] + max(naive["backward"], naive["communication"]) + last * naive["communication"]
            + naive["optimizer"] + naive["other"])


def report(rows, found, missing, rounds):
    """Prints the table; gives back the verdicts. `found`: {(row's name, strategy): samples}."""
    table = [["section", "what", "ranks", "over", "naive ms", "ddp ms", "overlap", "limit ms", "ratio", "goal", ""]]
    for row in rows:
        sides = [found.get((row.name, strategy)) for strategy in ("naive", "ddp")]
        head = [row.section, row.what, str(row.ranks), row.transport]
        if not all(sides):
            table.append([*head, "-", "-", "-", "-", "-", f"<= {row.goal:g}", absent(missing[row.section])])
            continue
        naive, ours = ({field: statistics.median(sample[field] for sample in side) for field in side[0]
                        if isinstance(side[0][field], (int, float))} for side in sides)
        limit = naive["step_ms"] if row.section == "never" else limit_of(naive, ours["last"])
        ratio = ours["step_ms"] / limit
        table.append([*head, number(naive["step_ms"]), number(ours["step_ms"]), sides[1][0]["overlap"], number(limit),
                      f"{ratio:.3f}", f"<= {row.goal:g}", "ok" if ratio <= row.goal else "MISSED"])
    print_columns(table, left=(0, 1, 3, 6, 9, 10))
    print(f"\nMedians over {rounds} round{'s' if rounds > 1 else ''}, the sides in turn. The limit is naive's step, or what the "
          "network allows.")
    return [line[-1] for line in table[1:]]


def main():
    parser, parsed = comparison.options(__doc__, "never-mlp-16x512-batch-64-2-shm, network")
    rows = [row for row in ROWS if re.search(parsed.only, row.name)]
    if not rows:
        parser.error(f"--only {parsed.only} matches none of: {' '.join(row.name for row in ROWS)}")
    ours = comparison.why_missing("lockstep", parsed.build, ["lockstep", "lockstep-torch"])
    networked = any(row.section == "network" for row in rows)
    missing = {"never": ours, "network": ours or (hosts.why_missing() if networked else None)}
    for section, reason in missing.items():
        if reason:
            print(f"{section}: {reason}")
    with contextlib.ExitStack() as stack:
        two = stack.enter_context(hosts.Hosts(RATE)) if networked and not missing["network"] else None
        jobs = []
        for row in rows:
            for strategy in ("naive", "ddp") if not missing[row.section] else ():
                words = row.words(parsed.build, strategy)
                jobs.append(comparison.Job(label=f"{strategy}, {row.name}", side=f"{row.name} {strategy}", expected={"line"},
                                           command=two.command(words) if row.section == "network" else words, read=read,
                                           key=lambda line: "line"))
        samples, failures = comparison.measure(jobs, parsed.runs)
    found = collections.defaultdict(list)
    for sample in samples:
        found[tuple(sample["side"].split(" "))].append(sample)
    verdicts = report(rows, found, missing, parsed.runs)
    return comparison.finish(parsed, missing, samples, failures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
