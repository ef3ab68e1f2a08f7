"""Chooses the libtorch that Lockstep is built with, and says which one and why. `dev` and CMake both ask this script.

    choose_torch.py --venv FOLDER [--want WORD] [--package FOLDER] [--no-install]

The order:
  1. What the user says with LOCKSTEP_TORCH (or --want): `debian`, `pip`, or a folder that holds a libtorch.
  2. A PyTorch of 2.6 or newer that the `python3` on the PATH can import.
  3. PyTorch 2.13 for the CPU, which pip installs into a virtual environment of its own in --venv.
  4. Debian's libtorch-dev.

The answer is one JSON object on stdout: source (said, python, pip, debian), version, folder, include
(a list), lib (the folder of the libraries), libraries, build_ids, python (an interpreter that imports this very PyTorch,
or ""), and why. People read stderr. Exit code 2: what the user said can't be used; one line says why and what to do.
"""
import argparse
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

WHEEL = "torch==2.13.0+cpu"  # plain `torch` would fetch several gigabytes of CUDA packages
OLDEST = (2, 6)  # wheels before 2.6 have another C++ ABI
OLD_ABI = b"_ZN3c105ErrorC1ENS_14SourceLocationESs"  # c10::Error's constructor with the std::string of before 2015
ANSWER = "lockstep-answer:"  # a Python may print more than it is asked for
PROBE = f"""
import json, os, sys
import torch
print({ANSWER!r} + json.dumps({{"folder": os.path.dirname(os.path.realpath(torch.__file__)), "version": torch.__version__,
                               "python": sys.executable}}))
"""


class Unusable(Exception):
    """This one can't be used; the text says why, and `hint` what to try."""

    def __init__(self, text, hint="LOCKSTEP_TORCH=pip, LOCKSTEP_TORCH=debian, or the folder of another libtorch"):
        super().__init__(text)
        self.hint = hint


def ask(python, program, timeout=60):
    """Runs a few lines in an interpreter. Not in this folder: it may have a folder of the name torch."""
    return subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=timeout, cwd="/")


def say(text):
    print(f"libtorch: {text}", file=sys.stderr, flush=True)


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def header_version(include):
    """The version that the headers say, such as 2.13.0."""
    for place in ("torch/headeronly/version.h", "torch/csrc/api/include/torch/version.h"):
        file = include / place
        if file.exists():
            found = [re.search(rf"define TORCH_VERSION_{part} (\d+)", file.read_text()) for part in ("MAJOR", "MINOR", "PATCH")]
            if all(found):
                return ".".join(match.group(1) for match in found)
    raise Unusable(f"{include} has no headers of libtorch")


def build_id(library):
    """The linker's fingerprint of a library: the program compares it with what is loaded when it starts."""
    try:
        done = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    except OSError:
        return ""
    found = re.search(r"Build ID: ([0-9a-f]+)", done.stdout)
    return found.group(1) if found else ""


def answer(source, root, lib, version, python, why):
    include = root / "include"
    libraries = [str(lib / "libtorch_cpu.so"), str(lib / "libc10.so")]
    return {"source": source, "version": version, "folder": str(root), "lib": str(lib), "python": python, "why": why,
            "include": [str(include), str(include / "torch/csrc/api/include")], "libraries": libraries,
            "build_ids": [build_id(library) for library in libraries]}


def check_folder(folder):
    """A libtorch folder or the `torch` folder inside site-packages: its version, or Unusable."""
    if not folder.is_dir():
        raise Unusable(f"{folder} is not a folder")
    for needed in ("lib/libtorch_cpu.so", "lib/libc10.so", "include/torch/csrc/api/include/torch/all.h"):
        if not (folder / needed).exists():
            raise Unusable(f"{folder} has no libtorch: there is no {needed}")
    version = header_version(folder / "include")
    if numbers(version) < OLDEST:
        raise Unusable(f"the libtorch in {folder} is {version}, and {OLDEST[0]}.{OLDEST[1]} is the oldest that works")
    if OLD_ABI in (folder / "lib/libc10.so").read_bytes():
        raise Unusable(f"the libtorch {version} in {folder} was built with another C++ ABI (_GLIBCXX_USE_CXX11_ABI=0)")
    return version


