"""`lockstep schedule`: pictures, figures, files, and what it refuses. It starts no rank."""

import json
import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree

import harness

NAMES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv", "v-half", "v-min", "dualpipev")
# What docs/command_line.md promises to scripts.
FIELDS = {"name", "stages", "microbatches", "actions", "bubble_fraction", "peak_activations", "deadlock_free"}
# Rank 0 wants microbatch 0 back before it sends 1, and rank 1 starts with 1.
DEADLOCK = b"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"


class ScheduleCase(harness.TestCase):
    def schedule(self, *arguments, code=0, **options):
        job = self.run_job("schedule", *arguments, **options)
        self.assert_code(job, code)
        return job

    def document(self, *arguments, **options):
        return json.loads(self.schedule(*arguments, "--json", **options).stdout)

    def refused(self, *arguments, code=2, **options):
        """The one line of an error."""
        job = self.schedule(*arguments, code=code, **options)
        self.assertEqual(job.stderr.count("\n"), 1, job.describe())
        return job.stderr.strip()

    def folder(self):
        path = tempfile.mkdtemp(prefix="lockstep-schedule-")
        self.addCleanup(shutil.rmtree, path)
        return path


class Document(ScheduleCase):
    def test_has_the_shape_that_scripts_rely_on(self):
        bubbles = {"naive": 3 / 4, "gpipe": 3 / 11, "1f1b": 3 / 11, "interleaved": 3 / 19, "zb-h1": 1 / 9,
                   "zb-h2": 1 / 9, "zbv": 1 / 17, "v-half": 1 / 7, "v-min": 11 / 59, "dualpipev": 1 / 17}
        peaks = {"naive": [1] * 4, "gpipe": [8] * 4, "1f1b": [4, 3, 2, 1], "interleaved": [11, 9, 7, 5], "zb-h1": [4] * 4,
                 "zb-h2": [7] * 4, "zbv": [8] * 4, "v-half": [6] * 4, "v-min": [4] * 4, "dualpipev": [9] * 4}
        for name in NAMES:
            with self.subTest(name):
                document = self.document(name, "--stages", 4, "--microbatches", 8)
                self.assertLessEqual(FIELDS, set(document))
                self.assertEqual((document["name"], document["stages"], document["microbatches"]), (name, 4, 8))
                self.assertAlmostEqual(document["bubble_fraction"], bubbles[name])
                if name in ("zb-h2", "zbv"):
                    self.assertEqual(document["bubble_if_steps_overlap"], 0)
                self.assertEqual(document["peak_activations"], peaks[name])
                self.assertIs(document["deadlock_free"], True)
                self.assertEqual(len(document["actions"]), 4)
                self.assertEqual(document["actions"][0][0], "0F0")
                self.assertEqual(document["blocking_sends"]["deadlock_free"], name in ("naive", "gpipe"))

    def test_virtual_stages_and_times(self):
        document = self.document("interleaved", "--stages", 2, "--microbatches", 4, "--virtual-stages", 3)
        self.assertEqual((document["stages"], document["virtual_stages"], document["all_stages"]), (2, 3, 6))
        self.assertAlmostEqual(document["bubble_fraction"], 1 / 13)
        document = self.document("zb-h1", "--stages", 4, "--microbatches", 8, "--times", "10,12,8")
        self.assertEqual(document["makespan"], 8 * 30 + 3 * (10 + 12 - 8))

    def test_the_cycle_of_blocking_sends(self):
        document = self.document("1f1b", "--stages", 2, "--microbatches", 4, "--sends")
        cycle = document["blocking_sends"]["cycle"]
        self.assertEqual([(wait["rank"], wait["action"], wait["waits_for_rank"], wait["waits_for"]) for wait in cycle],
                         [(0, "0SEND_F1", 1, "1RECV_F1"), (1, "1SEND_B0", 0, "0RECV_B0")])
        for wait in cycle:
            self.assertEqual(document["lowered"][wait["rank"]][wait["step"]], wait["action"])
            self.assertEqual(document["lowered"][wait["waits_for_rank"]][wait["waits_for_step"]], wait["waits_for"])


