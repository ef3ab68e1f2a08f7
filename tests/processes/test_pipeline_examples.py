"""Pipeline parallelism in real processes: the examples print the single process's losses, and a stage that dies is named."""

import functools
import json
import os
import re
import signal
import subprocess
import time
import unittest

import harness
import numerics
from harness import both_transports, over

FOLDER = os.path.dirname(harness.LOCKSTEP)
EXAMPLES = os.path.join(FOLDER, "examples")
HAS_TORCH = os.path.exists(os.path.join(FOLDER, "lockstep-torch"))
ENV = {"OMP_NUM_THREADS": "1"}
LOSS = re.compile(r"step +(\d+)  loss ([0-9.]+)(?:  whole ([0-9.]+))?")
# The examples' model and batch.
SINGLE = ("train", "--strategy", "single", "--dim", 128, "--depth", 16, "--batch", 32, "--seed", 42, "--steps", 50, "--json")


@functools.cache
def single_losses():
    """The losses of steps 10, 20, ... 50 in one process."""
    environment = {name: value for name, value in os.environ.items() if not harness.FOREIGN.fullmatch(name)} | ENV
    done = subprocess.run([harness.LOCKSTEP, *map(str, SINGLE)], env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["losses"][9::10]


@unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
class Examples(harness.TestCase):
    def assert_losses(self, lines, want):
        self.assertEqual([int(step) for step, *_ in lines], [10 * (i + 1) for i in range(len(want))])
        numerics.assert_losses(self, [float(loss) for _, loss, _ in lines], want)

    def train(self, *arguments, ranks, code=0, **env):
        program = os.path.join(EXAMPLES, "pipeline_train")
        job = self.start("run", "-n", ranks, "--", program, *arguments, env=ENV | env, timeout=60).wait()
        self.assert_code(job, code)
        return job

    def test_by_hand(self):
        job = self.start(program=os.path.join(EXAMPLES, "manual_pipeline"), env=ENV).wait(60)
        self.assert_code(job, 0)
        lines = LOSS.findall(job.stdout)
        self.assert_losses(lines, single_losses())
        self.assertLess(float(lines[-1][1]), float(lines[0][1]))
        numerics.assert_losses(self, [float(loss) for _, loss, _ in lines], [float(whole) for _, _, whole in lines])

    def test_every_schedule_prints_the_single_processs_losses(self):
        for schedule, ranks in (("naive", 2), ("gpipe", 3), ("1f1b", 4), ("interleaved", 2), ("zb-h1", 3), ("v-half", 2)):
            with self.subTest(schedule=schedule, ranks=ranks):
                job = self.train(schedule, 20, ranks=ranks)
                self.assert_losses(LOSS.findall(job.stdout), single_losses()[:2])
                said = set(re.findall(r"(?m)^\[rank (\d)\] step", job.stdout))
                self.assertEqual(said, {"0"}, "every rank knows the loss, and rank 0 prints it")

    def test_over_tcp(self):
        job = self.train("1f1b", 20, ranks=3, **over("tcp"))
        self.assert_losses(LOSS.findall(job.stdout), single_losses()[:2])

    def test_one_rank(self):
        self.assert_losses(LOSS.findall(self.train(ranks=1).stdout), single_losses())

    def test_bad_input_is_told(self):
        self.assertRegex(self.train("1f2b", ranks=2, code=2).stderr, "'?1f2b'?.*1f1b")
        self.assertRegex(self.train("1f1b", "0", ranks=1, code=2).stderr, "STEPS")


@unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
class Death(harness.TestCase):
    @both_transports
    def test_a_stage_that_is_killed_is_named_with_the_position(self, transport):
        job = self.start("run", "-n", 4, "--", os.path.join(EXAMPLES, "pipeline_train"), "1f1b", 100_000_000,
                         env=ENV | over(transport), timeout=60)
        job.wait_for_line(r"\[rank 0\] step 10 ")
        job.signal_rank(1, signal.SIGKILL)
        killed = time.monotonic()
        for neighbour in (0, 2):
            job.wait_for_line(rf"^\[rank {neighbour}\].*rank 1 died", timeout=1)
        job.wait()
        self.assert_within(2.0, time.monotonic() - killed, "the whole job")
        self.assert_code(job, 128 + signal.SIGKILL)
        for survivor in (0, 2, 3):
            # In words: what it was doing, in which step, with which stage and microbatch.
            self.assert_told(job, survivor,
                             rf"rank {survivor} ((computes|waits for|sends) the .* (of|for) microbatch \d .*stage \d.*"
                             rf"|waits until its messages are sent|tells rank 0 the loss) in step \d+ "
                             rf"\((action \d+, (end|{survivor}\w+)|after its last action)\): "
                             r".*rank 1 died \(signal 9 \(Killed\)\)")
        self.assertRegex(job.stderr, r"rank \d was waiting: it \w+ .* in step \d+ \((action|after) ")
        self.assertNotRegex(job.stderr, r" tag \d")
        self.assertRegex(job.stderr, r"first cause +rank 1 ")


if __name__ == "__main__":
    harness.main()