def import_torch(python):
    """What `python` imports as torch; None where it has none; Unusable where it is broken."""
    look = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('torch') else 9)"
    try:
        if ask(python, look).returncode == 9:
            return None
        done = ask(python, PROBE, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"{python} does not answer: {error}") from error
    answers = [line.removeprefix(ANSWER) for line in done.stdout.splitlines() if line.startswith(ANSWER)]
    if done.returncode != 0 or not answers:
        raise Unusable(f"the torch of {python} is broken: {last_line(done.stderr)}")
    return json.loads(answers[0])


def from_python(python):
    """The PyTorch of an interpreter; None where it has none."""
    found = import_torch(python)
    if found is None:
        return None
    if numbers(found["version"]) < OLDEST:
        raise Unusable(f"the torch of {python} is {found['version']}, and {OLDEST[0]}.{OLDEST[1]} is the oldest that works")
    folder = pathlib.Path(found["folder"])
    check_folder(folder)
    return answer("python", folder, folder / "lib", found["version"], found["python"], f"{python} imports it")


def from_folder(text, why):
    folder = pathlib.Path(text).expanduser().resolve()
    if (folder / "torch/lib/libtorch_cpu.so").exists():  # site-packages itself
        folder = folder / "torch"
    version = check_folder(folder)
    python = ""
    # The interpreter of the virtual environment that the folder lies in, or the one on the PATH.
    for candidate in [*map(str, folder.parents[3].glob("bin/python3") if len(folder.parents) > 3 else []), shutil.which("python3")]:
        try:
            found = candidate and import_torch(candidate)
        except Unusable:
            continue
        if found and pathlib.Path(found["folder"]) == folder:
            python, version = found["python"], found["version"]
            break
    return answer("said", folder, folder / "lib", version, python, why)


def run_with_progress(command, what):
    """Runs a command quietly, says every ten seconds that it is still under way; the finished process."""
    began = time.monotonic()
    done = threading.Event()

    def remind():
        while not done.wait(10):
            say(f"{what} ... {time.monotonic() - began:.0f} s")

    threading.Thread(target=remind, daemon=True).start()
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    finally:
        done.set()


def in_venv(venv):
    """The torch that pip has put into the virtual environment, or None."""
    for folder in glob.glob(f"{venv}/lib/python3*/site-packages/torch"):
        python = venv / "bin/python3"
        try:
            found = import_torch(str(python)) if python.exists() else None
            if found and WHEEL.endswith(found["version"]):
                check_folder(pathlib.Path(folder))
                return answer("pip", pathlib.Path(folder), pathlib.Path(folder) / "lib", found["version"], str(python),
                              f"pip has installed it into {venv}")
        except Unusable:
            pass
    return None


def from_pip(venv, may_install):
    there = in_venv(venv)
    if there:
        return there
    if not may_install:
        raise Unusable(f"{venv} has no {WHEEL}")
    troubles = []
    for python in dict.fromkeys(filter(None, (shutil.which("python3"), shutil.which("python3", path="/usr/bin")))):
        shutil.rmtree(venv, ignore_errors=True)
        made = run_with_progress([python, "-m", "venv", str(venv)], "making a virtual environment")
        if made.returncode != 0:
            shutil.rmtree(venv, ignore_errors=True)
            troubles.append(f"{python} can't make a virtual environment (on Debian: apt-get install python3-venv)")
            continue
        say(f"pip installs {WHEEL} into {venv} (200 MB)")
        done = run_with_progress([str(venv / "bin/pip"), "install", "--disable-pip-version-check", WHEEL], f"pip installs {WHEEL}")
        there = in_venv(venv) if done.returncode == 0 else None
        if there:
            return there
        complaints = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
        troubles.append(f"pip of {python}: {last_line(complaints[-1] if complaints else done.stdout)}")
        shutil.rmtree(venv, ignore_errors=True)
    raise Unusable(f"pip could not install {WHEEL}: " + "; ".join(troubles or ["there is no python3"]),
                   "set PIP_EXTRA_INDEX_URL to the address of the CPU index that PyTorch's install page names, and run this "
                   "again")


