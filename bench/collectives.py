"""Compares Lockstep's collectives with Gloo through PyTorch and with MPIs, on this machine, in one run.

    python3 bench/collectives.py --build build/release [--runs 7] [--json FILE] [--quick] [--only REGEX]

All sides: float32, sum, in place on one hot buffer, a tight loop of calls, its time on the slowest rank divided by the
calls. "bytes" is the whole buffer: of gather, all_gather, scatter and reduce_scatter that of all ranks together.

Every side runs in turn, round after round, so that a slow minute of the machine hits all of them. A figure is the
median over the rounds. Exit code: 0 all goals met, 3 a goal missed, 2 something could not be measured.
"""
import collections
import dataclasses
import re
import statistics
import sys
from pathlib import Path

import comparison
from comparison import MPIS, TWO_COPIES, absent, bytes_of, mpirun, number, print_columns

OURS = {"arena": "shm", "private": "shm", "tcp": "tcp"}  # what a row is about, and the transport it runs over
TITLES = {"gloo": "Gloo", "deepspeed": "DeepSpeed", **comparison.TITLES, "limit": "limit", "trace": "trace recorder"}
RING = ("--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4")
PEERS = Path(__file__).resolve().parent / "peers"


@dataclasses.dataclass(frozen=True)
class Goal:
    """times: the best of `against` takes at least `factor` times as long as we do. at most: we take at most so many
    times as long. of the limit: the limit's time is at least so much of our median call's, for it is a median, too."""

    kind: str
    factor: float
    against: tuple

    def __str__(self):
        names = " and ".join(TITLES[side] for side in self.against)
        whom = "the best MPI" if self.against == MPIS else names if len(self.against) == 1 else f"the better of {names}"
        return {"times": f">= {self.factor:g} x as fast as {whom}", "at most": f"<= {self.factor:g} x {whom}'s time",
                "of the limit": f">= {self.factor:.0%} of the limit"}[self.kind]

    def judge(self, ours, theirs):
        """(ratio as text, met or not)"""
        if self.kind == "at most":
            return number(ours / theirs), ours <= self.factor * theirs
        return number(theirs / ours), theirs / ours >= self.factor


@dataclasses.dataclass(frozen=True)
class Row:
    op: str
    ranks: int
    size: str
    subject: str  # one of OURS
    goals: tuple

    @property
    def bytes(self):
        return bytes_of(self.size)

    @property
    def name(self):
        return f"{self.op}-{self.ranks}-{self.size}-{self.subject}"

    @property
    def sides(self):
        return {side for goal in self.goals for side in goal.against}


def times(factor, *against):
    return Goal("times", factor, against)


LIMIT = Goal("of the limit", 0.85, ("limit",))
OPENMPI_OR_GLOO = ("openmpi", "gloo")  # the MPICHs spin, and take milliseconds when ranks share cores
ROWS = [
    Row("all_reduce", 2, "8", "arena", (Goal("at most", 1.0, MPIS),)),
    *(Row("all_reduce", 2, size, "arena", (times(10, "gloo"), times(4, *MPIS)))
      for size in ("64K", "256K", "1M", "4M", "16M")),
    Row("all_reduce", 2, "64M", "arena", (LIMIT, times(4, *MPIS))),
    *(Row("all_reduce", 2, size, "private", (times(1.3, *MPIS), times(1, "deepspeed"))) for size in ("64K", "256K", "1M", "4M", "16M", "64M")),
    *(Row("all_reduce", 2, size, "tcp", (times(5, "gloo"),)) for size in ("8", "1K", "16K", "64K")),
    *(Row("all_reduce", 2, size, "tcp", (times(0.95, "gloo"),)) for size in ("256K", "1M", "4M", "16M")),
    Row("all_reduce", 2, "64M", "tcp", (times(0.95, "gloo"), LIMIT)),
    Row("all_reduce", 4, "8", "arena", (Goal("at most", 1.1, ("openmpi",)),)),
    Row("all_reduce", 4, "256K", "arena", (times(2, *OPENMPI_OR_GLOO),)),
    *(Row("all_reduce", 4, size, "arena", (times(4, *OPENMPI_OR_GLOO),)) for size in ("4M", "16M", "64M")),
    *(Row(op, 2, size, subject, (times(2 if op == "reduce_scatter" else 0.95, *MPIS),))
      for op in ("reduce_scatter", "broadcast", "all_gather", "gather", "scatter")
      for size in ("64K", "1M", "16M") for subject in ("arena", "private")),
]
# The trace recorder: what it adds to the shortest call when it is off, in a share of it, and a span when it is on.
OFF_SHARE, ON_NS = 0.02, 150
SHORTEST = ROWS[0]


