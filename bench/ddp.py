"""Compares training steps with PyTorch's DistributedDataParallel on Gloo, and with processes that need not communicate.

    python3 bench/ddp.py --build build/release [--runs 7] [--json FILE] [--quick] [--only REGEX]

A step runs from zero_grad to the end of the optimizer (Adam); a side's figure is its median step on the slowest rank. Memory is
the proportional set size of a rank between backward and the optimizer's step, from the third step on.

Every side runs in turn, round after round, so that a slow minute of the machine hits all of them. A figure is the median over
the rounds. Exit code: 0 all goals met, 3 a goal missed, 2 something could not be measured.
"""
import collections
import dataclasses
import re
import statistics
import sys
from pathlib import Path

import comparison
from comparison import absent, number, print_columns

PEER = Path(__file__).resolve().parent / "peers" / "torch_ddp.py"
# What makes a process a rank: without it, two that are started together know nothing of each other.
IDENTITY = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
SMALL, LARGE = ("--dim", 128), ("--dim", 1024)
CNN = ("--model", "cnn", "--channels", 32, 64, "--hidden", 512)


@dataclasses.dataclass(frozen=True)
class Side:
    """One way to train one model: `lockstep ddp`, `torch naive`, `memory sharded`, `apart`."""

    kind: str
    strategy: str
    model: tuple
    batch: int
    ranks: int
    steps: int = 50

    def __str__(self):
        return {"torch": f"PyTorch {self.strategy}", "apart": f"{self.ranks} apart"}.get(self.kind, self.strategy)

    @property
    def what(self):
        name = "cnn" if self.model == CNN else f"mlp 16x{self.model[1]}"
        return f"{name} batch {self.batch}"

    def command(self, build, python):
        lockstep = build / "lockstep"
        flags = [*self.model, "--batch", self.batch, "--steps", self.steps]
        strategy = ["sharded", "--fused-update"] if self.strategy == "fused" else [self.strategy]
        train = [lockstep, "train", "--strategy", *strategy, *flags, "--json"]
        if self.kind == "torch":
            return [lockstep, "run", "-n", self.ranks, "--", python, PEER, "--mode", self.strategy, *flags]
        if self.kind == "apart":
            unset = [word for name in IDENTITY for word in ("-u", name)]
            return [lockstep, "run", "-n", self.ranks, "--", "env", *unset, *train]
        return [*train, "--ranks", self.ranks, *(["--report-memory"] if self.kind == "memory" else [])]

    def read(self, documents):
        """One line from what it printed."""
        if self.kind == "torch":
            return [{"step_ms": document["step_ms"]} for document in documents]
        line = {"step_ms": statistics.mean(document["step_ms"]["p50"] for document in documents),
                "exposed": documents[0]["phase_ms"]["exposed_communication"] / documents[0]["step_ms"]["p50"],
                "phase_ms": documents[0]["phase_ms"], "gradient_mb": documents[0]["gradient_bytes"] / 1e6,
                "mb": max(documents[0].get("pss_bytes", [0])) / 1e6}
        if not all(document["weights_agree"] for document in documents):
            raise RuntimeError("ranks ended with different weights")
        return [line]


@dataclasses.dataclass(frozen=True)
class Row:
    """faster: the peer takes at least `goal` times as long. at most: we take at most `goal` times as long. exposed: at most that
    share of a step. more memory, less memory: than the peer's, at most or at least `goal` times what the text says."""

    ours: Side
    kind: str
    goal: float
    peer: Side = None

    @property
    def name(self):
        return f"{self.kind}-{self.ours.strategy}-{self.ours.what}-{self.ours.ranks}".replace(" ", "-")

    def __str__(self):
        return {"faster": f">= {self.goal:g} x as fast as {self.peer}", "at most": f"<= {self.goal:g} x {self.peer}",
                "exposed": f"< {self.goal:.0%} of the step exposed",
                "more memory": f"<= single + {self.goal:g} x gradients",
                "less memory": f"<= single - {self.goal:g} x (half of parameters and state)"}[self.kind]

    @property
    def unit(self):
        return "MB" if "memory" in self.kind else "ms"

    def judge(self, ours, theirs):
        """(our figure, the peer's, the ratio, met or not); `ours` and `theirs` are medians of all fields."""
        if self.kind == "exposed":
            return number(ours["step_ms"]), "-", f"{ours['exposed']:.1%}", ours["exposed"] < self.goal
        if self.unit == "ms":
            ratio = theirs["step_ms"] / ours["step_ms"] if self.kind == "faster" else ours["step_ms"] / theirs["step_ms"]
            met = ratio >= self.goal if self.kind == "faster" else ratio <= self.goal
            return number(ours["step_ms"]), number(theirs["step_ms"]), number(ratio), met
        gradients = ours["gradient_mb"]
        if self.kind == "more memory":
            ratio = (ours["mb"] - theirs["mb"]) / gradients
            return number(ours["mb"]), number(theirs["mb"]), f"{ratio:+.2f}", ratio <= self.goal
        # Adam's state is twice the parameters, and these are as large as the gradients.
        ratio = (theirs["mb"] - ours["mb"]) / (0.5 * gradients + 0.5 * 2 * gradients)
        return number(ours["mb"]), number(theirs["mb"]), f"{ratio:.2f}", ratio >= self.goal


