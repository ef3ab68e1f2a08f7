"""How close a training step comes to what the machine allows: the step of ddp and sharded, and its limit.

    python3 bench/limit.py --build build/release [--runs 7] [--json FILE] [--quick] [--only REGEX]

The limit of a step is that of processes which run at the same time and do not communicate, each with the share of the batch that a
rank has, plus the time in which `lockstep bench` moves the same bytes: an all-reduce in the arena for ddp, a reduce-scatter for
sharded. With sharded a rank has only its share of the optimizer's work, so the other shares are taken off. `fused` is sharded with
--fused-update, beside the limit of sharded, of which it leaves out a part.

The processes that do not communicate run the same program, but they are not in step: while one computes, another one waits for
memory. Ranks that are in step want the same thing at the same time, so a limit of this kind can't be reached in full.

Every side runs in turn, round after round. A figure is the median over the rounds. Exit code: 0 all goals met, 3 a goal missed,
2 something could not be measured.
"""
import collections
import dataclasses
import re
import statistics
import sys

import comparison
import ddp
from comparison import number, print_columns

MIDDLE = ("--dim", 512)


@dataclasses.dataclass(frozen=True)
class Row:
    """`batch` samples over all ranks. The goal: a step takes at most that many times its limit."""

    strategy: str
    model: tuple
    batch: int
    ranks: int
    goal: float
    steps: int = 50

    @property
    def ours(self):
        return ddp.Side("lockstep", self.strategy, self.model, self.batch, self.ranks, self.steps)

    @property
    def apart(self):
        return ddp.Side("apart", "single", self.model, self.batch // self.ranks, self.ranks, self.steps)

    @property
    def op(self):
        return "all_reduce" if self.strategy == "ddp" else "reduce_scatter"

    @property
    def name(self):
        return f"{self.strategy}-{self.ours.what}-{self.ranks}".replace(" ", "-")


ROWS = [
    Row("ddp", ddp.LARGE, 64, 2, 1.08, 40),
    Row("sharded", ddp.LARGE, 64, 2, 1.08, 40),
    Row("fused", ddp.LARGE, 64, 2, 1.08, 40),
    Row("ddp", ddp.SMALL, 32, 2, 1.06, 300),
    Row("sharded", ddp.SMALL, 32, 2, 1.06, 300),
    Row("ddp", MIDDLE, 256, 2, 1.08, 40),
    Row("sharded", MIDDLE, 256, 2, 1.08, 40),
    Row("ddp", ddp.CNN, 64, 2, 1.08, 40),
    Row("sharded", ddp.CNN, 64, 2, 1.08, 40),
]


def moved(row, build, size):
    """The command that measures how long the bytes of a row's gradients take."""
    return [build / "lockstep", "bench", row.op, "--ranks", row.ranks, "--transport", "shm", "--buffer", "arena", "--rounds", 1,
            "--time", 300, "--json", "--size", size]


def read_moved(documents):
    return [{"move_ms": line["time_us"]["mean"] / 1e3} for document in documents for line in document["results"]]


def gradient_bytes(row, build):
    """Asks a short run."""
    short = dataclasses.replace(row.ours, ranks=1, strategy="single", steps=2)
    return int(comparison.run(short.command(build, None))[0]["gradient_bytes"])


def jobs_for(rows, build):
    jobs = {}

    def add(key, command, read):
        jobs.setdefault(key, comparison.Job(label=str(key), side=str(key), command=command, expected={"line"}, read=read,
                                            key=lambda line: "line"))

    sizes = {}
    for row in rows:
        size = sizes.setdefault(row.model, gradient_bytes(row, build))
        add(("ours", row.name), row.ours.command(build, None), row.ours.read)
        add(("apart", row.apart), row.apart.command(build, None), row.apart.read)
        add(("moved", row.op, row.ranks, size), moved(row, build, size), read_moved)
    return jobs, sizes


def report(rows, sizes, found, rounds):
    """Prints the table; gives back the verdicts. `found`: {side: samples}."""
    table = [["what", "ranks", "strategy", "apart", "moved", "limit", "step", "ratio", "goal", ""]]
    for row in rows:
        head = [row.ours.what, str(row.ranks), row.strategy]
        keys = [("ours", row.name), ("apart", row.apart), ("moved", row.op, row.ranks, sizes[row.model])]
        ours, apart, bytes_moved = ([*found.get(str(key), [])] for key in keys)
        if not (ours and apart and bytes_moved):
            table.append([*head, "-", "-", "-", "-", "-", f"<= {row.goal:g}", "FAILED"])
            continue
        step = statistics.median(sample["step_ms"] for sample in ours)
        alone = statistics.median(sample["step_ms"] for sample in apart)
        if row.strategy != "ddp":
            alone -= (1 - 1 / row.ranks) * statistics.median(sample["phase_ms"]["optimizer"] for sample in apart)
        move = statistics.median(sample["move_ms"] for sample in bytes_moved)
        ratio = step / (alone + move)
        table.append([*head, number(alone), number(move), number(alone + move), number(step), number(ratio), f"<= {row.goal:g}",
                      "ok" if ratio <= row.goal else "MISSED"])
    print_columns(table, left=(0, 2, 8, 9))
    print(f"\nMilliseconds, medians over {rounds} round{'s' if rounds > 1 else ''}, the sides in turn.")
    return [line[-1] for line in table[1:]]


def main():
    parser, parsed = comparison.options(__doc__, "ddp-mlp-16x1024-batch-64-2, cnn")
    rows = [row for row in ROWS if re.search(parsed.only, row.name)]
    if not rows:
        parser.error(f"--only {parsed.only} matches none of: {' '.join(row.name for row in ROWS)}")
    reason = comparison.why_missing("lockstep", parsed.build, ["lockstep", "lockstep-torch"])
    if reason:
        print(f"lockstep: {reason}")
        return 2
    jobs, sizes = jobs_for(rows, parsed.build)
    samples, failures = comparison.measure(list(jobs.values()), parsed.runs)
    found = collections.defaultdict(list)
    for sample in samples:
        found[sample["side"]].append(sample)
    verdicts = report(rows, sizes, found, parsed.runs)
    return comparison.finish(parsed, {}, samples, failures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
