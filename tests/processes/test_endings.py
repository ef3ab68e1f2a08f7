"""How jobs end: who failed first, who is told, and that nothing is left, whatever is killed."""

import os
import pathlib
import re
import shutil
import signal
import tempfile
import socket
import time

import harness

HERE = pathlib.Path(__file__).resolve().parent
# Ranks that wait for ever, and are there before they say so.
SLEEP = "echo ready; exec sleep 60"


# On one rank, does as told; the others wait.
def only_on(rank, action, others="exec sleep 60"):
    return ["sh", "-c", f'if [ "$RANK" = {rank} ]; then {action}; fi; {others}']


class Failures(harness.TestCase):
    def assert_report(self, job, *parts):
        """The block stands last on stderr and has these lines in this order."""
        block = job.stderr[job.stderr.index("lockstep run: FAILED"):]
        self.assertNotIn("\n[rank", block)
        self.assertTrue(block.endswith(f"  exit code    {job.code}\n"), block)
        position = 0
        for part in parts:
            match = re.compile(part).search(block, position)
            self.assertTrue(match, f"{part!r} is not in\n{block}")
            position = match.end()

    def test_a_rank_is_killed(self):
        job = self.start("run", "-n", 4, "--grace", 0.3, "--", "sh", "-c", SLEEP)
        job.wait_for_line("ready", count=4)
        pid = job.pids_of_ranks(4)[2]
        job.signal_rank(2, signal.SIGKILL)
        job.wait()
        self.assert_code(job, 137)
        self.assert_report(job, rf"  first cause  rank 2 \(host {socket.gethostname()}, pid {pid}\) was ended by signal 9 \(Killed\)\n",
                           r"  others       rank 0 was ended by the launcher \(SIGTERM\)\n", "rank 1 was", "rank 3 was")

    def test_a_rank_crashes(self):
        for name, number in (("SEGV", 11), ("ABRT", 6)):
            job = self.run_job("run", "-n", 2, "--grace", 0.1, "--", *only_on(1, f"echo oh no >&2; kill -{name} $$"))
            self.assert_code(job, 128 + number)
            self.assert_report(job, rf"rank 1 .*signal {number} \(", r"last words   oh no\n")

    def test_a_rank_fails(self):
        job = self.run_job("run", "-n", 3, "--grace", 0.1, "--", *only_on(1, "exit 3"))
        self.assert_code(job, 3)
        self.assert_report(job, r"rank 1 .*ended with exit code 3\n", r"others       rank 0 was ended by the launcher")

    def test_survivors_have_time_to_report(self):
        job = self.run_job("run", "-n", 2, "--grace", 5, "--", "sh", "-c",
                           "if [ $RANK = 1 ]; then exit 3; fi; sleep 0.5; echo bye; exit 1")
        self.assert_code(job, 3)
        self.assertIn("[rank 0] bye", job.stdout)
        self.assert_within(3, job.seconds)
        self.assert_report(job, "rank 1", r"others       rank 0 ended with exit code 1\n")

    def test_a_rank_that_leaves_with_0_does_not_end_the_others(self):
        job = self.run_job("run", "-n", 3, "--", "sh", "-c", "test $RANK = 1 || sleep 0.5; echo bye $RANK")
        self.assert_code(job, 0)
        self.assertEqual(len(job.stdout.splitlines()), 3)
        self.assertEqual(job.stderr, "")

    def test_survivors_learn_how_a_peer_ended_from_the_store(self):
        job = self.run_job("run", "-n", 2, "--grace", 3, "--", harness.PYTHON, HERE / "store_client.py")
        self.assert_code(job, 137)
        self.assertIn("[rank 0] rank 1: signal 9 (Killed)\n", job.stdout)
        self.assert_report(job, r"first cause  rank 1 .* signal 9", r"others       rank 0 was waiting: recv from rank 1\n")

    def test_a_stopped_rank_is_ended(self):
        job = self.start("run", "-n", 2, "--grace", 0.3, "--", *only_on(1, "echo ready; kill -STOP $$"))
        job.wait_for_line("ready")
        pid = job.pids_of_ranks(2)[1]
        harness.wait_until(lambda: harness.proc_stat(pid)[0] == "T", 5, "rank 1 is stopped")
        job.signal_rank(0, signal.SIGKILL)
        job.wait()
        self.assert_report(job, "first cause  rank 0", r"rank 1 was stopped, and ended by the launcher \(SIGTERM\)")

    def test_a_rank_that_is_stopped_after_its_peers_left_is_not_waited_for_for_ever(self):
        job = self.run_job("run", "-n", 3, "--", *only_on(1, "kill -STOP $$", others="exit 0"), env={"LOCKSTEP_TIMEOUT": "1.5"})
        self.assert_code(job, 4)
        self.assert_within(15, job.seconds)
        self.assertRegex(job.stderr, r"lockstep run: rank 1 is stopped \(SIGSTOP\), and all others have ended; waited 1.5 s.* try: ")

    def test_a_rank_that_goes_on_in_time_is_waited_for(self):
        job = self.start("run", "-n", 2, "--", *only_on(1, "echo ready; kill -STOP $$; echo on", others="exit 0"),
                         env={"LOCKSTEP_TIMEOUT": "60"})
        job.wait_for_line("ready")
        job.resume_stopped(1, after=2)
        job.wait()
        self.assert_code(job, 0)
        self.assertIn("[rank 1] on", job.stdout)

    def test_a_verb_whose_ranks_never_reach_the_store_ends(self):
        with tempfile.TemporaryDirectory() as folder:
            lockstep = shutil.copy(harness.LOCKSTEP, folder)
            asleep = pathlib.Path(folder) / "lockstep-torch"
            asleep.write_text("#!/bin/sh\nexec sleep 100\n")
            asleep.chmod(0o755)
            job = self.run_job("train", "--ranks", 2, program=lockstep, timeout=30,
                               env={"LOCKSTEP_RENDEZVOUS_TIMEOUT": "1.5"})
        self.assert_code(job, 4)
        self.assertRegex(job.stderr, r"no rank has reached the store within 1.5 s; try: ")

    def test_a_rank_that_ignores_sigterm_and_has_children(self):
        job = self.run_job("run", "-n", 2, "--grace", 0.3, "--", "sh", "-c",
                           "trap '' TERM INT; sleep 61 & sleep 62 & "
                           "if [ $RANK = 1 ]; then sleep 0.2; exit 3; fi; while :; do sleep 1; done")
        self.assert_code(job, 3)
        self.assert_within(3, job.seconds)
        self.assert_report(job, r"rank 0 was ended by the launcher \(SIGKILL\)")

    def test_children_that_ranks_left_behind_are_ended(self):
        job = self.run_job("run", "-n", 2, "--", "sh", "-c", "sleep 61 & echo bye")
        self.assert_code(job, 0)
        self.assert_within(1.5, job.seconds, "SIGTERM was enough")
        self.assertEqual(len(job.stdout.splitlines()), 2)

    def test_children_that_ranks_left_behind_may_tidy_up(self):
        job = self.run_job("run", "--grace", 5, "--", "sh", "-c", "(trap 'echo tidy; exit' TERM; echo armed; "
                           "while :; do sleep 0.05; done) & sleep 0.3; echo bye")
        self.assert_code(job, 0)
        self.assertEqual(job.stdout.split(), "[rank 0] armed [rank 0] bye [rank 0] tidy".split())

    def test_children_that_left_the_group_are_ended_too(self):
        job = self.run_job("run", "-n", 2, "--grace", 0.3, "--", "sh", "-c",
                           "setsid sh -c 'trap \"\" TERM; sleep 61; sleep 62' & setsid sleep 63 & sleep 0.2; echo bye")
        self.assert_code(job, 0)
        self.assert_within(3, job.seconds)

    def test_a_daemon_that_hid_from_us_is_ended_too(self):
        with tempfile.NamedTemporaryFile() as note:
            job = self.run_job("run", "--", "sh", "-c", "setsid env -i sh -c 'echo $$ > $0; exec sleep 30' %s & sleep 0.3; echo bye"
                               % note.name)
            self.assert_code(job, 0)
            self.assertEqual(job.stdout, "[rank 0] bye\n")
            self.assert_within(4, job.seconds)
            self.assertIsNone(harness.proc_stat(int(note.read())))

    def test_the_launcher_is_killed(self):
        job = self.start("run", "-n", 3, "--", "sh", "-c", "trap '' TERM HUP INT; sleep 61 & echo ready; wait; sleep 62")
        job.wait_for_line("ready", count=3)
        job.signal_rank(2, signal.SIGSTOP)
        self.assertGreaterEqual(len(job.pids()), 1 + 1 + 3 + 3)
        job.signal(signal.SIGKILL)
        job.wait()
        self.assert_code(job, 137)
        job.assert_nothing_left(within=2)

    def test_the_launcher_is_killed_with_its_group(self):
        job = self.start("run", "-n", 2, "--", "sh", "-c", "sleep 61 & echo ready; wait")
        job.wait_for_line("ready", count=2)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        job.assert_nothing_left(within=2)

    def test_no_room_for_more_descriptors(self):
        if "undefined" in harness.SANITIZERS:
            self.skipTest("the undefined-behaviour sanitizer needs descriptors of its own")
        job = self.run_job("-c", 'ulimit -n 40; exec "$0" run -n 20 -- sleep 60', harness.LOCKSTEP, program="bash")
        self.assert_code(job, 1)
        self.assertRegex(job.stderr, r"\Alockstep run: [^\n]*Too many open files[^\n]*; try: [^\n]+\n\Z")


