"""Compares two builds of Lockstep: is anything slower than it was before?

    python3 bench/before.py --build build/release --before OTHER/build/release [--runs 5] [--json FILE] [--only REGEX]

The rows are what the other benchmarks measure of Lockstep itself: collectives, training steps and pipelines. In every round each
row runs three times in turn: with the build from before, with this one, and with the build from before once more. A figure is
the median over the rounds. The third column says how much one and the same build differs from itself in this run: a row is slower
when it takes more than 3% longer than before, and more than that difference. Of 70 rows some are slower by chance: those that
seem slower are measured again, in twice as many rounds, and the second measurement decides. The build from before may use another
libtorch, as when two versions of PyTorch are compared.

Exit code: 0 no row is slower, 3 some are, 2 something could not be measured.
"""
import collections
import re
import statistics
import sys
from pathlib import Path

import collectives
import comparison
import ddp
import pipeline
from comparison import number, print_columns

TOLERANCE = 1.03
SIDES = ("before", "now", "before again")


def collective_jobs(build):
    """(name, command, {row: microseconds} from what it prints)."""
    sizes = collections.defaultdict(list)
    for row in collectives.ROWS:
        sizes[row.op, row.ranks, row.subject].append(row)
    for (op, ranks, subject), rows in sizes.items():
        by_bytes = {row.bytes: row.name for row in rows}
        command, = collectives.commands(subject, build, None, op, ranks, sorted(by_bytes)).values()
        yield f"{op}-{ranks}-{subject}", command, lambda documents, names=by_bytes: {
            names[line["bytes"]]: line["us"] for line in collectives.own_lines(documents)}


def training_jobs(build):
    sides = [row.ours for row in ddp.rows_for("2") if row.ours.kind == "lockstep" and row.ours.strategy != "fused"]  # 0.1.0 has none
    for side in dict.fromkeys(sides):
        name = f"{side.strategy}-{side.what}-{side.ranks}".replace(" ", "-")
        yield name, side.command(build, None), lambda documents, side=side, name=name: {name: 1e3 * side.read(documents)[0]["step_ms"]}


def pipeline_jobs(build):
    for side in (pipeline.small("1f1b"), pipeline.large("1f1b"), pipeline.large("naive")):
        name = f"pipeline-{side.way}-{side.ranks}x{side.microbatches}-{side.flags[1]}"
        yield name, side.command(build, None), lambda documents, side=side, name=name: {name: 1e3 * side.read(documents)[0]["step_ms"]}


def jobs_of(build):
    return [*collective_jobs(build), *training_jobs(build), *pipeline_jobs(build)]


def measure(builds, rounds, wanted):
    """{row: {side: [microseconds]}}, {row: job}, and the failures as text. `wanted` says of a job's name whether it runs."""
    found, failures, job_of = collections.defaultdict(lambda: collections.defaultdict(list)), [], {}
    sides = [jobs for jobs in zip(*(jobs_of(build) for build in builds)) if wanted(jobs[0][0])]
    for turn in range(1, rounds + 1):
        for jobs in sides:
            for side, (name, command, read) in zip(SIDES, jobs):
                try:
                    for row, us in read(comparison.run(command)).items():
                        found[row][side].append(us)
                        job_of[row] = name
                except (RuntimeError, OSError, ValueError, KeyError) as error:
                    failures.append(f"round {turn}, {name}, {side}: {error}")
        print(f"round {turn}/{rounds}: {len(failures)} failures so far", file=sys.stderr, flush=True)
    return found, job_of, failures


def report(found, rounds):
    """Prints the table; gives back {row: verdict}."""
    table = [["row", "before us", "now us", "now/before", "again/before", ""]]
    for row, samples in found.items():
        if any(len(samples[side]) == 0 for side in SIDES):
            table.append([row, "-", "-", "-", "-", "FAILED"])
            continue
        before, now, again = (statistics.median(samples[side]) for side in SIDES)
        allowed = max(TOLERANCE, again / before, before / again)
        # "Before" has two columns, so both are what this build is held against.
        ratio = now / statistics.median(samples["before"] + samples["before again"])
        table.append([row, number(before), number(now), f"{ratio:.3f}", f"{again / before:.3f}", "ok" if ratio <= allowed else "SLOWER"])
    print_columns(table, left=(0, 5))
    print(f"\nMedians over {rounds} rounds, the three sides in turn.")
    return {line[0]: line[-1] for line in table[1:]}


def main():
    parser, parsed = comparison.options(__doc__, "all_reduce-2, ddp-mlp, sharded, pipeline",
                                        lambda p: p.add_argument("--before", type=Path, required=True, help="the other build folder"))
    builds = (parsed.before.resolve(), parsed.build, parsed.before.resolve())
    for build in dict.fromkeys(builds):
        reason = comparison.why_missing("lockstep", build, ["lockstep", "lockstep-torch"])
        if reason:
            parser.error(reason)
    found, job_of, failures = measure(builds, parsed.runs, lambda name: re.search(parsed.only, name))
    if not found and not failures:
        parser.error(f"--only {parsed.only} matches no row")
    verdicts = report(found, parsed.runs)
    suspects = [row for row, verdict in verdicts.items() if verdict == "SLOWER"]
    if suspects and not failures:
        print(f"\n{len(suspects)} rows seem slower: measuring them again in {2 * parsed.runs} rounds", flush=True)
        jobs = {job_of[row] for row in suspects}
        again, _, failures = measure(builds, 2 * parsed.runs, lambda name: name in jobs)
        found |= {row: again[row] for row in suspects}
        verdicts |= report({row: again[row] for row in suspects}, 2 * parsed.runs)
    samples = [{"row": row, "side": side, "us": us} for row, sides in found.items() for side, values in sides.items() for us in values]
    status = comparison.finish(parsed, {}, samples, failures, list(verdicts.values()))
    return 3 if status == 0 and "SLOWER" in verdicts.values() else status


if __name__ == "__main__":
    sys.exit(main())
