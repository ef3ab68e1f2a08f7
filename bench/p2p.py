"""Compares Lockstep's point-to-point messages with MPI and with bare sockets, on this machine, in one run.

    python3 bench/p2p.py --build build/release [--runs 7] [--json FILE] [--quick] [--only REGEX]

Every side runs in turn, round after round, so that a slow minute of the machine hits all of them. A figure is the
median over the rounds. Exit code: 0 all goals met, 3 a goal missed, 2 something could not be measured.
"""
import argparse
import collections
import dataclasses
import json
import os
import re
import shutil
import statistics
import sys
import time
from pathlib import Path

from processes import run

TITLES = {"shm": "lockstep shm", "tcp": "lockstep tcp", "openmpi": "Open MPI", "mpich": "MPICH",
          "socket": "bare socket"}
APT = {"openmpi": "openmpi-bin libopenmpi-dev", "mpich": "mpich libmpich-dev"}


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
        return int(self.size.rstrip("KM")) * {"K": 1024, "M": 1024**2}.get(self.size[-1], 1)

    @property
    def name(self):
        return f"{self.test}-{self.ranks}-{self.size}-{self.sides[0]}"

    def best(self, values):
        return min(values) if self.unit == "us" else max(values)


MEMORY = ("shm", "openmpi", "mpich")
MPIS = ("openmpi", "mpich")
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
    if side == "mpich":
        return {"": ["mpirun.mpich", "-n", ranks, bench / "mpi_p2p_mpich", test]}
    # Open MPI keeps its own defaults, its best for latency and the ring. --oversubscribe only lifts the limit on ranks.
    # While ranks fit on the cores, each is bound to one and spins; beyond that they are unbound and yield when idle.
    # Forced to yield, 2 ranks lose a third; forced to spin, 4 ranks on 2 cores are some thousand times slower.
    run = ["mpirun.openmpi", "--oversubscribe", *(["--allow-run-as-root"] if os.getuid() == 0 else []), "-n", ranks]
    program = [bench / "mpi_p2p_openmpi", test]
    if test != "bandwidth":
        return {"": run + program}
    # By default one core copies a large message from process to process. Two copies through shared memory let two
    # cores work at once and can win by half at 64 MB, so both are measured.
    return {"default": run + program,
            "two copies": run + ["--mca", "btl_vader_single_copy_mechanism", "none"] + program}


def why_missing(side, build):
    """None if the side can run, else what to tell the user."""
    needed = {"shm": ["lockstep", "bench/p2p_native"], "tcp": ["lockstep", "bench/p2p_native"],
              "socket": ["bench/socket_p2p"]}.get(side, [f"bench/mpi_p2p_{side}"])
    if side in APT and not (shutil.which(f"mpirun.{side}") and shutil.which(f"mpicxx.{side}")):
        return f"not installed (apt install {APT[side]})"
    missing = [str(build / n) for n in needed if not (build / n).exists()]
    return f"not built: {', '.join(missing)} missing (cmake --build {build})" if missing else None


def measure(rows, build, missing, rounds):
    """All samples as dicts, and the failures as text. In a round the sides of each test run one after the other."""
    jobs = collections.defaultdict(dict)  # (test, ranks, side) -> sizes, in the order of the table
    for row in rows:
        for side in row.sides:
            if not missing[side]:
                jobs[row.test, row.ranks, side][row.size] = row.bytes
    jobs = sorted(jobs.items(), key=lambda job: [(r.test, r.ranks) for r in rows].index(job[0][:2]))
    samples, failures = [], []
    for turn in range(1, rounds + 1):
        start, failed = time.monotonic(), len(failures)
        for (test, ranks, side), sizes in jobs:
            for variant, command in commands(side, build, test, ranks).items():
                try:
                    lines = run([*command, *sizes])
                    got = {(line["test"], line["ranks"], line["bytes"]) for line in lines}
                    if got != {(test, ranks, size) for size in sizes.values()}:
                        raise RuntimeError(f"asked for {test}, {ranks} ranks, {list(sizes)}, got {sorted(got)}")
                    for line in lines:
                        samples.append({"variant": variant, **line, "side": side, "round": turn})
                except (RuntimeError, OSError, ValueError, KeyError) as error:
                    failures.append(f"round {turn}, {TITLES[side]}, {test} on {ranks} ranks: {error}")
        print(f"round {turn}/{rounds}: {time.monotonic() - start:.0f} s, {len(failures) - failed} failed",
              file=sys.stderr, flush=True)
    return samples, failures


def figures(row, samples):
    """{side: {variant: samples in the row's unit}}"""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for s in samples:
        if (s["test"], s["ranks"], s["bytes"]) == (row.test, row.ranks, row.bytes) and s["side"] in row.sides:
            found[s["side"]][s["variant"]].append(s["us"] if row.unit == "us" else s["gbs"])
    return found


def number(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def absent(reason):
    """The verdict when a side has no figure. Only a peer that is not installed excuses a goal."""
    if not reason:
        return "FAILED"
    return "skipped" if reason.startswith("not installed") else "NOT BUILT"


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


def print_columns(table, left):
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        cells = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build folder, such as build/release")
    parser.add_argument("--runs", type=int, help="rounds (default 7)")
    parser.add_argument("--quick", action="store_true", help="2 rounds: a smoke test, not a measurement")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--only", default="", help="regular expression on names such as latency-2-8-shm, ring-4-8-shm")
    options = parser.parse_args()
    rounds = options.runs or (2 if options.quick else 7)
    rows = [row for row in ROWS if re.search(options.only, row.name)]
    if not rows:
        parser.error(f"--only {options.only} matches none of: {' '.join(row.name for row in ROWS)}")

    missing = {side: why_missing(side, options.build) for side in TITLES}
    for side, reason in missing.items():
        if reason and any(side in row.sides for row in rows):
            print(f"{TITLES[side]}: {reason}")
    samples, failures = measure(rows, options.build.resolve(), missing, rounds)
    verdicts = report(rows, samples, missing, rounds)
    for failure in failures:
        print(f"FAILED {failure}")
    if options.json:
        options.json.write_text(json.dumps({"runs": rounds, "cpus": os.cpu_count(), "missing": missing,
                                            "failures": failures, "samples": samples}, indent=1) + "\n")
    if failures or "NOT BUILT" in verdicts or "FAILED" in verdicts:
        return 2
    return 3 if "MISSED" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
