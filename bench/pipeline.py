"""Compares pipeline schedules with the same 1F1B written over PyTorch's Gloo, with each other, and with their predictions.

    python3 bench/pipeline.py --build build/release [--runs 7] [--json FILE] [--quick] [--only REGEX]

Sections, to be chosen by --only:
    peer      a step of 1F1B against the same in Python over torch.distributed: as most people would write it, and the quickest of
              three ways and of torch.distributed.pipelining; other schedules against the latter; and all have the same losses
    real      1f1b against naive, both with real arithmetic on two ranks; and against its prediction from the measured F and B
    bubble    emulated compute: the share of idle time that was measured against the one that was predicted
    memory    the most memory that was resident: 1f1b against gpipe, which keeps every microbatch's activations

A step runs from zero_grad to the end of the optimizer (Adam); a side's figure is its median step on the slowest rank. Every side
runs in turn, round after round, so that a slow minute of the machine hits all of them. A figure is the median over the rounds.
Exit code: 0 all goals met, 3 a goal missed, 2 something could not be measured.
"""
import collections
import dataclasses
import re
import statistics
import sys
from pathlib import Path

import comparison
from comparison import absent, number, print_columns

PEERS = Path(__file__).resolve().parent / "peers"
MB = 1e6


@dataclasses.dataclass(frozen=True)
class Side:
    """One way to run one pipeline: a schedule of ours, a way of passing messages in PyTorch (kind torch), or a schedule of
    torch.distributed.pipelining."""

    way: str
    ranks: int
    microbatches: int
    flags: tuple
    kind: str = "lockstep"

    def __str__(self):
        return {"torch": f"PyTorch, {self.way}", "pipelining": f"torch pipelining, {self.way}"}.get(self.kind, self.way)

    def command(self, build, python):
        lockstep, flags = build / "lockstep", [*self.flags, "--microbatches", self.microbatches]
        if self.kind == "torch":
            return [lockstep, "run", "-n", self.ranks, "--", python, PEERS / "torch_pipeline.py", "--messages", self.way, *flags]
        if self.kind == "pipelining":
            return [lockstep, "run", "-n", self.ranks, "--", python, PEERS / "torch_pipelining.py", "--schedule", self.way, *flags]
        return [lockstep, "train", "--strategy", "pipeline", "--schedule", self.way, "--ranks", self.ranks, "--stages", self.ranks,
                *flags, "--json"]

    def read(self, documents):
        """One line from what it printed."""
        line = {"step_ms": documents[0]["step_ms"]["p50"], "losses": documents[0]["losses"]}
        steps = self.flags[self.flags.index("--steps") + 1]
        if len(line["losses"]) != steps:
            raise RuntimeError(f"{len(line['losses'])} losses of {steps} steps")
        if self.kind == "lockstep":
            pipeline = documents[0]["pipeline"]
            line |= {"pipeline_ms": pipeline["measured_ms"], "predicted_ms": pipeline["predicted_ms"]}
        if "--emulate-compute" in self.flags:
            line |= {"measured": pipeline["bubble_measured"], "predicted": pipeline["bubble_predicted"]}
        if "--report-memory" in self.flags:
            line["peak_mb"] = [peak / MB for peak in documents[0]["peak_memory_bytes"]]
        return [line]


def median(samples, field):
    return statistics.median(sample[field] for sample in samples)


@dataclasses.dataclass(frozen=True)
class Faster:
    """The quickest of the peers takes at least `goal` times as long."""

    section: str
    ours: Side
    peers: tuple
    goal: float

    def __str__(self):
        return f">= {self.goal:g} x as fast"

    def judge(self, found):
        """(our figure, the peer's, unit, the ratio, met or not); `found`: {side: samples}."""
        ours = median(found[self.ours], "step_ms")
        theirs = min(median(found[peer], "step_ms") for peer in self.peers)
        return number(ours), number(theirs), "ms", number(theirs / ours), theirs >= self.goal * ours


