"""Every variable of the environment that the sources read is in the list of base/environment.cpp, and in the documentation."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
listed = set(re.findall(r'"(LOCKSTEP_[A-Z_]+)"', (root / "src/lockstep/base/environment.cpp").read_text()))
texts = [path.read_text() for path in [*root.glob("docs/*.md"), root / "README.md", root / "dev"]]
wrong = []
for path in [*root.glob("src/**/*.cpp"), *root.glob("src/**/*.h")]:
    for name in sorted(set(re.findall(r'env(?:_int|_seconds|_choice)?\("(LOCKSTEP_[A-Z_]+)"', path.read_text())) - listed):
        wrong.append(f"{path.relative_to(root)}: {name} is not in the list of base/environment.cpp")
for name in sorted(listed):
    if not any(name in text for text in texts):
        wrong.append(f"{name} is documented nowhere")
print("\n".join(wrong) or f"{len(listed)} variables, each listed and documented")
sys.exit(1 if wrong else 0)
