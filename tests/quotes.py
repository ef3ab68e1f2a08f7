"""Fails when code in a Markdown file differs from the file that it quotes.

    python3 tests/quotes.py ROOT          python3 tests/quotes.py --update ROOT     rewrites the quotes

A quote is `<!-- quote: FILE#REGION -->` and a fenced block after it; the region stands in FILE between `// region REGION`
and `// endregion`.
"""
import pathlib
import re
import sys
import textwrap

QUOTE = re.compile(r"(<!-- quote: ([^#\s]+)#(\S+) -->\n```\w*\n)(.*?)(```)", re.DOTALL)


def region(root, file, name):
    text = (root / file).read_text()
    found = re.search(rf"^ *// region {re.escape(name)}\n(.*?)^ *// endregion", text, re.DOTALL | re.MULTILINE)
    if not found:
        sys.exit(f"{file} has no region '{name}'")
    return textwrap.dedent(found[1])


def main():
    update, root = sys.argv[1] == "--update", pathlib.Path(sys.argv[-1])
    wrong = quotes = 0
    for page in sorted(p for p in root.rglob("*.md") if "build" not in p.relative_to(root).parts):
        text = page.read_text()

        def mend(match):
            nonlocal wrong, quotes
            quotes += 1
            want = region(root, match[2], match[3])
            if match[4] != want:
                wrong += 1
                print(f"{page.relative_to(root)}: the quote of {match[2]}#{match[3]} is old; try: tests/quotes.py --update .")
            return match[1] + want + match[5]

        mended = QUOTE.sub(mend, text)
        if update and mended != text:
            page.write_text(mended)
    print(f"{quotes} quotes, {wrong} of them old")
    sys.exit(1 if (wrong and not update) or quotes == 0 else 0)


main()
