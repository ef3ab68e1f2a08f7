"""Fails when a layer includes one that stands below it in docs/architecture.md's table, or when the table and the tree differ.

    python3 tests/layers.py ROOT        python3 tests/layers.py --self-test
"""
import pathlib
import re
import sys
import tempfile

UMBRELLAS = ("comm.h", "lockstep.h")  # they include the public headers of several layers
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]lockstep/([^">]+)[">]', re.MULTILINE)


def table(design: str) -> list[str]:
    """Layers in order, from the first table whose head is `| layer |`."""
    rows = design.split("| layer |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+/)`", row.split("|")[1])]


def public_headers(design: str) -> dict[str, str]:
    """{header: layer}, from the third column of the same table. The headers are in include/lockstep/."""
    rows = design.split("| layer |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    found = {}
    for row in rows:
        cells = row.split("|")
        layer = re.findall(r"`([^`]+)/`", cells[1])[-1]
        found.update((header, layer) for header in re.findall(r"`(\w+\.h)`", cells[3]))
    return found


def layer_of(path: str, layers: list[str], public: dict[str, str]) -> str | None:
    """The layer with the longest matching folder: parallel/data before parallel. A public header has a layer, too."""
    if path in public:
        return public[path]
    return max((layer for layer in layers if path.startswith(layer + "/")), key=len, default=None)


def problems(root: pathlib.Path) -> list[str]:
    design = (root / "docs/architecture.md").read_text()
    layers, public = table(design), public_headers(design)
    source, headers = root / "src/lockstep", root / "include/lockstep"
    found = []
    for file in [*sorted(headers.glob("*.h")), *sorted(source.rglob("*"))]:
        if file.suffix not in (".h", ".cpp") or file.name in UMBRELLAS and file.parent == headers:
            continue
        inside = file.name if file.parent == headers else file.relative_to(source).as_posix()
        mine = layer_of(inside, layers, public)
        if mine is None:
            found.append(f"{inside}: its folder is not a layer in docs/architecture.md")
            continue
        for include in INCLUDE.findall(file.read_text()):
            theirs = layer_of(include, layers, public)
            if theirs is None:
                found.append(f"{inside}: includes {include}, which is in no layer")
            elif file.parent == headers and "/" in include:
                found.append(f"{inside}: a public header includes {include}, which is not installed")
            elif layers.index(theirs) > layers.index(mine):
                found.append(f"{inside}: layer {mine} includes {include}, but {theirs} stands below it")
    return found


def self_test() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in {
            "docs/architecture.md": "| layer | job | public |\n|---|---|---|\n| `base/` | x | `a.h` |\n| `comm/` | y | |\n\nrest",
            "src/lockstep/base/a.h": '#include "lockstep/comm/b.h"\n',
            "src/lockstep/comm/b.h": '#include "lockstep/base/a.h"\n',
            "src/lockstep/odd/c.h": "",
            "include/lockstep/a.h": '#include <lockstep/base/a.h>\n',
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        assert problems(root) == [
            "a.h: a public header includes base/a.h, which is not installed",
            "base/a.h: layer base includes comm/b.h, but comm stands below it",
            "odd/c.h: its folder is not a layer in docs/architecture.md",
        ], problems(root)


if __name__ == "__main__":
    self_test()
    found = problems(pathlib.Path(sys.argv[1])) if sys.argv[1] != "--self-test" else []
    print("\n".join(found) or "every layer includes only itself and those above it")
    sys.exit(1 if found else 0)
