"""The right cause: what a person reads when a job can't be set up, or its network is cut. Who is named must be who it was."""

import os
import shutil
import signal
import subprocess
import time

import harness
from harness import over

TESTS = os.path.join(os.path.dirname(harness.LOCKSTEP), "tests")
RANK = os.path.join(TESTS, "rank_under_test")
COLLECTIVE = os.path.join(TESTS, "collective_under_test")
SLOW_DOOR = {"LD_PRELOAD": os.path.join(TESTS, "slow_door.so"), "ASAN_OPTIONS": "handle_segv=0:verify_asan_link_order=0"}


class SetUp(harness.TestCase):
    def run_limited(self, limit, program, *orders, ranks=2, only=None, transport="shm", **options):
        """A job whose ranks, or one of them, run under a limit of the shell."""
        limited = f"ulimit {limit}" if only is None else f'[ "$RANK" != {only} ] || ulimit {limit}'
        command = " ".join(map(str, (program, *orders)))
        return self.start("run", "-n", ranks, "--grace", 1, "--", "bash", "-c", f"{limited}; exec {command}",
                          env=over(transport), **options).wait()

    def assert_first_cause(self, job, rank, *patterns):
        block = job.stderr[job.stderr.rfind("lockstep run: FAILED"):]
        self.assertRegex(block, rf"first cause  rank {rank} ", job.describe())
        for pattern in patterns:
            self.assertRegex(block, pattern, job.describe())

    def test_a_region_that_a_rank_can_not_reserve_is_blamed_on_that_rank(self):
        # The first limit is too small for the transport's region, the second for the communicator's.
        for kib, program, orders in ((64, RANK, ("digest",)), (1500, COLLECTIVE, ("loop", 10, 10))):
            for _ in range(5):
                job = self.run_limited(f"-f {kib}", program, *orders, only=0)
                self.assert_code(job, 1)
                self.assert_first_cause(job, 0, r"error +rank 0: a shared region of .* is needed and the limit on files is",
                                        "others +rank 1 was waiting")

    def test_few_descriptors_are_not_taken_for_a_death(self):
        if harness.SANITIZERS:
            self.skipTest("a sanitizer needs descriptors itself")
        failures = 0
        for transport in ("shm", "tcp"):
            for most in (6, 7, 8, 9):
                job = self.run_limited(f"-n {most}", RANK, "digest", transport=transport)
                self.assert_within(6, job.seconds, "the door must not wait for the deadline")
                if job.code == 0:
                    continue
                failures += 1
                self.assert_code(job, 1)
                self.assertNotRegex(job.stderr, "status unknown")
                self.assert_first_cause(job, "[01]", "Too many open files; try: a higher `ulimit -n`")
        self.assertGreater(failures, 0, "no limit was low enough to test anything")

    def test_few_descriptors_of_one_rank_are_blamed_on_it(self):
        if harness.SANITIZERS:
            self.skipTest("a sanitizer needs descriptors itself")
        for rank in (0, 1):
            job = self.run_limited("-n 6", RANK, "digest", ranks=3, only=rank)
            self.assert_code(job, 1)
            self.assert_first_cause(job, rank, rf"error +rank {rank}.*Too many open files; try: a higher `ulimit -n`")

    def test_a_thread_that_can_not_be_started_is_named(self):
        if os.getuid() != 0 or not shutil.which("setpriv"):
            self.skipTest("only root can start a job of another user, whose processes can be limited")
        user = ["setpriv", "--reuid", "65533", "--clear-groups"]
        if subprocess.run([*user, "test", "-x", RANK], capture_output=True).returncode != 0:
            self.skipTest("another user may not execute the programs of this build")
        job = self.start(*user[1:], harness.LOCKSTEP, "run", "-n", 2, "--", "bash", "-c",
                         f'[ "$RANK" = 0 ] || ulimit -u 1; exec {RANK} works 1 10', program="setpriv", cwd="/",
                         env=over("tcp", TMPDIR=None)).wait()
        self.assert_code(job, 1)
        self.assert_first_cause(job, 1, r"error +cannot start rank 1's helper thread: Resource temporarily unavailable; "
                                        r"try: a higher `ulimit -u`")

    def test_a_stop_from_outside_ends_with_its_signal_at_any_time(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            for delay in (0.0, 0.02, 0.05, 0.1, 0.3):
                job = self.start("run", "-n", 3, "--grace", 1, "--", "env", *(f"{k}={v}" for k, v in SLOW_DOOR.items()),
                                 "LOCKSTEP_TEST_LISTEN_DELAY=200", RANK, "ring", env=over("tcp"))
                job.pids_of_ranks(1)
                time.sleep(delay)
                job.signal(number)
                job.wait()
                self.assert_code(job, code)
                self.assertNotRegex(job.stderr, "first cause")

    def test_a_rank_that_is_stopped_during_set_up(self):
        """Short: the job goes on. For ever: the others time out, which is exit code 4, and the stopped rank is named."""
        for transport in ("shm", "tcp"):
            for stopped in (0, 1):
                for resume in (True, False):
                    with self.subTest(transport=transport, stopped=stopped, resume=resume):
                        self.stop_during_set_up(transport, stopped, resume)

    def test_a_rank_that_goes_on_after_the_deadline(self):
        """It was late, and the one that waited for it says so: exit code 4, not a fault of shared memory."""
        job = self.start_slowly("shm", "2")
        pid = job.pids_of_ranks(2)[1]
        time.sleep(0.15)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2.6)
        os.kill(pid, signal.SIGCONT)
        job.wait()
        self.assert_code(job, 4)
        self.assertRegex(job.stderr, "rank 0: no connection from rank 1 within 2 s; try: see whether that rank is stopped")

    def start_slowly(self, transport, deadline):
        return self.start("run", "-n", 2, "--grace", 1, "--", "env", *(f"{k}={v}" for k, v in SLOW_DOOR.items()),
                          "LOCKSTEP_TEST_ACCEPT_DELAY=300", RANK, "digest",
                          env=over(transport, LOCKSTEP_RENDEZVOUS_TIMEOUT=deadline))

    def stop_during_set_up(self, transport, stopped, resume):
        job = self.start_slowly(transport, "20" if resume else "2")
        pid = job.pids_of_ranks(2)[stopped]
        time.sleep(0.15)  # rank 1 has called, rank 0 has not answered
        os.kill(pid, signal.SIGSTOP)
        if resume:
            time.sleep(1.2)
            os.kill(pid, signal.SIGCONT)
            job.wait()
            return self.assert_code(job, 0)
        job.wait(15)
        self.assert_code(job, 4)
        self.assertRegex(job.stderr, rf"first cause  rank {stopped} .* was stopped", job.describe())


