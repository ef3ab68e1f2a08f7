"""DeepSpeed's all-reduce through shared memory, the one with which it runs inference on CPUs: in place, float32, sum.

    python3 deepspeed_collectives.py build FOLDER                 compiles what pip has put into FOLDER, once
    lockstep run -n N -- python3 deepspeed_collectives.py FOLDER all_reduce BYTES...

Only the two source files of the all-reduce are compiled, not the rest of DeepSpeed. Ranks measure as in gloo_collectives.py,
and Gloo carries what they say about it.
"""
import glob
import os
import sys

import gloo_collectives
import torch
import torch.distributed as dist
from torch.utils import cpp_extension

NAME = "deepspeed_shm_comm"


def load(folder):
    sources = os.path.join(folder, "deepspeed", "ops", "csrc", "cpu", "comm")
    built = os.path.join(folder, "built")
    os.makedirs(built, exist_ok=True)
    return cpp_extension.load(NAME, [os.path.join(sources, file) for file in ("shm_interface.cpp", "shm.cpp")],
                              extra_cflags=["-O2", "-fopenmp"], build_directory=built)


def main():
    if sys.argv[1] == "build":
        load(sys.argv[2])
        return
    folder, op, sizes = sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3:]]
    if op != "all_reduce" or not sizes:
        sys.exit("usage: deepspeed_collectives.py FOLDER all_reduce BYTES...")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    os.environ["LOCAL_SIZE"] = str(ranks)
    load(folder).initialize(ranks, rank)
    dist.barrier()
    if rank == 0:  # all ranks have mapped the segments, and DeepSpeed never removes their names
        port = os.environ["MASTER_PORT"]
        for segment in glob.glob(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_*_{port}_*"):
            os.unlink(segment)
    gloo_collectives.measure("deepspeed", sizes, torch.ops.deepspeed.inference_all_reduce_)


if __name__ == "__main__":
    main()
