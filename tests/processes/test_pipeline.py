"""`lockstep train --strategy pipeline` and `lockstep compare schedules`: real ranks, against one process."""

import json
import os
import re
import signal
import time

import harness
import numerics
import test_train
from harness import both_transports, over
from test_train import ENV, safetensors_reader

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv", "v-half", "v-min", "dualpipev")
# Nine layers, for up to nine stages.
MLP = ("--dim", 16, "--depth", 8, "--steps", 20)
CNN = ("--model", "cnn", "--channels", "4,8", "--hidden", 32)
LONG = ("--steps", 1_000_000_000)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class PipelineCase(test_train.TrainCase):
    singles = {}

    def single(self, *flags):
        """The document of the same run in one process."""
        if flags not in self.singles:
            self.singles[flags] = self.train("--strategy", "single", *flags)
        return self.singles[flags]

    def pipeline(self, *flags, **options):
        return self.train("--strategy", "pipeline", *flags, **options)

    def assert_as_single(self, document, *flags):
        self.assert_losses(document, self.single(*flags)["losses"])
        self.assertTrue(document["weights_agree"])
        self.assert_shares(document)

    def assert_shares(self, document):
        self.assertEqual([entry["rank"] for entry in document["utilisation"]], list(range(document["ranks"])))
        for entry in document["utilisation"]:
            names = {"compute", "communication", "other"} | ({"bubble"} if "pipeline" in document else set())
            self.assertEqual(set(entry), names | {"rank"})
            parts = [entry[name] for name in names]
            self.assertAlmostEqual(sum(parts), 1, places=6)
            self.assertTrue(all(0 <= part <= 1 for part in parts), parts)
            self.assertGreater(entry["compute"], 0)
        phases = document["phase_ms"]
        self.assertAlmostEqual(sum(phases.values()) - phases["communication"], document["step_ms"]["mean"], places=6)
        self.assertEqual("bubble" in phases, "pipeline" in document)

    def assert_refused(self, verb, arguments, says):
        job = self.run_job(*verb, *arguments, timeout=60)
        self.assert_code(job, 2)
        self.assertEqual(job.stdout, "")
        # What it was about to do may stand above.
        self.assertRegex(job.stderr, rf"\A(measuring: 1 of 1, .*\n)?lockstep {verb[0]}: [^\n]+\n\Z")
        self.assertIn(says, job.stderr.splitlines()[-1])