class CutNetwork(harness.TestCase):
    """Fault 20, in a network of its own: its loopback is taken down while the ranks talk."""

    def setUp(self):
        allowed = subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
        if allowed.returncode != 0:
            self.skipTest(f"no right to make a network namespace: {allowed.stderr.strip()}")

    def cut(self, command, env):
        script = f"ip link set lo up; {command} & sleep 1; ip link set lo down; echo cut; wait $!"
        job = self.start("-n", "bash", "-c", script, program="unshare", env=env)
        job.wait_for_line("^cut")
        cut = time.monotonic()
        job.wait_for_line("is unreachable")
        self.assert_within(4 + 2, time.monotonic() - cut, "by the deadline")
        job.wait()
        self.assert_within(4 + 2 + 2, time.monotonic() - cut, "the launcher waits for the other rank for --grace 1")
        self.assertNotEqual(job.code, 0)
        self.assertNotRegex(job.stderr, "status unknown")
        return job

    def test_names_the_rank_and_its_address(self):
        for program in (f"{RANK} ring", f"{COLLECTIVE} loop 1000"):
            job = self.cut(f"{harness.LOCKSTEP} run -n 2 --grace 1 -- {program}", over("tcp", LOCKSTEP_TIMEOUT="4"))
            self.assertRegex(job.stderr, r"rank [01] at 127\.0\.0\.1:\d+ is unreachable \(nothing was acknowledged for", job.describe())

    def test_without_our_launcher(self):
        loop = f"(for r in 0 1; do RANK=$r WORLD_SIZE=2 {RANK} ring & done; wait -n)"
        job = self.cut(loop, over("tcp", LOCKSTEP_TIMEOUT="4", OMP_NUM_THREADS="1"))
        self.assertRegex(job.stderr, r"rank 0 at 127\.0\.0\.1:\d+ is unreachable", job.describe())



if __name__ == "__main__":
    harness.main()
