"""What a person types first: help, completion, and words that are nearly right."""

import os
import pathlib
import shutil
import subprocess

import harness

VERBS = ("run", "doctor", "train", "bench", "compare", "plan", "schedule", "completion")


class Help(harness.TestCase):
    def test_help_on_a_verb_is_its_help_flag(self):
        for verb in VERBS:
            with self.subTest(verb):
                asked = self.run_job("help", verb)
                self.assert_code(asked, 0)
                self.assertTrue(asked.stdout.startswith("Examples:\n"), asked.stdout)
                self.assertEqual(asked.stdout, self.run_job(verb, "--help").stdout)
        self.assertEqual(self.run_job("help", "compare", "ranks").stdout, self.run_job("compare", "ranks", "--help").stdout)
        self.assert_code(self.run_job("help", "trian"), 2)

    def test_ranks_is_a_flag_of_every_verb_that_has_ranks(self):
        for words in (("run",), ("train",), ("bench",), ("plan",), ("compare", "allreduce"), ("compare", "ranks"),
                      ("compare", "hooks"), ("compare", "overlap"), ("compare", "buckets"), ("compare", "schedules"), ("schedule",)):
            text = self.run_job("help", *words).stdout
            self.assertIn("--ranks", text, words)
            self.assertRegex(text, r"-n, --iters" if words == ("bench",) else r"-n, --ranks", words)
        job = self.run_job("run", "--ranks", 2, "true")
        self.assert_code(job, 0)

    def test_verbs_without_arguments_that_need_some_show_help_and_fail(self):
        for verb in ("plan", "schedule"):
            job = self.run_job(verb)
            self.assert_code(job, 2)
            self.assertEqual(job.stdout, "")
            self.assertTrue(job.stderr.startswith("Examples:\n"), job.stderr)

    def test_a_picture_that_can_not_be_written_is_known_before_any_work(self):
        job = self.run_job("plan", "all_reduce", "ring", "--svg", "/nowhere/at/all.svg")
        self.assert_code(job, 2)
        self.assertEqual(job.stdout, "")
        self.assertIn("there is no folder /nowhere/at", job.stderr)

    def test_a_misspelt_variable_is_an_error(self):
        for verb in (("doctor",), ("run", "true"), ("bench", "barrier")):
            job = self.run_job(*verb, env={"LOCKSTEP_TRASPORT": "tcp"})
            self.assert_code(job, 2)
            self.assertIn("LOCKSTEP_TRASPORT is set, and Lockstep has none of that name; try: LOCKSTEP_TRANSPORT", job.stderr)


class Completion(harness.TestCase):
    def words(self, shell, line):
        """What the shell offers for the last word of `line`."""
        script = {
            "bash": 'source <("$0" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep; echo "${COMPREPLY[@]}"',
            "fish": '$argv[1] completion fish | source; complete -C (string join -- " " $argv[2..])',
        }[shell]
        folder = str(pathlib.Path(harness.LOCKSTEP).parent)
        command = [shell, "-c", script, str(harness.LOCKSTEP), *line]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30,
                              env={**os.environ, "PATH": folder + ":" + os.environ["PATH"]})
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def assert_completes(self, shell):
        for line, some in ((("lockstep", "tr"), {"train"}), (("lockstep", ""), set(VERBS)),
                           (("lockstep", "bench", "all_r"), {"all_reduce"}),
                           (("lockstep", "run", "--"), {"--ranks", "--log-dir", "--tee"}),
                           (("lockstep", "train", "--st"), {"--strategy", "--steps", "--stages"}),
                           (("lockstep", "compare", "ra"), {"ranks"}),
                           (("lockstep", "compare", "ranks", "--ste"), {"--steps"})):
            with self.subTest(" ".join(line)):
                self.assertLessEqual(some, set(self.words(shell, line)))

    def test_bash(self):
        self.assert_completes("bash")

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        self.assert_completes("fish")

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        script = subprocess.run([str(harness.LOCKSTEP), "completion", "zsh"], capture_output=True, text=True).stdout
        self.assertEqual(subprocess.run(["zsh", "-n"], input=script, capture_output=True, text=True).stderr, "")
        words = script + '\n_lockstep_words "$0" "$@"'
        done = subprocess.run(["zsh", "-c", words, str(harness.LOCKSTEP), "bench"], capture_output=True, text=True)
        self.assertIn("--sweep", done.stdout)

    def test_another_shell_is_refused(self):
        job = self.run_job("completion", "tcsh")
        self.assert_code(job, 2)
        self.assertIn("try: lockstep completion bash, zsh or fish", job.stderr)


if __name__ == "__main__":
    harness.main()
