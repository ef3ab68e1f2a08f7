"""Starts a measuring program, bounds its time, reads its result lines, and leaves no process behind."""
import collections
import json
import os
import re
import signal
import subprocess
from pathlib import Path

TIMEOUT_S, GRACE_S = 60, 5


def run(command, timeout=TIMEOUT_S):
    """The JSON lines that a command prints, as dicts. Raises RuntimeError if it fails or does not end in time."""
    command = [str(part) for part in command]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no end after {timeout} s: {' '.join(command)}") from None
    finally:  # also when the user presses Ctrl-C
        if process.returncode is None:
            stop(process)
    if process.returncode != 0:
        raise RuntimeError(f"exit code {process.returncode}: {' '.join(command)}\n{(err or out).strip()[-800:]}")
    lines = (re.sub(r"^\[rank \d+\] ?", "", line) for line in out.splitlines())  # `lockstep run` adds the prefix
    return [json.loads(line) for line in lines if line.startswith("{")]


def stop(process):
    """Ends a launcher and its ranks. Launchers put ranks in groups and sessions of their own, so killing one group is
    not enough. The launcher is asked first, for it knows its ranks; then all that is left of the family is killed."""
    before = family(process.pid)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    now = all_processes()
    for pid, start in before.items():
        if pid in now and now[pid].start == start:  # the same process, not a new one with its number
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    process.wait()


Process = collections.namedtuple("Process", "parent session start")


def all_processes():
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()  # what follows the name, which may hold anything
        except OSError:
            continue  # it ended meanwhile
        found[int(stat.parent.name)] = Process(int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def family(root):
    """{pid: start time} of what descends from `root` or lives in its session."""
    processes = all_processes()
    members = {pid for pid, p in processes.items() if pid == root or p.session == root}
    size = 0
    while size != len(members):
        size = len(members)
        members |= {pid for pid, p in processes.items() if p.parent in members}
    return {pid: processes[pid].start for pid in members}
