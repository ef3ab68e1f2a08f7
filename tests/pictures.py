"""Fails when a picture in docs/pictures differs from what the program draws today.

    python3 tests/pictures.py LOCKSTEP ROOT          python3 tests/pictures.py --update LOCKSTEP ROOT     draws them again

A picture's name is OP_ALGORITHM.svg, for 4 ranks, or OP_ALGORITHM_RANKS.svg.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

OPS = "all_reduce|reduce_scatter|all_gather|broadcast|scatter|gather|reduce"


def main():
    update, (lockstep, root) = sys.argv[1] == "--update", sys.argv[-2:]
    pictures = sorted((pathlib.Path(root) / "docs/pictures").glob("*.svg"))
    old = 0
    for picture in pictures:
        op, algorithm, ranks = re.fullmatch(rf"({OPS})_([a-z_]+?)(?:_(\d+))?", picture.stem).groups()
        with tempfile.TemporaryDirectory() as folder:
            fresh = pathlib.Path(folder) / "fresh.svg"
            subprocess.run([lockstep, "plan", op, algorithm, "-n", ranks or "4", "--svg", fresh], check=True,
                           stdout=subprocess.DEVNULL)
            if fresh.read_text() == picture.read_text():
                continue
            old += 1
            print(f"{picture.name} is old; try: python3 tests/pictures.py --update {lockstep} {root}")
            if update:
                picture.write_text(fresh.read_text())
    print(f"{len(pictures)} pictures, {old} of them old")
    sys.exit(1 if (old and not update) or not pictures else 0)


main()
