"""Fails when a page shows what `lockstep schedule` or `lockstep plan` printed, and today they print something else.

    python3 tests/printed.py LOCKSTEP ROOT      python3 tests/printed.py --update LOCKSTEP ROOT     writes what they print today

A block is indented by four spaces and begins with `$ lockstep schedule ...`, `$ lockstep plan ...` or `$ cat ...`. The commands of
a page run in one folder, so that a later one finds the files of an earlier one. A schedule that the reader writes is not there:
what `--verify` prints of it is left alone.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

COMMAND = re.compile(r"    \$ ((?:lockstep (?:schedule|plan)|cat) .*)")


def printed(lockstep, command, folder):
    """What the shell prints for this command, as indented lines; nothing when it needs a file of the reader's."""
    shell = re.sub(r"^lockstep", str(lockstep), command)
    done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          cwd=folder)
    file = re.search(r"--verify (\S+)|^cat (\S+)", command)
    if file and not (pathlib.Path(folder) / (file[1] or file[2])).exists():
        return None
    if done.returncode not in (0, 3):  # 3: the schedule can't run, which a page may show
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return [f"    {line}".rstrip() for line in done.stdout.rstrip("\n").split("\n")] if done.stdout else []


def fresh(lockstep, lines, folder):
    """The lines of a page with today's output; the commands whose output differs."""
    made, old, at = [], [], 0
    while at < len(lines):
        match = COMMAND.fullmatch(lines[at])
        made.append(lines[at])
        at += 1
        if not match:
            continue
        end = at
        while end < len(lines) and (lines[end].startswith("    ") or not lines[end]) and not lines[end].startswith("    $ "):
            end += 1
        while end > at and not lines[end - 1]:
            end -= 1
        now = printed(lockstep, match[1], folder)
        if now is None:
            continue
        if [line.rstrip() for line in lines[at:end]] != now:
            old.append(match[1])
        made += now
        at = end
    return made, old


def main():
    update, lockstep, root = sys.argv[1] == "--update", pathlib.Path(sys.argv[-2]).resolve(), pathlib.Path(sys.argv[-1])
    wrong = 0
    for page in sorted(root.glob("docs/*.md")):
        lines = page.read_text().split("\n")
        with tempfile.TemporaryDirectory() as folder:
            made, old = fresh(lockstep, lines, folder)
        for command in old:
            print(f"{page.relative_to(root)}: `{command}` prints something else today; try: tests/printed.py --update")
        wrong += len(old)
        if update and old:
            page.write_text("\n".join(made))
    print(f"{wrong} blocks are old")
    sys.exit(1 if wrong and not update else 0)


main()