def faster(strategy, goal, model, batch, ranks, steps=50):
    mode = "naive" if strategy == "naive" else "ddp"
    return Row(Side("lockstep", strategy, model, batch, ranks, steps), "faster", goal,
               Side("torch", mode, model, batch, ranks, steps))


TOGETHER = Side("lockstep", "ddp", LARGE, 128, 2, 30)  # 64 samples a rank
APART = Side("apart", "single", LARGE, 64, 2, 30)
ALONE = Side("memory", "single", LARGE, 64, 1, 6)
# Against PyTorch 2.x, which has MKL and a fused Adam on both sides, and against Debian's 1.13.
GOALS = {"2": dict(ddp_2=4.5, ddp_4=4, ddp_large=1.4, ddp_cnn=1.4, sharded_2=3.7, sharded_large=2.2, fused_large=2.4, naive=5),
         "1": dict(ddp_2=2.5, ddp_4=2.2, ddp_large=1.2, ddp_cnn=1.0, sharded_2=3.5, sharded_large=1.5, fused_large=1.5, naive=10)}


def rows_for(major):
    goal = GOALS[major]
    return [
        faster("ddp", goal["ddp_2"], SMALL, 32, 2),
        faster("ddp", goal["ddp_4"], SMALL, 32, 4),
        faster("ddp", goal["ddp_large"], LARGE, 64, 2, 30),
        faster("ddp", goal["ddp_cnn"], CNN, 64, 2, 30),
        faster("sharded", goal["sharded_2"], SMALL, 32, 2),
        faster("sharded", goal["sharded_large"], LARGE, 64, 2, 30),
        faster("fused", goal["fused_large"], LARGE, 64, 2, 30),
        faster("naive", goal["naive"], SMALL, 32, 2),
        Row(TOGETHER, "at most", 1.10, APART),
        Row(TOGETHER, "exposed", 0.06),
        Row(Side("memory", "ddp", LARGE, 128, 2, 6), "more memory", 0.15, ALONE),
        Row(Side("memory", "sharded", LARGE, 128, 2, 6), "less memory", 0.8, ALONE),
    ]


def report(rows, found, missing, rounds):
    """Prints the table and the spreads; gives back the verdicts. `found`: {side: samples}."""
    medians = {side: {field: statistics.median(sample[field] for sample in samples)
                      for field, value in samples[0].items() if isinstance(value, (int, float))}
               for side, samples in found.items()}
    table = [["what", "ranks", "strategy", "lockstep", "peer", "unit", "ratio", "goal", ""]]
    for row in rows:
        head = [row.ours.what, str(row.ours.ranks), row.ours.strategy]
        wanted = [side for side in (row.ours, row.peer) if side]
        lost = [side for side in wanted if side not in medians]
        if lost:
            table.append([*head, "-", "-", row.unit, "-", str(row), absent(missing[lost[0].kind])])
            continue
        *cells, ratio, met = row.judge(medians[row.ours], medians.get(row.peer))
        table.append([*head, *cells, row.unit, ratio, str(row), "ok" if met else "MISSED"])
    print_columns(table, left=(0, 2, 5, 7, 8))
    print(f"\nMedians over {rounds} round{'s' if rounds > 1 else ''}, the sides in turn. Spread:")
    spreads = [["what", "ranks", "side", "unit", "median", "min..max"]]
    for side, samples in found.items():
        field, unit = ("mb", "MB") if side.kind == "memory" else ("step_ms", "ms")
        values = [sample[field] for sample in samples]
        spreads.append([side.what, str(side.ranks), str(side), unit, number(statistics.median(values)),
                        f"{number(min(values))}..{number(max(values))}"])
    print_columns(spreads, left=(0, 2, 3))
    return [line[-1] for line in table[1:]]


def main():
    parser, parsed = comparison.options(__doc__, "faster-ddp-mlp-16x128-batch-32-2, exposed, memory")
    every = rows_for("1" if comparison.libtorch(parsed.build).get("version", "2").startswith("1.") else "2")
    rows = [row for row in every if re.search(parsed.only, row.name)]
    if not rows:
        parser.error(f"--only {parsed.only} matches none of: {' '.join(row.name for row in every)}")
    python = comparison.torch_python(parsed.build)
    ours = comparison.why_missing("lockstep", parsed.build, ["lockstep", "lockstep-torch"])
    missing = {"lockstep": ours, "apart": ours, "memory": ours,
               "torch": ours or (None if python else comparison.NO_TORCH)}
    for kind, reason in missing.items():
        if reason:
            print(f"{kind}: {reason}")
    sides = list(dict.fromkeys(side for row in rows for side in (row.ours, row.peer) if side and not missing[side.kind]))
    jobs = [comparison.Job(label=f"{side}, {side.what} on {side.ranks}", side=str(number), read=side.read,
                           command=side.command(parsed.build, python), expected={"line"}, key=lambda line: "line")
            for number, side in enumerate(sides)]
    samples, failures = comparison.measure(jobs, parsed.runs)
    found = collections.defaultdict(list)
    for sample in samples:
        found[sides[int(sample["side"])]].append(sample)
        sample["name"] = f"{sample['side']}: {sides[int(sample['side'])]}, {sides[int(sample['side'])].what}"
    verdicts = report(rows, found, missing, parsed.runs)
    return comparison.finish(parsed, missing, samples, failures, verdicts)


if __name__ == "__main__":
    sys.exit(main())
