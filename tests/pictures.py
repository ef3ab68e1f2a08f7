"""Fails when a picture in docs/pictures differs from what the program draws today, or is missing though a page shows it.

    python3 tests/pictures.py LOCKSTEP ROOT          python3 tests/pictures.py --update LOCKSTEP ROOT     draws them again

A picture's name says what draws it:
    OP_ALGORITHM.svg                         lockstep plan, for 4 ranks; with _5 after it for 5
    schedule_NAME_STAGESxMICROBATCHES.svg    lockstep schedule; with _v3 after it --virtual-stages 3, with _t10-12-8
                                             --times 10,12,8
layers.svg is drawn by hand.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

BY_HAND = {"layers"}
OPS = "all_reduce|reduce_scatter|all_gather|broadcast|scatter|gather|reduce"
PLAN = re.compile(rf"({OPS})_([a-z_]+?)(?:_(\d+))?")
SCHEDULE = re.compile(r"schedule_([a-z0-9-]+)_(\d+)x(\d+)(?:_v(\d+))?(?:_t([\d.]+-[\d.]+-[\d.]+))?")


def command(name):
    """What draws the picture `name`, without the program and --svg."""
    if match := PLAN.fullmatch(name):
        op, algorithm, ranks = match.groups()
        return ["plan", op, algorithm, "-n", ranks or "4"]
    if match := SCHEDULE.fullmatch(name):
        schedule, stages, microbatches, virtual, times = match.groups()
        words = ["schedule", schedule, "--stages", stages, "--microbatches", microbatches]
        if virtual:
            words += ["--virtual-stages", virtual]
        if times:
            words += ["--times", times.replace("-", ",")]
        return words
    sys.exit(f"{name}.svg: no command draws a picture of this name; tests/pictures.py says which names there are")


def shown(root):
    """The pictures that pages show, and one page for each."""
    pages = sorted(page for page in root.rglob("*.md") if "build" not in page.relative_to(root).parts)
    return {name: page.relative_to(root)
            for page in pages for name in re.findall(r"pictures/([\w.-]+)\.svg", page.read_text())}


def main():
    update, lockstep, root = sys.argv[1] == "--update", sys.argv[-2], pathlib.Path(sys.argv[-1])
    folder = root / "docs/pictures"
    pages = shown(root)
    names = sorted(({picture.stem for picture in folder.glob("*.svg")} | set(pages)) - BY_HAND)
    old = 0
    for name in names:
        picture = folder / f"{name}.svg"
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch) / "fresh.svg"
            subprocess.run([lockstep, *command(name), "--svg", file], check=True, stdout=subprocess.DEVNULL)
            fresh = file.read_text()
        if picture.exists() and picture.read_text() == fresh:
            continue
        old += 1
        what = "is old" if picture.exists() else f"is missing, and {pages[name]} shows it"
        print(f"{picture.name} {what}; try: python3 tests/pictures.py --update {lockstep} {root}")
        if update:
            picture.write_text(fresh)
    print(f"{len(names)} pictures, {old} of them old or missing")
    sys.exit(1 if (old and not update) or not names else 0)


main()
