# SPDX-License-Identifier: Apache-2.0
"""A table of text cells, before it is rendered."""

from dataclasses import dataclass

REFERENCES = "Centralised references (pooled source data)"
MISSING = "missing"
NOT_PRINTED = "-"


@dataclass(frozen=True)
class Cell:
    """One cell's text; a ``best`` cell is rendered in bold."""

    text: str
    best: bool = False


Row = tuple[Cell, ...]
Groups = tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class Grid:
    """Rows of cells in groups, one group per method, with one cell per header; the first ``words`` columns are text.

    ``references`` are the groups of the lower block, under the heading :data:`REFERENCES`. ``below``: a second table,
    with a caption of its own, that follows after the notes.
    """

    caption: str
    header: tuple[str, ...]
    words: int
    groups: Groups
    notes: tuple[str, ...]
    references: Groups = ()
    below: "Grid | None" = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of both blocks."""
        return tuple(row for group in (*self.groups, *self.references) for row in group)

    @property
    def separated(self) -> bool:
        """Whether lines separate the groups: true if any group has several rows."""
        return any(len(group) > 1 for group in (*self.groups, *self.references))
