"""`lockstep train`: real ranks, against plain PyTorch."""

import functools
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import numerics

ORACLES = harness.ROOT / "tests" / "oracles"
sys.path.insert(0, str(ORACLES))
import safetensors_reader  # noqa: E402: from that folder

HAS_TORCH = os.path.exists(os.path.join(os.path.dirname(harness.LOCKSTEP), "lockstep-torch"))
# What docs/command_line.md promises to scripts.
FIELDS = {"strategy", "engine", "transport", "ranks", "model", "parameters", "steps", "losses", "step_ms", "phase_ms",
          "weights_digest"}
# Threads of a run that has the machine for itself wait for each other when other tests run beside it.
ENV = {"OMP_NUM_THREADS": "1"}
SMALL = ("--dim", 16, "--depth", 2, "--batch", 8)
TRANSFORMER = ("--model", "transformer", "--dim", 16, "--depth", 2, "--heads", 2, "--vocabulary", 50, "--sequence", 8)


@functools.cache
def torch_losses(*flags):
    """Of the same run in plain PyTorch."""
    done = subprocess.run([harness.torch_python(), ORACLES / "single.py", *map(str, flags)], capture_output=True, text=True,
                          env=os.environ | ENV)
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["losses"]


@unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
class TrainCase(harness.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, *arguments, code=0, **options):
        job = self.run_job("train", *arguments, "--json", timeout=120, **{"env": ENV} | options)
        self.assert_code(job, code)
        return json.loads(job.stdout)

    def assert_losses(self, document, losses):
        numerics.assert_losses(self, document["losses"], losses)

    def assert_one_weight(self, document):
        digests = document["weights_digest"]
        self.assertEqual(len(digests), document["ranks"])
        self.assertEqual(len(set(digests)), 1)
        self.assertRegex(digests[0], r"\A[0-9a-f]{64}\Z")