class Text(ScheduleCase):
    def test_picture_and_figures(self):
        text = self.schedule("1f1b", "--stages", 4, "--microbatches", 8).stdout
        self.assertIn("rank 3  .  .  .  F0 B0--- F1 B1---", text)
        self.assertRegex(text, r"(?m)^bubble +27\.3% \(3/11\) of a makespan of 33$")
        self.assertRegex(text, r"(?m)^peak activations +4 3 2 1 ")
        self.assertRegex(text, r"(?m)^messages +48$")
        self.assertRegex(text, r"(?m)^blocking sends +would deadlock:\n +rank 2 at step 5 \(2SEND_F1\) waits for 3RECV_F1")
        self.assertNotIn("\x1b", text)

    def test_colours_on_a_terminal_unless_told_otherwise(self):
        for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
            with self.subTest(env):
                text = self.on_a_terminal(env, "schedule", "gpipe", "--stages", "2", "--microbatches", "2")
                self.assertIn("rank 0", text)
                self.assertEqual("\x1b[48;5;" in text, coloured, text)

    def on_a_terminal(self, env, *arguments):
        master, slave = harness.open_terminal()
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | env
        with subprocess.Popen([harness.LOCKSTEP, *arguments], stdout=slave, stdin=subprocess.DEVNULL, env=environment):
            os.close(slave)
            text = b""
            try:
                while chunk := os.read(master, 4096):
                    text += chunk
            except OSError:  # how a terminal says that the other side is gone
                pass
        os.close(master)
        return text.decode()

    def test_help_begins_with_examples(self):
        for arguments in (("--help",), ("1f1b", "-h")):
            self.assertTrue(self.schedule(*arguments).stdout.startswith("Examples:\n  lockstep schedule 1f1b"))
        bare = self.schedule(code=2)
        self.assertEqual(bare.stdout, "")
        self.assertTrue(bare.stderr.startswith("Examples:\n  lockstep schedule 1f1b"))
        self.assertIn("schedule", self.run_job("--help").stdout)


class Files(ScheduleCase):
    def test_csv_comes_back_through_verify(self):
        for name in NAMES:
            for sends in ((), ("--sends",)):
                with self.subTest(name, sends=sends):
                    size = ("--stages", 3, "--microbatches", 4)
                    text = self.schedule(name, *size, "--csv", *sends).stdout_bytes
                    again = self.document("--verify", "-", stdin=text)
                    plain = self.document(name, *size)
                    for field in FIELDS - {"name", "actions"} | {"messages", "blocking_sends"}:
                        self.assertEqual(again[field], plain[field], field)

    def test_svg_is_a_picture(self):
        path = os.path.join(self.folder(), "zb.svg")
        self.schedule("zb-h1", "--stages", 2, "--microbatches", 3, "--svg", path)
        root = xml.etree.ElementTree.parse(path).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        labels = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        for label in ("F0", "I2", "W1", "rank 1", "zb-h1: 2 stages, 3 microbatches, F = 1, I = 1, W = 1"):
            self.assertIn(label, labels)

    def test_one_of_your_own(self):
        path = os.path.join(self.folder(), "mine.csv")
        with open(path, "w") as file:
            file.write("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n")
        text = self.schedule("--verify", path).stdout
        self.assertIn("mine.csv: 2 stages, 2 microbatches", text)
        self.assertIn("33.3% (1/3)", text)

    def test_a_file_of_pytorch(self):
        """Receives are posts, pairs come one after the other, and FSDP's actions are left out with a note."""
        posted = (b"0UNSHARD,0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0RECV_B1,0B0,0B1,0REDUCE_GRAD\n"
                  b"1UNSHARD,1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,(1F1;1B1)OVERLAP_F_B,1SEND_B1\n")
        plain = b"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
        job = self.schedule("--verify", "-", "--json", stdin=posted)
        self.assertEqual(job.stderr.strip(), "lockstep schedule: stdin: left out 3 actions of FSDP (UNSHARD, RESHARD, "
                                             "REDUCE_GRAD): stages are not sharded here")
        document, expected = json.loads(job.stdout), self.document("--verify", "-", stdin=plain)
        self.assertEqual((document["makespan"], document["messages"]), (expected["makespan"], expected["messages"]))
        self.assertIn("left out 3 actions", document["note"])
        self.assertIsNone(expected["note"])

    def test_one_that_cannot_run(self):
        line = self.refused("--verify", "-", code=3, stdin=DEADLOCK)
        self.assertIn("stdin can't run: deadlock: rank 0 at step 2 (0RECV_B0) waits for 1SEND_B0, step 7 of rank 1; "
                      "rank 1 at step 0 (1RECV_F1) waits for 0SEND_F1, step 5 of rank 0", line)
        job = self.schedule("--verify", "-", "--json", code=3, stdin=DEADLOCK)
        document = json.loads(job.stdout)
        self.assertLessEqual(FIELDS, set(document))
        self.assertIs(document["deadlock_free"], False)
        self.assertIsNone(document["bubble_fraction"])
        self.assertEqual(len(document["cycle"]), 2)
        self.assertIn("rank 0, step 0: 0B0 comes before 0F0",
                      self.refused("--verify", "-", code=3, stdin=b"0B0,0F0\n"))

    def test_what_was_asked_for_counts(self):
        good = b"0F0,0B0\n1F0,1B0\n"
        self.schedule("--verify", "-", "--stages", 2, "--microbatches", 1, stdin=good)
        self.assertIn("0F1 is missing", self.refused("--verify", "-", "--microbatches", 2, code=3, stdin=good))
        self.assertIn("has 2 ranks, one line each, but --stages says 4",
                      self.refused("--verify", "-", "--stages", 4, stdin=good))
        self.assertIn("--virtual-stages says 2", self.refused("--verify", "-", "--virtual-stages", 2, stdin=good))


