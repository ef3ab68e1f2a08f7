"""Data parallelism in real processes: the examples, and what `lockstep compare` says of hooks and buckets."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import harness
import numerics

sys.path.append(str(harness.ROOT / "bench"))
import hosts  # noqa: E402: it lies beside the benchmarks

FOLDER = os.path.dirname(harness.LOCKSTEP)
HAS_TORCH = os.path.exists(os.path.join(FOLDER, "lockstep-torch"))
ENV = {"OMP_NUM_THREADS": "1"}
SMALL = ("--dim", 32, "--depth", 3, "--batch", 12, "--steps", 3)


@unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
class TwoHosts(harness.TestCase):
    """Two network namespaces, each of which passes for a host."""

    def test_over_a_network_backward_and_communication_overlap(self):
        if why := hosts.why_missing():
            self.skipTest(why)
        before = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        with hosts.Hosts("1gbit") as two:
            document, = two.run([harness.LOCKSTEP, "train", "--strategy", "ddp", *SMALL, "--json"])
        self.assertEqual(document["ranks"], 2)
        self.assertEqual(document["transport"], "tcp")
        self.assertTrue(document["weights_agree"])
        self.assertEqual(document["backward"]["overlap"], "on", "a core waits while bytes are under way to another host")
        self.assertEqual(subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout, before)


@unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
class Examples(harness.TestCase):
    def example(self, name, ranks=0):
        program = os.path.join(FOLDER, "examples", name)
        launcher = ("run", "-n", ranks, "--", program) if ranks else ()
        job = self.start(*launcher, env=ENV, **({} if ranks else {"program": program})).wait(60)
        self.assert_code(job, 0)
        return job.stdout

    @staticmethod
    def losses(text):
        return re.findall(r"step +(\d+)  loss ([0-9.]+)", text)

    def test_every_rung_prints_the_baselines_losses(self):
        want = self.losses(self.example("baseline"))
        self.assertEqual([step for step, _ in want], ["10", "20", "30", "40", "50"])
        self.assertLess(float(want[-1][1]), float(want[0][1]))
        for text in (self.example("manual_data_parallel"), self.example("naive_data_parallel", 3)):
            got = self.losses(text)
            self.assertEqual(len(got), len(want), text)
            numerics.assert_losses(self, [float(loss) for _, loss in got], [float(loss) for _, loss in want])

    def test_a_module_of_ones_own(self):
        for ranks in (1, 3):
            share = re.search(r"([0-9.]+)% right on (\d+) ranks", self.example("ddp_train", ranks))
            self.assertGreater(float(share[1]), 95)
            self.assertEqual(int(share[2]), ranks)

    def test_a_hook_of_ones_own(self):
        losses = [float(loss) for _, loss in self.losses(self.example("custom_comm_hook", 2))]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[-1], 0.1 * losses[0])


@unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
class Compare(harness.TestCase):
    def compare(self, *arguments, code=0):
        job = self.run_job("compare", *arguments, timeout=120, env=ENV)
        self.assert_code(job, code)
        return job

    def test_hooks(self):
        document = json.loads(self.compare("hooks", *SMALL, "--json").stdout)
        self.assertEqual([row["name"] for row in document["rows"]], ["after backward", "hooks"])
        self.assertEqual(document["tensors"], 8)
        self.assertEqual(document["parameters"], 3 * (32 * 32 + 32) + 2 * 32 + 2)
        after, hooks = document["rows"]
        self.assertEqual(after["overlap"], 0)
        self.assertGreater(hooks["communication_ms"], 0)
        text = self.compare("hooks", *SMALL, "--ranks", 3, "--transport", "tcp").stdout
        order = re.findall(r"(?m)^(\d)\.(?:bias|weight) ", text)
        self.assertEqual(order, ["6", "6", "4", "4", "2", "2", "0", "0"], text)
        self.assertIn("3 ranks over tcp", text)
        self.assertRegex(text, r"ms \(\d+%\) of it while backward ran")

    def test_hooks_are_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "hooks.svg")
            self.compare("hooks", *SMALL, "--svg", file)
            picture = xml.etree.ElementTree.parse(file).getroot()
        texts = ["".join(node.itertext()) for node in picture.iter("{http://www.w3.org/2000/svg}text")]
        for name in ("0.weight", "6.bias"):
            self.assertIn(name, texts)
        self.assertEqual(len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))), 8)
        self.compare("hooks", *SMALL, "--svg", "/no/such/folder/x.svg", code=2)

    def test_overlap(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "overlap.svg")
            job = self.compare("overlap", *SMALL, "--transport", "tcp", "--bucket-mb", "0.004", "--json", "--svg", file)
            picture = xml.etree.ElementTree.parse(file).getroot()
        document = json.loads(job.stdout.splitlines()[0])
        names = ["after backward", "ddp, overlap off", "ddp, overlap on", "ddp, overlap auto"]
        self.assertEqual([row["name"] for row in document["rows"]], names)
        _, off, on, by_itself = document["rows"]
        self.assertEqual([row["overlaps"] for row in (off, on, by_itself)], [False, True, len(os.sched_getaffinity(0)) > 2])
        self.assertEqual(off["overlap"], 0)
        self.assertGreater(off["communication_ms"], 0)
        self.assertGreaterEqual(off["exposed_ms"], off["communication_ms"])
        self.assertEqual([one["name"] for one in document["backwards"]], names[1:3])
        for one in document["backwards"]:
            self.assertGreater(len(one["gradients"]), 1)
            self.assertEqual(one["gradients"][0]["parameter"], "bucket 0")
        texts = ["".join(node.itertext()) for node in picture.iter("{http://www.w3.org/2000/svg}text")]
        for name in (*names[1:3], "bucket 0", "bucket 1"):
            self.assertIn(name, texts)
        text = self.compare("overlap", *SMALL, "--ranks", 3).stdout
        self.assertRegex(text, r"By itself, ddp chooses\noverlap (on|off) here")

    def test_buckets(self):
        document = json.loads(self.compare("buckets", *SMALL, "--buckets", "0.004,1", "--json").stdout)
        one, small, large = document["rows"]
        self.assertEqual((one["calls"], large["calls"]), (8, 1))
        self.assertTrue(1 < small["calls"] < 8, small)
        self.assertEqual(one["speedup"], 1)
        for row in document["rows"]:  # every gradient travels once, whatever the buckets; cache lines are filled up
            self.assertAlmostEqual(row["calls"] * row["bytes_per_call"], document["gradient_bytes"], delta=8 * 64)
        self.assertIn("one per parameter", self.compare("buckets", *SMALL).stdout)

    def test_ranks(self):
        flags = ("ranks", "--dim", 16, "--depth", 2, "--batch", 64, "--steps", 6, "--rounds", 1)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "run.json"
            text = self.compare(*flags, "--ranks", 3, "--out", file).stdout
            document = json.loads(file.read_text())
        single, *_, ranks = document["rows"]
        self.assertEqual((single["ranks"], single["threads"], single["speedup"]), (1, 1, 1))
        self.assertEqual((ranks["name"], ranks["ranks"], ranks["strategy"]), ("3 ranks, ddp", 3, "ddp"))
        self.assertEqual(len(document["rows"]), 2 if document["cores"] == 1 else 3)
        for row in document["rows"]:
            self.assertEqual(len(row["losses"]), 6)
            self.assertLess(row["loss_difference"], 1e-5)
            self.assertTrue(row["weights_agree"])
            self.assertAlmostEqual(row["speedup"], single["step_ms"]["p50"] / row["step_ms"]["p50"])
        self.assertRegex(text, r"3 ranks, ddp +3 x 1 +\d+\.\d\d +\d+\.\d\d +0\.\d{6}")
        self.assertRegex(text, r"All 6 losses (agree to [5-9] digits|are the same)")
        self.assertIn("3 ranks ended with the same weights", text)

    def test_a_transformer(self):
        flags = ("--model", "transformer", "--dim", 16, "--depth", 1, "--heads", 2, "--vocabulary", 500, "--sequence", 4,
                 "--batch", 12, "--steps", 3)
        document = json.loads(self.compare("buckets", *flags, "--buckets", "1", "--json").stdout)
        self.assertEqual((document["model"], document["dim"], document["depth"]), ("transformer", 16, 1))
        self.assertEqual(document["rows"][0]["calls"], 17)
        text = self.compare("hooks", *flags).stdout
        self.assertIn("transformer 1x16, 2 heads, vocabulary 500, sequence 4, ", text)
        order = re.findall(r"(?m)^(\d\.[\w.]+) +\d+ ", text)
        self.assertEqual((len(order), order[0], set(order[-2:])), (17, "2.weight", {"0.token.weight", "0.position.weight"}))
        text = self.compare("ranks", *flags, "--rounds", 1).stdout
        self.assertIn("transformer 1x16, 2 heads, vocabulary 500, sequence 4:\n  19", text)
        self.assertIn("2 ranks ended with the same weights", text)

    def test_bad_input_is_one_line(self):
        for arguments, said in ((["bucket"], "lockstep compare buckets"), ([], "nothing to compare"),
                                (["hooks", "--batch", 1, "--ranks", 2], "a batch of 1 on 2 ranks"),
                                (["buckets", "--buckets", "0"], "a bucket of 0 MiB"),
                                (["overlap", "--bucket-mb", 0], "--bucket-mb is 0"),
                                (["hooks", "--heads", 2], "--heads is a flag of transformer, and --model is mlp"),
                                (["buckets", "--model", "cmn"], "try: cnn"),
                                (["hooks", "--transport", "pigeon"], "pigeon"), (["hooks", "x"], "what is 'x'"),
                                (["ranks", "--strategy", "single"], "single"), (["ranks", "--batch", 1], "a batch of 1"),
                                (["ranks", "--ranks", 1], "--ranks"), (["ranks", "--strategy", "pipeline"], "pipeline"),
                                (["ranks", "--out", "/no/such/folder/x"], "--out"), (["ranks", "y"], "what is 'y'")):
            job = self.compare(*arguments, code=2)
            self.assertIn(said, job.stderr)
            self.assertEqual(job.stderr.count("\n"), 1, job.stderr)

    def test_help(self):
        for what in ((), ("ranks",), ("hooks",), ("overlap",), ("buckets",), ("allreduce",)):
            self.assertTrue(self.compare(*what, "--help").stdout.startswith("Examples:\n"))


class Doctor(harness.TestCase):
    def blas(self, **env):
        job = self.run_job("doctor", "--json", timeout=60, env=env)
        return next((f for f in json.loads(job.stdout)["findings"] if f["name"] == "BLAS"), {"value": "no libtorch"})

    def test_old_kernels_on_a_new_processor_are_noted(self):
        with open("/proc/cpuinfo") as cpuinfo:
            flags = cpuinfo.read()
        if "openblas" not in self.blas()["value"] or " avx2 " not in flags:
            self.skipTest("needs OpenBLAS and AVX2")
        old, new = self.blas(OPENBLAS_CORETYPE="PRESCOTT"), self.blas(OPENBLAS_CORETYPE="HASWELL")
        self.assertEqual((old["detail"]["kernels"], old["verdict"]), ("Prescott", "note"))
        self.assertRegex(old["advice"], "^OPENBLAS_CORETYPE=(HASWELL|SKYLAKEX):")
        self.assertEqual((new["detail"]["kernels"], new["verdict"]), ("Haswell", "ok"))


if __name__ == "__main__":
    harness.main()
