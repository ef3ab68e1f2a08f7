"""PyTorch's own DistributedDataParallel on Gloo: rank 0 prints the mean losses over all samples as JSON.

    lockstep run -n 2 -- python3 ddp.py [the flags of single.py]
"""
import json
import os

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch  # noqa: E402: after the variable that it reads
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import single  # noqa: E402


def main():
    o = single.options()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model, inputs, targets = single.draw(o)
    rows = slice(rank * o.batch // ranks, (rank + 1) * o.batch // ranks)
    ddp = DistributedDataParallel(model)
    optimizer = single.OPTIMIZERS[o.optimizer](ddp.parameters(), lr=o.lr)
    losses = []
    for _ in range(o.steps):
        optimizer.zero_grad()
        loss = single.mean_loss(ddp(inputs[rows]), targets[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean)
    if rank == 0:
        print(json.dumps({"losses": (mean / ranks).tolist()}), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