class Interruptions(harness.TestCase):
    SLEEPS = ["sh", "-c", SLEEP]
    SAVES = [harness.PYTHON, "-c", "import signal, sys\n"
             "def save(*_):\n  print('saved')\n  sys.exit(0)\n"
             "for number in (signal.SIGINT, signal.SIGUSR1): signal.signal(number, save)\n"
             "print('ready')\nsignal.pause()"]
    IGNORES = ["sh", "-c", "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"]

    def interrupt(self, program, *numbers, grace=10):
        job = self.start("run", "-n", 2, "--grace", grace, "--", *program)
        job.wait_for_line("ready", count=2)
        for number in numbers:
            job.signal(number)
            job.wait_for_line("stopping 2 ranks")
        start = time.monotonic()
        job.wait()
        self.assertNotIn("FAILED", job.stderr)
        return job, time.monotonic() - start

    def test_ctrl_c_once_lets_ranks_save(self):
        job, seconds = self.interrupt(self.SAVES, signal.SIGINT)
        self.assert_code(job, 130)
        self.assertEqual(job.stdout.count("saved"), 2)
        self.assertEqual(job.stderr, "lockstep run: interrupted, stopping 2 ranks (again to kill at once)\n")
        self.assert_within(3, seconds)

    def test_ctrl_c_once_reaches_every_rank_once(self):
        counts = ("import signal\n"
                  "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
                  "print('ready')\n"
                  "count = int(signal.sigtimedwait([signal.SIGINT], 30) is not None)\n"
                  "while signal.sigtimedwait([signal.SIGINT], 0.2): count += 1\n"
                  "print('signals:', count)")
        for _ in range(3):
            job = self.start("run", "-n", 4, "--", harness.PYTHON, "-u", "-c", counts)
            job.wait_for_line("ready", count=4)
            job.signal(signal.SIGINT)
            job.wait()
            self.assert_code(job, 130)
            self.assertEqual(job.stdout.count("signals: 1"), 4, job.stdout)

    def test_ctrl_c_once_does_not_wait_for_ever(self):
        job, seconds = self.interrupt(self.IGNORES, signal.SIGINT, grace=0.3)
        self.assert_code(job, 130)
        self.assertIn("ranks 0-1 had to be killed", job.stderr)
        self.assert_within(3, seconds)

    def test_ctrl_c_twice_kills_at_once(self):
        job, seconds = self.interrupt(self.IGNORES, signal.SIGINT, signal.SIGINT)
        self.assert_code(job, 130)
        self.assert_within(1.5, seconds)

    def test_sigquit_kills_at_once(self):
        job, seconds = self.interrupt(self.IGNORES, signal.SIGQUIT)
        self.assert_code(job, 131)
        self.assert_within(1.5, seconds)

    def test_sigterm_and_sighup(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            job, seconds = self.interrupt(self.SLEEPS, number)
            self.assert_code(job, 128 + number)
            self.assert_within(1.5, seconds)
        job, seconds = self.interrupt(self.IGNORES, signal.SIGTERM, grace=0.3)
        self.assert_code(job, 143)

    def test_nohup(self):
        job = self.start("-c", 'trap "" HUP; exec "$0" run -- sh -c "echo ready; sleep 0.5; echo bye"', harness.LOCKSTEP,
                         program="bash")
        job.wait_for_line("ready")
        job.signal(signal.SIGHUP)
        job.wait()
        self.assert_code(job, 0)
        self.assertIn("bye", job.stdout)

    def test_stop_and_continue(self):
        job = self.start("run", "-n", 2, "--", "sh", "-c", "echo ready; while :; do sleep 0.05; done")
        job.wait_for_line("ready", count=2)
        pids = [job.pid, *job.pids_of_ranks(2).values()]
        job.signal(signal.SIGTSTP)
        harness.wait_until(lambda: all(harness.proc_stat(pid)[0] == "T" for pid in pids), 5, "all are stopped")
        job.signal(signal.SIGCONT)
        harness.wait_until(lambda: all(harness.proc_stat(pid)[0] != "T" for pid in pids), 5, "all go on")
        job.signal(signal.SIGTERM)
        job.wait()
        self.assert_code(job, 143)

    def test_sigusr1_is_passed_on(self):
        job = self.start("run", "-n", 2, "--", *self.SAVES)
        job.wait_for_line("ready", count=2)
        job.signal(signal.SIGUSR1)
        job.wait()
        self.assert_code(job, 0)
        self.assertEqual(job.stdout.count("saved"), 2)


class Thrift(harness.TestCase):
    def test_the_launcher_rests_while_ranks_work(self):
        job = self.start("run", "-n", 4, "--", "sh", "-c", SLEEP)
        job.wait_for_line("ready", count=4)
        time.sleep(0.2)

        def ticks():
            with open(f"/proc/{job.pid}/stat") as file:
                return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))

        before = ticks()
        open_before = len(job.descriptors())
        time.sleep(1)
        self.assertLessEqual(ticks() - before, 1)
        self.assertEqual(len(job.descriptors()), open_before)
        job.signal(signal.SIGTERM)
        job.wait()

    def test_no_zombies_while_it_runs(self):
        job = self.start("run", "-n", 2, "--", "sh", "-c",
                         "for i in 1 2 3 4 5; do (sleep 0.1 &) ; done; sleep 0.4; test $RANK = 0 && exit 0; echo ready; exec sleep 60")
        job.wait_for_line("ready")
        time.sleep(0.1)
        zombies = [pid for pid in harness.all_pids() if harness.proc_stat(pid) in (("Z", job.pid),)]
        self.assertEqual(zombies, [])
        job.signal(signal.SIGTERM)
        job.wait()


if __name__ == "__main__":
    harness.main()
