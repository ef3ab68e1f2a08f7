"""Prints the settings under which the tests that compare what libtorch computes run again, as on other processors.

    python3 tests/kernels.py build/release/torch.json [--one]

Each line is one or more NAME=VALUE for the environment, or `skip:` and why this processor can't run that kernel. Different
kernels add in a different order, so a test that passes with all of them does not depend on the last digits of one.
--one: only the first, the oldest kind of processor, for CI.
"""
import json
import sys

# For each setting, what a processor needs for it (as /proc/cpuinfo names it).
OPENBLAS = {"OPENBLAS_CORETYPE=Nehalem": "sse4_2", "OPENBLAS_CORETYPE=Haswell": "avx2", "OPENBLAS_CORETYPE=Zen": "avx2",
            "OPENBLAS_CORETYPE=SkylakeX": "avx512bw"}
# A wheel computes with ATen's own loops, MKL's matrix products and oneDNN's convolutions; each has a switch of its own, and
# a processor of a kind chooses alike for all three.
WHEEL = {"ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41": "sse4_1",
         "ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2": "avx2",
         "ATEN_CPU_CAPABILITY=avx512 MKL_CBWR=AVX512 ONEDNN_MAX_CPU_ISA=AVX512_CORE": "avx512bw"}


def main():
    with open(sys.argv[1]) as file:
        kind = "debian" if json.load(file)["source"] == "debian" else "wheel"
    with open("/proc/cpuinfo") as file:
        features = file.read().split()
    settings = list((OPENBLAS if kind == "debian" else WHEEL).items())
    for setting, needed in settings[:1] if "--one" in sys.argv else settings:
        print(setting if not needed or needed in features else f"skip:{setting} needs {needed}, which this processor lacks")


if __name__ == "__main__":
    main()
