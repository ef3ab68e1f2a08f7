"""The same binary under every launcher: ours, mpirun of Open MPI and MPICH, torchrun's and Slurm's variables, a shell loop."""

import json
import os
import re
import shutil
import tempfile

import harness

EXAMPLES = os.path.join(os.path.dirname(harness.LOCKSTEP), "examples")
HELLO = os.path.join(EXAMPLES, "hello_ranks")
PING_PONG = os.path.join(EXAMPLES, "ping_pong")


class EveryLauncher(harness.TestCase):
    def assert_hello(self, job, ranks):
        job.wait()
        self.assert_code(job, 0)
        lines = re.findall(r"hello from rank (\d) of (\d), pid \d+, (\d) ranks on this host", job.stdout)
        self.assertEqual(sorted(lines), [(str(r), str(ranks), str(ranks)) for r in range(ranks)], job.describe())

    def loop(self, ranks, variables):
        """A shell that starts the ranks itself; $r is the rank."""
        return self.start("-c", f"for r in $(seq 0 {ranks - 1}); do {variables} {HELLO} & done; wait", program="bash")

    def test_lockstep_run(self):
        self.assert_hello(self.start("run", "-n", 4, "--", HELLO), 4)

    def test_no_launcher(self):
        self.assert_hello(self.start(program=HELLO), 1)

    def test_shell_loop(self):
        job = self.loop(3, "RANK=$r WORLD_SIZE=3")
        self.assert_hello(job, 3)
        self.assertEqual(len(re.findall(r"OMP_NUM_THREADS is not set: using 1 so that 3 ranks share", job.stderr)), 1)

    def test_shell_loop_with_wrappers_and_subshells(self):
        self.assert_hello(self.loop(3, "RANK=$r WORLD_SIZE=3 timeout 20"), 3)
        self.assert_hello(self.start("-c", f"for r in 0 1 2; do (export RANK=$r WORLD_SIZE=3; {HELLO}; true) & done; wait",
                                     program="bash"), 3)

    def test_torchruns_variables(self):
        self.assert_hello(self.loop(2, "RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
                                       "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0"), 2)

    def test_slurms_variables(self):
        self.assert_hello(self.loop(3, "SLURM_PROCID=$r SLURM_NTASKS=3 SLURM_LOCALID=$r SLURM_JOB_ID=1 SLURM_STEP_ID=0 "
                                       "SLURM_NNODES=1"), 3)

    def test_a_store_of_rank_0_with_a_secret(self):
        port = harness.free_port()
        self.assert_hello(self.loop(3, f"RANK=$r WORLD_SIZE=3 LOCKSTEP_STORE=127.0.0.1:{port} LOCKSTEP_SECRET=long-enough-secret"), 3)
        self.assert_hello(self.loop(3, f"RANK=$r WORLD_SIZE=3 LOCKSTEP_STORE=[::1]:{port} LOCKSTEP_SECRET=long-enough-secret"), 3)
        self.assert_hello(self.loop(2, "RANK=$r WORLD_SIZE=2 LOCKSTEP_STORE=unix:$TMPDIR/store"), 2)

    def test_a_secret_in_a_file(self):
        folder = tempfile.mkdtemp(prefix="lockstep-test-")
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "secret")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(os.urandom(32).hex() + "\n")
        variables = f"RANK=$r WORLD_SIZE=2 LOCKSTEP_STORE=127.0.0.1:{harness.free_port()} LOCKSTEP_SECRET_FILE={path}"
        self.assert_hello(self.loop(2, variables), 2)
        self.assert_hello(self.start("run", "-n", 2, "--", HELLO, env={"LOCKSTEP_SECRET_FILE": path}), 2)
        os.chmod(path, 0o640)
        job = self.loop(2, variables).wait()
        self.assertRegex(job.stderr, "its mode is 0640, so that others can read or change it; try: chmod 600")

    def mpirun(self, name, *flags):
        if not shutil.which(name):
            self.skipTest(f"{name} is not installed")
        self.assert_hello(self.start(*flags, "-n", 3, HELLO, program=name), 3)

    def test_open_mpi(self):
        self.mpirun("mpirun.openmpi", "--oversubscribe", *(["--allow-run-as-root"] if os.getuid() == 0 else []))

    def test_mpich(self):
        self.mpirun("mpirun.mpich")

    def test_ping_pong_example(self):
        for transport in ("shm", "tcp"):
            job = self.run_job("run", "-n", 3, "--", PING_PONG, env={"LOCKSTEP_TRANSPORT": transport})
            self.assert_code(job, 0)
            self.assertEqual(len(re.findall(rf"bytes over {transport}, 3 ranks: +[\d.]+ us a round trip", job.stdout)), 3)

    def test_examples_are_short(self):
        root = harness.ROOT / "examples"
        for file in root.glob("*.cpp"):
            self.assertLess(len(file.read_text().splitlines()), 60, file.name)


