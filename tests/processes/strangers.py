"""Strangers that flood the doors of a job: connections that no rank made, opened and dropped in every way.

    flood = strangers.Flood(manners=("silent", "reset"), processes=2, most=10_000)
    with flood.on(self.start("run", ...)) as job:       # its processes are ready before the job starts
        job.wait()
    flood.made          {"store": 4711, "data": 12, "shm": 3}: connections by kind of door

A flood finds every socket on which a process of the job listens, as soon as it listens, and connects to nothing else. It
ends with its `with` block or after `seconds`, and makes at most `most` connections to each kind of door: what it spends on the
store, which opens first, does not keep it from the others. The connections are made by processes of their own, which may
belong to another user (`user=65534`, only for root).
"""

import collections
import os
import re
import subprocess
import sys
import threading
import time

MANNERS = ("close", "reset", "silent", "garbage", "half")

# What an attacking process runs. It has no imports of ours, so that another user who can't read this folder can run it.
# Lines on stdin are targets: KIND tcp HOST PORT, KIND unix NAME, or KIND gone ADDRESS.
ATTACKER = r'''
import os, resource, selectors, socket, struct, sys, time
manners, most, seconds = sys.argv[1].split(","), int(sys.argv[2]), float(sys.argv[3])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
os.set_blocking(0, False)
targets, made, held, number, rest = {}, {}, [], 0, b""
end = time.monotonic() + seconds
TEXT = {"garbage": b"GET / HTTP/1.1\r\n\r\n" + b"\xff" * 300, "half": b"LOCKSTP1" + b"h" * 40}

def attack(kind, target, manner):
    s = socket.socket(socket.AF_UNIX if target[0] == "unix" else socket.AF_INET6 if ":" in target[1] else socket.AF_INET)
    s.settimeout(0.2)
    try:
        s.connect("\0" + target[1][1:] if target[0] == "unix" else (target[1], int(target[2])))
        made[kind] = made.get(kind, 0) + 1
        if manner in TEXT:
            s.send(TEXT[manner])
        if manner == "reset":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        s.close()
        return
    if manner in ("close", "reset"):
        s.close()
    else:
        held.append(s)
        if len(held) > 700:
            held.pop(0).close()

print("ready", flush=True)
while time.monotonic() < end:
    try:
        piece = os.read(0, 65536)
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            kind, *target = line.decode().split(" ")
            if target[0] == "gone":
                targets.pop(target[1], None)
            else:
                targets[target[-1]] = (kind, target)
    except BlockingIOError:
        pass
    open_doors = [(kind, target) for kind, target in targets.values() if made.get(kind, 0) < most]
    if not open_doors:
        time.sleep(0.0005)
        continue
    for kind, target in open_doors:
        attack(kind, target, manners[number % len(manners)])
        number += 1
print(" ".join(f"{kind}={count}" for kind, count in made.items()))
'''


def listening():
    """{inode: (family, address)} of every listening socket of this network namespace."""
    found = {}
    for path, host in (("/proc/net/tcp", "127.0.0.1"), ("/proc/net/tcp6", "::1")):
        try:
            with open(path) as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A":
                found[fields[9]] = ("tcp", f"{host} {int(fields[1].rpartition(':')[2], 16)}")
    with open("/proc/net/unix") as file:
        for line in file.read().splitlines()[1:]:
            fields = line.split()
            if len(fields) == 8 and int(fields[3], 16) & 0x10000 and fields[7].startswith("@"):
                found[fields[6]] = ("unix", fields[7])
    return found


def sockets_of(pid):
    """The inodes of a process's sockets."""
    inodes = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
            if match:
                inodes.add(match[1])
    except OSError:
        pass
    return inodes


def family_of(pid):
    """A process and its descendants."""
    found = [pid]
    for parent in found:
        try:
            with open(f"/proc/{parent}/task/{parent}/children") as file:
                found += map(int, file.read().split())
        except OSError:
            pass
    return found


class Flood:
    """See the top of this file. store_only=True leaves the doors of ranks alone."""

    def __init__(self, manners=MANNERS, processes=1, most=10_000, seconds=30, user=None, store_only=False):
        self.job, self.store_only = None, store_only
        self.made = collections.Counter()
        as_user = ["setpriv", "--reuid", str(user), "--clear-groups"] if user is not None else []
        command = [*as_user, sys.executable, "-c", ATTACKER, ",".join(manners), str(most // processes), str(seconds)]
        self.attackers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
                          for _ in range(processes)]
        for attacker in self.attackers:
            assert attacker.stdout.readline() == "ready\n", "an attacking process did not start"
        self._known = {}
        self._stop = threading.Event()
        self._scout = threading.Thread(target=self._look_for_doors, daemon=True)

    def on(self, job):
        """The harness.Job to attack."""
        self.job = job
        return self

    def __enter__(self):
        self._scout.start()
        return self.job

    def __exit__(self, *_):
        self._stop.set()
        self._scout.join()
        for attacker in self.attackers:
            try:
                attacker.stdin.close()  # it ends when nobody tells it of targets any more
            except OSError:
                pass
        for attacker in self.attackers:
            try:
                attacker.wait(10)
            except subprocess.TimeoutExpired:
                attacker.kill()
                attacker.wait()
            for pair in attacker.stdout.read().split():
                kind, _, count = pair.partition("=")
                self.made[kind] += int(count)
            attacker.stdout.close()

    def wait_for(self, kind, timeout=20):
        """Waits until there is a door of this kind to attack."""
        end = time.monotonic() + timeout
        while not any(known[0] == kind for known in list(self._known.values())):
            if time.monotonic() > end:
                raise AssertionError(f"no {kind} to attack within {timeout} s")
            time.sleep(0.005)

    def _look_for_doors(self):
        while not self._stop.is_set():
            doors = listening()
            mine = {}
            for pid in family_of(self.job.pid):
                for inode in sockets_of(pid) & doors.keys():
                    family, address = doors[inode]
                    kind = "store" if pid == self.job.pid else "shm" if "lockstep-shm" in address else "data"
                    if kind == "store" or not self.store_only:
                        # The launcher comes first. Between fork and exec a rank has its sockets, too.
                        mine.setdefault(inode, (kind, family, address))
            for inode in self._known.keys() - mine.keys():
                kind, _, address = self._known.pop(inode)
                self._tell(f"{kind} gone {address.split()[-1]}")
            for inode in mine.keys() - self._known.keys():
                self._known[inode] = mine[inode]
                self._tell(" ".join(mine[inode]))
            self._stop.wait(0.002)

    def _tell(self, line):
        for attacker in self.attackers:
            try:
                attacker.stdin.write(line + "\n")
                attacker.stdin.flush()
            except (OSError, ValueError):
                pass  # it has made all its connections