class Losses(PipelineCase):
    def test_are_those_of_one_process(self):
        # A sample, because every rank loads libtorch. tests/parallel/pipeline_run/ has all schedules on 1 to 8 ranks.
        runs = [("naive", 2), ("interleaved", 2), ("1f1b", 1),
                ("1f1b", 8, "--microbatches", 3),  # more ranks than most machines have cores, and than microbatches
                ("gpipe", 2, "--microbatches", 7), ("zb-h1", 3, "--microbatches", 7),
                ("interleaved", 3, "--microbatches", 7, "--virtual-stages", 3),
                ("zbv", 3), ("v-min", 2, "--microbatches", 5), ("dualpipev", 2)]
        for schedule, ranks, *more in runs:
            with self.subTest(f"{schedule} on {ranks} {more}"):
                document = self.pipeline("--schedule", schedule, "--ranks", ranks, *more, *MLP)
                self.assert_as_single(document, *MLP)
                self.assertEqual((document["pipeline"]["schedule"], document["pipeline"]["stages"],
                                  document["ranks"]), (schedule, ranks, ranks))
                self.assertEqual(len(set(document["weights_digest"])), ranks)

    def test_whatever_the_cut_and_the_way(self):
        for more in (("--schedule", "zb-h1", "--ranks", 3, "--transport", "tcp"),
                     ("--schedule", "1f1b", "--ranks", 2, "--recompute"),
                     ("--schedule", "zb-h1", "--ranks", 2, "--recompute"),
                     ("--ranks", 3, "--balance", "parameters"),
                     ("--ranks", 3, "--balance", "time")):
            with self.subTest(" ".join(map(str, more))):
                document = self.pipeline(*more, *MLP)
                self.assert_as_single(document, *MLP)
                self.assertEqual(document["transport"], "tcp" if "tcp" in more else "shm")
                self.assertEqual(document["pipeline"]["recompute"], "--recompute" in more)
                self.assertEqual(document["pipeline"]["balance"], more[-1] if "--balance" in more else "count")

    def test_a_cnn_cut_in_two(self):
        flags = (*CNN, "--steps", 20, "--batch", 10)
        self.assert_as_single(self.pipeline("--ranks", 2, "--microbatches", 4, *flags), *flags)

    def test_a_transformer_whose_embedding_makes_the_stages_uneven(self):
        flags = (*test_train.TRANSFORMER, "--vocabulary", 400, "--batch", 12, "--steps", 20)
        for more in (("--ranks", 2), ("--ranks", 3, "--balance", "parameters"), ("--ranks", 4, "--balance", "time"),
                     ("--ranks", 4, "--stages", 2, "--balance", "parameters"), ("--ranks", 2, "--schedule", "zb-h1")):
            with self.subTest(" ".join(map(str, more))):
                self.assert_as_single(self.pipeline(*more, *flags), *flags)
        tied = (*flags, "--tied")
        self.assert_as_single(self.pipeline("--ranks", 2, "--stages", 1, *tied), *tied)

    def test_a_schedule_of_ones_own(self):
        job = self.run_job("schedule", "1f1b", "--stages", 3, "--microbatches", 5, "--csv")
        path = self.folder / "mine.csv"
        path.write_text(job.stdout)
        document = self.pipeline("--schedule", path, *MLP)
        self.assert_as_single(document, *MLP)
        self.assertEqual((document["ranks"], document["pipeline"]["microbatches"]), (3, 5))
        self.assertEqual(document["pipeline"]["peak_activations"], [3, 2, 1])

    def test_by_hand_it_is_the_same_to_the_bit(self):
        document, single = self.train("--strategy", "manual-pipeline", *MLP), self.single(*MLP)
        self.assertEqual(document["losses"], single["losses"])
        self.assertEqual(document["weights_digest"], single["weights_digest"])

    def test_epochs_whose_last_batch_is_smaller(self):
        # 37 images in batches of 12: the last has one sample, fewer than microbatches and than pipelines.
        for prefix, count in (("train", 37), ("t10k", 11)):
            labels = [i * 7 % 10 for i in range(count)]
            pixels = [255 if row // 2 == label else (row * label + column) % 50
                      for label in labels for row in range(28) for column in range(28)]
            test_train.idx(self.folder / f"{prefix}-images-idx3-ubyte", (count, 28, 28), pixels)
            test_train.idx(self.folder / f"{prefix}-labels-idx1-ubyte", (count,), labels)
        flags = (*CNN, "--data", "mnist", "--data-dir", self.folder, "--batch", 12, "--epochs", 6, "--lr", 0.003,
                 "--tail", "uneven")
        single = self.single(*flags)
        self.assertEqual(single["steps"], 24)
        self.assertGreater(single["accuracy"], 0.3, "guesses would be a poor comparison")
        for more in (("--ranks", 2), ("--ranks", 4, "--stages", 2, "--microbatches", 3)):
            with self.subTest(more):
                document = self.pipeline(*more, *flags)
                self.assert_as_single(document, *flags)
                self.assertEqual(document["accuracies"], single["accuracies"])