def from_debian():
    for lib in map(pathlib.Path, sorted(glob.glob("/usr/lib/*-linux-gnu*"))):
        if (lib / "libtorch_cpu.so").exists() and pathlib.Path("/usr/include/torch/csrc/api/include").is_dir():
            version = header_version(pathlib.Path("/usr/include"))
            return answer("debian", pathlib.Path("/usr"), lib, version, "/usr/bin/python3", "the package libtorch-dev")
    # `dev` installs it and asks again; CMake stops here.
    return {"source": "debian", "version": "", "folder": "", "lib": "", "libraries": [], "include": [], "build_ids": [],
            "python": "", "why": "libtorch-dev is not installed"}


def choose(want, venv, package, may_install):
    if package and package.is_dir() and want in ("", "pip"):
        return from_folder(package, "it came with the package")
    if want == "debian":
        found = from_debian()
        return {**found, "why": "LOCKSTEP_TORCH=debian" if found["version"] else f"LOCKSTEP_TORCH=debian, but {found['why']}"}
    if want == "pip":
        return {**from_pip(venv, may_install), "why": "LOCKSTEP_TORCH=pip"}
    if want:
        return from_folder(want, f"LOCKSTEP_TORCH={want}")
    python = shutil.which("python3")
    try:
        found = from_python(python) if python else None
        if found:
            return found
    except Unusable as trouble:
        say(f"passed over: {trouble}")
    try:
        return from_pip(venv, may_install)
    except Unusable as trouble:
        if may_install:
            say(f"{trouble}. So Debian's libtorch-dev is used; with 1.13 a step takes up to three times as long. For 2.13: "
                f"{trouble.hint}. LOCKSTEP_TORCH=debian leaves out this attempt")
        return from_debian()


def inputs(want, venv, package):
    """What the answer depends on, and is quick to find out: an answer from before holds while this is the same."""
    python = shutil.which("python3") or ""
    look = "import importlib.util, sys; s = importlib.util.find_spec('torch'); print(sys.prefix, s.origin if s else '')"
    try:
        seen = python and ask(python, look).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        seen = "broken"
    pip = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("PIP_"))
    return [want, str(venv), str(package or ""), python, seen, pip]


def stamps(chosen):
    """Of its libraries: another one in the same place has others."""
    return [[status.st_size, status.st_mtime_ns] for status in map(os.stat, chosen["libraries"])]


def remembered(file, asked):
    try:
        kept = json.loads(file.read_text())
        if kept["inputs"] == asked and kept["answer"]["libraries"] and kept["stamps"] == stamps(kept["answer"]):
            return kept["answer"]
    except (OSError, ValueError, KeyError):
        pass
    return None


def remember(file, asked, chosen):
    # Debian's as the last resort is not kept: pip may find its wheel the next time.
    if chosen["source"] == "debian" and asked[0] != "debian":
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"inputs": asked, "answer": chosen, "stamps": stamps(chosen)}))
    except OSError:
        pass  # then it is found out again the next time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--venv", type=pathlib.Path, required=True)
    parser.add_argument("--want", default=os.environ.get("LOCKSTEP_TORCH", ""))
    parser.add_argument("--package", type=pathlib.Path)
    parser.add_argument("--no-install", action="store_true")
    options = parser.parse_args()
    venv = options.venv.absolute()
    asked = inputs(options.want, venv, options.package)
    memory = venv.with_name(venv.name + ".json")
    chosen = remembered(memory, asked)
    if not chosen:
        try:
            chosen = choose(options.want, venv, options.package, not options.no_install)
        except Unusable as trouble:
            what = f"LOCKSTEP_TORCH={options.want}" if options.want else "the package's libtorch"
            say(f"{what} can't be used: {trouble}; try: {trouble.hint}")
            return 2
        if not options.package:
            remember(memory, asked, chosen)
    say(f"{chosen['version']} in {chosen['folder']} ({chosen['why']})" if chosen["version"] else f"none ({chosen['why']})")
    print(json.dumps(chosen, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
