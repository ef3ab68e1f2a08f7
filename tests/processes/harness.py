"""Starts real jobs, harms them, and checks that nothing of them is left.

    class MyTest(harness.TestCase):
        def test_something(self):
            job = self.start("run", "-n", "4", "--", "prog", env={"A": "b"})
            job.wait_for_line(r"ready")
            job.signal_rank(2, signal.SIGKILL)
            job.wait()
            self.assertEqual(job.code, 137)
            # at the end of every test: job.assert_nothing_left(), and whatever happened, all of the job is killed

A job's processes are known by a variable in their environment, so even those are found that left every group and session.
"""

import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCKSTEP = os.path.abspath(os.environ.get("LOCKSTEP_BIN") or ROOT / "build" / "release" / "lockstep")
SANITIZERS = os.environ.get("LOCKSTEP_SANITIZE", "")  # what LOCKSTEP was built with
PYTHON = sys.executable  # nothing but its own modules is needed


@functools.cache
def torch_python():
    """The interpreter that imports the very PyTorch that LOCKSTEP was built with: the oracle of the numbers. None without one."""
    try:
        chosen = json.loads(pathlib.Path(LOCKSTEP).with_name("torch.json").read_text())
    except OSError:
        return None
    if not chosen["python"]:
        return None
    look = "import torch.distributed; print('version', torch.__version__)"
    found = subprocess.run([chosen["python"], "-c", look], capture_output=True, text=True).stdout
    # Debian's library says 1.13.0, and its Python module 1.13.1.
    same = f"version {chosen['version'].rsplit('.', 1)[0]}." in found
    return chosen["python"] if same else None


NO_TORCH = "no Python imports the PyTorch that lockstep was built with"

MARK = "LOCKSTEP_TEST_MARK"
# What a launcher around the tests may have set, and would change what they see.
FOREIGN = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|OMP_NUM_THREADS"
                     r"|PYTHONUNBUFFERED|LOCKSTEP_.*)")