class Doctor(harness.TestCase):
    def test_all_is_well(self):
        job = self.run_job("doctor", "--json", timeout=60)
        document = json.loads(job.stdout)
        verdicts = {finding["name"]: finding for finding in document["findings"]}
        for transport in ("shm", "tcp"):
            self.assertEqual(verdicts[f"transport {transport}"]["detail"]["transport"], transport, job.describe())
            self.assertGreater(verdicts[f"transport {transport}"]["detail"]["gbs"], 0)
        self.assertEqual(document["ok"], job.code == 0)
        self.assertGreaterEqual(verdicts["cores"]["detail"]["allowed"], 1)

    def test_it_says_whether_shared_memory_has_large_pages(self):
        try:
            with open("/sys/kernel/mm/transparent_hugepage/shmem_enabled") as file:
                setting = re.search(r"\[(\w+)\]", file.read()).group(1)
        except OSError:
            setting = ""
        job = self.run_job("doctor", "--json", timeout=60)
        finding = next(one for one in json.loads(job.stdout)["findings"] if one["name"] == "large pages")
        self.assertEqual(finding["detail"]["shared_memory"], setting)
        self.assertIn(f"shmem_enabled is {setting}" if setting else "no shmem_enabled", finding["value"])
        if setting in ("", "never", "deny"):
            self.assertFalse(finding["detail"]["found"])
        self.assertRegex(finding["value"], "^shared memory" if finding["detail"]["found"] else "^none for")

    def test_a_broken_transport_is_bad_and_says_why(self):
        job = self.run_job("doctor", env={"LOCKSTEP_SHM_DIR": "/proc"}, timeout=60)
        self.assert_code(job, 1)
        self.assertRegex(job.stdout, r"BAD +transport shm")
        self.assertRegex(job.stdout, r"-> .*cannot make a shared region")
        self.assertRegex(job.stdout, "there are problems")

    def test_a_bad_variable_is_bad(self):
        job = self.run_job("doctor", env={"LOCKSTEP_TIMEOUT": "soon"}, timeout=60)
        self.assert_code(job, 1)
        self.assertRegex(job.stdout, "LOCKSTEP_TIMEOUT is 'soon'")

    def test_works_from_a_folder_with_an_odd_name(self):
        with tempfile.TemporaryDirectory(prefix="it's odd ") as folder:
            shutil.copy(harness.LOCKSTEP, folder)
            job = self.start("doctor", program=os.path.join(folder, "lockstep"), timeout=60).wait()
            self.assertRegex(job.stdout, r"ok +transport shm")

    def test_output_that_can_not_be_written(self):
        job = self.start("-c", f"{harness.LOCKSTEP} doctor --help > /dev/full", program="sh").wait()
        self.assert_code(job, 1)
        self.assertRegex(job.stderr, "could not be written")

    def test_a_wrong_flag(self):
        job = self.run_job("doctor", "--jsn")
        self.assert_code(job, 2)
        self.assertRegex(job.stderr, "--jsn is not a flag of lockstep doctor; try: --json\n")


if __name__ == "__main__":
    harness.main()