@dataclasses.dataclass(frozen=True)
class SameLosses:
    """In every step that both made, in every round."""

    section: str
    ours: Side
    peers: tuple
    goal: float = 1e-5

    def __str__(self):
        return f"losses differ by <= {self.goal:g}"

    def judge(self, found):
        ours = found[self.ours][0]["losses"]
        others = [sample["losses"] for side in (self.ours, *self.peers) for sample in found[side]]
        worst = max(abs(a - b) for losses in others for a, b in zip(ours, losses, strict=True))
        return f"{ours[-1]:.6f}", f"{others[-1][-1]:.6f}", "loss", f"{worst:.1e}", worst <= self.goal


@dataclasses.dataclass(frozen=True)
class Bubble:
    """The bubble was predicted to within `goal` points."""

    section: str
    ours: Side
    goal: float = 3
    peers: tuple = ()

    def __str__(self):
        return f"within {self.goal:g} points of predicted"

    def judge(self, found):
        measured, predicted = (100 * median(found[self.ours], field) for field in ("measured", "predicted"))
        return number(measured), number(predicted), "%", f"{measured - predicted:+.2f}", abs(measured - predicted) <= self.goal


@dataclasses.dataclass(frozen=True)
class AsPredicted:
    """Forward and backward took what the schedule's simulation says, from the times that F and B took in the same run."""

    section: str
    ours: Side
    goal: float = 20
    peers: tuple = ()

    def __str__(self):
        return f"within {self.goal:g}% of predicted"

    def judge(self, found):
        measured, predicted = (median(found[self.ours], field) for field in ("pipeline_ms", "predicted_ms"))
        return number(measured), number(predicted), "ms", number(measured / predicted), abs(measured / predicted - 1) <= self.goal / 100


@dataclasses.dataclass(frozen=True)
class LessMemory:
    """On every rank at least `goal` of what 1F1B should save is saved: it keeps the activations of `ranks` microbatches at most,
    gpipe those of all."""

    section: str
    ours: Side
    peers: tuple
    goal: float
    activations_mb: float  # of the whole batch, on one rank

    def __str__(self):
        return f">= {self.goal:g} x (M-P)/M of the activations less"

    def judge(self, found):
        should = self.activations_mb * (1 - self.ours.ranks / self.ours.microbatches)

        def peaks(side):  # [rank]
            return [statistics.median(peak) for peak in zip(*(sample["peak_mb"] for sample in found[side]))]

        ours, theirs, saved = min(((a, b, b - a) for a, b in zip(peaks(self.ours), peaks(self.peers[0]))), key=lambda row: row[2])
        return number(ours), number(theirs), "MB", number(saved / should), saved >= self.goal * should


def small(way, kind="lockstep"):
    return Side(way, 4, 8, ("--dim", 128, "--depth", 16, "--batch", 32, "--steps", 50, "--warmup", 5), kind)


def large(way):
    return Side(way, 2, 8, ("--dim", 1024, "--batch", 256, "--steps", 8, "--warmup", 2))


def emulated(way, ranks, microbatches):
    more = ("--virtual-stages", 2) if way == "interleaved" else ()
    return Side(way, ranks, microbatches,
                ("--emulate-compute", "10ms,10ms,10ms", *more, "--batch", 2 * microbatches, "--steps", 8, "--warmup", 2))


WIDE, ROWS_OF_BATCH, LAYERS = 512, 8192, 16


def wide(way):
    return Side(way, 2, 16, ("--dim", WIDE, "--depth", LAYERS, "--batch", ROWS_OF_BATCH, "--optimizer", "sgd", "--steps", 3,
                             "--warmup", 1, "--report-memory"))


TORCH = tuple(small(way, "torch") for way in ("paired", "late", "ahead"))
PIPELINING = {way: small(way, "pipelining") for way in ("gpipe", "1f1b", "interleaved", "zb-h1")}
GOALS = [
    Faster("peer", small("1f1b"), TORCH[:1], 5),
    Faster("peer", small("1f1b"), (*TORCH, PIPELINING["1f1b"]), 1.5),
    *(Faster("peer", small(way), (PIPELINING[way],), 1.5) for way in ("gpipe", "interleaved", "zb-h1")),
    SameLosses("peer", small("1f1b"), (*TORCH, *PIPELINING.values())),
    Faster("real", large("1f1b"), (large("naive"),), 1.5),
    AsPredicted("real", large("1f1b")),
    *(Bubble("bubble", emulated(way, ranks, microbatches)) for ranks, microbatches in ((4, 8), (8, 16))
      for way in ("gpipe", "1f1b", "interleaved", "zb-h1")),
    # Autograd keeps each layer's input, which is the ReLU before it: 4 bytes a row and column, half of the layers on a rank.
    LessMemory("memory", wide("1f1b"), (wide("gpipe"),), 0.7, WIDE * ROWS_OF_BATCH * 4 * LAYERS / 2 / MB),
]


