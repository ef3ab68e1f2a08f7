"""The doors of a job: strangers, other users, and what they can do to a job that starts or trains (docs/security.md).

LOCKSTEP_DOOR_TESTS=1 (./dev soak door) floods 50 jobs while they start, and 56 more whose doors stay open for long enough
that 10,000 connections come to each."""

import collections
import hashlib
import os
import re
import shutil
import statistics
import subprocess
import sys

import harness
import strangers
from harness import over

TESTS = os.path.join(os.path.dirname(harness.LOCKSTEP), "tests")
RANK = os.path.join(TESTS, "rank_under_test")
COLLECTIVE = os.path.join(TESTS, "collective_under_test")
LONG = os.environ.get("LOCKSTEP_DOOR_TESTS") == "1"
JOBS = 50 if LONG else 2
CONNECTIONS = 10_000 if LONG else 1_500
OPEN_JOBS = 8 if LONG else 1          # for each door and each kind of slowness, 7 in all
OPEN_MS = 1000 if LONG else 500       # long enough for 10,000 connections
MOST_LONGER = 2.0  # seconds that a flood may add to the set-up
OTHER_USER = 65534
ENOUGH_HITS = 20  # connections that strangers must have made before a flood counts as one
MOST_FURTHER_JOBS = 8


def require_another_user(test):
    if os.getuid() != 0:
        test.skipTest("only root can act as another user")
    if not shutil.which("setpriv"):
        test.skipTest("setpriv is not installed")
    allowed = subprocess.run(["setpriv", "--reuid", str(OTHER_USER), "--clear-groups", "true"], capture_output=True, text=True)
    if allowed.returncode != 0:
        test.skipTest(f"this root may not act as another user: {allowed.stderr.strip()}")


def digests(job):
    return sorted(re.findall(r"\[rank (\d)\] digest ([0-9a-f]{16})", job.stdout))


def setup_seconds(job):
    return max(float(found) for found in re.findall(r"set up in ([0-9.]+) s", job.stdout))


