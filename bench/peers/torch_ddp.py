"""PyTorch's DistributedDataParallel on Gloo, on the models that `lockstep train` trains: the peer of a training step.

    lockstep run -n N -- python3 torch_ddp.py [--mode ddp|naive|single] [--model mlp|cnn] [--dim 128] [--batch 32] ...

Started once a rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, by `lockstep run` or anything else. `--batch` is
that of all ranks together. A step runs from zero_grad to the end of the optimizer; the figure is the median on the slowest
rank, after the warm-up. Rank 0 prints one JSON line.
"""
import argparse
import json
import os
import statistics
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch  # noqa: E402: after the variable that it reads
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

SIDE, CLASSES = 28, 10
# An experienced user asks for the fused optimizer, which updates all parameters in one call. On the CPU it came with 2.4.
FUSED = {"fused": True} if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) else {}


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("single", "naive", "ddp"), default="ddp")
    parser.add_argument("--model", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--channels", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    return parser.parse_args()


def model_of(o):
    if o.model == "mlp":
        hidden = [layer for _ in range(o.depth) for layer in (nn.Linear(o.dim, o.dim), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(o.dim, 2))
    layers, before, side = [], 1, SIDE
    for count in o.channels:
        layers += [nn.Conv2d(before, count, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        before, side = count, side // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * side * side, o.hidden), nn.ReLU(),
                         nn.Linear(o.hidden, CLASSES))


def batch_of(o):
    if o.model == "mlp":
        return torch.randn(o.batch, o.dim), torch.randint(0, 2, (o.batch,))
    return torch.randn(o.batch, 1, SIDE, SIDE), torch.randint(0, CLASSES, (o.batch,))


def average_gradients(model, ranks):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= ranks


def seconds_of_steps(o, model, inputs, targets, ranks):
    """Every timed step's, and the last loss."""
    # Gradients as views of the buckets: DDP at its best.
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True) if o.mode == "ddp" else model
    make = torch.optim.Adam if o.optimizer == "adam" else torch.optim.SGD
    optimizer = make(model.parameters(), lr=1e-3, **FUSED)
    seconds = []
    for _ in range(o.warmup + o.steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(wrapped(inputs), targets)
        loss.backward()
        if o.mode == "naive":
            average_gradients(model, ranks)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds[o.warmup:], loss.item()


def main():
    o = options()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    rank, ranks = 0, 1
    if o.mode != "single":
        dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
    model = model_of(o)
    inputs, targets = batch_of(o)
    rows = slice(rank * o.batch // ranks, (rank + 1) * o.batch // ranks)
    seconds, loss = seconds_of_steps(o, model, inputs[rows], targets[rows], ranks)
    median = torch.tensor([statistics.median(seconds)], dtype=torch.float64)
    if ranks > 1:
        dist.all_reduce(median, dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"peer": "torch", "mode": o.mode, "model": o.model, "ranks": ranks,
                          "parameters": sum(p.numel() for p in model.parameters()), "step_ms": median.item() * 1e3,
                          "loss": loss}), flush=True)
    if ranks > 1:
        dist.barrier()


if __name__ == "__main__":
    main()
