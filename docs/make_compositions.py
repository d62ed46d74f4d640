# SPDX-License-Identifier: Apache-2.0
"""Makes ``compositions.md`` from the records of methods: which weighting and objective go under which direction."""

from collections.abc import Iterator

from page_table import markdown_table

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.composition import OWN_IDEA, PLAIN, Composition, compositions, find_method
from fdg_plugins.plugins.method import Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.recipes import make_recipe

PAGE = """# Compositions

For researchers who combine methods. A method has up to three parts: the direction of the server's step, the weights of
the sites, and what the sites minimise. Each cell is a name that commands, recipes and sweeps take, `fdg run
fedomg+ga+dim`; the order of its parts makes no difference. A table has the compositions under one direction.

- **Bold**: a published method, or parts that a paper or its authors' code has combined, each pair of them: the last
  section has the sources. The others are offered here and reported in no paper.
- *refused*: the parts contradict each other; the number gives the reason, with which a job ends before any site is
  asked.
- `-`: the method has both a weighting and an objective, and is a part with both.

Tests run the bold ones by night, in one process on small images, and build the others
(`tests/controllers/test_every_method.py`): this shows that the parts fit, not that they help. A composition adds up
what leaves a site: `fdg explain fedomg+ga+dim`.

{tables}

## Why some are refused

{reasons}

## Who has combined them

{sources}
"""


def page() -> str:
    """Return the page as it must be written."""
    reasons: dict[str, int] = {}
    tables = "\n\n".join(_table_of(direction, reasons) for direction in _directions())
    told = "\n".join(f"{number}. {reason}" for reason, number in reasons.items())
    return PAGE.format(tables=tables, reasons=told, sources="\n".join(_sources()))


def _sources() -> Iterator[str]:
    """Yield a line for each pair of methods that someone has combined."""
    for made in compositions():
        if len(pairs := made.together()) == 1 and _is_published(made):
            yield f"- `{made.name}`: {pairs[0][2]}."


def _directions() -> list[str]:
    return list(dict.fromkeys(made.direction for made in compositions()))


def _table_of(direction: str, reasons: dict[str, int]) -> str:
    """Return the table of one direction; new reasons for a refusal are numbered in ``reasons``."""
    cells = {(made.weighting, made.objective): made for made in compositions() if made.direction == direction}
    weightings = list(dict.fromkeys(weighting for weighting, _ in cells))
    objectives = list(dict.fromkeys(objective for _, objective in cells))
    record = METHODS.get(direction)
    head = ("objective", *("its own weights" if one is None else f"weights of {_link(one)}" for one in weightings))
    rows = [
        (
            "the task's loss" if objective == PLAIN else _link(objective),
            *(_cell(cells.get((weighting, objective)), reasons) for weighting in weightings),
        )
        for objective in objectives
    ]
    return f"## Under {record.title}'s direction\n\n{markdown_table(head, rows)}"


def _cell(made: Composition | None, reasons: dict[str, int]) -> str:
    """Return what the table says of a composition; None: it has no name."""
    if made is None:
        return "-"
    try:
        make_recipe(made.name)
    except SettingsError as error:
        return f"*refused* ({reasons.setdefault(str(error), len(reasons) + 1)})"
    return f"**`{made.name}`**" if _is_published(made) else f"`{made.name}`"


def _is_published(made: Composition) -> bool:
    """Return whether someone has combined each pair of the parts; one method alone always is."""
    return all(source != OWN_IDEA for *_, source in made.together())


def _link(part: str) -> str:
    record = find_method(part)
    assert isinstance(record, Method)
    return f"[{record.title}](methods/{record.key}.md)"
