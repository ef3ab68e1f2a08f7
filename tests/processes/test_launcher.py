"""`lockstep run` as people meet it: what ranks are told, what is printed, how jobs end, and that nothing is left."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import harness

HERE = pathlib.Path(__file__).resolve().parent

# Ranks that wait for ever, and are there before they say so.
SLEEP = "echo ready; exec sleep 60"
# On one rank, does as told; the others wait.
def only_on(rank, action):
    return ["sh", "-c", f'if [ "$RANK" = {rank} ]; then {action}; fi; exec sleep 60']


class Environment(harness.TestCase):
    def variables(self, *flags, ranks=2, **options):
        job = self.run_job("run", "-n", ranks, *flags, "--", "env", **options)
        self.assert_code(job, 0)
        by_rank = [{} for _ in range(ranks)]
        for rank, name, value in re.findall(r"^\[rank (\d+)\] (\w+)=(.*)$", job.stdout, re.M):
            by_rank[int(rank)][name] = value
        return by_rank

    def test_says_who_the_rank_is(self):
        ranks = self.variables(ranks=3)
        for rank, got in enumerate(ranks):
            expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3",
                        "MASTER_ADDR": "127.0.0.1", "GROUP_RANK": "0", "LOCKSTEP_GENERATION": "0"}
            self.assertEqual({name: got.get(name) for name in expected}, expected)
            self.assertRegex(got["LOCKSTEP_SECRET"], r"^[0-9a-f]{64}$")
            self.assertRegex(got["LOCKSTEP_STORE"], r"^127\.0\.0\.1:\d+$")
            self.assertRegex(got["MASTER_PORT"], r"^\d+$")
            self.assertNotEqual(got["LOCKSTEP_STORE"].rpartition(":")[2], got["MASTER_PORT"])
        for name in ("MASTER_PORT", "LOCKSTEP_STORE", "LOCKSTEP_SECRET", "LOCKSTEP_LAUNCHER"):
            self.assertEqual(len({got[name] for got in ranks}), 1, name)

    def test_the_store_is_served_and_the_master_port_is_free(self):
        script = ("import os, socket\n"
                  "host, port = os.environ['LOCKSTEP_STORE'].split(':')\n"
                  "greeting = socket.create_connection((host, int(port)), 5).recv(8)\n"
                  "server = socket.socket(); server.bind((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
                  "print(greeting)")
        job = self.run_job("run", harness.PYTHON, "-c", script)
        self.assert_code(job, 0)
        self.assertIn("LOCKSTP1", job.stdout)

    def test_shares_the_cores_unless_told_otherwise(self):
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(self.variables(ranks=1)[0]["OMP_NUM_THREADS"], str(cores))
        self.assertEqual(self.variables(ranks=8)[0]["OMP_NUM_THREADS"], str(max(1, cores // 8)))
        told = self.variables(env={"OMP_NUM_THREADS": "5", "PYTHONUNBUFFERED": "x", "RANK": "7"})[1]
        self.assertEqual((told["OMP_NUM_THREADS"], told["PYTHONUNBUFFERED"], told["RANK"]), ("5", "x", "1"))

    def test_torchruns_spellings(self):
        flags = ["--standalone", "--nnodes=1", "--node_rank", "0", "--no-python", "--max_restarts=0",
                 "--master_addr=localhost", "--nproc_per_node=2"]
        self.assertEqual(self.variables(*flags)[1]["MASTER_ADDR"], "localhost")
        job = self.run_job("run", "--nproc-per-node", "auto", "sh", "-c", "echo $WORLD_SIZE -n 9")
        self.assertEqual(job.stdout.splitlines()[0], f"[rank {job.stdout[6]}] {len(os.sched_getaffinity(0))} -n 9")

    def test_a_given_port_is_used(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.assertEqual(self.variables("--master-port", port)[0]["MASTER_PORT"], str(port))

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [self.start("run", "-n", 2, "--", "sh", "-c", "echo $MASTER_PORT $LOCKSTEP_STORE $LOCKSTEP_SECRET; read x",
                           stdin=b"") for _ in range(2)]
        lines = [job.wait_for_line(r"\[rank 0\] (\d+) (\S+) (\S+)")[0] for job in jobs]
        for job in jobs:
            job.wait()
        for group in (1, 2, 3):
            self.assertNotEqual(lines[0][group], lines[1][group])

    def test_ranks_start_with_default_signals_and_their_own_group(self):
        script = ("import os, signal, sys\n"
                  "odd = [s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN]\n"
                  "sys.stdout.write(f'{odd} {signal.pthread_sigmask(signal.SIG_BLOCK, [])} {os.getpgrp() == os.getpid()} '"
                  "f'{sorted(os.listdir(\"/proc/self/fd\"))}\\n')")
        # -S -E -s: nothing of Python's own; it ignores SIGPIPE and SIGXFSZ by itself.
        job = self.run_job("run", "-n", 2, "--", harness.PYTHON, "-S", "-E", "-c", script)
        for line in job.stdout.splitlines():
            self.assertRegex(line, r"\[<Signals.SIGPIPE: 13>, <Signals.SIGXFSZ: 25>\] set\(\) True \['0', '1', '2', '3'\]")

    def test_a_pytorch_script(self):
        if subprocess.run([harness.PYTHON, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
            self.skipTest(f"{harness.PYTHON} has no torch.distributed")
        job = self.run_job("run", "-n", 2, harness.PYTHON, HERE / "torch_allreduce.py", timeout=60)
        self.assert_code(job, 0)
        self.assertEqual(sorted(job.stdout.splitlines()),
                         [f"[rank {r}] sum is right on rank {r} of 2" for r in range(2)])


class Streams(harness.TestCase):
    def test_each_stream_stays_itself(self):
        job = self.run_job("run", "-n", 2, "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual(sorted(job.stdout.splitlines()), ["[rank 0] out", "[rank 1] out"])
        self.assertEqual(sorted(job.stderr.splitlines()), ["[rank 0] err", "[rank 1] err"])

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


class BadInput(harness.TestCase):
    def assert_refused(self, *arguments, says, cwd=None):
        job = self.run_job("run", *arguments, cwd=cwd)
        self.assert_code(job, 2)
        self.assertEqual(job.stdout, "")
        self.assertRegex(job.stderr, r"\Alockstep run: [^\n]+; try: [^\n]+\n\Z")
        self.assertIn(says, job.stderr)

    def test_is_one_line_and_exit_code_2(self):
        self.assert_refused(says="no program")
        self.assert_refused("-n", 2, says="no program")
        self.assert_refused("-n", 0, "true", says="-n is '0'")
        self.assert_refused("-n", "many", "true", says="-n is 'many'")
        self.assert_refused("--nprocs", 2, "true", says="--nprocs is not a flag")
        self.assert_refused("--nnodes", 2, "true", says="--nnodes 2 is not supported yet")
        self.assert_refused("--max-restarts", 1, "true", says="--max-restarts 1 is not supported yet")
        self.assert_refused("--grace", "soon", "true", says="--grace is 'soon'")
        self.assert_refused("no-such-program", says="'no-such-program'")
        self.assert_refused("/no/such/program", says="'/no/such/program'")
        self.assert_refused("./harness.py", says="try: python3 ./harness.py", cwd=HERE)
        self.assert_refused("--master-addr", "no.such.host.invalid", "true", says="no.such.host.invalid")
        self.assert_refused("--master-addr", "192.0.2.1", "true", says="192.0.2.1 is not an address of this host")
        self.assert_refused("--master-port", 70000, "true", says="70000")
        self.assert_refused("--log-dir", "/proc/no", "true", says="/proc/no")

    def test_a_taken_port_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            self.assert_refused("--master-port", port, "true", says=f"port {port} on 127.0.0.1 is in use")

    def test_a_program_that_the_kernel_refuses(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "prog"
            program.write_text("#!/no/such/interpreter\n")
            program.chmod(0o755)
            self.assert_refused("-n", 3, program, says="interpreter")
            program.write_text("")
            self.assert_refused("-n", 3, program, says="cannot execute")

    def test_verbs(self):
        for arguments, code, says in (([], 0, "Examples:"), (["--help"], 0, "Examples:"), (["run", "--help"], 0, "Examples:"),
                                      (["--version"], 0, "lockstep 0."), (["rnu"], 2, "try: lockstep run")):
            job = self.run_job(*arguments)
            self.assert_code(job, code)
            self.assertTrue((job.stdout + job.stderr).find(says) >= 0, job.describe())


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
        self.assertLess(job.seconds, 3)
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

    def test_a_rank_that_ignores_sigterm_and_has_children(self):
        job = self.run_job("run", "-n", 2, "--grace", 0.3, "--", "sh", "-c",
                           "trap '' TERM INT; sleep 61 & sleep 62 & "
                           "if [ $RANK = 1 ]; then sleep 0.2; exit 3; fi; while :; do sleep 1; done")
        self.assert_code(job, 3)
        self.assertLess(job.seconds, 3)
        self.assert_report(job, r"rank 0 was ended by the launcher \(SIGKILL\)")

    def test_children_that_ranks_left_behind_are_ended(self):
        job = self.run_job("run", "-n", 2, "--", "sh", "-c", "sleep 61 & echo bye")
        self.assert_code(job, 0)
        self.assertLess(job.seconds, 1.5, "SIGTERM was enough")
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
        self.assertLess(job.seconds, 3)

    def test_a_daemon_that_hid_from_us_does_not_hold_us_up(self):
        job = self.run_job("run", "--", "sh", "-c", "setsid env -i sleep 3 & sleep 0.2; echo bye")
        self.assert_code(job, 0)
        self.assertEqual(job.stdout, "[rank 0] bye\n")
        self.assertLess(job.seconds, 2)

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
        self.assertLess(seconds, 3)

    def test_ctrl_c_once_does_not_wait_for_ever(self):
        job, seconds = self.interrupt(self.IGNORES, signal.SIGINT, grace=0.3)
        self.assert_code(job, 130)
        self.assertIn("ranks 0-1 had to be killed", job.stderr)
        self.assertLess(seconds, 3)

    def test_ctrl_c_twice_kills_at_once(self):
        job, seconds = self.interrupt(self.IGNORES, signal.SIGINT, signal.SIGINT)
        self.assert_code(job, 130)
        self.assertLess(seconds, 1.5)

    def test_sigquit_kills_at_once(self):
        job, seconds = self.interrupt(self.IGNORES, signal.SIGQUIT)
        self.assert_code(job, 131)
        self.assertLess(seconds, 1.5)

    def test_sigterm_and_sighup(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            job, seconds = self.interrupt(self.SLEEPS, number)
            self.assert_code(job, 128 + number)
            self.assertLess(seconds, 1.5)
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
