"""What ranks write and read under `lockstep run`: prefixes, whole lines, log files, slow and absent readers."""

import os
import pathlib
import re
import shutil
import signal
import tempfile
import time

import harness


class Streams(harness.TestCase):
    def test_each_stream_stays_itself(self):
        job = self.run_job("run", "-n", 2, "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual(sorted(job.stdout.splitlines()), ["[rank 0] out", "[rank 1] out"])
        self.assertEqual(sorted(job.stderr.splitlines()), ["[rank 0] err", "[rank 1] err"])

    def test_a_line_is_passed_on_when_it_ends(self):
        program = os.path.join(os.path.dirname(harness.LOCKSTEP), "tests", "rank_under_test")
        job = self.run_job("run", "-n", 2, "--", program, "unflushed", 1, 3)
        self.assertIn("[rank 1] last words", job.stdout.splitlines(), "lost, because the rank ended without flushing")

    def test_lines_stay_whole_under_heavy_output(self):
        script = ("import os, sys\nrank = os.environ['RANK']\n"
                  "for i in range(4000):\n    os.write(1 + i % 2, (f'{i:05d}' + rank * (i % 97)).encode())\n"
                  "    os.write(1 + i % 2, b'\\n')")
        job = self.run_job("run", "-n", 4, "--", harness.PYTHON, "-c", script)
        self.assert_code(job, 0)
        for text, parity in ((job.stdout, 0), (job.stderr, 1)):
            expected = [[f"{i:05d}" + str(rank) * (i % 97) for i in range(parity, 4000, 2)] for rank in range(4)]
            got = [[] for _ in range(4)]
            for line in text.splitlines():
                match = re.fullmatch(r"\[rank (\d)\] (\d{5}(\d*))", line)
                self.assertTrue(match, line)
                got[int(match[1])].append(match[2])
            self.assertEqual(got, expected)

    def test_output_without_newline_and_long_lines(self):
        job = self.run_job("run", "--", "sh", "-c", "head -c 150000 /dev/zero | tr '\\0' x; printf '\\nlast'")
        self.assertEqual([len(line) - len("[rank 0] ") for line in job.stdout.splitlines()],
                         [65536, 65536, 150000 - 2 * 65536, 4])
        self.assertTrue(job.stdout.endswith("[rank 0] last\n"))

    def test_ten_megabytes_and_a_slow_reader(self):
        job = self.start("run", "-n", 2, "--", "sh", "-c",
                         "head -c 5000000 /dev/zero | tr '\\0' x | fold -w 99; echo done $RANK >&2", read=False)
        time.sleep(0.5)
        ranks = job.pids_of_ranks(2)
        self.assertEqual(len(ranks), 2, "the ranks wait until somebody reads")
        job.wait()
        self.assert_code(job, 0)
        self.assertEqual(job.stdout.count("x"), 10_000_000)

    def test_a_death_is_handled_while_nobody_reads(self):
        job = self.start("run", "-n", 2, "--grace", 0.3, "--", "sh", "-c", "yes", read=False)
        job.pids_of_ranks(2)
        time.sleep(0.3)
        job.signal_rank(1, signal.SIGKILL)
        harness.wait_until(lambda: not job.pids_of_ranks(), 3, "both ranks are gone")
        job.wait()
        self.assert_code(job, 137)
        self.assertTrue(job.stderr.endswith("exit code    137\n"), job.stderr)

    def test_a_stop_does_not_wait_for_a_reader(self):
        job = self.start("run", "--grace", 0.3, "--", "yes", read=False)
        job.pids_of_ranks(1)
        time.sleep(0.3)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.process.wait(3), 143)
        job.wait()

    def test_head(self):
        for redirect in ("", "2>&1"):
            job = self.run_job("-c", f'"$0" run -n 2 -- yes {redirect} | head -n 1; echo "code ${{PIPESTATUS[0]}}"',
                               harness.LOCKSTEP, program="bash")
            self.assertRegex(job.stdout, r"^\[rank \d\] y\ncode 141\n$")
            self.assertEqual(job.stderr, "")

    def test_a_reader_who_leaves_ends_the_job_quietly(self):
        job = self.start("run", "-n", 2, "--", "sh", "-c", "sleep 0.2; echo hi; sleep 60", read=False)
        job.close_stdout()
        job.wait()
        self.assert_code(job, 141)
        self.assertEqual(job.stderr, "")

    def test_rank_0_reads_our_stdin(self):
        job = self.run_job("run", "-n", 2, "--", "sh", "-c", "wc -c", stdin=b"x" * 300_000)
        self.assertEqual(sorted(job.stdout.split("\n")), ["", "[rank 0] 300000", "[rank 1] 0"])

    def test_colours_on_a_terminal_only(self):
        for end in harness.open_terminal():  # only to see whether there are any
            os.close(end)
        script = "import pty, sys; pty.spawn(sys.argv[1:])"
        arguments = ["-c", script, harness.LOCKSTEP, "run", "-n", "2", "--", "sh", "-c", "test ! -t 0 && echo hi; exit 3"]
        job = self.run_job(*arguments, program=harness.PYTHON, env={"NO_COLOR": None})
        self.assertRegex(job.stdout, r"\x1b\[\d+m\[rank 0\]\x1b\[0m hi")
        self.assertIn("\x1b[1;31mlockstep run: FAILED\x1b[0m", job.stdout)
        job = self.run_job(*arguments, program=harness.PYTHON, env={"NO_COLOR": "1"})
        self.assertIn("[rank 0] hi", job.stdout)
        self.assertNotIn("\x1b", job.stdout)

    def test_log_files(self):
        folder = self.folder()
        say = ["--", "sh", "-c", "echo out $RANK; printf err >&2"]
        job = self.run_job("run", "-n", 2, "--log-dir", folder / "a" / "b", *say)
        self.assertEqual(self.files(folder / "a" / "b"), {
            "rank_0.stdout": "out 0\n", "rank_0.stderr": "err", "rank_1.stdout": "out 1\n", "rank_1.stderr": "err"})
        self.assertIn("[rank 1] out 1", job.stdout)
        self.assertIn("[rank 1] err", job.stderr)
        job = self.run_job("run", "--log-dir", folder / "c", "--tee", 1, *say)
        self.assertEqual(self.files(folder / "c"), {"rank_0.stdout": "out 0\n"})
        self.assertIn("[rank 0] err", job.stderr)
        job = self.run_job("run", f"--log_dir={folder / 'd'}", "-r", 3, "-t", 2, *say)
        self.assertEqual(self.files(folder / "d"), {"rank_0.stdout": "out 0\n", "rank_0.stderr": "err"})
        self.assertEqual((job.stdout, job.stderr), ("", "[rank 0] err\n"))
        job = self.run_job("run", "--log-dir", folder / "e", "--", "sh", "-c", "exit 3")
        self.assertIn(f"  logs         {folder / 'e'}\n", job.stderr)

    def test_output_that_cannot_be_written_is_an_error(self):
        job = self.run_job("-c", '"$0" run -- echo hi > /dev/full', harness.LOCKSTEP, program="bash")
        self.assert_code(job, 1)
        self.assertEqual(job.stderr, "lockstep run: stdout could not be written: No space left on device\n")

    def test_closed_standard_streams(self):
        job = self.run_job("-c", '"$0" run -- sh -c "echo hi; exit 3" <&- >&-', harness.LOCKSTEP, program="bash")
        self.assert_code(job, 3)
        self.assertIn("FAILED", job.stderr)

    def folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def files(self, folder):
        return {path.name: path.read_text() for path in folder.iterdir()}


if __name__ == "__main__":
    harness.main()
