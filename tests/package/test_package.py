"""Installs Lockstep, builds outside projects against what was installed, and runs them on 2 ranks.

    test_package.py BUILD_FOLDER SOURCE_FOLDER WORK_FOLDER comm|lockstep
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

BUILD, SOURCE, WORK = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
COMPONENT = sys.argv[4]
LONG = os.environ.pop("LOCKSTEP_PACKAGE_TESTS", "")  # Lockstep's programs would refuse a variable that they do not know
HERE = pathlib.Path(__file__).resolve().parent


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                          **{"stderr": subprocess.STDOUT, "timeout": 300} | options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def compile_alone(header):
    """Compiles a header of lockstep/ by itself, without libtorch's headers."""
    run("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", header.parent.parent, "-include", header,
        "-x", "c++", "/dev/null")


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        cls.addClassCleanup(shutil.rmtree, WORK, ignore_errors=True)
        cls.prefix = WORK / "installed"
        staging = WORK / "staging"
        for component in ["comm"] if COMPONENT == "comm" else ["comm", "lockstep"]:
            run("cmake", "--install", BUILD, "--prefix", staging, "--component", component)
        staging.rename(cls.prefix)  # it must not know where it was

    def build(self, project, *options):
        """The folder with the programs of an outside project."""
        built = WORK / f"{project}_build"
        run("cmake", "-G", "Ninja", "-S", HERE / project, "-B", built, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
            *(["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []), *options)
        run("cmake", "--build", built)
        return built

    def build_example(self, name, *options):
        """examples/cmake_project: a folder that people copy."""
        project = WORK / f"{name}_project"
        shutil.copytree(SOURCE / "examples/cmake_project", project)
        built = WORK / f"{name}_build"
        run("cmake", "-G", "Ninja", "-S", project, "-B", built,
            *(["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []), *options)
        return built

    def on_two_ranks(self, program):
        return sorted(run(self.prefix / "bin/lockstep", "run", "-n", 2, "--", program).splitlines())

    def test_it_does_not_know_the_sources(self):
        files = list(self.prefix.rglob("*.cmake"))
        self.assertGreater(len(files), 3)
        for file in files:
            text = file.read_text()
            for folder in ("src", "build", "cmake"):
                self.assertNotIn(str(SOURCE / folder), text, file)
            self.assertNotIn("-Werror", text, file)

    def test_no_file_names_the_machine_that_built_it(self):
        # A build folder may be removed, and a package may be moved to another machine.
        folders = [str(folder).encode() + b"/" for folder in (SOURCE, BUILD, WORK)]
        for file in self.prefix.rglob("*"):
            if file.is_file() and "libtorch" not in file.relative_to(self.prefix).parts:
                content = file.read_bytes()
                for folder in folders:
                    self.assertFalse(folder in content, f"{file} names {folder.decode()}")

    def test_it_says_which_components_there_are(self):
        project = WORK / "wrong"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(wrong LANGUAGES CXX)\n"
                                                "find_package(lockstep REQUIRED COMPONENTS com)\n")
        with self.assertRaisesRegex(AssertionError, r"no\s+component\s+'com'"):
            run("cmake", "-G", "Ninja", "-S", project, "-B", WORK / "wrong_build", f"-DCMAKE_PREFIX_PATH={self.prefix}")


class Comm(Package):
    def test_comm_builds_without_libtorch(self):
        # Were libtorch asked for, that would be an error here.
        program = self.build("comm", "-DLOCKSTEP_TORCH=/nowhere") / "sum"
        self.assertNotIn("torch", run("ldd", program))
        self.assertEqual(self.on_two_ranks(program), ["[rank 0] 3 20", "[rank 1] 3 20"])


    def test_only_the_public_headers_are_installed_and_each_compiles_by_itself(self):
        folder = next(self.prefix.rglob("comm.h")).parent
        self.assertEqual(sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*")),
                         ["buffer.h", "comm.h", "communicator.h", "error.h", "named_values.h", "options.h", "trace.h",
                          "transport.h", "types.h", "work.h", "world.h"])
        for header in folder.glob("*.h"):
            compile_alone(header)

    def test_pkg_config(self):
        if not shutil.which("pkg-config"):
            self.skipTest("there is no pkg-config")
        environment = os.environ | {"PKG_CONFIG_PATH": str(next(self.prefix.rglob("pkgconfig")))}
        flags = run("pkg-config", "--cflags", "--libs", "lockstep-comm", env=environment).split()
        program = WORK / "by_hand"
        run("c++", HERE / "comm/sum.cpp", "-o", program, *flags)
        self.assertEqual(self.on_two_ranks(program), ["[rank 0] 3 20", "[rank 1] 3 20"])

    def test_in_a_shared_library(self):
        (WORK / "shared.cpp").write_text('#include <lockstep/comm.h>\nint ranks() { return lockstep::init().size(); }\n')
        (WORK / "shared").mkdir()
        (WORK / "shared/CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(shared LANGUAGES CXX)\nfind_package(lockstep REQUIRED COMPONENTS comm)\n"
            "add_library(shared SHARED ../shared.cpp)\ntarget_link_libraries(shared PRIVATE lockstep::comm)\n"
            "target_link_options(shared PRIVATE -Wl,--no-undefined)\n")
        run("cmake", "-G", "Ninja", "-S", WORK / "shared", "-B", WORK / "shared_build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", WORK / "shared_build")

    def test_the_example_with_the_sources_in_its_own_build(self):
        built = self.build_example("subdirectory", f"-DLOCKSTEP_SOURCE={SOURCE}", "-DLOCKSTEP_TORCH=OFF",
                                   "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0")
        run("cmake", "--build", built)
        self.assertEqual(self.on_two_ranks(built / "sum"), [f"[rank {rank}] the ranks add up to 1" for rank in (0, 1)])
        self.assertFalse((built / "lockstep/tests").exists(), "somebody else's project does not build our tests")


class Torch(Package):
    def test_the_installed_command_trains(self):
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        document = json.loads(run(self.prefix / "bin/lockstep", "train", "--ranks", 2, "--dim", 8, "--depth", 1, "--batch", 4,
                                  "--steps", 2, "--json", env=environment, stderr=subprocess.DEVNULL))
        self.assertTrue(document["weights_agree"])

    def test_only_the_public_headers_are_installed(self):
        folder = next(self.prefix.rglob("lockstep.h")).parent
        self.assertEqual({file.relative_to(folder) for file in folder.rglob("*")},
                         {file.relative_to(SOURCE / "include/lockstep") for file in (SOURCE / "include/lockstep").iterdir()})
        for name in ("kinds.h", "schedule.h", "training.h"):  # they say that they need no libtorch
            compile_alone(folder / name)

    def test_it_loads_the_libtorch_that_it_was_built_with(self):
        about = json.loads(run(self.prefix / "bin/lockstep-torch", "about"))
        chosen = json.loads((BUILD / "torch.json").read_text())
        self.assertEqual(about["version"], chosen["version"])
        own = self.prefix / "lib/lockstep/libtorch/lib"
        expected = own if chosen["source"] == "pip" else pathlib.Path(chosen["lib"])
        self.assertEqual(pathlib.Path(about["file"]).resolve().parent, expected.resolve())

    def test_another_libtorch_is_named_and_nothing_hangs(self):
        # A library of the same name that is found first, and has all symbols that are needed to start.
        chosen = json.loads((BUILD / "torch.json").read_text())
        if not chosen["build_ids"][1]:
            self.skipTest("this libtorch has no build ID")
        other = WORK / "other"
        other.mkdir()
        original = pathlib.Path(chosen["libraries"][1]).resolve()
        name = original.name if chosen["source"] != "debian" else original.name.rsplit(".", 1)[0]  # the soname
        content = original.read_bytes()
        (other / name).write_bytes(content.replace(bytes.fromhex(chosen["build_ids"][1]), bytes(20)))
        done = subprocess.run([self.prefix / "bin/lockstep", "train", "--strategy", "single", "--steps", "2"], timeout=60,
                              capture_output=True, text=True, env=os.environ | {"LD_LIBRARY_PATH": str(other)})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"not the one that Lockstep was built with: {other / name} has build ID 0000", done.stderr)
        self.assertIn(chosen["libraries"][1].removeprefix(str(SOURCE) + "/"), done.stderr)

    def test_the_example(self):
        built = self.build_example("installed", f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", built)
        self.assertEqual(self.on_two_ranks(built / "sum"), [f"[rank {rank}] the ranks add up to 1" for rank in (0, 1)])
        self.assertEqual(self.on_two_ranks(built / "train"), ["[rank 0] y = 3.000 x + -1.000"])

    def test_the_example_with_the_sources_in_its_own_build(self):
        if not LONG:
            self.skipTest("LOCKSTEP_PACKAGE_TESTS is not set: it compiles all of Lockstep")
        chosen = json.loads((BUILD / "torch.json").read_text())
        where = "debian" if chosen["source"] == "debian" else pathlib.Path(chosen["lib"]).parent
        built = self.build_example("subdirectory", f"-DLOCKSTEP_SOURCE={SOURCE}", f"-DLOCKSTEP_TORCH={where}",
                                   "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0")
        run("cmake", "--build", built, timeout=1800)
        self.assertEqual(self.on_two_ranks(built / "train"), ["[rank 0] y = 3.000 x + -1.000"])

    def test_a_model_on_the_stack_is_told_what_to_write(self):
        project = WORK / "stack"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(stack LANGUAGES CXX)\nfind_package(lockstep REQUIRED)\n"
            "add_executable(stack stack.cpp)\ntarget_link_libraries(stack PRIVATE lockstep::lockstep)\n")
        (project / "stack.cpp").write_text(
            "#include <lockstep/data_parallel.h>\nstruct Net : torch::nn::Module {};\nint main() {\n"
            "  auto comm = lockstep::init();\n  Net net;\n  lockstep::DistributedDataParallel ddp(net, comm);\n}\n")
        run("cmake", "-G", "Ninja", "-S", project, "-B", WORK / "stack_build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        with self.assertRaisesRegex(AssertionError, "must not be on the stack. Write `auto net = std::make_shared<Net>"):
            run("cmake", "--build", WORK / "stack_build")

    def test_a_module_of_ones_own_learns(self):
        program = self.build("torch") / "fit"
        self.assertEqual(self.on_two_ranks(program),
                         ["[rank 0] y = 3.000 x + -1.000", "[rank 1] y = 3.000 x + -1.000"])


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Comm if COMPONENT == "comm" else Torch)
    sys.exit(0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1)
