"""1F1B over torch.distributed with Gloo, in Python, on the MLP that `lockstep train` trains: the peer of a pipeline's step.

    lockstep run -n N -- python3 torch_pipeline.py [--dim 128] [--depth 16] [--batch 32] [--microbatches 8] ...

Started once a stage with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, by `lockstep run` or anything else. Each rank keeps
its layers only. A step runs from zero_grad to the end of the optimizer; the figure is the median on the slowest rank, after the
warm-up. The last rank, which has the losses, prints one JSON line.

Written as somebody would who knows torch.distributed: buffers are made once, tags tell microbatches apart, and gradients travel
in the activations' shape. There are three ways to pass messages, from the one that most people write to the one that does best:

    --messages paired   send and receive together where the schedule turns round, and wait for both
    --messages late     nothing waits for a send; a receive is posted where it is needed
    --messages ahead    all receives of a step are posted before it begins, so that Gloo takes in what comes meanwhile

Plain send() and recv() in 1F1B's order would deadlock: Gloo's send ends when the receiver is in its receive.
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

# An experienced user asks for the fused optimizer, which updates all parameters in one call. On the CPU it came with 2.4.
FUSED = {"fused": True} if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) else {}


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50, help="with the warm-up")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--messages", choices=("paired", "late", "ahead"), default="ahead")
    return parser.parse_args()


def layers_of(o):
    """The whole network, drawn in its order, so that every rank and a single process start from the same weights."""
    hidden = [nn.Sequential(nn.Linear(o.dim, o.dim), nn.ReLU()) for _ in range(o.depth)]
    return [*hidden, nn.Linear(o.dim, 2)]


def part_of(layers, rank, ranks):
    """Hidden layers in equal parts; the last one, which is next to nothing, stays with the last of them."""
    depth = len(layers) - 1
    end = (rank + 1) * depth // ranks + (rank == ranks - 1)
    return nn.Sequential(*layers[rank * depth // ranks:end])


class Pipeline:
    """One rank's stage. Rank r talks to r-1 (activations in, gradients out) and r+1 (the other way round)."""

    def __init__(self, o, inputs, targets, model):
        self.o, self.rank, self.ranks = o, dist.get_rank(), dist.get_world_size()
        self.first, self.last = self.rank == 0, self.rank == self.ranks - 1
        self.model = model
        self.inputs, self.targets = inputs.chunk(o.microbatches), targets.chunk(o.microbatches)
        self.activations = [torch.empty(len(chunk), o.dim) for chunk in self.inputs]
        self.gradients = [torch.empty(len(chunk), o.dim) for chunk in self.inputs]

    def step(self):
        """Forward and backward of all microbatches; gives the batch's mean loss on the last rank."""
        count = self.o.microbatches
        self.kept, self.sends, self.receives, self.loss = {}, [], {}, 0.0
        if self.o.messages == "ahead":
            for m in range(count):
                self.post("activation", m)
            for m in range(count):
                self.post("gradient", m)
        warmup = min(self.ranks - self.rank - 1, count)
        for m in range(warmup):
            self.forward(m)
            self.settle()
        for m in range(count - warmup):
            self.forward(warmup + m)
            self.settle(("gradient", m))
            self.backward(m)
            more = warmup + m + 1 < count
            self.settle(("activation", warmup + m + 1) if more else None)
        for m in range(count - warmup, count):
            self.backward(m)
            self.settle()
        for work, _ in self.sends:
            work.wait()
        return float(self.loss)

    def post(self, what, m):
        """Begins a receive, unless it is under way or nobody sends."""
        if (what, m) in self.receives or (self.first if what == "activation" else self.last):
            return
        buffer, peer = (self.activations[m], self.rank - 1) if what == "activation" else (self.gradients[m], self.rank + 1)
        self.receives[what, m] = dist.irecv(buffer, peer, tag=m)

    def receive(self, what, m):
        self.post(what, m)
        self.receives[what, m].wait()

    def send(self, tensor, peer, m):
        self.sends.append((dist.isend(tensor, peer, tag=m), tensor))  # the tensor must outlive the message

    def settle(self, receive=None):
        """Paired: waits for what was just sent, and at the same time for the receive that comes next."""
        if self.o.messages != "paired":
            return
        if receive:
            self.post(*receive)
        for work, _ in self.sends:
            work.wait()
        self.sends.clear()

    def forward(self, m):
        if self.first:
            leaf = self.inputs[m]
        else:
            self.receive("activation", m)
            # A new tensor over the same memory: no gradient of the step before.
            leaf = self.activations[m].detach().requires_grad_()
        output = self.model(leaf)
        if self.last:
            share = len(self.targets[m]) / self.o.batch
            output = nn.functional.cross_entropy(output, self.targets[m]) * share
            self.loss += output.detach()
        else:
            self.send(output.detach(), self.rank + 1, m)
        self.kept[m] = leaf, output

    def backward(self, m):
        leaf, output = self.kept.pop(m)
        if self.last:
            output.backward()
        else:
            self.receive("gradient", m)
            output.backward(self.gradients[m])
        if not self.first:
            self.send(leaf.grad, self.rank - 1, m)


def main():
    o = options()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    layers = layers_of(o)
    inputs, targets = torch.randn(o.batch, o.dim), torch.randint(0, 2, (o.batch,))
    model = part_of(layers, rank, ranks)
    del layers
    pipeline = Pipeline(o, inputs, targets, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **FUSED)
    seconds, losses = [], []
    for _ in range(o.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        losses.append(pipeline.step())
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    median = torch.tensor([statistics.median(seconds[o.warmup:])], dtype=torch.float64)
    dist.all_reduce(median, dist.ReduceOp.MAX)
    if rank == ranks - 1:
        print(json.dumps({"peer": "torch", "schedule": "1f1b", "messages": o.messages, "ranks": ranks,
                          "microbatches": o.microbatches, "step_ms": {"p50": median.item() * 1e3}, "losses": losses}),
              flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