def proc_environ(pid):
    """The environment that a process was started with; empty when it is gone, a zombie, or not ours."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(pair.decode(errors="replace").split("=", 1) for pair in pairs if b"=" in pair)


def proc_stat(pid):
    """(state, parent's pid), or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shared_memory():
    try:
        return {name for name in os.listdir("/dev/shm") if "lockstep" in name}
    except OSError:
        return set()


def open_terminal():
    """(master, slave) of a new pseudo-terminal. Skips the test where there are none, as in many a chroot."""
    try:
        return os.openpty()
    except OSError as error:
        raise unittest.SkipTest(f"no pseudo-terminals here: {error}") from None


MOST_SLOWNESS = 3.0  # a machine that is busier than that is too busy for limits of time


def slowness():
    """How much longer it takes to compute now than on a machine that does nothing else: 1 then, 3 where a process gets a third
    of a core."""
    work = 0.05
    began, computed = time.monotonic(), time.thread_time()
    while time.thread_time() - computed < work:
        pass
    return min(max(1.0, (time.monotonic() - began) / work), MOST_SLOWNESS)


class Limit:
    """A limit of time for what a machine does that is not busy with anything else. On a busy machine, everything between two
    sleeps takes longer, so the limit is longer, too."""

    def __init__(self, seconds):
        self.seconds = seconds
        self._is_final = False

    def is_exceeded_by(self, seconds):
        if seconds > self.seconds and not self._is_final:
            self.seconds *= slowness()
            self._is_final = True
        return seconds > self.seconds


def wait_until(condition, timeout, what):
    """Polls until `condition()` is true and returns its value."""
    began, limit = time.monotonic(), Limit(timeout)
    while True:
        value = condition()
        if value:
            return value
        if limit.is_exceeded_by(time.monotonic() - began):
            raise AssertionError(f"not within {limit.seconds:.1f} s: {what}")
        time.sleep(0.01)


class Job:
    """One `lockstep` process and all that it starts.

    arguments  of `lockstep`, or with program=... of that program (mpirun, torchrun)
    env        variables on top of this process's; None removes one
    stdin      bytes, or None for /dev/null
    read       False: stdout and stderr are not read until wait() or read_output()
    """

    def __init__(self, arguments, env=None, timeout=30, stdin=None, program=LOCKSTEP, read=True, cwd=None):
        self.arguments = [program, *map(str, arguments)]
        self.timeout = timeout
        self.code = None
        self.store_port = None
        self.mark = uuid.uuid4().hex
        self.tmpdir = tempfile.mkdtemp(prefix="lockstep-test-")
        self._shm_before = shared_memory()
        environment = {name: value for name, value in os.environ.items() if not FOREIGN.fullmatch(name)}
        environment |= {MARK: self.mark, "TMPDIR": self.tmpdir}
        for name, value in (env or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = str(value)
        self._started = time.monotonic()
        try:
            self.process = subprocess.Popen(
                self.arguments, env=environment, cwd=cwd, preexec_fn=_default_signals,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        except OSError:
            os.rmdir(self.tmpdir)
            raise
        self._chunks = {"stdout": bytearray(), "stderr": bytearray()}
        self._news = threading.Condition()
        self._readers = []
        if stdin is not None:
            threading.Thread(target=self._write_stdin, args=(stdin,), daemon=True).start()
        if read:
            self.read_output()

    # What it says.

    @property
    def stdout(self):
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self):
        return self.stderr_bytes.decode(errors="replace")

    @property
    def stdout_bytes(self):
        with self._news:
            return bytes(self._chunks["stdout"])

    @property
    def stderr_bytes(self):
        with self._news:
            return bytes(self._chunks["stderr"])

    def read_output(self):
        if not self._readers:
            for name in self._chunks:
                thread = threading.Thread(target=self._read, args=(name,), daemon=True)
                thread.start()
                self._readers.append(thread)

    def wait_for_line(self, pattern, timeout=None, count=1):
        """Waits until `count` lines of stdout and stderr together match, and returns their match objects."""
        compiled = re.compile(pattern)

        def matches():
            self._note_store()
            # Looked at before the lines: whatever was said until then is among them.
            ended = self.process.poll() is not None and not any(reader.is_alive() for reader in self._readers)
            lines = (self.stdout + "\n" + self.stderr).splitlines()
            found = [match for match in map(compiled.search, lines) if match]
            if len(found) >= count:
                return found
            if ended:
                raise AssertionError(f"the job ended before it said {pattern!r}\n{self.describe()}")
            return None

        try:
            return wait_until(matches, timeout or self.timeout, f"{count} x {pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    # Who it is.

    @property
    def pid(self):
        return self.process.pid

    def pids(self, with_zombies=False):
        """Every live process of the job, the launcher and its helpers among them."""
        found = []
        for pid in all_pids():
            stat = proc_stat(pid)
            if stat and (with_zombies or stat[0] not in "ZX") and proc_environ(pid).get(MARK) == self.mark:
                found.append(pid)
        return found

    def pids_of_ranks(self, count=None):
        """{rank: pid} of the live ranks; with `count`, waits until there are so many."""

        def ranks():
            found = {}
            for pid in self.pids():
                stat = proc_stat(pid)
                environment = proc_environ(pid)
                if stat and stat[1] == self.pid and environment.get("LOCKSTEP_LAUNCHER") == str(self.pid):
                    found[int(environment["RANK"])] = pid
            return found

        if count is None:
            return ranks()
        found = {}

        def all_seen():
            # Kept from look to look: while a rank executes another program, its environment can't be read.
            found.update(ranks())
            return len(found) >= count

        wait_until(all_seen, self.timeout, f"{count} ranks")
        return found

    def descriptors(self):
        """What the launcher has open."""
        return [os.readlink(f"/proc/{self.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{self.pid}/fd")]

    # What happens to it.

    def signal(self, number):
        self.process.send_signal(number)

    def signal_rank(self, rank, number):
        os.kill(self.pids_of_ranks(rank + 1)[rank], number)

    def resume_stopped(self, rank, after):
        """Waits until that rank has stopped itself (SIGSTOP), and lets it go on `after` seconds later."""

        def stopped():
            if self.process.poll() is not None:
                raise AssertionError(f"the job ended before rank {rank} stopped\n{self.describe()}")
            pid = self.pids_of_ranks().get(rank)
            stat = proc_stat(pid) if pid else None
            return pid if stat and stat[0] == "T" else None

        pid = wait_until(stopped, self.timeout, f"rank {rank} stops")
        time.sleep(after)
        os.kill(pid, signal.SIGCONT)

    def close_stdout(self):
        """Nobody reads the job's stdout any more. Only with read=False."""
        self.process.stdout.close()

    def wait(self, timeout=None):
        """Waits until the launcher has ended and its output is read; sets code and seconds. Kills all on timeout."""
        self.read_output()
        began, limit = time.monotonic(), Limit(timeout or self.timeout)
        while self.process.poll() is None:
            self._note_store()
            if limit.is_exceeded_by(time.monotonic() - began):
                text = self.describe()
                self.kill()
                raise AssertionError(f"the job did not end within {limit.seconds:.1f} s\n{text}")
            time.sleep(0.005)
        self.code = self.process.returncode if self.process.returncode >= 0 else 128 - self.process.returncode
        self.seconds = time.monotonic() - self._started
        for reader in self._readers:
            reader.join(5)
            if reader.is_alive():
                raise AssertionError(f"somebody holds the job's output open after its end\n{self.describe()}")
        return self

    def kill(self):
        """Ends every process of the job, known by the mark. Safe to call at any time."""
        for _ in range(50):
            pids = self.pids()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not pids:
                break
            time.sleep(0.02)
        self.process.wait()

    def close(self):
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream and not any(reader.is_alive() for reader in self._readers):
                stream.close()
        shutil.rmtree(self.tmpdir, ignore_errors=True)

    def assert_nothing_left(self, within=2.0):
        """No process, port, temporary file or shared memory of the job."""
        began, limit = time.monotonic(), Limit(within)
        while True:
            left = self._leftovers()
            if not left:
                return
            if limit.is_exceeded_by(time.monotonic() - began):
                raise AssertionError(f"left behind {limit.seconds:.1f} s after the end: {left}\n{self.describe()}")
            time.sleep(0.02)

    def describe(self):
        """All about it, for a message."""
        return "\n".join([f"job: {self.arguments}", f"code: {self.process.poll()}",
                          "--- stdout", _tail(self.stdout), "--- stderr", _tail(self.stderr)])

    # Inside.

    def _leftovers(self):
        left = [f"process {pid} ({_command(pid)})" for pid in self.pids()]
        if self.store_port and listens(self.store_port):
            left.append(f"somebody listens on the store's port {self.store_port}")
        # PyTorch makes an empty folder for its compiler when DistributedDataParallel is imported.
        left += [f"file {os.path.join(self.tmpdir, name)}" for name in os.listdir(self.tmpdir)
                 if not name.startswith("torchinductor_")]
        left += [f"/dev/shm/{name}" for name in shared_memory() - self._shm_before]
        return left

    def _note_store(self):
        """Remembers the store's port as soon as a rank shows it."""
        if self.store_port is None:
            try:
                with open(f"/proc/{self.pid}/task/{self.pid}/children") as file:
                    children = file.read().split()
            except OSError:
                return
            for child in children:
                store = proc_environ(child).get("LOCKSTEP_STORE", "")
                if store.startswith("127.0.0.1:"):
                    self.store_port = int(store.rpartition(":")[2])

    def _read(self, name):
        stream = getattr(self.process, name)
        while not stream.closed:
            try:
                chunk = os.read(stream.fileno(), 1 << 16)
            except (OSError, ValueError):
                return
            if not chunk:
                return
            with self._news:
                self._chunks[name] += chunk

    def _write_stdin(self, text):
        try:
            self.process.stdin.write(text)
            self.process.stdin.close()
        except OSError:
            pass


def over(transport, **more):
    """The environment of ranks that talk over a transport, with deadlines that a test can wait for."""
    return {"LOCKSTEP_TRANSPORT": transport, "LOCKSTEP_TIMEOUT": "20", "LOCKSTEP_RENDEZVOUS_TIMEOUT": "20",
            "ASAN_OPTIONS": "handle_segv=0"} | more  # a sanitizer would turn the signal into an exit code


def both_transports(test):
    """Runs the test once over each transport."""

    @functools.wraps(test)
    def run(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                test(self, transport)

    return run


class TestCase(unittest.TestCase):
    """Starts jobs and, after each test, checks that nothing of them is left; cleans up whatever happened."""

    def start(self, *arguments, **options):
        job = Job(arguments, **options)
        self.addCleanup(job.close)
        # Cleanups run last in, first out: this check comes before the clean-up, and the clean-up in any case.
        self.addCleanup(self._check, job)
        return job

    def run_job(self, *arguments, **options):
        return self.start(*arguments, **options).wait()

    def assert_told(self, job, rank, pattern):
        """What a rank said, in one line of its stderr."""
        self.assertRegex(job.stderr, rf"(?m)^\[rank {rank}\].*{pattern}", job.describe())

    def assert_within(self, limit, seconds, message=None):
        """What took `seconds` may take `limit` seconds, or longer on a busy machine."""
        wanted = Limit(limit)
        if wanted.is_exceeded_by(seconds):
            self.fail(self._formatMessage(message, f"{seconds:.3f} s, and the limit is {wanted.seconds:.1f} s"))

    def assert_code(self, job, code):
        self.assertEqual(job.code, code, job.describe())

    def _check(self, job):
        if job.code is not None:
            job.assert_nothing_left()


def main():
    if not os.access(LOCKSTEP, os.X_OK):
        sys.exit(f"{LOCKSTEP} is not there; try: build it, or set LOCKSTEP_BIN")
    # --without=CLASS leaves a class out: ctest runs long ones on their own, so that they run beside the others.
    for argument in [argument for argument in sys.argv if argument.startswith("--without=")]:
        delattr(sys.modules["__main__"], argument.partition("=")[2])
        sys.argv.remove(argument)
    unittest.main()


def _default_signals():
    # A shell's background job ignores these, and its children would too.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _tail(text, limit=4000):
    return text if len(text) <= limit else "...\n" + text[-limit:]


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"
