"""Attacks on a job by somebody who has read its source: at its doors, from another account, from inside, and by files.

LOCKSTEP_DOOR_TESTS=1 (./dev soak door) draws more pairs of calls that disagree, and floods for longer. A test that is
marked as an expected failure is a defect that is known; its comment says what a person sees today."""

import contextlib
import gzip
import json
import os
import re
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import harness
import impostor
import strangers
from harness import over
from test_door import OTHER_USER, RANK, TESTS, COLLECTIVE, digests, require_another_user

HAS_TORCH = os.path.exists(harness.LOCKSTEP + "-torch")
LONG = os.environ.get("LOCKSTEP_DOOR_TESTS") == "1"
DISAGREE = os.path.join(TESTS, "disagree_under_test")
IMPOSTOR = os.path.abspath(impostor.__file__)
SECRET = "attack-" + "s" * 57
MOST_MEMORY = 4 << 30  # bytes of addresses; libtorch alone takes one and a half
MOST_TEXT = 2000       # letters of an error that a person should read


class Impostors(harness.TestCase):
    """Rank 1 of a job is a script that knows the secret (impostor.py); rank 0 is a real one."""

    def job(self, *orders):
        return self.start("run", "-n", 2, "--grace", 1, "--", harness.PYTHON, "-B", IMPOSTOR, *orders, RANK,
                          env=over("tcp")).wait()

    def assert_said(self, job, answers):
        for attack, answer in answers.items():
            self.assertRegex(job.stdout, rf"(?m)^\[rank 1\] {attack} {answer}", job.describe())

    def test_introductions_that_are_not_believed(self):
        """At rank 0's data door, while it waits for rank 1. The job then runs to its end."""
        job = self.job("doors")
        self.assert_code(job, 0)
        self.assert_said(job, {
            "wrong secret": "False its secret differs$", "no secret": "False its secret differs$",
            "wrong version": "False ", "wrong purpose": "False it wants the store, this is a data port$",
            "wrong rank": "False nobody waits for rank 0 of 2 here$",
            "negative rank": "False nobody waits for rank -2147483648 of 2 here$",
            "wrong world": "False nobody waits for rank 1 of 3 here$",
            "older start": "False it belongs to an older start$",
            "replay of the store's": "False ", "replay at the store": "False ", "nonce of another": "False ",
            "slow talkers": r"6 5\.\d$"})
        self.assertRegex(job.stdout, r"\[rank 0\] lap 5")
        # One warning for each kind, and never the secret.
        self.assertEqual(len(re.findall("rank 0 dropped", job.stderr)), 1, job.stderr)
        self.assertEqual(len(re.findall("gave a wrong proof of the secret", job.stderr)), 1, job.stderr)
        self.assertEqual(len(re.findall("did not introduce itself in time", job.stderr)), 1, job.stderr)

    def test_requests_that_the_store_does_not_serve(self):
        job = self.job("store")
        self.assert_code(job, 0)
        self.assert_said(job, dict.fromkeys(("huge key", "huge value", "both huge", "just too long", "unknown request",
                                             "request zero", "talks while it waits", "does not read"), "closed$"))
        self.assert_said(job, {"empty key": "4$", "negative wait": "3$", "rank out of range": "False there is no rank",
                               "a second rank 1": "False rank 1 is taken by another process"})
        self.assertRegex(job.stdout, r"\[rank 0\] lap 5")

    def test_frames_that_no_rank_sends(self):
        """Rank 0 stops at once: no memory is taken, nothing hangs, nothing crashes."""
        for kind, told in (("no-memory", "no memory for a message of 32.0 TiB .* from rank 1, tag 5, that nobody has asked for yet"),
                           ("posted-too-long", "recv of 8 bytes from rank 1, tag 0: rank 1 sent 32.0 TiB"),
                           ("endless", "rank 1"), ("segment-above-total", "rank 1"), ("unknown-kind", "rank 1"),
                           ("garbage", "rank 1"), ("endless-failure", "rank 1"), ("failure-of-nobody", "words"),
                           ("failure-of-minus-one", "words"), ("mismatch-of-nobody", "words")):
            if kind == "no-memory" and harness.SANITIZERS:
                continue  # a sanitizer ends a process that asks for so much
            with self.subTest(kind=kind):
                job = self.job("frame", kind)
                self.assert_code(job, 1)
                self.assert_within(5, job.seconds)
                self.assert_told(job, 0, told)

    def test_a_rank_that_sends_nonsense_is_not_called_dead(self):
        job = self.job("frame", "unknown-kind")
        self.assert_told(job, 0, "rank 1.* sent a frame that makes no sense")
        self.assertNotRegex(job.stderr, r"status unknown")

    def test_the_words_of_a_failing_rank_do_not_move_the_cursor(self):
        job = self.job("frame", "failure-with-escapes")
        self.assert_code(job, 1)
        self.assertNotIn("\x1b", job.stderr)


