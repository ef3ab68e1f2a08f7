"""Two hosts on one machine: network namespaces that are joined by a link with a limited rate. Needs root.

    with hosts.Hosts("1gbit") as two:
        two.run(lambda rank: [lockstep, "train", ...])

What it makes goes when the `with` block is left, whatever happened.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid

import processes


def why_missing():
    """None if namespaces can be made here, else the reason."""
    if os.getuid() != 0:
        return "not installed (network namespaces need root)"
    for program in ("ip", "tc"):
        if not shutil.which(program):
            return f"not installed (apt install iproute2, for {program})"
    allowed = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True)
    return f"not installed (this root may make no network namespaces: {allowed.stderr.strip()})" if allowed.returncode else None


class Hosts:
    """Two namespaces. The link lets through `rate` in each direction, for instance "1gbit"."""

    ADDRESSES = ("10.93.7.1", "10.93.7.2")

    def __init__(self, rate):
        self.rate = rate
        self.names = [f"lockstep-{os.getpid()}-{rank}" for rank in range(2)]

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that __exit__ runs then, too
        try:
            for name in self.names:
                ip("netns", "add", name)
            ends = [f"ls{os.getpid()}{end}" for end in "ab"]
            ip("link", "add", ends[0], "netns", self.names[0], "type", "veth", "peer", "name", ends[1], "netns", self.names[1])
            for name, end, address in zip(self.names, ends, self.ADDRESSES):
                ip("-n", name, "address", "add", f"{address}/24", "dev", end)
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", end, "up")
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", end, "root", "tbf", "rate", self.rate, "burst", "256kb",
                                "latency", "50ms"], check=True)
            self.folder = tempfile.mkdtemp(prefix="lockstep-hosts-")
            self.secret = os.path.join(self.folder, "secret")
            with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(uuid.uuid4().hex)
            self.port = 29500
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:  # a veth pair goes with its namespaces
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    def command(self, words):
        """Runs `words` as rank 0 and rank 1, one on each host. A port may still be busy from the run before."""
        self.port += 1
        ranks = []
        for rank, (name, address) in enumerate(zip(self.names, self.ADDRESSES)):
            environment = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "OMP_NUM_THREADS": 1,
                           "LOCKSTEP_STORE": f"{self.ADDRESSES[0]}:{self.port}", "LOCKSTEP_SECRET_FILE": self.secret,
                           "LOCKSTEP_TCP_ADDRESS": f"{address}:0"}
            ranks.append(" ".join(["ip", "netns", "exec", name, "env", *(f"{k}={v}" for k, v in environment.items()),
                                   *map(str, words)]))
        return ["bash", "-c", f"{ranks[1]} >/dev/null & other=$!; {ranks[0]} && wait $other"]

    def run(self, words, timeout=processes.TIMEOUT_S):
        return processes.run(self.command(words), timeout)


def ip(*words):
    subprocess.run(["ip", *words], check=True)