class Replicas(PipelineCase):
    """Several pipelines beside each other."""

    def test_losses_are_those_of_one_process_and_replicas_have_the_same_bits(self):
        for ranks, more in ((4, ()), (6, ("--microbatches", 5)),  # 32 samples on 3 pipelines: 11, 11 and 10
                            (4, ("--schedule", "zb-h1", "--transport", "tcp")),
                            (4, ("--schedule", "interleaved", "--bucket-mb", 0.001))):
            with self.subTest(f"{ranks} ranks {more}"):
                document = self.pipeline("--ranks", ranks, "--stages", 2, *more, *MLP)
                self.assert_as_single(document, *MLP)
                self.assertEqual(document["pipeline"]["replicas"], ranks // 2)
                digests = document["weights_digest"]
                self.assertEqual(digests, digests[:2] * (ranks // 2))
                self.assertNotEqual(digests[0], digests[1])

    def test_buckets_of_a_size(self):
        flags = ("--dim", 64, "--depth", 6, "--steps", 6)
        document = self.pipeline("--ranks", 4, "--stages", 2, "--bucket-mb", 0.05, *flags)
        self.assert_as_single(document, *flags)
        self.assertEqual(document["bucket_mb"], 0.05)


class Weights(PipelineCase):
    SMALL = ("--dim", 16, "--depth", 4, "--steps", 10, *numerics.OPTIMIZER)

    def setUp(self):
        super().setUp()
        self.whole, self.parts = self.folder / "single", self.folder / "pipeline"
        self.train("--strategy", "single", *self.SMALL, "--save", self.whole)

    def test_are_one_file_like_any_other(self):
        self.pipeline("--ranks", 3, *self.SMALL, "--save", self.parts)
        (a, about_a), (b, about_b) = safetensors_reader.read(self.whole), safetensors_reader.read(self.parts)
        self.assertEqual(about_a, about_b)
        self.assertEqual(list(a), list(b))
        self.assertIn("8.weight", a)
        for name, (dtype, shape, values) in a.items():
            self.assertEqual((dtype, shape), b[name][:2])
            numerics.assert_weights(self, b[name][2], values, name)
        # Each goes on from the other's.
        fresh, on = self.single(*self.SMALL), self.train("--strategy", "single", *self.SMALL, "--load", self.whole)
        self.assertFalse(numerics.close(fresh["losses"][0], on["losses"][0]), "the weights were not loaded")
        self.assert_losses(self.train("--strategy", "single", *self.SMALL, "--load", self.parts), on["losses"])
        self.assert_losses(self.pipeline("--schedule", "interleaved", *self.SMALL, "--load", self.whole), on["losses"])

    def test_several_pipelines_save_one_and_load_the_same(self):
        saved = self.pipeline("--ranks", 4, "--stages", 2, *self.SMALL, "--save", self.parts)
        self.assertEqual(list(safetensors_reader.read(self.parts)[0]), list(safetensors_reader.read(self.whole)[0]))
        # A step so small that it changes no float.
        again = self.pipeline("--ranks", 2, *self.SMALL[:4], "--steps", 1, "--optimizer", "sgd", "--lr", 1e-30,
                              "--load", self.parts)
        self.assertEqual(again["weights_digest"], saved["weights_digest"][:2])

    def test_of_another_model(self):
        for more, says in ((("--dim", 32, "--depth", 4), "--dim 16"), (("--dim", 16, "--depth", 6), "--depth 4")):
            with self.subTest(more):
                self.assert_refused(["train"], ["--strategy", "pipeline", *more, "--load", self.whole], says)


class Emulated(PipelineCase):
    FLAGS = ("--ranks", 4, "--dim", 16, "--depth", 8, "--steps", 5, "--warmup", 1, "--emulate-compute", "5ms,5ms,5ms")

    def test_the_bubble_is_the_predicted_one(self):
        for schedule, predicted in (("1f1b", 3 / 11), ("zb-h1", 1 / 9)):
            with self.subTest(schedule):
                for _ in range(3):  # on a busy machine sleeps end late, and bubbles grow
                    document = self.pipeline("--schedule", schedule, *self.FLAGS)
                    pipeline = document["pipeline"]
                    if abs(pipeline["bubble_measured"] - predicted) < 0.1:
                        break
                self.assertIs(pipeline["emulated"], True)
                self.assertEqual(document["losses"], [None] * 5)
                self.assertAlmostEqual(pipeline["bubble_predicted"], predicted, places=6)
                self.assertAlmostEqual(pipeline["bubble_measured"], predicted, delta=0.1)
                self.assert_shares(document)

    def test_it_is_the_time_of_a_rank_whatever_the_schedule(self):
        """A rank with two stages takes half as long for each: the same work, so the same prediction without bubble."""
        work = 8 * 3 * 5  # ms: 8 microbatches of F, I and W
        own = self.folder / "wave.csv"
        own.write_text("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")
        for schedule, bubble in (("1f1b", 1 / 9), ("interleaved", 1 / 17), ("zbv", 1 / 49), (own, None)):
            with self.subTest(schedule):
                pipeline = self.pipeline(*self.FLAGS, "--schedule", schedule, "--ranks", 2)["pipeline"]
                if bubble is None:
                    work, bubble = 15, pipeline["bubble_predicted"]
                self.assertAlmostEqual(pipeline["bubble_predicted"], bubble)
                self.assertAlmostEqual(pipeline["predicted_ms"], work / (1 - bubble), places=6)
                self.assertGreaterEqual(pipeline["measured_ms"], 0.99 * work / (1 - bubble))

    def test_it_says_so(self):
        job = self.run_job("train", "--strategy", "pipeline", *self.FLAGS, "--ranks", 2, env=ENV, timeout=60)
        self.assert_code(job, 0)
        self.assertIn("EMULATED", job.stdout)
        self.assertIn("EMULATED", job.stderr)
        self.assertNotIn("at last", job.stdout)


class Utilisation(PipelineCase):
    def test_of_every_strategy(self):
        self.assert_shares(self.single(*MLP))
        self.assert_shares(self.train("--ranks", 2, *MLP))
        job = self.run_job("train", "--strategy", "pipeline", *MLP, env=ENV, timeout=60)
        self.assert_code(job, 0)
        table = job.stdout.partition("utilisation")[2]
        rows = re.findall(r"(?m)^  rank (\d) +([\d.]+)% +([\d.]+)% +([\d.]+)% +([\d.]+)%$", table)
        self.assertEqual([row[0] for row in rows], ["0", "1"], job.stdout)
        for row in rows:
            self.assertAlmostEqual(sum(map(float, row[1:])), 100, delta=0.2)
        shares = re.findall(r"(?m)^  [a-z ]+ +[\d.]+ +([\d.]+)%$", job.stdout.partition("utilisation")[0])
        self.assertAlmostEqual(sum(map(float, shares[:-1])), 100, delta=0.4)  # each is rounded
        self.assertEqual(shares[-1], "100.0")
        self.assertRegex(job.stdout, r"1f1b +predicted +measured")
        self.assertIn("weights        in 2 parts, one per rank", job.stdout)


class Endings(PipelineCase):
    @both_transports
    def test_a_stage_that_is_killed_is_named_with_the_position(self, transport):
        # Wide enough that nearly all of the time is spent inside steps.
        job = self.start("train", "--strategy", "pipeline", "--ranks", 4, "--dim", 256, "--depth", 8, "--batch", 256, *LONG,
                         env=ENV | over(transport), timeout=60)
        job.wait_for_line(r"1f1b, 4 stages, 8 microbatches")
        victim = job.pids_of_ranks(4)[1]
        started = cpu_seconds(victim)
        harness.wait_until(lambda: cpu_seconds(victim) > started + 0.4, 30, "steps are made")
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        for neighbour in (0, 2):
            job.wait_for_line(rf"^\[rank {neighbour}\].*rank 1 died", timeout=1)
        job.wait()
        self.assert_within(3, time.monotonic() - killed, "the whole job")
        self.assert_code(job, 128 + signal.SIGKILL)
        self.assertEqual(job.stdout, "")
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

    def test_control_c(self):
        job = self.start("train", "--strategy", "pipeline", "--ranks", 3, *MLP[:4], *LONG, env=ENV, timeout=60)
        job.wait_for_line(r"1f1b, 3 stages")
        job.signal(signal.SIGINT)
        job.wait()
        self.assert_code(job, 130)
        self.assertEqual(job.stdout, "")


class BadInput(PipelineCase):
    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_is_one_line(self):
        bad_action = self.file("action.csv", "0F0,0B0\n1F0,1X0\n")
        deadlock = self.file("deadlock.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
        in_pipeline = ((("--ranks", 3, "--depth", 1), "3 stages for a network of 2 layers"),
                       (("--microbatches", 33), "33 microbatches of a batch of 32 samples"),
                       (("--ranks", 4, "--stages", 2, "--microbatches", 17), "17 microbatches of the 16 samples"),
                       (("--schedule", "1f2b"), "'1f2b'; try: 1f1b"),
                       (("--schedule", bad_action), "line 2, column 2: '1X0' is not an action"),
                       (("--schedule", deadlock), "deadlock: rank 0 at step"),
                       (("--schedule", self.folder / "none.csv"), "none.csv"),
                       (("--schedule", deadlock, "--stages", 3), "--stages is 3"),
                       (("--ranks", 5, "--stages", 2), "5 ranks are no whole number of pipelines of 2 stages"),
                       (("--stages", 0), "--stages is '0'"),
                       (("--schedule", "1f1b", "--virtual-stages", 2), "--virtual-stages 2"),
                       (("--emulate-compute", "10,10"), "--emulate-compute is '10,10': 2 times, not 3"),
                       (("--emulate-compute", "10ms,10ms"), "--emulate-compute is '10ms,10ms': 2 times"),
                       (("--emulate-compute", "0ms,1ms,1ms"), "--emulate-compute is '0ms'"),
                       (("--emulate-compute", "1ms,1ms,1ms", "--save", self.folder / "w"), "nothing to load, to save"),
                       (("--accumulate", 2), "--accumulate 2"),
                       (("--balance", "weight"), "no balance 'weight'"),
                       (("--bucket-mb", 1), "--bucket-mb is 1"))
        others = ((("--strategy", "ddp", "--schedule", "1f1b"), "--schedule"),
                  (("--strategy", "ddp", "--recompute"), "--recompute"),
                  (("--strategy", "single", "--stages", 2), "--stages"),
                  (("--strategy", "manual-pipeline", "--ranks", 2), "--ranks is 2"),
                  (("--strategy", "manual-pipeline", "--microbatches", 2), "--microbatches"))
        for arguments, says in [(("--strategy", "pipeline", *more), says) for more, says in in_pipeline] + list(others):
            with self.subTest(" ".join(map(str, arguments))):
                self.assert_refused(["train"], arguments, says)


class CompareSchedules(PipelineCase):
    ROW = {"name", "step_ms", "bubble_predicted", "bubble_measured", "predicted_ms", "measured_ms", "peak_activations",
           "memory_bytes", "messages"}

    def compare(self, *flags):
        job = self.run_job("compare", "schedules", *flags, timeout=120)
        self.assert_code(job, 0)
        return job.stdout

    def test_emulated_has_a_row_for_each(self):
        document = json.loads(self.compare("--stages", 2, "--microbatches", 4, "--dim", 16, "--depth", 4, "--steps", 3,
                                           "--emulate-compute", "2ms,2ms,2ms", "--json"))
        self.assertEqual([row["name"] for row in document["rows"]], list(SCHEDULES))
        self.assertIs(document["emulated"], True)
        self.assertNotIn("one_rank", document)
        predicted = {"naive": 1 / 2, "gpipe": 1 / 5, "1f1b": 1 / 5, "interleaved": 1 / 9, "zb-h1": 1 / 13,
                     "zb-h2": 1 / 13, "zbv": 1 / 25, "v-half": 1 / 9, "v-min": 1 / 9, "dualpipev": 1 / 25}
        for row in document["rows"]:
            with self.subTest(row["name"]):
                self.assertLessEqual(self.ROW, set(row))
                self.assertAlmostEqual(row["bubble_predicted"], predicted[row["name"]], places=5)
                self.assertAlmostEqual(row["bubble_measured"], predicted[row["name"]], delta=0.2)
                self.assertGreaterEqual(row["step_ms"], 0.9 * row["predicted_ms"])
                self.assertGreater(row["memory_bytes"], 10 << 20)
        self.assertEqual([row["peak_activations"] for row in document["rows"]], [1, 4, 2, 5, 2, 3, 4, 4, 4, 5])

    def test_real_arithmetic_shows_what_small_microbatches_cost(self):
        text = self.compare("--schedules", "1f1b,gpipe", "--stages", 2, "--microbatches", 4, "--dim", 32, "--depth", 4,
                            "--batch", 16, "--steps", 3)
        self.assertRegex(text, r"MLP 4 x 32, batch 16 in 4 microbatches, 2 ranks")
        self.assertEqual(re.findall(r"(?m)^(1f1b|gpipe|naive|zb-h1|interleaved) +[\d.]+% +[\d.]+% .* (\d) +\d+ +8$", text),
                         [("1f1b", "2"), ("gpipe", "4")], text)
        self.assertRegex(text, r"small microbatches +one rank takes [\d.]+ ms for the batch at once, and [\d.]+ in 4 parts")
        self.assertNotIn("EMULATED", text)

    def test_a_transformer(self):
        text = self.compare("--schedules", "1f1b", "--stages", 2, "--microbatches", 4, "--batch", 8, "--steps", 2,
                            *test_train.TRANSFORMER)
        self.assertIn("transformer 2x16, 2 heads, vocabulary 50, sequence 8, batch 8 in 4 microbatches, 2 ranks\n", text)

    def test_bad_input(self):
        for arguments, says in ((("--schedules", "1f2b"), "'1f2b'; try: 1f1b"), (("--stages", 0), "--stages is '0'"),
                                (("--schedules", "1f1b,"), "--schedules is '1f1b,'"),
                                (("--emulate-compute", "2ms"), "1 times, not 3"), (("gpipe",), "'gpipe'"),
                                (("--microbatches", 65), "65 microbatches of a batch of 64"),
                                (("--transport", "pigeon"), "'pigeon'"), (("--stags", 2), "try: --stages"),
                                (("--heads", 2), "--heads is a flag of transformer, and --model is mlp"),
                                (("--stages", 3, "--depth", 1, "--dim", 8), "3 stages for a network of 2 layers")):
            with self.subTest(" ".join(map(str, arguments))):
                self.assert_refused(["compare", "schedules"], arguments, says)

    def test_help_starts_with_examples(self):
        text = self.compare("--help")
        self.assertTrue(text.startswith("Examples:\n"), text)
        self.assertIn("--emulate-compute", text)


if __name__ == "__main__":
    harness.main()