class Flood(harness.TestCase):
    """50 of 50 jobs end with the same digest, whatever strangers do to their doors."""

    def job(self, transport, *orders, program=RANK, **env):
        return self.start("run", "-n", 4, "--", program, *orders, env=over(transport, **env), timeout=60)

    def check_setup(self, transport, jobs, **flood_options):
        quiet = [self.job(transport, "digest").wait() for _ in range(2)]
        for job in quiet:
            self.assert_code(job, 0)
        usual = statistics.median(map(setup_seconds, quiet))
        hits = 0
        # On a busy machine the strangers may find the door of a job only when it is closed again. Then further jobs follow.
        for number in range(jobs + MOST_FURTHER_JOBS):
            flood = strangers.Flood(processes=2, most=CONNECTIONS, **flood_options)
            with flood.on(self.job(transport, "digest")) as job:
                job.wait()
            hits += flood.made["store"]
            self.assert_code(job, 0)
            self.assertEqual(digests(job), digests(quiet[0]), job.describe())
            self.assert_within(MOST_LONGER, setup_seconds(job) - usual, f"job {number}\n{job.describe()}")
            if number + 1 >= jobs and hits > ENOUGH_HITS:
                break
        self.assertGreater(hits, ENOUGH_HITS, "the strangers came too late to harm anybody")
        return hits

    @harness.both_transports
    def test_in_every_manner_while_the_ranks_meet(self, transport):
        self.check_setup(transport, JOBS)

    @harness.both_transports
    def test_silent_connections_that_stay(self, transport):
        if not LONG:
            self.skipTest("LOCKSTEP_DOOR_TESTS is not set")
        self.check_setup(transport, max(1, JOBS // 4), manners=("silent",))

    @harness.both_transports
    def test_resets(self, transport):
        if not LONG:
            self.skipTest("LOCKSTEP_DOOR_TESTS is not set")
        self.check_setup(transport, max(1, JOBS // 4), manners=("reset", "close"))

    def test_from_another_user(self):
        require_another_user(self)
        self.check_setup("shm", max(1, JOBS // 4), user=OTHER_USER)

    def test_while_a_rank_is_late(self):
        """The store is flooded for two seconds before the last rank comes."""
        for transport in ("shm", "tcp"):
            flood = strangers.Flood(processes=2)
            with flood.on(self.job(transport, "late", 2)) as job:
                job.wait()
            self.assert_code(job, 0)
            self.assertGreater(flood.made["store"], 1000)
            self.assert_within(2 + 3, job.seconds)

    @harness.both_transports
    def test_while_the_ranks_train(self, transport):
        laps = 60_000 if transport == "shm" else 8_000
        quiet = self.job(transport, "loop", 1000, laps, program=COLLECTIVE).wait()
        self.assert_code(quiet, 0)
        flood = strangers.Flood(processes=2)
        job = self.job(transport, "loop", 1000, laps, program=COLLECTIVE)
        job.wait_for_line(r"\[rank 0\] lap")
        with flood.on(job):
            job.wait()
        self.assert_code(job, 0)
        self.assertEqual(digests(job), digests(quiet))
        self.assertEqual(len(digests(job)), 4)
        self.assertGreater(flood.made["store"], 100)


class OpenDoor(harness.TestCase):
    """Doors that stay open for a while before anybody answers. Strangers are in the queue before the ranks (the door is
    slow to be announced) or behind them (it is slow to accept), and must neither keep them out nor push them out."""

    def start_slowly(self, transport, delay, slow_launcher, env, open_ms):
        slow = {"LD_PRELOAD": os.path.join(TESTS, "slow_door.so"), f"LOCKSTEP_TEST_{delay}_DELAY": open_ms,
                "ASAN_OPTIONS": "handle_segv=0:verify_asan_link_order=0"}
        preload = ["env", *(f"{name}={value}" for name, value in slow.items())]
        options = {"env": over(transport, **env), "timeout": 60}
        if slow_launcher:  # and its ranks
            return self.start(*preload[1:], harness.LOCKSTEP, "run", "-n", 3, "--", RANK, "digest", program="env", **options)
        return self.start("run", "-n", 3, "--", *preload, RANK, "digest", **options)

    def flood(self, transport, kind, slow_launcher=False, **env):
        for delay in ("LISTEN", "ACCEPT") if not slow_launcher else ("ACCEPT",):
            # On a busy machine the strangers may find a door only when it is closed again. Then it stays open for longer.
            for open_ms in (OPEN_MS, 4 * OPEN_MS, 16 * OPEN_MS):
                total = self.flood_jobs(transport, delay, slow_launcher, env, open_ms)
                print(f"{sum(total.values())} connections to {OPEN_JOBS} jobs: {dict(total)}", file=sys.stderr)
                if total[kind] > 100:
                    break
            self.assertGreater(total[kind], 100, "the strangers came too late to harm anybody")

    def flood_jobs(self, transport, delay, slow_launcher, env, open_ms):
        """The connections that strangers made to OPEN_JOBS jobs, by kind of door."""
        quiet = self.start_slowly(transport, delay, slow_launcher, env, open_ms).wait()
        self.assert_code(quiet, 0)
        self.assertEqual(len(digests(quiet)), 3)
        total = collections.Counter()
        for number in range(OPEN_JOBS):
            flood = strangers.Flood(processes=2, manners=("silent", "silent", "reset", "garbage"))
            with flood.on(self.start_slowly(transport, delay, slow_launcher, env, open_ms)) as job:
                job.wait()
            self.assert_code(job, 0)
            self.assertEqual(digests(job), digests(quiet), job.describe())
            self.assert_within(MOST_LONGER, setup_seconds(job) - setup_seconds(quiet), f"job {number}\n{job.describe()}")
            total += flood.made
        return total

    def test_of_the_store(self):
        self.flood("shm", "store", slow_launcher=True)

    def test_of_data(self):
        self.flood("tcp", "data")

    def test_of_data_on_a_unix_socket(self):
        self.flood("tcp", "data", LOCKSTEP_TCP_ADDRESS="unix")

    def test_of_shared_memory(self):
        self.flood("shm", "shm")


class OtherUsers(harness.TestCase):
    def setUp(self):
        require_another_user(self)

    def squat(self, name):
        """Another user listens on an abstract name before the job does."""
        code = ("import socket, sys, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0' + sys.argv[1][1:])\ns.listen()\n"
                "print('here', flush=True)\ntime.sleep(60)\n")
        squatter = subprocess.Popen(["setpriv", "--reuid", str(OTHER_USER), "--clear-groups", harness.PYTHON, "-c", code, name],
                                    stdout=subprocess.PIPE, text=True, cwd="/")
        self.addCleanup(squatter.stdout.close)
        self.addCleanup(squatter.wait)
        self.addCleanup(squatter.kill)
        self.assertEqual(squatter.stdout.readline(), "here\n")

    def test_a_name_that_another_user_took_first(self):
        job_name = f"door-{os.getpid()}"
        digest = hashlib.sha256(f"job {job_name}".encode()).hexdigest()[:32]
        self.squat(f"@lockstep-{os.geteuid()}-{digest}")
        for rank in (0, 1):
            job = self.start("ring", 10, program=RANK, timeout=10,
                             env=over("shm", RANK=rank, WORLD_SIZE=2, LOCKSTEP_JOB=job_name, OMP_NUM_THREADS=1)).wait()
            self.assert_code(job, 1)
            self.assert_within(2, job.seconds, "at once, not at the deadline")
            self.assertRegex(job.stderr, rf"@lockstep-.*\(uid {OTHER_USER}\).*has taken the name; try: LOCKSTEP_JOB=")
            self.assertEqual(len(job.stderr.strip().splitlines()), 1, job.stderr)


if __name__ == "__main__":
    harness.main()
