"""Compares Lockstep's point-to-point messages with MPI and with bare sockets, on this machine, in one run.

    python3 bench/p2p.py --build build/release [--runs 7] [--json FILE] [--quick] [--only REGEX]

Every side runs in turn, round after round, so that a slow minute of the machine hits all of them. A figure is the
median over the rounds. Exit code: 0 all goals met, 3 a goal missed, 2 something could not be measured.
"""
import collections
import dataclasses
import re
import statistics
import sys

import comparison
from comparison import TWO_COPIES, absent, bytes_of, mpirun, number, print_columns

MPIS = tuple(comparison.APT)
TITLES = {"shm": "lockstep shm", "tcp": "lockstep tcp", **{mpi: comparison.TITLES[mpi] for mpi in MPIS}, "socket": "bare socket"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. The first side is the subject; the goal compares it with the best of `against`."""

    test: str
    ranks: int
    size: str
    sides: tuple
    against: tuple = ()
    factor: float = 0.0

    @property
    def unit(self):
        return "us" if self.test in ("latency", "ring") else "GB/s"

    @property
    def bytes(self):
        return bytes_of(self.size)

    @property
    def name(self):
        return f"{self.test}-{self.ranks}-{self.size}-{self.sides[0]}"

    def best(self, values):
        return min(values) if self.unit == "us" else max(values)


MEMORY = ("shm", *MPIS)
ROWS = [
    Row("latency", 2, "8", MEMORY, ("openmpi",), 1.5),
    Row("latency", 2, "1K", MEMORY),
    Row("latency", 2, "64K", MEMORY),
    *(Row("bandwidth", 2, size, MEMORY, MPIS, 0.9) for size in ("1M", "4M", "16M", "64M")),
    Row("ring", 4, "8", MEMORY, ("openmpi",), 1.1),
    Row("ring", 8, "8", MEMORY, ("openmpi",), 1.1),
    Row("latency", 2, "8", ("tcp", "socket"), ("socket",), 1.3),
    Row("exchange", 2, "64M", ("tcp", "socket"), ("socket",), 0.9),
    Row("exchange2", 2, "64M", ("socket",)),  # one connection each way: what a second connection would bring
]


def commands(side, build, test, ranks):
    """The ways to start a side, as {variant: command without the sizes}. The best variant is the side's figure."""
    bench = build / "bench"
    if side in ("shm", "tcp"):
        return {"": [build / "lockstep", "run", "-n", ranks, "--", bench / "p2p_native", "--transport", side, test]}
    if side == "socket":
        return {"": [bench / "socket_p2p", test]}
    program = [bench / f"mpi_p2p_{side}", test]
    if side == "openmpi" and test == "bandwidth":
        return {"default": mpirun(build, side, ranks) + program,
                "two copies": mpirun(build, side, ranks, *TWO_COPIES) + program}
    return {"": mpirun(build, side, ranks) + program}


def why_missing(side, build):
    """None if the side can run, else what to tell the user."""
    needed = {"shm": ["lockstep", "bench/p2p_native"], "tcp": ["lockstep", "bench/p2p_native"],
              "socket": ["bench/socket_p2p"]}.get(side, [f"bench/mpi_p2p_{side}"])
    return comparison.why_missing(side, build, needed)


def jobs_for(rows, build, missing):
    """In the order of the table, the sides of each test one after the other."""
    sizes = collections.defaultdict(dict)  # (test, ranks, side) -> sizes
    for row in rows:
        for side in row.sides:
            if not missing[side]:
                sizes[row.test, row.ranks, side][row.size] = row.bytes
    order = [(row.test, row.ranks) for row in rows]
    return [comparison.Job(label=f"{TITLES[side]}, {test} on {ranks} ranks", side=side, variant=variant,
                           command=[*command, *named],
                           expected={(test, ranks, size) for size in named.values()},
                           key=lambda line: (line["test"], line["ranks"], line["bytes"]))
            for (test, ranks, side), named in sorted(sizes.items(), key=lambda item: order.index(item[0][:2]))
            for variant, command in commands(side, build, test, ranks).items()]


def figures(row, samples):
    """{side: {variant: samples in the row's unit}}"""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for s in samples:
        if (s["test"], s["ranks"], s["bytes"]) == (row.test, row.ranks, row.bytes) and s["side"] in row.sides:
            found[s["side"]][s["variant"]].append(s["us"] if row.unit == "us" else s["gbs"])
    return found


def judge(row, medians, missing):
    """(ratio, goal, verdict) as text."""
    if not row.against:
        return "", "", ""
    subject, peers = row.sides[0], [medians[side] for side in row.against if side in medians]
    whom = "the better MPI" if row.against == MPIS else TITLES[row.against[0]]
    goal = f"{'<=' if row.unit == 'us' else '>='} {row.factor:.2f} x {whom}"
    if subject not in medians:
        return "-", goal, absent(missing[subject])
    if not peers:
        return "-", goal, absent(missing[row.against[0]])
    ratio = medians[subject] / row.best(peers)
    met = ratio <= row.factor if row.unit == "us" else ratio >= row.factor
    return f"{ratio:.2f}", goal, "ok" if met else "MISSED"


def report(rows, samples, missing, rounds):
    """Prints the table and the spreads; gives back the verdicts."""
    table = [["test", "ranks", "bytes", *TITLES.values(), "ratio", "goal", ""]]
    spreads = []
    for row in rows:
        found = figures(row, samples)
        medians = {side: row.best(statistics.median(v) for v in variants.values()) for side, variants in found.items()}
        cells = [f"{number(medians[side])} {row.unit}" if side in medians else "-" for side in TITLES]
        table.append([row.test, str(row.ranks), row.size, *cells, *judge(row, medians, missing)])
        for side in row.sides:
            for variant, values in found.get(side, {}).items():
                label = TITLES[side] + (f" ({variant})" if variant else "")
                spreads.append([row.test, str(row.ranks), row.size, label, number(statistics.median(values)),
                                f"{number(min(values))}..{number(max(values))} {row.unit}"])
    print_columns(table, left=(0, len(table[0]) - 2, len(table[0]) - 1))
    print(f"\nMedians over {rounds} round{'s' if rounds > 1 else ''}, the sides in turn. "
          "Where a side has variants, the table shows the best. Spread:")
    print_columns([["test", "ranks", "bytes", "side", "median", "min..max"], *spreads], left=(0, 3))
    return [line[-1] for line in table[1:]]


def main():
    parser, parsed = comparison.options(__doc__, "latency-2-8-shm, ring-4-8-shm")
    rows = [row for row in ROWS if re.search(parsed.only, row.name)]
    if not rows:
        parser.error(f"--only {parsed.only} matches none of: {' '.join(row.name for row in ROWS)}")
    missing = {side: why_missing(side, parsed.build) for side in TITLES}
    for side, reason in missing.items():
        if reason and any(side in row.sides for row in rows):
            print(f"{TITLES[side]}: {reason}")
    samples, failures = comparison.measure(jobs_for(rows, parsed.build, missing), parsed.runs)
    verdicts = report(rows, samples, missing, parsed.runs)
    return comparison.finish(parsed, missing, samples, failures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
