"""The faults of docs/faults.md with real ranks that talk to each other, over both transports. Each test ends by looking for
left-over processes, ports, files and shared memory."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import harness
from harness import both_transports, over

RANK = os.path.join(os.path.dirname(harness.LOCKSTEP), "tests", "rank_under_test")
TRANSPORTS = ("shm", "tcp")
SECRET = "a secret for tests"


class Faults(harness.TestCase):
    def ring(self, *orders, ranks=4, **env):
        return self.start("run", "-n", ranks, "--grace", 1, "--", RANK, *orders, env=env)

    def assert_block(self, job, *patterns):
        """The report is the last thing that is printed."""
        block = job.stderr[job.stderr.rfind("lockstep run: FAILED"):]
        self.assertTrue(block.startswith("lockstep run: FAILED"), job.describe())
        self.assertNotRegex(block, r"(?m)^\[rank")
        for pattern in patterns:
            self.assertRegex(block, pattern, job.describe())

    @both_transports
    def test_01_a_rank_is_killed_while_others_wait_for_it(self, transport):
        for orders in (("ring",), ("large",)):
            job = self.ring(*orders, **over(transport))
            job.wait_for_line(r"\[rank 0\] lap")
            job.signal_rank(2, signal.SIGKILL)
            killed = time.monotonic()
            job.wait()
            self.assert_within(2.0, time.monotonic() - killed, "survivors must notice within a second")
            self.assert_code(job, 128 + signal.SIGKILL)
            for survivor in (0, 1, 3):
                self.assert_told(job, survivor, r"stopped because rank 2 died \(signal 9 \(Killed\)\); it was waiting in "
                                                r"(recv|send) of .* rank \d, tag 0 \(message \d+\)")
            self.assert_block(job, r"rank 2 .*pid \d+.* signal 9", r"rank 0 was waiting: (recv|send) of")

    @both_transports
    def test_02_a_rank_crashes_between_messages(self, transport):
        for fault, number in (("segv", signal.SIGSEGV), ("abort", signal.SIGABRT)):
            job = self.ring(fault, 1, 300, **over(transport)).wait()
            self.assert_code(job, 128 + number)
            self.assert_told(job, 0, rf"stopped because rank 1 died \(signal {int(number)} ")
            self.assert_block(job, rf"rank 1 .* signal {int(number)}")

    @both_transports
    def test_03_an_exception_on_one_rank(self, transport):
        job = self.ring("throw", 3, 200, **over(transport)).wait()
        self.assert_code(job, 1)
        for survivor in (0, 1, 2):
            self.assert_told(job, survivor, "stopped because rank 3 failed: the loss is not a number")
        self.assert_block(job, r"first cause +rank 3 ", "the loss is not a number")

    @both_transports
    def test_03_an_exception_that_is_no_exception(self, transport):
        job = self.ring("throw42", 1, 50, **over(transport)).wait()
        self.assert_code(job, 1)
        self.assert_told(job, 0, "stopped because rank 1 failed: an exception of an unknown type")
        self.assertNotIn("terminate", job.stderr)

    @both_transports
    def test_04_a_rank_leaves_early_with_0(self, transport):
        job = self.ring("exit0", 1, 120, **over(transport)).wait()
        self.assertNotEqual(job.code, 0, job.describe())
        self.assert_told(job, 2, r"stopped because rank 1 left early \(exit code 0\); it was waiting in "
                                 r"recv of 8 bytes from rank 1, tag 0 \(message 121\)")
        self.assert_block(job, r"first cause +rank 1 .* left early \(exit code 0\)", "rank 2 was waiting: .*message 121")

    @both_transports
    def test_05_a_rank_is_stopped_for_ever(self, transport):
        job = self.ring("ring", **over(transport, LOCKSTEP_TIMEOUT="1"))
        job.wait_for_line(r"\[rank 0\] lap")
        job.signal_rank(2, signal.SIGSTOP)
        job.wait(15)
        self.assert_code(job, 4)
        self.assertRegex(job.stderr, r"rank \d: (recv|send) of 8 bytes (from|to) rank \d, tag 0 timed out after 1 s")
        self.assertIn("rank 2", job.stderr)
        self.assert_block(job, r"first cause +rank 2 .* was stopped, and ended by the launcher", r"rank \d timed out: ")

    @both_transports
    def test_06_a_short_stop_is_survived(self, transport):
        job = self.ring("pause", 1, 1000, **over(transport))
        job.resume_stopped(1, after=0.5)
        job.wait()
        self.assert_code(job, 0)

    def test_13_a_rank_that_never_comes_is_named(self):
        job = self.ring("late", 60, **over("shm", LOCKSTEP_RENDEZVOUS_TIMEOUT="1")).wait(15)
        self.assert_code(job, 4)
        self.assertRegex(job.stderr, "3 of 4 ranks came within 1 s, missing: 1")

    def test_14_ranks_that_do_not_belong_are_refused(self):
        job = self.ring("ring", 200_000_000, ranks=2, **over("shm"))
        job.wait_for_line(r"\[rank 0\] lap")
        environment = harness.proc_environ(job.pids_of_ranks(2)[1])
        for change, refusal in (({}, "rank 1 is taken by another process"),
                                ({"WORLD_SIZE": "3"}, "says the world has 3 ranks, this job has 2"),
                                ({"LOCKSTEP_GENERATION": "7"}, "belongs to an older start"),
                                ({"LOCKSTEP_SECRET": "guess" * 4}, "its secret differs")):
            intruder = subprocess.run([RANK, "ring"], env=environment | change, capture_output=True, text=True, timeout=10)
            self.assertEqual(intruder.returncode, 1, intruder.stderr)
            self.assertRegex(intruder.stderr, refusal)
            self.assertEqual(len(intruder.stderr.strip().splitlines()), 1, intruder.stderr)
        count = len(re.findall("lap", job.stdout))
        job.wait_for_line("lap", count=count + 3)  # unaffected
        job.signal(signal.SIGTERM)
        job.wait()
        self.assert_code(job, 128 + signal.SIGTERM)

    @both_transports
    def test_15_ctrl_c_ends_ranks_that_talk(self, transport):
        job = self.ring("large", **over(transport))
        job.pids_of_ranks(4)
        time.sleep(0.5)
        job.signal(signal.SIGINT)
        job.wait()
        self.assert_code(job, 130)

    @both_transports
    def test_16_the_launcher_is_killed(self, transport):
        job = self.ring("ring", **over(transport))
        job.wait_for_line(r"\[rank 0\] lap")
        job.signal(signal.SIGKILL)
        killed = time.monotonic()
        harness.wait_until(lambda: not job.pids(), 2, "all ranks gone")
        self.assert_within(2, time.monotonic() - killed)
        job.wait()

    def test_18_two_jobs_at_once(self):
        ranks = ("-n", 4, "--", "sh", "-c", f'echo "store $LOCKSTEP_STORE"; exec {RANK} ring 2000')
        jobs = [self.start("run", *ranks, env=over(transport)) for transport in ("shm", "shm", "tcp")]
        stores = set()
        for job in jobs:
            job.wait()
            self.assert_code(job, 0)
            mine = set(re.findall(r"store (\S+)", job.stdout))
            self.assertEqual(len(mine), 1, job.describe())
            stores |= mine
        self.assertEqual(len(stores), 3, stores)

    def digests(self, job):
        return sorted(re.findall(r"\[rank (\d)\] digest ([0-9a-f]{16})", job.stdout))

    @both_transports
    def test_19_enemies_on_the_rendezvous_port_change_nothing(self, transport):
        quiet = self.ring("digest", **over(transport)).wait()
        self.assert_code(quiet, 0)
        job = self.ring("late", 2, **over(transport))
        harness.wait_until(lambda: (job._note_store(), job.store_port)[1], 30, "the store's port")
        sockets = []
        for text in (b"", b"GET / HTTP/1.0\r\n\r\n" + b"x" * 200, b"LOCKSTP1" + os.urandom(88), b"\xff" * 4096):
            for _ in range(20):
                enemy = socket.create_connection(("127.0.0.1", job.store_port), timeout=5)
                enemy.sendall(text)
                sockets.append(enemy)
        job.wait()
        self.assert_code(job, 0)
        self.assertLessEqual(len(re.findall("the store dropped", job.stderr)), 4, "each kind is logged once")
        for enemy in sockets:
            enemy.close()
        attacked = self.ring("digest", **over(transport)).wait()
        self.assertEqual(self.digests(quiet), self.digests(attacked))

    def test_19_strangers_do_not_use_up_the_launchers_descriptors(self):
        job = self.start("-c", f"ulimit -n 40; exec {harness.LOCKSTEP} run -n 2 -- {RANK} late 2", program="sh", env=over("tcp"))
        job.pids_of_ranks(2)  # the launcher has all descriptors for its ranks
        harness.wait_until(lambda: (job._note_store(), job.store_port)[1], 30, "the store's port")
        sockets = [socket.create_connection(("127.0.0.1", job.store_port), timeout=5) for _ in range(80)]
        job.wait()
        self.assert_code(job, 0)
        for enemy in sockets:
            enemy.close()

    def test_21_interrupted_calls_and_small_buffers_give_the_same_bits(self):
        for ranks in (2, 5):
            digests = []
            for transport in TRANSPORTS:
                for mode in ("digest", "storm"):
                    job = self.ring(mode, ranks=ranks, **over(transport)).wait()
                    self.assert_code(job, 0)
                    self.assertEqual(len(self.digests(job)), ranks, job.describe())
                    digests.append(self.digests(job))
            self.assertTrue(all(digest == digests[0] for digest in digests), digests)

    def test_21_every_way_for_the_bytes_gives_the_same_bits(self):
        ways = ({}, {"LOCKSTEP_SHM_COPY": "queue"}, {"LOCKSTEP_TRANSPORT": "tcp", "LOCKSTEP_TCP_ADDRESS": "[::1]:0"},
                {"LOCKSTEP_TRANSPORT": "tcp", "LOCKSTEP_TCP_ADDRESS": "unix"})
        digests = [self.digests(self.ring("digest", ranks=3, **(over("shm") | way)).wait()) for way in ways]
        self.assertEqual(len(digests[0]), 3)
        self.assertTrue(all(digest == digests[0] for digest in digests), digests)

    def test_22_too_little_shared_memory_is_said_or_avoided(self):
        mounted = subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
        if not mounted:
            self.skipTest("no right to mount a small tmpfs (unshare -m failed)")
        script = ("d=$(mktemp -d) && mount -t tmpfs -o size=64k lockstep-test $d && "
                  f"LOCKSTEP_SHM_DIR=$d {harness.LOCKSTEP} run -n 2 -- {RANK} digest; code=$?; umount $d; rmdir $d; exit $code")
        forced = self.start("-m", "sh", "-c", script, program="unshare", env=over("shm")).wait()
        self.assert_code(forced, 1)
        self.assertRegex(forced.stderr, r"cannot reserve a shared region of .* \(\d+ bytes\): No space left")
        fallen_back = self.start("-m", "sh", "-c", script, program="unshare", env=over("auto")).wait()
        self.assert_code(fallen_back, 0)
        self.assertRegex(fallen_back.stderr, "falling back to tcp, shared memory is not to be had")
        self.assertRegex(fallen_back.stdout, "digest .* over tcp")

    @both_transports
    def test_23_a_crashed_run_does_not_hinder_the_next(self, transport):
        job = self.ring("ring", **over(transport))
        job.wait_for_line(r"\[rank 0\] lap")
        job.kill()
        job.wait()
        again = self.ring("ring", 200, **over(transport)).wait()
        self.assert_code(again, 0)

    @both_transports
    def test_24_more_ranks_than_cores_and_one_core(self, transport):
        job = self.ring("ring", 300, ranks=8, **over(transport)).wait()
        self.assert_code(job, 0)
        single = self.start("-c", "0", harness.LOCKSTEP, "run", "-n", 4, "--", RANK, "ring", 300, program="taskset",
                            env=over(transport)).wait()
        self.assert_code(single, 0)

    @both_transports
    def test_35_ending_with_works_under_way(self, transport):
        job = self.ring("works", 1, 100, **over(transport)).wait()
        self.assertNotEqual(job.code, 0)  # the others still need rank 1, and say so
        self.assert_told(job, 2, r"stopped because rank 1 (has left|left early)")
        self.assertNotRegex(job.stderr, "terminate|signal (6|11|13)")


class WithoutOurLauncher(harness.TestCase):
    """A killed peer is noticed within a second, whoever started the ranks."""

    def start_loop(self, ranks, *orders, **env):
        loop = (f"for r in $(seq 0 {ranks - 1}); do RANK=$r WORLD_SIZE={ranks} {RANK} {' '.join(map(str, orders))} & "
                "done; wait")
        return self.start("-c", loop, program="bash", env={"OMP_NUM_THREADS": "1"} | env)

    def rank_pids(self, job):
        pids = {}
        for pid in job.pids():
            environment = harness.proc_environ(pid)
            if "RANK" in environment:
                pids[int(environment["RANK"])] = pid
        return pids

    def test_a_killed_peer_is_noticed(self):
        for transport in TRANSPORTS:
            with self.subTest(transport=transport):
                job = self.start_loop(3, "ring", **over(transport))
                job.wait_for_line("^lap")
                os.kill(self.rank_pids(job)[1], signal.SIGKILL)
                killed = time.monotonic()
                job.wait()
                self.assert_within(1.5, time.monotonic() - killed)
                self.assertEqual(len(re.findall(r"stopped because rank 1 died \(status unknown\)", job.stderr)), 2,
                                 job.describe())

    def test_a_missing_rank_is_named(self):
        loop = f"for r in 0 1 3; do RANK=$r WORLD_SIZE=4 {RANK} ring & done; wait"
        job = self.start("-c", loop, program="bash", env=over("shm", LOCKSTEP_RENDEZVOUS_TIMEOUT="1", OMP_NUM_THREADS="1")).wait()
        self.assertRegex(job.stderr, "3 of 4 ranks came within 1 s, missing: 2")

    def test_a_missing_rank_0_is_named(self):
        job = self.start("-c", f"RANK=1 WORLD_SIZE=2 {RANK} ring; exit $?", program="bash",
                         env=over("shm", LOCKSTEP_RENDEZVOUS_TIMEOUT="1", OMP_NUM_THREADS="1")).wait()
        self.assert_code(job, 4)
        self.assertRegex(job.stderr, "rank 0, which serves the store on .*, did not come within 1 s")

    def copy_for(self, user, program):
        """A copy that this user may execute: the tests may lie in a folder that only their owner may enter."""
        for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
            try:
                folder = tempfile.mkdtemp(prefix="lockstep-test-", dir=parent)
            except OSError:
                continue
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            os.chmod(folder, 0o755)
            copy = shutil.copy(program, folder)
            os.chmod(copy, 0o755)
            if subprocess.run([*user, "test", "-x", copy], capture_output=True).returncode == 0:
                return copy
        self.skipTest("there is no folder for temporary files in which another user may execute a program")

    def test_another_user_is_kept_out(self):
        if os.getuid() != 0:
            self.skipTest("only root can act as another user")
        other = ("setpriv", "--reuid", "65534", "--clear-groups")
        if not shutil.which("setpriv"):
            self.skipTest("setpriv is not installed")
        allowed = subprocess.run([*other, "true"], capture_output=True, text=True)
        if allowed.returncode != 0:
            self.skipTest(f"this root may not act as another user: {allowed.stderr.strip()}")
        program = self.copy_for(other, RANK)
        name = f"unix:@lockstep-test-{os.getpid()}"
        rank_1 = f"RANK=1 WORLD_SIZE=2 LOCKSTEP_STORE={name} {program} ring 10"
        job = self.start("-c", f"RANK=0 WORLD_SIZE=2 LOCKSTEP_STORE={name} {program} ring 10 & "
                               f"{' '.join(other)} env {rank_1}; echo intruder $?; {rank_1}; echo friend $?; "
                               "wait", program="bash", env=over("tcp", OMP_NUM_THREADS="1")).wait()
        self.assertRegex(job.stdout, "intruder [1-9]")
        self.assertIn("friend 0", job.stdout)
        self.assertRegex(job.stderr, "which belongs to another user")

    def test_two_rank_zeros_of_one_shell(self):
        job = self.start("-c", f"RANK=0 WORLD_SIZE=2 {RANK} ring 10 & sleep 0.3; RANK=0 WORLD_SIZE=2 {RANK} ring 10; echo code $?; "
                               f"RANK=1 WORLD_SIZE=2 {RANK} ring 10; wait", program="bash",
                         env=over("shm", OMP_NUM_THREADS="1")).wait()
        self.assertRegex(job.stderr, "another rank 0 of this user already meets its peers")
        self.assertIn("code 1", job.stdout)


class BadInput(harness.TestCase):
    """One line that says what to do, and the exit code for wrong usage."""

    def assert_usage_error(self, env, pattern, code=2):
        job = self.start("ring", "10", program=RANK, env={"OMP_NUM_THREADS": "1"} | env).wait(10)
        self.assert_code(job, code)
        self.assertEqual(len(job.stderr.strip().splitlines()), 1, job.stderr)
        self.assertRegex(job.stderr, pattern)

    def test_bad_variables(self):
        pair = {"RANK": "0", "WORLD_SIZE": "2"}
        self.assert_usage_error({"RANK": "0"}, "RANK is set but WORLD_SIZE is not")
        self.assert_usage_error({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is outside the world")
        self.assert_usage_error({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x', not a whole number")
        self.assert_usage_error(pair | {"LOCKSTEP_STORE": "nowhere"}, "LOCKSTEP_STORE is 'nowhere': the port is missing; try:")
        self.assert_usage_error(pair | {"LOCKSTEP_STORE": "no.such.host.invalid:80", "LOCKSTEP_SECRET": SECRET},
                                "'no.such.host.invalid' is not an address")
        self.assert_usage_error(pair | {"LOCKSTEP_STORE": "10.0.0.1:80"},
                                "can be reached by other hosts, and neither LOCKSTEP_SECRET nor LOCKSTEP_SECRET_FILE is set; try:")
        self.assert_usage_error(pair | {"LOCKSTEP_STORE": "127.0.0.1:80"},
                                "can be reached by every user of this host, and neither LOCKSTEP_SECRET nor")
        self.assert_usage_error(pair | {"LOCKSTEP_STORE": "127.0.0.1:80", "LOCKSTEP_SECRET": "abc"},
                                "the secret in LOCKSTEP_SECRET has 3 bytes, which can be guessed; 16 are the least; try:")
        self.assert_usage_error(pair | {"LOCKSTEP_STORE": "127.0.0.1:0", "LOCKSTEP_SECRET": SECRET},
                                "with port 0 the ranks can't find each other; try:")
        self.assert_usage_error(pair | {"LOCKSTEP_RENDEZVOUS_TIMEOUT": "soon"}, "LOCKSTEP_RENDEZVOUS_TIMEOUT is 'soon'")
        self.assert_usage_error({"LOCKSTEP_TRANSPORT": "pigeon"}, "LOCKSTEP_TRANSPORT is 'pigeon'; try: one of auto, shm, tcp")

    def test_a_taken_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assert_usage_error({"RANK": "0", "WORLD_SIZE": "2", "LOCKSTEP_STORE": f"127.0.0.1:{port}",
                                     "LOCKSTEP_SECRET": SECRET},
                                    f"cannot listen on 127.0.0.1:{port}: Address already in use; try:", code=1)


if __name__ == "__main__":
    harness.main()
