"""torch.distributed.pipelining with Gloo, on the MLP that `lockstep train` trains: PyTorch's own pipelines.

    lockstep run -n N -- python3 torch_pipelining.py --schedule 1f1b [--dim 128] [--depth 16] [--batch 32] [--microbatches 8] ...

Started like torch_pipeline.py, whose flags it has, and whose lines it prints. Schedules: gpipe, 1f1b, interleaved and zb-h1 (its
ScheduleInterleavedZeroBubble); the last two with two stages on each rank. If PyTorch makes no progress for --deadline seconds,
it says where each rank is, and ends with exit code 1.
"""
import argparse
import faulthandler
import json
import os
import statistics
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch  # noqa: E402: after the variable that it reads
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.distributed import pipelining  # noqa: E402

import torch_pipeline  # noqa: E402

SCHEDULES = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B,
             "interleaved": pipelining.ScheduleInterleaved1F1B, "zb-h1": pipelining.ScheduleInterleavedZeroBubble}
TWO_STAGES = ("interleaved", "zb-h1")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50, help="with the warm-up")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--deadline", type=float, default=30)
    return parser.parse_args()


def stages_of(o, layers, rank, ranks):
    """This rank's stages. With two of them, stage numbers go round the ranks twice."""
    count = ranks * (2 if o.schedule in TWO_STAGES else 1)
    rows = o.batch // o.microbatches
    made = []
    for index in range(rank, count, ranks):
        part = torch_pipeline.part_of(layers, index, count)
        # With both shapes given, nothing has to be found out at run time. Gradients travel only where requires_grad says so.
        given = torch.empty(rows, o.dim, requires_grad=index > 0)
        result = torch.empty(rows, 2 if index == count - 1 else o.dim, requires_grad=True)
        made.append(pipelining.PipelineStage(part, index, count, torch.device("cpu"), input_args=(given,), output_args=(result,)))
    return made


def main():
    o = options()
    faulthandler.dump_traceback_later(o.deadline, exit=True, file=sys.stderr)
    torch.set_num_threads(1)
    torch.manual_seed(42)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    layers = torch_pipeline.layers_of(o)
    inputs, targets = torch.randn(o.batch, o.dim), torch.randint(0, 2, (o.batch,))
    stages = stages_of(o, layers, rank, ranks)
    make = SCHEDULES[o.schedule]
    schedule = make(stages if o.schedule in TWO_STAGES else stages[0], o.microbatches, loss_fn=nn.functional.cross_entropy)
    parameters = [parameter for stage in stages for parameter in stage.submod.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, **torch_pipeline.FUSED)
    is_first, is_last = rank == 0, rank == ranks - 1
    seconds, losses = [], []
    for _ in range(o.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        parts = []
        schedule.step(*([inputs] if is_first else []), **({"target": targets, "losses": parts} if is_last else {}))
        optimizer.step()
        losses.append(float(sum(part.detach() for part in parts)) / o.microbatches)
        seconds.append(time.perf_counter() - start)
        faulthandler.dump_traceback_later(o.deadline, exit=True, file=sys.stderr)
    median = torch.tensor([statistics.median(seconds[o.warmup:])], dtype=torch.float64)
    dist.all_reduce(median, dist.ReduceOp.MAX)
    if is_last:
        print(json.dumps({"peer": "torch.distributed.pipelining", "schedule": o.schedule, "ranks": ranks,
                          "microbatches": o.microbatches, "step_ms": {"p50": median.item() * 1e3}, "losses": losses}),
              flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