class Losses(TrainCase):
    def setUp(self):
        super().setUp()
        if not harness.torch_python():
            self.skipTest(harness.NO_TORCH)

    def test_single_is_pytorch(self):
        document = self.train("--strategy", "single")
        self.assert_losses(document, torch_losses())
        # What the documentation shows, with libtorch 1.13 and with 2.13.
        if not any(name in os.environ for name in ("OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "MKL_CBWR")):
            self.assertEqual(f"{document['losses'][0]:.6f} {document['losses'][-1]:.6f}", "0.698788 0.231414")
        self.assertEqual(len(document["losses"]), 50)
        self.assertLessEqual(FIELDS, set(document))

    def test_every_strategy(self):
        # A sample, because every rank loads libtorch. tests/train/loop_test.cpp has all strategies on 1 to 4 ranks.
        runs = [(("manual",), 1), (("naive",), 1), (("naive",), 3), (("hooks",), 2), (("ddp",), 1), (("ddp",), 2),
                (("ddp",), 4), (("ddp", "--flat"), 3), (("ddp", "--bucket-mb", "0.1"), 3), (("sharded",), 2),
                (("sharded",), 4)]
        for rung, ranks in runs:
            with self.subTest(f"{' '.join(rung)} on {ranks}"):
                document = self.train("--strategy", *rung, "--ranks", ranks)
                self.assertEqual((document["strategy"], document["ranks"]), (rung[0], ranks))
                self.assert_losses(document, torch_losses())
                self.assert_one_weight(document)

    def test_over_tcp(self):
        document = self.train("--ranks", 3, "--transport", "tcp", "--algorithm", "ring")
        self.assertEqual((document["transport"], document["algorithm"]), ("tcp", "ring"))
        self.assert_losses(document, torch_losses())

    def test_cnn(self):
        flags = ("--model", "cnn", "--channels", 8, 16, "--hidden", 32, "--batch", 10, "--steps", 20)
        for rung, ranks in (("single", 1), ("ddp", 2), ("sharded", 3)):
            with self.subTest(rung):
                self.assert_losses(self.train("--strategy", rung, "--ranks", ranks, *flags), torch_losses(*flags))

    def test_transformer(self):
        for tied in ((), ("--tied",)):
            flags = (*TRANSFORMER, *tied, "--batch", 12, "--steps", 20)
            for rung, ranks in (("single", 1), ("ddp", 2), ("sharded", 3)):
                with self.subTest(f"{rung} {tied}"):
                    document = self.train("--strategy", rung, "--ranks", ranks, *flags)
                    self.assert_losses(document, torch_losses(*flags))
                    self.assert_one_weight(document)
                    self.assertEqual(document["parameters"], 8320 - (50 * 16 if tied else 0))
        flags = ("--model", "transformer", "--steps", 10)
        document = self.train("--strategy", "single", *flags)
        self.assert_losses(document, torch_losses(*flags))
        self.assertEqual((document["model"], document["data"]), ("transformer", "tokens"))
        self.assertAlmostEqual(document["best_loss"], 1.136917, places=6)

    def test_optimizers(self):
        for optimizer in ("sgd", "momentum", "adamw", "rmsprop", "adagrad"):
            with self.subTest(optimizer):
                flags = ("--optimizer", optimizer, "--dim", 32, "--depth", 3, "--lr", 0.01)
                self.assert_losses(self.train("--strategy", "single", *flags), torch_losses(*flags))

    def test_ddp_is_pytorchs_own_ddp(self):
        for flags in ((), ("--model", "cnn", "--channels", "8", "16", "--hidden", "32", "--steps", "20"),
                      (*TRANSFORMER, "--tied", "--steps", "20")):
            with self.subTest(flags[:2]):
                theirs = self.run_job("run", "-n", 2, "--", harness.torch_python(), ORACLES / "ddp.py", *flags, timeout=120)
                self.assert_code(theirs, 0)
                line = next(line for line in theirs.stdout.splitlines() if "losses" in line)
                losses = json.loads(line.removeprefix("[rank 0] "))["losses"]
                self.assert_losses(self.train("--ranks", 2, *flags), losses)


class Runs(TrainCase):
    def test_microbatches_are_the_batch(self):
        single = self.train("--strategy", "single", *SMALL)
        for rung, ranks in (("single", 1), ("naive", 2), ("ddp", 2)):
            with self.subTest(rung):
                document = self.train("--strategy", rung, "--ranks", ranks, *SMALL, "--accumulate", 3)
                self.assert_losses(document, single["losses"])

    def test_batch_per_rank(self):
        document = self.train("--ranks", 3, "--dim", 16, "--depth", 2, "--batch-per-rank", 5)
        self.assertEqual(document["batch"], 15)

    def test_phases_are_parts_of_the_step(self):
        document = self.train("--strategy", "naive", *SMALL)
        phases = document["phase_ms"]
        self.assertEqual(set(phases), {"forward", "backward", "communication", "exposed_communication", "optimizer", "other"})
        self.assertTrue(all(value > 0 for value in phases.values()), phases)
        self.assertLessEqual(document["step_ms"]["p50"], document["step_ms"]["p99"])
        self.assertAlmostEqual(document["overhead_percent"],
                               100 * phases["exposed_communication"] / document["step_ms"]["mean"])

    def test_defaults_give_the_same_losses_at_any_width(self):
        flags = ("--dim", 1024, "--batch", 64)
        single = self.train("--strategy", "single", *flags)
        ddp = self.train("--ranks", 2, *flags)
        self.assertAlmostEqual(single["lr"], 0.001 / 8 ** 1.5)
        # The last digits differ, and every step makes that difference larger: by the 25th it is 1e-5.
        numerics.assert_losses(self, ddp["losses"][:20], single["losses"][:20])
        self.assertLess(abs(ddp["losses"][-1] / single["losses"][-1] - 1), 0.01)
        for document in (single, ddp):
            self.assertNotIn("loss_trouble", document)
            self.assertLess(document["losses"][-1], document["losses"][0])
        self.assertEqual(self.train("--dim", 128, "--steps", 1)["lr"], 0.001)

    def test_memory(self):
        document = self.train("--ranks", 2, *SMALL, "--report-memory")
        self.assertEqual(len(document["pss_bytes"]), 2)
        self.assertTrue(all(10 << 20 < bytes < 4 << 30 for bytes in document["pss_bytes"]), document["pss_bytes"])
        self.assertTrue(all(p >= 10 << 20 for p in document["peak_memory_bytes"]))

    def start_on_a_full_disk(self, kilobytes, *arguments):
        """Limits the size of every file to `kilobytes`: a write beyond that fails as on a full disk."""
        limited = f"ulimit -f {kilobytes}; exec \"$@\""
        return self.start("-c", limited, "-", harness.LOCKSTEP, "train", *arguments, program="/bin/bash", timeout=60, env=ENV).wait()

    def test_a_full_disk_is_an_error_and_leaves_nothing(self):
        # The result of several ranks travels in a file in memory, for which the limit counts too.
        large = ("--dim", 256, "--depth", 2, "--steps", 200)
        for ranks, flag, kilobytes, model in ((1, "--save", 1, SMALL), (1, "--trace", 1, SMALL), (1, "--out", 1, SMALL),
                                              (2, "--save", 64, large), (2, "--trace", 64, large)):
            with self.subTest(flag, ranks=ranks):
                path = self.folder / "old"
                path.write_text("old")
                job = self.start_on_a_full_disk(kilobytes, "--ranks", ranks, *model, flag, path)
                self.assert_code(job, 1)
                self.assertIn(str(path), job.stderr)
                self.assertNotIn("wrote", job.stderr)
                if flag != "--save":
                    self.assertIn("weights", job.stdout)  # the training itself went well
                self.assertEqual([name.name for name in self.folder.iterdir()], ["old"])
                self.assertEqual(path.read_text(), "old")

    def test_files_are_confirmed(self):
        paths = [self.folder / name for name in ("a", "b", "c")]
        for ranks in (1, 2):
            job = self.run_job("train", "--ranks", ranks, *SMALL, "--steps", 2, "--save", paths[0], "--trace", paths[1],
                               "--out", paths[2], timeout=60, env=ENV)
            self.assert_code(job, 0)
            for path in paths:
                self.assertEqual(job.stderr.count(f"wrote {path}\n"), 1, job.stderr)

    def test_trace(self):
        trace = self.folder / "trace.json"
        self.train("--ranks", 2, *SMALL, "--steps", 4, "--trace", trace)
        events = json.loads(trace.read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        for name in ("step", "forward", "backward", "optimizer"):
            self.assertEqual(sum(event.get("name") == name for event in events), 2 * 4, name)

    def test_out_is_the_document(self):
        out = self.folder / "run.json"
        job = self.run_job("train", *SMALL, "--out", out, timeout=60)
        self.assert_code(job, 0)
        document = json.loads(out.read_text())
        self.assertLessEqual(FIELDS, set(document))
        self.assert_one_weight(document)
        for word in ("forward", "backward", "optimizer", "exposed communication", "overhead", "loss", "weights",
                     document["weights_digest"][0][:16]):
            self.assertIn(word, job.stdout)
        self.assertRegex(job.stderr, rf"ddp on 2 ranks over shm.*\n.* {document['parameters']} parameters, "
                                     rf"{document['gradient_bytes']} bytes of gradients")

    def test_flush_denormals(self):
        document = self.train("--ranks", 2, *SMALL, "--flush-denormals")
        self.assert_one_weight(document)

    def test_as_a_rank_that_somebody_else_started(self):
        job = self.run_job("run", "-n", 3, "--", harness.LOCKSTEP, "train", *SMALL, "--json", timeout=60)
        self.assert_code(job, 0)
        line = next(line for line in job.stdout.splitlines() if "losses" in line)
        self.assertEqual(json.loads(line.removeprefix("[rank 0] "))["ranks"], 3)


class Weights(TrainCase):
    def test_saved_and_loaded_they_are_the_same(self):
        path = self.folder / "w.safetensors"
        saved = self.train("--ranks", 2, *SMALL, "--save", path)
        self.assertEqual([file.name for file in self.folder.iterdir()], ["w.safetensors"])
        tensors, metadata = safetensors_reader.read(path)
        self.assertEqual({name: shape for name, (_, shape, _) in tensors.items()},
                         {"0.weight": [16, 16], "0.bias": [16], "2.weight": [16, 16], "2.bias": [16],
                          "4.weight": [2, 16], "4.bias": [2]})
        self.assertEqual(metadata["dim"], "16")
        for strategy in ("single", "ddp", "sharded"):
            with self.subTest(strategy):
                # A step so small that it changes no float.
                again = self.train("--strategy", strategy, *SMALL, "--steps", 1, "--optimizer", "sgd", "--lr", 1e-30,
                                   "--load", path)
                self.assertEqual(again["weights_digest"][0], saved["weights_digest"][0])

    def test_a_sharded_run_saves_all_of_them(self):
        whole, parts = self.folder / "single", self.folder / "sharded"
        flags = (*SMALL, *numerics.OPTIMIZER)
        self.train("--strategy", "single", *flags, "--save", whole)
        self.train("--strategy", "sharded", "--ranks", 3, *flags, "--save", parts)
        a, b = safetensors_reader.read(whole)[0], safetensors_reader.read(parts)[0]
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            numerics.assert_weights(self, b[name][2], a[name][2], name)

    def test_tied_weights_have_two_names_and_are_one(self):
        tied, apart = self.folder / "tied", self.folder / "apart"
        flags = (*TRANSFORMER, "--batch", 8, "--steps", 3)
        saved = self.train("--ranks", 2, *flags, "--tied", "--save", tied)
        tensors, metadata = safetensors_reader.read(tied)
        self.assertEqual(tensors["3.weight"], tensors["0.token.weight"])
        self.assertIn("tied", metadata)
        again = self.train("--strategy", "single", *TRANSFORMER, "--tied", "--steps", 1, "--optimizer", "sgd", "--lr", 1e-30,
                           "--load", tied)
        self.assertEqual(again["weights_digest"][0], saved["weights_digest"][0])
        self.train("--strategy", "single", *flags, "--save", apart)
        job = self.run_job("train", "--strategy", "single", *flags, "--tied", "--load", apart, timeout=60)
        self.assert_code(job, 2)
        self.assertRegex(job.stderr, r"\Alockstep train: .*'0.token.weight' and '3.weight' are one tensor here, and differ in the "
                                     r"file; try: the model that they are of: .*--vocabulary 50\n\Z")

    def test_of_another_model(self):
        path = self.folder / "w"
        self.train("--strategy", "single", *SMALL, "--steps", 1, "--save", path)
        for ranks in (1, 2):
            job = self.run_job("train", "--ranks", ranks, "--dim", 32, "--depth", 2, "--load", path, timeout=60)
            self.assert_code(job, 2)
            self.assertEqual(job.stdout, "")
            self.assertRegex(job.stderr, r"\Alockstep train: .*weights of another model: '0.bias|'0.weight' is F32 \[16, 16\] "
                                         r"in the file and F32 \[32, 32\] here; try: .*--dim 16.*\n\Z")


def idx(path, dimensions, values):
    path.write_bytes(struct.pack(">BBBB", 0, 0, 8, len(dimensions)) + b"".join(struct.pack(">I", n) for n in dimensions)
                     + bytes(values))


class Images(TrainCase):
    """A data set of 37 and 11 images, whose labels can be seen: that many rows are white."""

    def setUp(self):
        super().setUp()
        for prefix, count in (("train", 37), ("t10k", 11)):
            labels = [i * 7 % 10 for i in range(count)]
            pixels = [255 if row // 2 == label else (row * label + column) % 50
                      for label in labels for row in range(28) for column in range(28)]
            idx(self.folder / f"{prefix}-images-idx3-ubyte", (count, 28, 28), pixels)
            idx(self.folder / f"{prefix}-labels-idx1-ubyte", (count,), labels)
        self.flags = ("--model", "cnn", "--channels", "4,8", "--hidden", 32, "--data", "mnist", "--data-dir", self.folder,
                      "--batch", 12)

    def test_epochs_on_any_number_of_ranks_see_the_same_samples(self):
        single = self.train("--strategy", "single", *self.flags, "--epochs", 3, "--tail", "uneven")
        self.assertEqual((single["steps"], len(single["accuracies"])), (12, 3))
        for ranks in (2, 3):
            with self.subTest(ranks):
                document = self.train("--ranks", ranks, *self.flags, "--epochs", 3, "--tail", "uneven")
                self.assert_losses(document, single["losses"])
                self.assertEqual(document["accuracies"], single["accuracies"])
                self.assert_one_weight(document)

    def test_it_learns(self):
        document = self.train("--ranks", 2, *self.flags, "--epochs", 25, "--lr", 0.003)
        self.assertGreaterEqual(document["accuracy"], 0.9)

    def test_padding_does_not_count_in_the_accuracy(self):
        accuracies = set()
        for ranks in (1, 2, 3):
            # Weights that hardly move: all of these guess alike. 11 images are divided by none but 1.
            document = self.train("--strategy", "naive", "--ranks", ranks, *self.flags, "--epochs", 1, "--lr", 1e-12)
            accuracies.add(document["accuracy"])
        self.assertEqual(len(accuracies), 1, accuracies)

    def test_mlp_takes_images_too(self):
        document = self.train("--ranks", 2, "--dim", 784, "--depth", 1, *self.flags[6:], "--steps", 5)
        self.assertEqual((document["steps"], len(document["accuracies"])), (5, 2))


class BadInput(harness.TestCase):
    def assert_refused(self, arguments, says):
        job = self.run_job("train", *arguments, timeout=60)
        self.assert_code(job, 2)
        self.assertEqual(job.stdout, "")
        self.assertRegex(job.stderr, r"\Alockstep train: [^\n]+\n\Z")
        self.assertIn(says, job.stderr)

    def test_is_refused_before_a_rank_starts(self):
        for arguments, says in ((["--ranks", 4, "--batch", 3], "a batch of 3 is smaller than the 4 ranks"),
                                (["--strategy", "dpp"], "try: ddp"), (["--model", "cmn"], "try: cnn"),
                                (["--data", "minst"], "try: mnist"), (["--optimizer", "adma"], "try: adam"),
                                (["--ranks", 0], "--ranks is '0'"), (["--steps", "x"], "--steps is 'x'"),
                                (["--lr", "nan"], "--lr is 'nan'"), (["--epochs", 2], "--steps 100"),
                                (["--strategy", "single", "--ranks", 2], "single is one process"),
                                (["--strateg", "ddp"], "try: --strategy"), (["ddp"], "'ddp' is one word too many"),
                                (["--batch"], "--batch needs a value"), (["--load", "/no/such"], "--load /no/such"),
                                (["--save", "/no/such/folder/w"], "there is no folder"),
                                (["--save", ""], "--save is empty"), (["--save", "/dev/null"], "not a regular file"),
                                (["--save", "/tmp/x", "--trace", "/tmp/x"], "both /tmp/x"),
                                (["--batch", 2000000000, "--dim", 1024], "a smaller --batch"),
                                (["--algorithm", "direct", "--transport", "tcp"], "needs shared memory"),
                                (["--model", "transformer", "--vocabulary", 0], "--vocabulary is '0'"),
                                (["--model", "transformer", "--hidden", 8], "--hidden is a flag of cnn"),
                                (["--heads", 8], "--heads is a flag of transformer, and --model is mlp"),
                                (["--model", "transformer", "--data", "mnist"], "mnist has none; try: --data tokens"),
                                (["--data", "tokens"], "try: --model transformer"),
                                (["--model", "transformer", "--tied", "--strategy", "pipeline", "--ranks", 2],
                                 "(0.token.weight) and the output (5.weight) are one parameter, and 2 stages can't share it; "
                                 "try: without --tied, or --stages 1"),
                                (["--out", "/no/such/folder/o"], "--out /no/such/folder/o: there is no folder")):
            with self.subTest(" ".join(map(str, arguments))):
                start = time.monotonic()
                self.assert_refused(arguments, says)
                self.assert_within(5, time.monotonic() - start)

    def test_the_environment_is_checked_like_flags(self):
        for env, arguments, says in (({"LOCKSTEP_TRANSPORT": "tcp"}, ["--strategy", "sharded"], "shared memory"),
                                     ({"LOCKSTEP_TRANSPORT": "pigeon"}, [], "pigeon"),
                                     ({"LOCKSTEP_ALGORITHM": "foo"}, [], "foo")):
            job = self.run_job("train", *arguments, timeout=60, env=env)
            self.assert_code(job, 2)
            self.assertRegex(job.stderr, r"\Alockstep train: [^\n]+\n\Z")
            self.assertIn(says, job.stderr)

    @unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
    def test_a_loss_that_is_no_number_is_shown(self):
        for ranks in (1, 2):
            job = self.run_job("train", "--lr", "1e30", "--optimizer", "sgd", "--steps", 10, "--ranks", ranks, *SMALL,
                               timeout=60, env=ENV)
            self.assert_code(job, 0)
            self.assertRegex(job.stdout, "loss .* nan at last")
            self.assertRegex(job.stderr, r"lockstep train: the loss is (nan|inf|-nan|-inf) at step \d+; try: a smaller --lr than 1e\+30")

    @unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
    def test_tiny_buckets_and_odd_names(self):
        self.assert_code(self.run_job("train", "--bucket-mb", "1e-9", *SMALL, "--steps", 2, timeout=60, env=ENV), 0)
        with tempfile.TemporaryDirectory() as folder:
            odd = os.path.join(os.fsencode(folder), b"bad\xff.st")
            with open(odd, "wb") as file:
                file.write(b"\xff" * 100)
            job = self.run_job("train", "--load", os.fsdecode(odd), "--ranks", 2, timeout=60, env=ENV)
            self.assert_code(job, 2)

    @unittest.skipUnless(HAS_TORCH, "lockstep was built without libtorch")
    def test_what_ranks_find_out_is_one_line_too(self):
        with tempfile.TemporaryDirectory() as folder:
            damaged = os.path.join(folder, "damaged")
            with open(damaged, "wb") as file:
                file.write(b"\xff" * 100)
            for ranks in (1, 2):
                for arguments, says in ((["--model", "cnn", "--channels", "8,8,8,8,8"], "channels"),
                                        (["--model", "cnn", "--data", "mnist", "--data-dir", folder], "dev data mnist"),
                                        (["--dim", 1000000000], "GB"),
                                        (["--model", "transformer", "--heads", 5], "5 heads do not divide dim 64; try: heads 4"),
                                        (["--model", "transformer", "--vocabulary", 2000000000], "GB"),
                                        (["--model", "transformer", "--dim", 2000000000], "GB"),
                                        (["--load", damaged], "is no safetensors file")):
                    with self.subTest(f"{arguments[:3]} on {ranks}"):
                        self.assert_refused(["--ranks", ranks, "--strategy", "naive", *arguments], says)

    @unittest.skipIf(HAS_TORCH, "only without libtorch")
    def test_without_libtorch(self):
        self.assert_refused([], "built without")

    def test_help_starts_with_examples(self):
        job = self.run_job("train", "--help")
        self.assert_code(job, 0)
        self.assertTrue(job.stdout.startswith("Examples:\n"), job.stdout)


class Endings(TrainCase):
    def test_a_signal_ends_all_ranks(self):
        job = self.start("train", *SMALL, "--steps", 10000000, timeout=60)
        job.wait_for_line(r"10000000 steps")
        job.signal(signal.SIGTERM)
        job.wait()
        self.assert_code(job, 143)

    def test_a_rank_that_is_killed_ends_it(self):
        job = self.start("train", *SMALL, "--ranks", 3, "--steps", 10000000, timeout=60)
        job.wait_for_line(r"10000000 steps")
        job.signal_rank(1, signal.SIGKILL)
        job.wait()
        self.assert_code(job, 137)
        self.assertEqual(job.stdout, "")


class Terminal(TrainCase):
    """What people see: stderr is a terminal."""

    def seen(self, **env):
        master, slave = harness.open_terminal()
        job = subprocess.Popen([harness.LOCKSTEP, "train", *map(str, SMALL), "--steps", "2000"], stdout=subprocess.DEVNULL,
                               stderr=slave, env=os.environ | {"TERM": "xterm"} | env)
        os.close(slave)
        text = b""
        try:
            while chunk := os.read(master, 65536):
                text += chunk
        except OSError:  # that is how a terminal ends
            pass
        finally:
            os.close(master)
            self.assertEqual(job.wait(60), 0, text)
        return text.decode()

    def test_a_bar_with_loss_and_speed(self):
        text = self.seen(NO_COLOR="")
        self.assertIn("━", text)
        self.assertIn("\x1b[32m", text)
        self.assertRegex(text, r"step \d+/2000  loss \d\.\d+  \d+ samples/s")
        self.assertNotIn("[rank", text)

    def test_no_color(self):
        text = self.seen(NO_COLOR="1")
        self.assertIn("━", text)
        self.assertIsNone(re.search(r"\x1b\[\d+m", text))


if __name__ == "__main__":
    harness.main()