class FalseStore(harness.TestCase):
    """A stranger listens where the store should be. A rank must neither believe it nor wait past its deadline."""

    @contextlib.contextmanager
    def listener(self, answer):
        """Calls answer(connection) for each caller, one after the other; yields the port."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            stop = threading.Event()

            def serve():
                while not stop.is_set():
                    try:
                        connection, _ = server.accept()
                        with connection, contextlib.suppress(OSError):
                            connection.settimeout(5)
                            answer(connection, stop)
                    except OSError:
                        return

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            try:
                yield server.getsockname()[1]
            finally:
                stop.set()
                server.shutdown(socket.SHUT_RDWR)
                thread.join(10)

    def join(self, answer, told, code, most=2.0):
        with self.listener(answer) as port:
            job = self.start("ring", 10, program=RANK, env=over(
                "tcp", RANK=1, WORLD_SIZE=2, OMP_NUM_THREADS=1, LOCKSTEP_STORE=f"127.0.0.1:{port}", LOCKSTEP_SECRET=SECRET,
                LOCKSTEP_RENDEZVOUS_TIMEOUT="1.5")).wait(10)
        self.assert_code(job, code)
        self.assert_within(1.5 + most, job.seconds)
        self.assertRegex(job.stderr, told)
        self.assertEqual(len(job.stderr.strip().splitlines()), 1, job.stderr)
        self.assertNotIn(SECRET, job.stderr)
        self.assertNotIn("\x1b", job.stderr)

    def test_one_that_speaks_another_version(self):
        self.join(lambda c, _: c.sendall(b"LOCKSTP2" + b"n" * 32), "does not speak Lockstep's protocol; try: another port", 1)

    def test_one_that_accepts_without_a_proof(self):
        def accept(connection, _):
            connection.sendall(b"LOCKSTP1" + b"n" * 32)
            impostor.receive(connection, 96)
            connection.sendall(b"\1" + b"p" * 32 + b"\0" * 255)
        self.join(accept, "does not know this job's secret", 1)

    def test_one_that_mirrors_the_caller(self):
        """It sends the caller's own proof back."""
        def mirror(connection, _):
            connection.sendall(b"LOCKSTP1" + b"n" * 32)
            introduced = impostor.receive(connection, 96)
            connection.sendall(b"\1" + introduced[64:] + b"\0" * 255)
        self.join(mirror, "does not know this job's secret", 1)

    def test_one_that_refuses_with_escapes_for_the_terminal(self):
        def refuse(connection, _):
            connection.sendall(b"LOCKSTP1" + b"n" * 32)
            impostor.receive(connection, 96)
            connection.sendall(b"\0" + b"p" * 32 + b"\x1b]0;owned\x07\nrank 0: all is well".ljust(255, b"!"))
        self.join(refuse, r"refused this process: \?\]0;owned\?\?rank 0", 1)

    def test_one_that_says_half_and_waits(self):
        def wait(connection, stop):
            connection.sendall(b"LOCKSTP1" + b"n" * 10)
            stop.wait(4)
        self.join(wait, "rank 0, which serves the store on .* did not come within 1.5 s", 4)

    def test_one_that_sends_a_byte_a_second(self):
        def drip(connection, stop):
            for byte in b"LOCKSTP1":
                connection.sendall(bytes([byte]))
                if stop.wait(1):
                    return
        self.join(drip, "rank 0, which serves the store on .* did not come within 1.5 s", 4)


class Floods(harness.TestCase):
    """More than one kind of stranger at once, of which some know how a handshake begins."""

    @harness.both_transports
    def test_set_up_and_training_under_one_flood(self, transport):
        laps = 8000 if transport == "tcp" else 40_000
        orders = ("run", "-n", 3, "--", COLLECTIVE, "loop", 1000, laps * (10 if LONG else 1))
        quiet = self.start(*orders, env=over(transport), timeout=90).wait()
        flood = strangers.Flood(manners=("half", "garbage", "silent", "reset"), processes=2, most=40_000 if LONG else 4000)
        with flood.on(self.start(*orders, env=over(transport), timeout=90)) as job:
            job.wait()
        self.assert_code(job, 0)
        self.assertEqual(len(digests(job)), 3, job.describe())
        self.assertEqual(digests(job), digests(quiet))
        self.assertGreater(flood.made["store"], 100, f"{dict(flood.made)} in {job.seconds:.1f} s")
        warnings = [line for line in job.stderr.splitlines() if "dropped" in line]
        self.assertLess(len(warnings), 10, "logged once for each reason, not for each stranger")


