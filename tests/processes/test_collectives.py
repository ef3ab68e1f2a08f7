"""Collectives in real processes: a sample of the matrix, and the faults of docs/faults.md inside a collective."""

import json
import os
import re
import signal
import tempfile
import time

import harness
from harness import both_transports, over

RANK = os.path.join(os.path.dirname(harness.LOCKSTEP), "tests", "collective_under_test")


class Collectives(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def ranks(self, *orders, ranks=4, **env):
        return self.start("run", "-n", ranks, "--grace", 1, "--", RANK, *orders,
                          env=env | {"LOCKSTEP_DUMP_DIR": self.folder.name})

    def assert_dumped(self, job, pattern):
        """The error names a file that tells what this rank has done."""
        path = re.search(rf"last collectives are in ({self.folder.name}/[^;\s]+)", job.stderr)
        self.assertTrue(path, job.describe())
        with open(path[1]) as file:
            self.assertRegex(file.read(), pattern)

    @both_transports
    def test_a_sample_of_the_matrix(self, transport):
        for ranks in (1, 2, 3, 5):
            job = self.ranks("matrix", ranks=ranks, **over(transport)).wait(60)
            self.assert_code(job, 0)
            found = re.findall(r"wrong (\d+) of (\d+)", job.stdout)
            self.assertEqual(len(found), ranks, job.describe())
            self.assertTrue(all(wrong == "0" and int(count) > 300 for wrong, count in found), found)

    def test_the_matrix_without_single_copy(self):
        job = self.ranks("matrix", ranks=3, **over("shm", LOCKSTEP_SHM_COPY="queue")).wait(60)
        self.assert_code(job, 0)
        self.assertEqual(len(re.findall("wrong 0 of", job.stdout)), 3, job.describe())

    def test_bits_are_the_same_on_all_ranks_and_in_ordered_on_both_transports(self):
        digests = set()
        for transport, algorithm in (("shm", "direct"), ("shm", "ordered"), ("tcp", "ordered")):
            job = self.ranks("loop", 5000, 60, ranks=3, **over(transport, LOCKSTEP_ALGORITHM=algorithm)).wait()
            self.assert_code(job, 0)
            found = re.findall("digest ([0-9a-f]{16})", job.stdout)
            self.assertEqual(len(found), 3, job.describe())
            digests |= set(found)
        self.assertEqual(len(digests), 1, digests)

    def test_the_examples_run(self):
        folder = os.path.join(os.path.dirname(harness.LOCKSTEP), "examples")
        for example, said in (("all_reduce", "the mean of 0 to 2 is 1"), ("ring_from_scratch", "agrees with all_reduce"),
                              ("primitives", r"y = 2x \+ 1: 1 3 5 7 9 11 13 15 17\n")):
            job = self.start("run", "-n", 3, "--", os.path.join(folder, example)).wait()
            self.assert_code(job, 0)
            self.assertRegex(job.stdout, said)

    def test_a_world_of_one_needs_no_launcher(self):
        job = self.start("loop", 100, 10, program=RANK).wait()
        self.assert_code(job, 0)
        self.assertRegex(job.stdout, "digest [0-9a-f]{16}")

    @both_transports
    def test_01_a_rank_is_killed_inside_a_collective(self, transport):
        for elements, algorithm in ((1000, "auto"), (4_000_000, "auto"), (4_000_000, "ring")):
            job = self.ranks("loop", elements, **over(transport, LOCKSTEP_ALGORITHM=algorithm))
            job.wait_for_line(r"\[rank 0\] lap")
            job.signal_rank(2, signal.SIGKILL)
            killed = time.monotonic()
            job.wait()
            self.assert_within(2.0, time.monotonic() - killed, "survivors must notice within a second")
            self.assert_code(job, 128 + signal.SIGKILL)
            for survivor in (0, 1, 3):
                self.assert_told(job, survivor, rf"stopped in all_reduce \d+ \(float32, {elements} elements, mean, "
                                                rf"algorithm {algorithm}\): .*rank 2 died \(signal 9 \(Killed\)\)")
            self.assertRegex(job.stderr, r"rank 0 was waiting: all_reduce \d+")

    # A rank may still be in the collective that the dying one has just left.
    @both_transports
    def test_02_a_rank_crashes_between_collectives(self, transport):
        job = self.ranks("segv", 1, 300, **over(transport)).wait()
        self.assert_code(job, 128 + signal.SIGSEGV)
        self.assert_told(job, 0, r"stopped in all_reduce 30[01] .*rank 1 died \(signal 11 ")

    @both_transports
    def test_03_an_exception_on_one_rank(self, transport):
        job = self.ranks("throw", 3, 200, **over(transport)).wait()
        self.assert_code(job, 1)
        for survivor in (0, 1, 2):
            self.assert_told(job, survivor, r"stopped in all_reduce 20[01] .*rank 3 failed: the loss is not a number")
        self.assertRegex(job.stderr, r"first cause +rank 3 ")

    @both_transports
    def test_04_a_rank_leaves_early(self, transport):
        for how, told in (("exit0", r"rank 1 left early \(exit code 0\)"), ("return", "rank 1 left after collective 120")):
            job = self.ranks(how, 1, 120, **over(transport)).wait()
            self.assertNotEqual(job.code, 0, job.describe())
            for survivor in (0, 2, 3):
                self.assert_told(job, survivor, rf"stopped in all_reduce 12[01] .*{told}")

    @both_transports
    def test_05_a_rank_is_stopped_for_ever(self, transport):
        job = self.ranks("loop", 1000, **over(transport, LOCKSTEP_TIMEOUT="1.5"))
        job.wait_for_line(r"\[rank 0\] lap")
        job.signal_rank(2, signal.SIGSTOP)
        job.wait(15)
        self.assert_code(job, 4)
        self.assertRegex(job.stderr, r"all_reduce \d+ \(.*\) timed out after 1.5 s, waiting for rank")
        self.assertRegex(job.stderr, r"rank 2 was last seen in collective \d+")
        self.assertRegex(job.stderr, r"first cause +rank 2 .* was stopped, and ended by the launcher")
        self.assert_dumped(job, r"(?m)^failed .* all_reduce \d+")

    @both_transports
    def test_06_a_short_stop_is_survived_with_the_same_bits(self, transport):
        digests = set()
        for mode in ("loop", "pause"):
            job = self.ranks(mode, 3000, 1000, ranks=3, **over(transport))
            if mode == "pause":
                job.resume_stopped(1, after=0.5)
            job.wait(40)
            self.assert_code(job, 0)
            digests |= set(re.findall("digest ([0-9a-f]{16})", job.stdout))
        self.assertEqual(len(digests), 1)

    @both_transports
    def test_08_user_code_hangs_before_a_collective(self, transport):
        job = self.ranks("hang", 2, 20, **over(transport, LOCKSTEP_TIMEOUT="1")).wait(15)
        self.assert_code(job, 4)
        self.assertRegex(job.stderr, r"all_reduce 21 \(.*\) timed out after 1 s")
        self.assertRegex(job.stderr, r"rank 2 was last seen in collective 20")
        self.assert_dumped(job, r"(?m)^failed .* all_reduce 21 .*")

    @both_transports
    def test_09_and_10_ranks_that_disagree(self, transport):
        for what, one, other in (("op", "all_reduce 2", "barrier 2"), ("count", "1000 elements", "1001 elements"),
                                 ("dtype", "float32", "int32"), ("reduce", "sum", "max"), ("root", "root 0", "root 3")):
            job = self.ranks("disagree", what, **over(transport)).wait()
            self.assert_code(job, 1)
            for rank in range(4):
                self.assert_told(job, rank, "ranks disagree: rank . calls ")
            self.assertIn(one, job.stderr)
            self.assertIn(other, job.stderr)
            self.assert_dumped(job, "barrier 1 ")

    @both_transports
    def test_the_trace_of_any_program(self, transport):
        path = os.path.join(self.folder.name, "trace.json")
        job = self.ranks("loop", 100, 20, ranks=3, **over(transport, LOCKSTEP_TRACE=path)).wait()
        self.assert_code(job, 0)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        for rank in range(3):
            spans = [e for e in events if e["ph"] == "X" and e["pid"] == rank and e["name"] == "all_reduce"]
            self.assertEqual([e["args"]["sequence"] for e in spans], list(range(1, 21)))
        self.assertEqual(os.listdir(self.folder.name), ["trace.json"])

    def test_a_trace_that_can_not_be_written_is_an_error_at_the_end(self):
        job = self.ranks("loop", 100, 5, ranks=2, **over("shm", LOCKSTEP_TRACE="/nowhere/trace.json")).wait()
        self.assert_code(job, 1)
        self.assertRegex(job.stderr, "there is no trace: .*/nowhere")

    def test_a_bad_algorithm_is_wrong_usage(self):
        job = self.ranks("loop", 100, 5, ranks=2, **over("shm", LOCKSTEP_ALGORITHM="rang")).wait()
        self.assert_code(job, 2)
        self.assertRegex(job.stderr, "LOCKSTEP_ALGORITHM: 'rang' is none of auto, naive, .*direct")


if __name__ == "__main__":
    harness.main()
