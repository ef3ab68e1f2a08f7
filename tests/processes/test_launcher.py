"""What `lockstep run` tells its ranks, and what it says to bad input."""

import os
import pathlib
import re
import signal
import socket
import tempfile

import harness

HERE = pathlib.Path(__file__).resolve().parent


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
        if not harness.torch_python():
            self.skipTest(harness.NO_TORCH)
        job = self.run_job("run", "-n", 2, harness.torch_python(), HERE / "torch_allreduce.py", timeout=60)
        self.assert_code(job, 0)
        self.assertEqual(sorted(job.stdout.splitlines()),
                         [f"[rank {r}] sum is right on rank {r} of 2" for r in range(2)])


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
        self.assert_refused("--master-addr", "192.0.2.1", "true", says="--master-addr 192.0.2.1 is not an address of this host; try: --master-addr 127.0.0.1")
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


if __name__ == "__main__":
    harness.main()