class OtherUsers(harness.TestCase):
    def setUp(self):
        require_another_user(self)
        self.folder = tempfile.mkdtemp(prefix="lockstep-test-")  # as /tmp: everybody may add, nobody removes another's
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.chmod(self.folder, 0o1777)

    def path(self, name):
        return os.path.join(self.folder, name)

    def as_other(self, code, *arguments):
        """Runs a piece of Python as the other user, and returns what it prints."""
        done = subprocess.run(["setpriv", "--reuid", str(OTHER_USER), "--clear-groups", harness.PYTHON, "-I", "-c", code,
                               *map(str, arguments)], capture_output=True, text=True, cwd="/", timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_memory_descriptors_and_variables_of_a_rank(self):
        job = self.start("run", "-n", 2, "--", COLLECTIVE, "loop", 1000, env=over("shm"))
        job.wait_for_line(r"\[rank 0\] lap")
        pids = [job.pid, *job.pids_of_ranks(2).values()]
        code = ("import os, sys\n"
                "def attempt(name, act):\n"
                "    try: act(); print('OPEN', name)\n"
                "    except (PermissionError, ProcessLookupError) as error: print('kept out', name, error.errno)\n"
                "for pid in sys.argv[1:]:\n"
                "    attempt('fd', lambda: os.listdir(f'/proc/{pid}/fd'))\n"
                "    for fd in range(3, 40): attempt('fd', lambda: os.open(f'/proc/{pid}/fd/{fd}', os.O_RDWR))\n"
                "    for name in ('environ', 'mem', 'maps', 'stack'): attempt(name, lambda: open(f'/proc/{pid}/{name}', 'rb').read(1))\n"
                "    attempt('map_files', lambda: os.listdir(f'/proc/{pid}/map_files'))\n"
                "    attempt('kill', lambda: os.kill(int(pid), 0))\n")
        said = self.as_other(code, *pids)
        self.assertNotIn("OPEN", said)
        self.assertGreater(said.count("kept out"), 100)
        # No region has a name, and no argument shows the secret: everybody can read those.
        secret = harness.proc_environ(pids[1])["LOCKSTEP_SECRET"]
        self.assertGreaterEqual(len(secret), 32)
        for pid in pids:
            with open(f"/proc/{pid}/cmdline") as file:
                self.assertNotIn(secret, file.read())
        self.assertEqual(harness.shared_memory(), set())
        job.signal(15)
        job.wait()
        self.assertNotIn(secret, job.stdout + job.stderr)

    def test_the_sockets_of_a_job(self):
        """By TCP it is greeted and, without the secret, refused; on a Unix socket it is not even greeted."""
        job = self.start("run", "-n", 2, "--", COLLECTIVE, "loop", 1000, env=over("shm"))
        job.wait_for_line(r"\[rank 0\] lap")
        code = ("import socket, sys\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)\ns.recv(40)\n"
                "s.sendall(b'LOCKSTP1' + b'x' * 88)\nprint(s.recv(288)[:1])\n")
        self.assertEqual(self.as_other(code, job.store_port), "b'\\x00'\n")
        job.signal(15)
        job.wait()
        self.assertRegex(job.stderr, "the store dropped 127.0.0.1:.*, which gave a wrong proof of the secret")

        name = f"@lockstep-test-{os.getpid()}-attack"
        alone = self.start("ring", 10, program=RANK, env=over("shm", RANK=0, WORLD_SIZE=2, LOCKSTEP_STORE=f"unix:{name}",
                                                              LOCKSTEP_RENDEZVOUS_TIMEOUT="2", OMP_NUM_THREADS=1))
        harness.wait_until(lambda: any(address == name for _, address in strangers.listening().values()), 5, "a listener")
        code = ("import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(5)\ns.connect('\\0' + sys.argv[1][1:])\n"
                "try: print(s.recv(40))\nexcept ConnectionError: print(b'')\n")
        self.assertEqual(self.as_other(code, name), "b''\n")
        alone.wait()
        self.assert_code(alone, 4)
        self.assertRegex(alone.stderr, "which belongs to another user")
        self.assertRegex(alone.stderr, "1 of 2 ranks came within 2 s, missing: 1")

    def test_a_path_that_another_user_listens_on(self):
        path = self.path("store")
        code = ("import os, socket, sys, time\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\nos.chmod(sys.argv[1], 0o777)\n"
                "s.listen()\nprint('here', flush=True)\ntime.sleep(30)\n")
        squatter = subprocess.Popen(["setpriv", "--reuid", str(OTHER_USER), "--clear-groups", harness.PYTHON, "-I", "-c", code, path],
                                    stdout=subprocess.PIPE, text=True, cwd="/")
        self.addCleanup(squatter.stdout.close)
        self.addCleanup(squatter.wait)
        self.addCleanup(squatter.kill)
        self.assertEqual(squatter.stdout.readline(), "here\n")
        for rank in (0, 1):
            job = self.start("ring", 10, program=RANK, env=over("shm", RANK=rank, WORLD_SIZE=2, OMP_NUM_THREADS=1,
                                                                LOCKSTEP_STORE=f"unix:{path}")).wait(10)
            self.assert_code(job, 1)
            self.assert_within(2, job.seconds)
            self.assertRegex(job.stderr, rf"\(uid {OTHER_USER}\).* has taken the name")
        self.assertTrue(stat.S_ISSOCK(os.lstat(path).st_mode), "a socket that somebody listens on is not removed")

    def test_a_file_or_link_where_the_store_should_listen(self):
        victim = self.path("victim")
        with open(victim, "w") as file:
            file.write("precious")
        self.as_other("import os, sys\nos.symlink(sys.argv[1], sys.argv[2])\nopen(sys.argv[3], 'w').close()\n", victim,
                      self.path("link"), self.path("file"))
        for name in ("link", "file", "victim"):
            job = self.store_at(self.path(name))
            self.assert_code(job, 1)
            self.assertTrue(os.path.lexists(self.path(name)))
        with open(victim) as file:
            self.assertEqual(file.read(), "precious")

    def test_a_file_in_the_stores_place_is_not_taken_for_a_rank(self):
        open(self.path("file"), "w").close()
        self.assertNotRegex(self.store_at(self.path("file")).stderr, "another rank 0|LOCKSTEP_JOB")

    def store_at(self, path):
        return self.start("ring", 10, program=RANK, env=over("shm", RANK=0, WORLD_SIZE=2, OMP_NUM_THREADS=1,
                                                             LOCKSTEP_STORE=f"unix:{path}")).wait(10)

    def test_secret_files(self):
        mine, planted = self.path("mine"), self.path("planted")
        with open(os.open(mine, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(SECRET + "\n")
        self.as_other("import os, sys\nfile = open(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600), 'w')\n"
                      "file.write('known' * 20)\nos.mkfifo(sys.argv[2], 0o600)\n", planted, self.path("pipe"))
        said = self.as_other("import sys\ntry: print(open(sys.argv[1]).read())\nexcept PermissionError: print('kept out')\n", mine)
        self.assertEqual(said, "kept out\n")
        shutil.copy(mine, self.path("open"))
        os.chmod(self.path("open"), 0o640)
        os.symlink(planted, self.path("link"))
        os.mkdir(self.path("folder"))
        with open(os.open(self.path("large"), os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.truncate(1 << 40)
        for name, told in (("planted", rf"it belongs to .*{OTHER_USER}.*, who can change it"),
                           ("link", rf"it belongs to .*{OTHER_USER}.*, who can change it"),
                           ("open", "its mode is 0640, so that others can read or change it; try: chmod 600"),
                           ("pipe", "it is not a regular file"), ("folder", "it is not a regular file"),
                           ("large", "it is longer than 4096 bytes"), ("nothing", "No such file")):
            job = self.start("ring", 10, program=RANK, env=over(
                "tcp", RANK=0, WORLD_SIZE=2, OMP_NUM_THREADS=1, LOCKSTEP_STORE="127.0.0.1:9",
                LOCKSTEP_SECRET_FILE=self.path(name))).wait(10)
            self.assert_code(job, 2)
            self.assertEqual(len(job.stderr.strip().splitlines()), 1, job.stderr)
            self.assertRegex(job.stderr, told)
            self.assertNotIn(SECRET, job.stderr)
            self.assertNotIn("known", job.stderr)

    def test_what_is_planted_in_the_folder_for_temporary_files(self):
        """A job whose ranks disagree writes what it did last; nothing planted there is followed, filled or emptied."""
        theirs = self.path("theirs")
        own = self.path(f"lockstep-{os.getuid()}")
        plant = ("import os, sys\nhow, name, theirs = sys.argv[1:]\nos.umask(0)\nos.makedirs(theirs, exist_ok=True)\n"
                 "for n in range(30): open(f'{theirs}/lockstep-rank0-old{n:03}', 'w').close()\n"
                 "if how == 'link': os.symlink(theirs, name)\n"
                 "if how == 'dangling': os.symlink(name + '-nowhere', name)\n"
                 "if how == 'folder': os.mkdir(name)\n"
                 "if how == 'file': open(name, 'w').close()\n"
                 "if how == 'pipe': os.mkfifo(name)\n")
        for how in ("link", "dangling", "folder", "file", "pipe"):
            with self.subTest(how=how):
                self.as_other(plant, how, own, theirs)
                job = self.start("run", "-n", 2, "--", COLLECTIVE, "disagree", "count",
                                 env=over("shm", TMPDIR=self.folder)).wait()
                self.assert_code(job, 1)
                dumps = re.findall(r"last collectives are in (\S+lockstep-rank\d-\w{6})", job.stderr)
                self.assertGreaterEqual(len(set(dumps)), 2, job.describe())
                for path in dumps:
                    self.assertEqual(os.path.dirname(path), self.folder)
                    about = os.lstat(path)
                    self.assertTrue(stat.S_ISREG(about.st_mode) and about.st_uid == os.getuid() and about.st_mode & 0o77 == 0)
                self.assertEqual(len(os.listdir(theirs)), 30)
                self.assertFalse(os.path.lexists(own + "-nowhere"))
                shutil.rmtree(own) if how == "folder" else os.unlink(own)

    def test_results_are_not_written_through_a_planted_link(self):
        victim, trace = self.path("victim"), self.path("trace.json")
        with open(victim, "w") as file:
            file.write("precious")
        self.as_other("import os, sys\nos.symlink(sys.argv[1], sys.argv[2])\n", victim, trace)
        job = self.start("run", "-n", 2, "--", COLLECTIVE, "loop", 100, 5, env=over("shm", LOCKSTEP_TRACE=trace)).wait()
        with open(victim) as file:
            self.assertEqual(file.read(), "precious", job.describe())
        if job.code == 0:  # then it has taken the link's place
            self.assertTrue(stat.S_ISREG(os.lstat(trace).st_mode))
            with open(trace) as file:
                self.assertIn("traceEvents", json.load(file))


class Disagreements(harness.TestCase):
    """Random pairs of calls that differ. Each is a Mismatch that names both sides, and never a number."""

    def setUp(self):
        if not os.access(DISAGREE, os.X_OK):
            self.skipTest("disagree_under_test is not built")
        folder = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        self.addCleanup(folder.cleanup)
        self.env = {"LOCKSTEP_DUMP_DIR": folder.name, "OMP_NUM_THREADS": 1}

    def outcomes(self, pairs, ranks, transport, *more, seed=3):
        job = self.start("many", seed, pairs, ranks, transport, *more, program=DISAGREE, env=self.env, timeout=120).wait()
        self.assert_code(job, 0)
        found = re.findall(r"(?m)^(\d+) (\d) (\w+)(.*)$", job.stdout)
        self.assertEqual(len(found), pairs * ranks, job.describe())
        return found

    @harness.both_transports
    def test_pairs_followed_by_a_barrier(self, transport):
        pairs = 200 if LONG else 8 if transport == "shm" else 60
        for ranks in (2, 3):
            for pair, rank, outcome, text in self.outcomes(pairs, ranks, transport, "then"):
                where = f"{transport}, {ranks} ranks, pair {pair}, rank {rank}: {outcome}{text}"
                self.assertEqual(outcome, "mismatch", where)
                sides = re.search(r"ranks disagree: rank (\d) calls (\w+ \d .*), rank (\d) calls (\w+ \d .*?); this rank's last", text)
                self.assertTrue(sides, where)
                self.assertNotEqual(sides[1], sides[3], where)
                self.assertNotEqual(sides[2], sides[4], where)

    @harness.both_transports
    def test_pairs_in_the_last_call_give_no_wrong_numbers(self, transport):
        """Who only sends may go; who takes part in a result with one that disagrees gets an error."""
        pairs = 200 if LONG else 8 if transport == "shm" else 60
        for ranks in (2, 3):
            for pair, rank, outcome, text in self.outcomes(pairs, ranks, transport, seed=4):
                self.assertIn(outcome, ("mismatch", "died", "ok"), f"{ranks} ranks, pair {pair}, rank {rank}: {outcome}{text}")

    def test_pairs_with_steps(self):
        found = self.outcomes(60, 2, "tcp", "then", "steps")
        self.assertEqual({outcome for _, _, outcome, _ in found}, {"mismatch"})

    def run_ranks(self, ranks, transport, *orders):
        return self.start("run", "-n", ranks, "--grace", 1, "--", DISAGREE, *orders,
                          env=over(transport, **self.env | {"LOCKSTEP_TIMEOUT": "2"})).wait()

    @harness.both_transports
    def test_pairs_in_real_processes(self, transport):
        for number in range(30 if LONG else 2):
            job = self.run_ranks(3, transport, "one", 11, number)
            self.assert_code(job, 1)
            for rank in range(3):
                self.assert_told(job, rank, "ranks disagree: rank . calls .*, rank . calls ")
            self.assertRegex(job.stderr, r"(?m)^  error +ranks disagree: ")

    @harness.both_transports
    def test_steps_that_differ(self, transport):
        for algorithm in ("ring", "naive"):
            job = self.run_ranks(3, transport, "steps", algorithm, 1, algorithm, 2)
            self.assert_code(job, 1)
            self.assertRegex(job.stderr, "ranks disagree: .* of step [12], rank . calls .* of step [12];")

    def test_algorithms_that_differ_in_a_step(self):
        job = self.run_ranks(2, "shm", "steps", "ring", 1, "direct", 1)
        self.assert_code(job, 1)
        self.assertRegex(job.stderr, "ranks disagree: ")

    @harness.both_transports
    def test_roots_that_differ_in_the_last_call(self, transport):
        """Ranks that only send do not hear from each other: they compare when they leave."""
        for op in ("broadcast", "scatter", "reduce", "gather"):
            for ranks in (2, 3):
                job = self.run_ranks(ranks, transport, "root", op)
                self.assert_code(job, 1)
                # A rank that comes late may find that the other has left.
                self.assertRegex(job.stderr, f"ranks disagree: .*rank . (calls|was) {op} 2 .*, .*rank . (calls|was) {op} 2 "
                                             f"|stopped in {op} 2 .*: rank . left after collective 2")

    def test_roots_that_differ_in_the_last_call_without_our_launcher(self):
        """Rank 0 serves the store, and stays until the other has compared."""
        for op in ("broadcast", "gather"):
            name = f"disagree-{os.getpid()}-{op}"
            ranks = [self.start("root", op, program=DISAGREE, timeout=30, env=over(
                "tcp", RANK=rank, WORLD_SIZE=2, LOCKSTEP_JOB=name, **self.env)) for rank in range(2)]
            codes = [rank.wait().code for rank in ranks]
            self.assertEqual(sorted(codes), [0, 1], "\n".join(rank.describe() for rank in ranks))
            self.assertRegex("".join(rank.stderr for rank in ranks), "ranks disagree: the last collective of rank |left after collective 2")


class HostileFiles(harness.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def refuse(self, what, told, *arguments, code=2, program=harness.LOCKSTEP):
        """One line, soon, that says what is wrong and does nothing to the terminal; little memory; no crash."""
        limit = "unlimited" if harness.SANITIZERS else MOST_MEMORY >> 10  # a sanitizer reserves terabytes of addresses
        limited = ["bash", "-c", f'ulimit -v {limit}; ulimit -c 0; exec "$@"', "limited", program, *map(str, arguments)]
        if arguments[0] == "train" and not HAS_TORCH:
            self.skipTest("lockstep was built without libtorch")
        with self.subTest(what):
            job = self.start(*limited[1:], program=limited[0], env={"OMP_NUM_THREADS": 1}, timeout=30).wait()
            self.assert_code(job, code)
            self.assertRegex(job.stderr, told)
            self.assertEqual(len(job.stderr.strip().splitlines()), 1, job.stderr[:MOST_TEXT])
            self.assertLess(len(job.stderr), MOST_TEXT)
            self.assertNotRegex(job.stderr, r"[\x00-\x09\x0b-\x1f]")
            self.assertNotRegex(job.stderr, r"frame #0|terminate|what\(\)")

    # Weights.

    def safetensors(self, header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return self.write("w.safetensors", struct.pack("<Q", len(text) if length is None else length) + text + data)

    def load(self, what, told, path, **more):
        self.refuse(what, told, "train", "--strategy", "single", "--model", "mlp", "--depth", 2, "--dim", 4, "--steps", 1, "--load", path,
                    **more)

    def test_weights(self):
        one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}

        def tensor(**changes):
            return {"a": one | changes}

        cases = (
                ("a length of all ones", "its header has 18446744073709551615 bytes", tensor(), b"1234", 2**64 - 1),
                ("a length that wraps", "its header has 18446744073709551608 bytes", tensor(), b"1234", 2**64 - 8),
                ("a length beyond the end", "its header has 1000 bytes, the whole file", tensor(), b"1234", 1000),
                ("overlapping", "'b' begins at byte 2, and what lies before it ends at 4",
                 {"a": one, "b": one | {"data_offsets": [2, 6]}}, b"123456"),
                ("a gap", "'a' begins at byte 4", tensor(data_offsets=[4, 8]), b"12345678"),
                ("offsets the wrong way round", "'a' lies at bytes 4 to 0", tensor(data_offsets=[4, 0]), b"1234"),
                ("offsets that wrap", "'a' lies at bytes 9223372036854775808", tensor(data_offsets=[2**63, 2**63 + 4]), b"1234"),
                ("bytes behind the last", "its tensors take 4 bytes, and 5 follow", tensor(), b"12345"),
                ("a shape that is not a number", "its header is not a JSON object", tensor(shape=[float("nan")]), b"1234"),
                ("a shape of less than nothing", "'a' has no proper shape", tensor(shape=[-1]), b"1234"),
                ("a shape with a fraction", "'a' has no proper shape", tensor(shape=[1.5]), b"1234"),
                ("a shape that overflows", "'a' has a shape that no file holds", tensor(shape=[2**62, 2**61]), b"1234"),
                ("offsets of a text", "'a' has no proper data_offsets", tensor(data_offsets="04"), b"1234"),
                ("three offsets", "'a' has no proper data_offsets", tensor(data_offsets=[0, 4, 4]), b"1234"),
                ("another type", "'a' has the unknown type 'F31'", tensor(dtype="F31"), b"1234"),
                ("a name twice", "'a' stands in its header twice", b'{"a": 1, "a": 2}', b""),
                ("not text", "its header is not a JSON object", b'{"a\xff": 1}', b""),
                ("a list", "its header is not a JSON object", b"[1, 2]", b""),
                ("half a header", "its header is not a JSON object", b'{"a": {"dtype": "F32", "sh', b""),
                ("deep lists", "'a' has no proper dtype", b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", b""),
                ("deep and open", "its header is not a JSON object", b"{" + b'"a":[' * 500_000, b""),
                ("100,000 tensors of nothing", "has the weights of another model", json.dumps(
                    {str(n): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(100_000)}).encode(), b""),
                ("metadata of megabytes", "has the weights of another model",
                 {"__metadata__": {"x\x1b[31m": "y\n" * 1_000_000}} | tensor(), b"1234"))
        for what, told, header, data, *length in cases[::1 if LONG else 2]:  # each start of libtorch takes a third of a second
            self.load(what, told, self.safetensors(header, data, *length))
        self.load("no byte", "it has 0 bytes, and its header's length takes 8", self.write("w.safetensors", b""))
        huge = self.safetensors(tensor(), length=9 << 20)
        os.truncate(huge, 1 << 40)
        self.load("a header of 9 MB in a sparse terabyte", "its header has 9437184 bytes", huge)
        os.mkfifo(self.path("pipe"))
        self.load("a pipe", "it is not a file", self.path("pipe"))
        self.load("a folder", "it is not a file", self.folder)

    def test_weights_with_escapes_in_a_name(self):
        self.load("a name", "has no proper shape", self.safetensors({"a\n\x1b[31m": {"dtype": "F32"}}))

    def test_weights_with_a_type_of_megabytes(self):
        self.load("a type", "has the unknown type", self.safetensors({"a": {"dtype": "F" * 1_000_000}}))

    def test_weights_with_a_huge_shape_of_nothing(self):
        self.load("a shape", "w.safetensors", self.safetensors({"a": {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}))

    def test_weights_that_need_more_memory_than_there_is(self):
        path = self.safetensors({"0.weight": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}})
        os.truncate(path, os.path.getsize(path) + (1 << 40))
        self.load("a sparse terabyte", "w.safetensors", path)

    # Schedules.

    def verify(self, what, told, data, code=2):
        self.refuse(what, told, "schedule", "--verify", self.write("s.csv", data), code=code)

    def test_schedules(self):
        no_action = "is not an action; try: stage, kind"
        for what, told, data in (
                ("noise", no_action, bytes(range(256)) * 20), ("zeros", no_action, b"\0" * 5000),
                ("an unknown action", f"line 1, column 2: '0Q0' {no_action}", b"0F0,0Q0\n"),
                ("escapes", no_action, b"0F0,\x1b[31mZ\r0\n"),
                ("the last microbatch of an int", no_action, b"0F2147483647,0B2147483647\n"),
                ("a microbatch beyond 64 bits", no_action, b"0F99999999999999999999,0B0\n"),
                ("a stage of an int", no_action, b"2147483647F0\n"),
                ("less than nothing", no_action, b"-1F0\n"),
                ("a cell of megabytes", no_action, b"Q" * 5_000_000),
                ("pairs in pairs", no_action, b"(((((0F0;0B0)OVERLAP_F_B\n"),
                ("nothing", "there is no action in it", b"\n \r\n"),
                ("a million empty lines", "line 1 has no action", b"\n" * 1_000_000 + b"0F0"),
                ("stages with a hole", "stage 1 is on no rank", b"0F0,0B0\n2F0,2B0\n"),
                ("more than 64 MB", "has more than 64 MB", b"0F0," * (16 << 20) + b"0F0")):
            self.verify(what, told, data)
        # A list that can't run is documented as exit code 3.
        for what, told, data in (
                ("twice", "0F0 is there twice", b"0F0,0F0,0B0\n"),
                ("a million times", "0F0 is there twice", b"0F0," * 1_000_000),
                ("backward first", "0B0 comes before 0F0", b"0B0,0F0\n"),
                ("a circle of two ranks", "1B0 comes before 1F0", b"0F0,0B0\n1B0,1F0\n"),
                ("a receive that nobody sends", "waits for ever: 1SEND_B0 is missing on rank 1", b"0RECV_B0,0F0,0B0\n1F0,1B0\n"),
                ("a million ranks with one stage", "is on the wrong rank", b"0F0\n" * 1_000_000)):
            self.verify(what, told, data, code=3)
        self.refuse("endless", "has more than 64 MB", "schedule", "--verify", "/dev/zero")
        self.refuse("a folder", "is a folder", "schedule", "--verify", self.folder)
        os.mkfifo(self.path("pipe.csv"))
        for what, told, path in (("a pipe", "is not a regular file", self.path("pipe.csv")),
                                 ("an unknown action", no_action, self.write("t.csv", b"0Q0\n"))):
            self.refuse(f"training with {what}", told, "train", "--strategy", "pipeline", "--ranks", 2, "--schedule", path)

    def test_a_schedule_of_many_microbatches_is_drawn_in_time(self):
        cells = [f"0{kind}{n}" for kind in "FB" for n in range(100_000)]
        path = self.write("s.csv", ",".join(cells).encode())
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([harness.LOCKSTEP, "schedule", "--verify", path], stdout=subprocess.DEVNULL, timeout=20)
        self.assert_within(1.5, time.monotonic() - began)

    # Data.

    def idx(self, sizes, data=None, kind=8):
        count = 1
        for size in sizes:
            count *= size
        return bytes([0, 0, kind, len(sizes)]) + b"".join(struct.pack(">I", size) for size in sizes) + (bytes(count) if data is None else data)

    def train(self, what, told, images, labels, ending=""):
        for name in os.listdir(self.folder):
            os.unlink(self.path(name))
        self.write("train-images-idx3-ubyte" + ending, images)
        self.write("train-labels-idx1-ubyte" + ending, labels)
        self.write("t10k-images-idx3-ubyte", self.idx([8, 28, 28]))
        self.write("t10k-labels-idx1-ubyte", self.idx([8]))
        self.refuse(what, told, "train", "--strategy", "single", "--model", "cnn", "--data", "mnist", "--data-dir", self.folder,
                    "--batch", 4, "--steps", 1)

    def test_images_and_labels(self):
        most = 2**32 - 1
        good, labels = self.idx([8, 28, 28]), self.idx([8])
        for what, told, *files in (
                ("no byte", "is too short to be an IDX file", b"", b""),
                ("noise", "is not an IDX file: it starts with ff fe", bytes(range(255, -1, -1)) * 20, labels),
                ("sizes that overflow", "but is too short for them", self.idx([most] * 3, b""), labels),
                ("four billion images", "but is too short for them", self.idx([most, 28, 28], b""), labels),
                ("half of the sizes", "ends in the middle of its sizes", good[:10], labels),
                ("images without a row", "has images of 0x28, not 28x28", self.idx([most, 0, 28], b""), labels),
                ("no image", "has no images", self.idx([0, 28, 28]), self.idx([0])),
                ("a label beyond the classes", "has the label 255 at place 0", good, self.idx([8], b"\xff" * 8)),
                ("fewer labels", "has 8 images, but .* has 7 labels", good, self.idx([7])),
                ("a byte too many", "has more bytes", good + b"x", labels),
                ("another type", "has values of type 0x0d", self.idx([8, 28, 28], kind=13), labels),
                ("swapped", "has 3 dimensions, but 1 are needed", labels, good)):
            self.train(what, told, *files)
        packed = gzip.compress(labels)
        noise = os.urandom(8 * 28 * 28)
        self.train("a torn archive", "is truncated: its gzip stream has no end",
                   gzip.compress(self.idx([8, 28, 28], noise))[:-1000], packed, ending=".gz")
        self.train("a damaged archive", "is damaged", gzip.compress(good)[:20] + b"\xff" * 200, packed, ending=".gz")
        self.train("archives of nothing", "is too short to be an IDX file", gzip.compress(b"") * 20_000, packed, ending=".gz")
        self.train("an archive that lies", "but (ends after|is too short)", gzip.compress(self.idx([60_000, 28, 28], bytes(1 << 20))), packed,
                   ending=".gz")


if __name__ == "__main__":
    harness.main()
