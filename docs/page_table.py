# SPDX-License-Identifier: Apache-2.0
"""The tables of the pages that the scripts beside it make."""

from collections.abc import Iterable


def markdown_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown, whose cells are Markdown too; the last line is not terminated."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
