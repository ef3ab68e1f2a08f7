"""Gloo's all-reduce as PyTorch users get it: in place, float32, sum, one hot tensor, over loopback TCP.

    lockstep run -n N -- python3 gloo_collectives.py all_reduce BYTES...

Started once a rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, by `lockstep run` or anything else. A figure is
the time of a tight loop on the slowest rank, divided by the calls. Rank 0 prints one JSON line a size.
"""
import json
import os
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch  # noqa: E402: after the variable that it reads
import torch.distributed as dist  # noqa: E402

TRUSTED_S, TIMED_S = 0.02, 0.3  # as in p2p_measure.h


def from_rank_0(value):
    tensor = torch.tensor([float(value)])
    dist.broadcast(tensor, 0)
    return int(tensor.item())


def seconds_per_call(call):
    """Loops double until one is long enough to trust; then one of about 0.3 s is timed as a whole."""

    def timed(count):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - start

    timed(2)
    count = 1
    loop = timed(count)
    while from_rank_0(loop < TRUSTED_S):
        count *= 2
        loop = timed(count)
    count = from_rank_0(max(3, TIMED_S / loop * count))
    mine = torch.tensor([timed(count) / count], dtype=torch.float64)
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return mine.item()


def check(tensor, all_reduce):
    """One call on numbers that tell the rank; leaves zeros."""
    tensor.copy_(torch.arange(tensor.numel()) % 1009 * (dist.get_rank() + 1))
    all_reduce(tensor)
    ranks = dist.get_world_size()
    if not torch.equal(tensor, (torch.arange(tensor.numel()) % 1009 * (ranks * (ranks + 1) // 2)).float()):
        raise RuntimeError(f"rank {dist.get_rank()}: the all-reduce of {tensor.numel()} elements is wrong")
    tensor.zero_()


def measure(peer, sizes, all_reduce):
    """Rank 0 prints a line per size. `all_reduce` is any function that does it in place."""
    for size in sizes:
        tensor = torch.zeros(size // 4)
        check(tensor, all_reduce)
        seconds = seconds_per_call(lambda: all_reduce(tensor))
        if dist.get_rank() == 0:
            print(json.dumps({"peer": peer, "op": "all_reduce", "ranks": dist.get_world_size(), "bytes": size,
                              "us": seconds * 1e6}), flush=True)
    dist.barrier()


def main():
    op, sizes = sys.argv[1], [int(size) for size in sys.argv[2:]]
    if op != "all_reduce" or not sizes:
        sys.exit("usage: gloo_collectives.py all_reduce BYTES...")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    measure("gloo", sizes, dist.all_reduce)


if __name__ == "__main__":
    main()