def own_lines(documents):
    """The rows of `lockstep bench --json`, in the shape that the peers print."""
    lines = [{"op": row["op"], "ranks": row["ranks"], "bytes": row["bytes"], "us": row["time_us"]["mean"],
              "limit_us": row["limit_us"], "percent_of_limit": row["percent_of_limit"], "algorithm": row["algorithm"], "wrong": row["wrong"]}
             for document in documents for row in document["results"]]
    wrong = [line for line in lines if line["wrong"] != 0]
    if wrong:
        raise RuntimeError(f"wrong results: {wrong}")
    return lines


def commands(side, build, python, op, ranks, sizes):
    """The ways to start a side, as {variant: command}. The best variant is the side's figure."""
    lockstep = build / "lockstep"
    if side in OURS:
        buffer = [] if side == "tcp" else ["--buffer", side]
        return {"": [lockstep, "bench", op, "--ranks", ranks, "--transport", OURS[side], *buffer, "--rounds", 1,
                     "--time", 300, "--json", "--size", ",".join(map(str, sizes))]}
    if side == "gloo":
        return {"": [lockstep, "run", "-n", ranks, "--", python, PEERS / "gloo_collectives.py", op, *sizes]}
    if side == "deepspeed":
        return {"": [lockstep, "run", "-n", ranks, "--", python, PEERS / "deepspeed_collectives.py",
                     comparison.fetched(build, side), op, *sizes]}
    program = comparison.program(build, side, "mpi_collectives")
    if side == "openmpi":  # coll_sm and the other algorithms of coll_tuned were tried, and never won
        variants = {"default": (), "two copies": TWO_COPIES} | ({"ring": RING} if op == "all_reduce" else {})
        return {name: [*mpirun(build, side, ranks, *mca), program, op, *sizes] for name, mca in variants.items()}
    return {"": [*mpirun(build, side, ranks), program, op, *sizes]}


def jobs_for(rows, build, python, missing, with_trace):
    """In the order of the table: what has the same op and ranks one after the other, ours first."""
    sizes = collections.defaultdict(set)  # (op, ranks, side) -> sizes
    for row in rows:
        for side in {row.subject} | row.sides - {"limit"}:
            if not missing[side]:
                sizes[row.op, row.ranks, side].add(row.bytes)
    groups = list(dict.fromkeys((row.op, row.ranks) for row in rows))
    sides = [*OURS, *TITLES]
    jobs = [comparison.Job(label=f"{title(side)}, {op} on {ranks} ranks", side=side, variant=variant, command=command,
                           expected={(op, ranks, size) for size in wanted},
                           key=lambda line: (line["op"], line["ranks"], line["bytes"]),
                           read=own_lines if side in OURS else list)
            for (op, ranks, side), wanted in sorted(
                sizes.items(), key=lambda item: (groups.index(item[0][:2]), sides.index(item[0][2])))
            for variant, command in commands(side, build, python, op, ranks, sorted(wanted)).items()]
    if with_trace and not missing["trace"]:
        jobs.append(comparison.Job(label="trace recorder", side="trace", command=[build / "bench" / "trace_cost"],
                                   expected={"trace"}, key=lambda line: "trace" if "off_ns" in line else "?"))
    return jobs


def title(side):
    return f"lockstep {side}" if side in OURS else TITLES[side]


def why_missing(side, build, python):
    if side in ("gloo", "deepspeed") and not python:
        return comparison.NO_TORCH
    if side == "deepspeed" and not (comparison.fetched(build, side) / "built" / comparison.libtorch(build)["version"]).exists():
        return "not installed (./dev peers)"
    needed = {"limit": [], "trace": ["bench/trace_cost"]}.get(
        side, [f"bench/mpi_collectives_{side}"] if side in comparison.APT else ["lockstep"])
    return comparison.why_missing(side, build, needed)


def figures(row, samples):
    """{side: {variant: microseconds}}"""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for s in samples:
        if (s.get("op"), s.get("ranks"), s.get("bytes")) != (row.op, row.ranks, row.bytes):
            continue
        if s["side"] == row.subject or s["side"] in row.sides:
            found[s["side"]][s["variant"]].append(s["us"])
        if s["side"] == row.subject and "limit" in row.sides and s["limit_us"]:
            found["limit"][""].append(s["limit_us"])
    return found


def share_of_limit(row, samples):
    shares = [s["percent_of_limit"] / 100 for s in samples if s["side"] == row.subject and s["percent_of_limit"]
              and (s["op"], s["ranks"], s["bytes"]) == (row.op, row.ranks, row.bytes)]
    return statistics.median(shares) if shares else 0.0