class Refused(ScheduleCase):
    def test_bad_input_is_one_line_and_code_2(self):
        for arguments, words in (
                (("1f1",), "there is no schedule '1f1'; try: 1f1b"),
                (("1f1b", "--stages", 0), "--stages is '0'"),
                (("1f1b", "--microbatches", "many"), "--microbatches is 'many'"),
                (("gpipe", "--virtual-stages", 2), "gpipe has one stage per rank, not 2"),
                (("zbv", "--virtual-stages", 3), "zbv has two stages per rank, not 3"),
                (("1f1b", "--verify", "/nowhere/at/all.csv"), "'1f1b' is a schedule of its own, and --verify"),
                (("--verify", "/nowhere/at/all.csv", "--svg", "/nowhere/at/all.svg"), "--svg /nowhere/at/all.svg: there is no folder /nowhere/at"),
                (("gpipe", "--stages", 1000, "--microbatches", 100000), "too many for a list"),
                (("gpipe", "--times", "1,2"), "--times is '1,2': 2 times, not 3"),
                (("gpipe", "--times", "1,0,2"), "0 is not from 0.001"),
                (("gpipe", "--times", "a,b,c"), "--times is 'a'"),
                (("gpipe", "--csv", "--json"), "--csv and --json"),
                (("gpipe", "--sends"), "--sends goes with"),
                (("gpipe", "1f1b"), "one schedule at a time"),
                (("--stages", 4), "which schedule?"),
                (("gpipe", "--svgg", "x"), "--svgg is not a flag of lockstep schedule; try: --svg"),
                (("gpipe", "--svg", "/nowhere/at/all.svg"), "--svg /nowhere/at/all.svg: there is no folder /nowhere/at"),
                (("--verify", "/nowhere/at/all.csv"), "cannot read /nowhere/at/all.csv"),
                (("--verify", "/"), "/ is a folder")):
            with self.subTest(arguments):
                self.assertIn(words, self.refused(*arguments))

    def test_a_bad_cell_is_named(self):
        line = self.refused("--verify", "-", stdin=b"0F0,0B0\n1F0,,1X0\n")
        self.assertIn("stdin: line 2, column 3: '1X0' is not an action", line)
        self.assertIn("no action in it", self.refused("--verify", "-", stdin=b""))


if __name__ == "__main__":
    harness.main()