def name_of(goal):
    return f"{goal.section}-{goal.ours.way}-{goal.ours.ranks}x{goal.ours.microbatches}"


def report(goals, found, missing, rounds):
    """Prints the table and the spreads; gives back the verdicts. `found`: {side: samples}."""
    table = [["section", "stages", "microbatches", "schedule", "figure", "beside", "unit", "ratio", "goal", ""]]
    for goal in goals:
        head = [goal.section, str(goal.ours.ranks), str(goal.ours.microbatches), goal.ours.way]
        lost = [side for side in (goal.ours, *goal.peers) if side not in found]
        if lost:
            table.append([*head, "-", "-", "", "-", str(goal), absent(missing[lost[0].kind])])
            continue
        *cells, met = goal.judge(found)
        table.append([*head, *cells, str(goal), "ok" if met else "MISSED"])
    print_columns(table, left=(0, 3, 6, 8, 9))
    print("\nBeside stands a peer's step (first line: sends and receives in pairs; second: the quickest way), its last loss, what was")
    print("predicted, or gpipe's memory.")
    print(f"Medians over {rounds} round{'s' if rounds > 1 else ''}, the sides in turn. Spread of the steps:")
    spreads = [["side", "flags", "ms", "min..max"]]
    for side, samples in found.items():
        steps = [sample["step_ms"] for sample in samples]
        what = " ".join(map(str, side.flags[:2])).replace("--", "")
        spreads.append([str(side), f"{what}, {side.ranks} x {side.microbatches}", number(statistics.median(steps)),
                        f"{number(min(steps))}..{number(max(steps))}"])
    print_columns(spreads, left=(0, 1))
    return [line[-1] for line in table[1:]]


def main():
    parser, parsed = comparison.options(__doc__, "peer, real, bubble-zb-h1-4x8, memory")
    goals = [goal for goal in GOALS if re.search(parsed.only, name_of(goal))]
    if not goals:
        parser.error(f"--only {parsed.only} matches none of: {' '.join(dict.fromkeys(map(name_of, GOALS)))}")
    python = comparison.torch_python(parsed.build)
    ours = comparison.why_missing("lockstep", parsed.build, ["lockstep", "lockstep-torch"])
    torch = ours or (None if python else comparison.NO_TORCH)
    # Debian's 1.13 has no torch.distributed.pipelining.
    old = comparison.libtorch(parsed.build).get("version", "2").startswith("1.")
    missing = {"lockstep": ours, "torch": torch, "pipelining": "not installed (PyTorch 1.13 has none)" if old else torch}
    for kind, reason in missing.items():
        if reason:
            print(f"{kind}: {reason}")
    sides = list(dict.fromkeys(side for goal in goals for side in (goal.ours, *goal.peers) if not missing[side.kind]))
    jobs = [comparison.Job(label=f"{side}, {side.ranks} stages, {side.microbatches} microbatches", side=str(position),
                           read=side.read, command=side.command(parsed.build, python), expected={"line"},
                           key=lambda line: "line") for position, side in enumerate(sides)]
    samples, failures = comparison.measure(jobs, parsed.runs)
    found = collections.defaultdict(list)
    for sample in samples:
        side = sides[int(sample["side"])]
        found[side].append(sample)
        sample["name"] = f"{sample['side']}: {side}, {side.ranks} x {side.microbatches}, {' '.join(map(str, side.flags))}"
    verdicts = report(goals, found, missing, parsed.runs)
    return comparison.finish(parsed, missing, samples, failures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
