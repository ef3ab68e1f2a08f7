"""Which libtorch cmake/choose_torch.py takes, and what it says where one can't be used. Installs nothing."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "choose_torch.py"
OLD_ABI = b"_ZN3c105ErrorC1ENS_14SourceLocationESs"


class ChooseTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.packages = self.folder / "packages"
        self.packages.mkdir()
        # A python3 that is first on the PATH and sees only our packages.
        programs = self.folder / "bin"
        programs.mkdir()
        self.python = programs / "python3"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH={self.packages} exec {sys.executable} -S "$@"\n')
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("LOCKSTEP_", "PIP_", "PYTHON", "VIRTUAL_ENV"))}
        self.environment["PATH"] = f"{programs}:{os.environ['PATH']}"

    def libtorch(self, version="2.9.1", abi=b"", where=None):
        """A folder that looks like a libtorch."""
        folder = where or self.folder / "libtorch"
        headers = folder / "include/torch/csrc/api/include/torch"
        headers.mkdir(parents=True)
        (folder / "lib").mkdir()
        (folder / "lib/libtorch_cpu.so").touch()
        (folder / "lib/libc10.so").write_bytes(b"x" + abi)
        (headers / "all.h").touch()
        parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
        (headers / "version.h").write_text("".join(f"#define TORCH_VERSION_{name} {number}\n" for name, number in parts))
        return folder

    def package(self, text, version="2.9.1"):
        """The python3 on the PATH imports this as torch."""
        folder = self.libtorch(version, where=self.packages / "torch")
        (folder / "__init__.py").write_text(text)
        return folder

    def choose(self, *arguments, code=0, install=False, **environment):
        done = subprocess.run([self.python, SCRIPT, "--venv", self.folder / "build/torch", *arguments,
                               *([] if install else ["--no-install"])], capture_output=True, text=True,
                              env=self.environment | environment)
        self.assertEqual(done.returncode, code, done.stderr)
        self.said = done.stderr
        return json.loads(done.stdout) if code == 0 else None

    def assert_refused(self, word, *words):
        self.choose(code=2, LOCKSTEP_TORCH=str(word))
        self.assertEqual(self.said.count("\n"), 1, self.said)
        for text in (f"LOCKSTEP_TORCH={word} can't be used", "try: LOCKSTEP_TORCH=pip, LOCKSTEP_TORCH=debian", *words):
            self.assertIn(text, self.said)

    def test_a_folder(self):
        folder = self.libtorch()
        answer = self.choose(LOCKSTEP_TORCH=str(folder))
        self.assertEqual((answer["source"], answer["version"], answer["folder"]), ("said", "2.9.1", str(folder)))
        self.assertEqual(answer["libraries"], [str(folder / "lib/libtorch_cpu.so"), str(folder / "lib/libc10.so")])
        self.assertIn(f"LOCKSTEP_TORCH={folder}", self.said)

    def test_site_packages_will_do(self):
        folder = self.package("")
        self.assertEqual(self.choose("--want", self.packages)["folder"], str(folder))

    def test_what_a_folder_can_be_instead(self):
        self.assert_refused(self.folder / "nowhere", "is not a folder")
        self.assert_refused(self.folder, "has no libtorch: there is no lib/libtorch_cpu.so")

    def test_too_old(self):
        self.assert_refused(self.libtorch("2.5.1"), "is 2.5.1, and 2.6 is the oldest that works")

    def test_another_abi(self):
        self.assert_refused(self.libtorch("2.6.0", OLD_ABI), "another C++ ABI")

    def test_the_pytorch_of_python3(self):
        folder = self.package("__version__ = '2.9.1+cpu'")
        answer = self.choose()
        self.assertEqual((answer["source"], answer["version"], answer["folder"]), ("python", "2.9.1+cpu", str(folder)))
        self.assertTrue(answer["python"])
        self.assertIn(f"({self.python} imports it)", self.said)

    def test_one_that_is_broken_is_passed_over(self):
        self.package("raise ImportError('libcudart.so.12: cannot open shared object file')")
        self.assertEqual(self.choose()["source"], "debian")
        self.assertIn(f"passed over: the torch of {self.python} is broken: ImportError: libcudart.so.12", self.said)

    def test_one_that_is_too_old_is_passed_over(self):
        self.package("__version__ = '2.5.1'")
        self.assertEqual(self.choose()["source"], "debian")
        self.assertIn(f"passed over: the torch of {self.python} is 2.5.1", self.said)

    def test_without_a_network_it_says_what_to_set(self):
        answer = self.choose(install=True, PIP_NO_INDEX="1", PIP_CONFIG_FILE="/dev/null", PIP_FIND_LINKS=str(self.folder))
        self.assertEqual(answer["source"], "debian")
        self.assertIn("pip could not install torch==2.13.0+cpu", self.said)
        self.assertIn("PIP_EXTRA_INDEX_URL", self.said)
        self.assertFalse((self.folder / "build/torch").exists(), "half an environment was left")

    def test_an_answer_is_kept_until_something_changes(self):
        folder = self.package("__version__ = '2.9.1+cpu'")
        self.assertEqual(self.choose()["source"], "python")
        (folder / "__init__.py").write_text("raise ImportError('not asked again')")
        self.assertEqual(self.choose()["source"], "python")
        self.assertEqual(self.choose(LOCKSTEP_TORCH=str(folder))["source"], "said")
        (folder / "lib/libc10.so").unlink()
        self.assertEqual(self.choose()["source"], "debian")

    def test_an_upgrade_in_place_is_seen(self):
        folder = self.package("__version__ = '2.9.1+cpu'")
        self.assertEqual(self.choose()["version"], "2.9.1+cpu")
        (folder / "__init__.py").write_text("__version__ = '2.13.0+cpu'")
        (folder / "lib/libtorch_cpu.so").write_bytes(b"a newer one")
        self.assertEqual(self.choose()["version"], "2.13.0+cpu")

    def test_the_last_resort_is_not_kept(self):
        self.assertEqual(self.choose()["source"], "debian")
        self.package("__version__ = '2.9.1+cpu'")
        self.assertEqual(self.choose()["source"], "python")
        self.assertFalse((self.folder / "build/torch.json").read_text().count('"debian"'))

    def test_a_python_that_prints_more_than_it_is_asked_for(self):
        self.package("import atexit\n__version__ = '2.9.1'\nprint('hello')\natexit.register(print, 'bye')")
        self.assertEqual(self.choose()["version"], "2.9.1")

    def test_a_folder_named_torch_where_it_is_called(self):
        (self.folder / "torch").mkdir()
        folder, here = os.getcwd(), self.folder
        os.chdir(here)
        self.addCleanup(os.chdir, folder)
        self.choose()
        self.assertNotIn("passed over", self.said)

    def test_a_package_brings_its_own(self):
        package = self.libtorch(where=self.folder / "installed")
        for want in ("", "pip"):
            answer = self.choose("--package", package, LOCKSTEP_TORCH=want)
            self.assertEqual((answer["folder"], answer["why"]), (str(package), "it came with the package"))

    def test_a_build_folder_that_can_not_be_written(self):
        self.package("__version__ = '2.9.1'")
        (self.folder / "build").write_text("a file")
        self.assertEqual(self.choose()["version"], "2.9.1")
        self.assertNotIn("Traceback", self.said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
