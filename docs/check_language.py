# SPDX-License-Identifier: Apache-2.0
"""Finds words that the glossary in CONTRIBUTING.md replaces, in pages, docstrings and messages, and measures sentences.

python docs/check_language.py    # exit code 1 if a word is found; prints the length of the pages' sentences
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What readers know by another name -> the name to use.
WORDS = {
    r"judg(es|ed|ing)": "evaluate",
    r"same bits": "bit-identical",
    r"of (its|your|their|our) own(?= *[,.;:)]| *$)": "its, your, separate or custom",
    r"an own": "its, a separate or a custom",
    r"(go|goes|went|going) on with": "resume or continue",
    r"(chose|chooses|choose) nothing": "played no part in selection",
    r"says? nothing": "does not show",
    r"riddle|by another way": "plain words",
}
MOST_WORDS = 30


def pages() -> list[Path]:
    """Return the pages that people write."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def prose_of(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside blocks of code, with their numbers."""
    code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        code ^= line.lstrip().startswith("```")
        is_glossary = page.name == "CONTRIBUTING.md" and line.startswith("|")
        if not code and not is_glossary and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`|\$[^$]+\$", "CODE", line)


def strings_of(module: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module: docstrings and messages."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line


def sentences(page: Path) -> list[int]:
    """Return the numbers of words of a page's sentences; tables and headings have none."""
    lines = (line if line.strip() else "\n" for _, line in prose_of(page) if not line.startswith(("|", "#", "!")))
    paragraphs = re.split(r"\n|(?:^|\s)[-*] |\d\. ", " ".join(lines))
    found = (one for text in paragraphs for one in re.split(r"(?<=[.!?])\s+", text))
    return [len(words) for one in found if len(words := re.findall(r"[\w'-]+", one)) > 2]


def main() -> int:
    """Print each place with a word that has a better name, and the measure of the pages."""
    places = 0
    texts = [(page, prose_of(page)) for page in pages()]
    texts += [(module, strings_of(module)) for module in sorted((ROOT / "fdg_plugins").rglob("*.py"))]
    for path, lines in texts:
        for number, line in lines:
            for pattern, better in WORDS.items():
                for found in re.finditer(rf"\b{pattern}(?!\w)", line, re.IGNORECASE):
                    places += 1
                    print(f"{path.relative_to(ROOT)}:{number}: {found[0]!r}, better: {better}")  # noqa: T201
    lengths = [length for page in pages() for length in sentences(page)]
    long = sum(length > MOST_WORDS for length in lengths)
    print(f"{len(lengths)} sentences, {sum(lengths) / len(lengths):.1f} words each, {long / len(lengths):.1%} over 30")  # noqa: T201
    return int(places > 0)


if __name__ == "__main__":
    sys.exit(main())
