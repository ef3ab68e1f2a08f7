"""DeepSpeed's all-reduce through shared memory, the one with which it runs inference on CPUs: in place, float32, sum.

    python3 deepspeed_collectives.py build FOLDER                 compiles what pip has put into FOLDER
    lockstep run -n N -- python3 deepspeed_collectives.py FOLDER all_reduce BYTES...

Only the two source files of the all-reduce are compiled, not the rest of DeepSpeed, once for each version of PyTorch. Ranks
measure as in gloo_collectives.py, and Gloo carries what they say about it.
"""
import glob
import importlib.util
import os
import shutil
import sys

import gloo_collectives
import torch
import torch.distributed as dist
from torch.utils import cpp_extension

NAME = "deepspeed_shm_comm"
SEGMENT_BYTES = 66 << 20  # what DeepSpeed reserves for each rank


def folder_of(folder):
    return os.path.join(folder, "built", torch.__version__)


def build(folder):
    sources = os.path.join(folder, "deepspeed", "ops", "csrc", "cpu", "comm")
    built = folder_of(folder)
    if os.path.exists(built):
        return
    unfinished = f"{built}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    os.makedirs(unfinished)
    cpp_extension.load(NAME, [os.path.join(sources, file) for file in ("shm_interface.cpp", "shm.cpp")],
                       extra_cflags=["-O2", "-fopenmp"], build_directory=unfinished)
    os.rename(unfinished, built)


def load(folder):
    spec = importlib.util.spec_from_file_location(NAME, os.path.join(folder_of(folder), f"{NAME}.so"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def remove_segment(rank):
    """DeepSpeed never removes the name of its segment."""
    port = os.environ["MASTER_PORT"]
    for segment in glob.glob(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_*_{port}_{rank}"):
        os.unlink(segment)


def main():
    if sys.argv[1] == "build":
        build(sys.argv[2])
        return
    folder, op, sizes = sys.argv[1], sys.argv[2], [int(size) for size in sys.argv[3:]]
    if op != "all_reduce" or not sizes:
        sys.exit("usage: deepspeed_collectives.py FOLDER all_reduce BYTES...")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    space = os.statvfs("/dev/shm")
    if space.f_bavail * space.f_frsize < ranks * SEGMENT_BYTES:
        sys.exit(f"/dev/shm has less than {ranks} x {SEGMENT_BYTES} bytes free")
    dist.barrier()  # everyone has looked before anyone takes
    os.environ["LOCAL_SIZE"] = str(ranks)
    try:
        load(folder).initialize(ranks, rank)
        dist.barrier()  # everyone has mapped all segments
    finally:
        remove_segment(rank)
    gloo_collectives.measure("deepspeed", sizes, torch.ops.deepspeed.inference_all_reduce_)


if __name__ == "__main__":
    main()