def verdict_of(row, goal, medians, share, missing):
    """(ratio, verdict) as text. `share` of the limit, where there is one."""
    if row.subject not in medians:
        return "-", absent(missing[row.subject])
    theirs = [medians[side] for side in goal.against if side in medians]
    if not theirs:
        return "-", absent(missing[goal.against[0]])
    if goal.kind == "of the limit":
        return f"{share:.0%}", "ok" if share >= goal.factor else "MISSED"
    ratio, met = goal.judge(medians[row.subject], min(theirs))
    return ratio, "ok" if met else "MISSED"


def trace_lines(samples, missing, columns):
    """Two lines of the table: what a span costs when the recorder is off and on."""
    costs = [s for s in samples if s["side"] == "trace"]
    shortest = [us for values in figures(SHORTEST, samples)[SHORTEST.subject].values() for us in values]
    lines = []
    for name, key, goal in (("trace off", "off_ns", f"<= {OFF_SHARE:.0%} of an all_reduce of 8"),
                            ("trace on", "on_ns", f"<= {ON_NS} ns a span")):
        cells = [name, "-", "-", "-"] + ["-"] * (columns - 7)
        if not costs or (key == "off_ns" and not shortest):
            lines.append([*cells, "-", goal, absent(missing["trace"] or missing[SHORTEST.subject])])
            continue
        cost = statistics.median(s[key] for s in costs)
        cells[4] = f"{cost / 1e3:.4f}"
        if key == "off_ns":
            share = cost / 1e3 / statistics.median(shortest)
            lines.append([*cells, f"{share:.1%}", goal, "ok" if share <= OFF_SHARE else "MISSED"])
        else:
            lines.append([*cells, f"{cost:.0f} ns", goal, "ok" if cost <= ON_NS else "MISSED"])
    return lines


def report(rows, samples, missing, rounds, with_trace):
    """Prints the table and the spreads; gives back the verdicts."""
    peers = ("gloo", "deepspeed", *MPIS, "limit")
    table = [["op", "ranks", "bytes", "buffer", "lockstep us", *(f"{TITLES[p]} us" for p in peers), "ratio", "goal", ""]]
    spreads = []
    for row in rows:
        found = figures(row, samples)
        medians = {side: min(statistics.median(v) for v in variants.values()) for side, variants in found.items()}
        cells = [number(medians[side]) if side in medians else "-" for side in (row.subject, *peers)]
        share = share_of_limit(row, samples)
        for goal in row.goals:
            ratio, verdict = verdict_of(row, goal, medians, share, missing)
            table.append([row.op, str(row.ranks), row.size, row.subject, *cells, ratio, str(goal), verdict])
        for side in (row.subject, *peers):
            for variant, values in found.get(side, {}).items():
                spreads.append([row.op, str(row.ranks), row.size, title(side) + (f" ({variant})" if variant else ""),
                                number(statistics.median(values)), f"{number(min(values))}..{number(max(values))}"])
    if with_trace:
        table += trace_lines(samples, missing, len(table[0]))
    print_columns(table, left=(0, 3, len(table[0]) - 2, len(table[0]) - 1))
    print(f"\nMicroseconds, medians over {rounds} round{'s' if rounds > 1 else ''}, the sides in turn. "
          "Where a side has variants, the table shows the best. Spread:")
    print_columns([["op", "ranks", "bytes", "side", "median us", "min..max us"], *spreads], left=(0, 3))
    return [line[-1] for line in table[1:]]


def main():
    parser, parsed = comparison.options(__doc__, "all_reduce-2-64M-arena, all_reduce-4-8-arena, scatter-2-1M-private, trace")
    rows = [row for row in ROWS if re.search(parsed.only, row.name)]
    with_trace = bool(re.search(parsed.only, "trace"))
    if with_trace and SHORTEST not in rows:
        rows.insert(0, SHORTEST)
    if not rows:
        parser.error(f"--only {parsed.only} matches none of: {' '.join(row.name for row in ROWS)} trace")
    python = comparison.torch_python(parsed.build)
    missing = {side: why_missing(side, parsed.build, python) for side in (*OURS, *TITLES)}
    for side, reason in missing.items():
        if reason and (any(side in row.sides | {row.subject} for row in rows) or (side == "trace" and with_trace)):
            print(f"{title(side)}: {reason}")
    samples, failures = comparison.measure(jobs_for(rows, parsed.build, python, missing, with_trace), parsed.runs)
    verdicts = report(rows, samples, missing, parsed.runs, with_trace)
    return comparison.finish(parsed, missing, samples, failures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
