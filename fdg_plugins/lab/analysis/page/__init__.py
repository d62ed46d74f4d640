# SPDX-License-Identifier: Apache-2.0
"""A page in HTML that needs no other file and no network: sections of tables that sort, figures and text.

Run folders and records may be anybody's: every text is escaped, and the page's own policy forbids whatever is not in
it: it names the digests of its style and its script, and images must be inline. Figures are images, in which a browser
runs nothing. The same sections result in the same bytes. Needs matplotlib and Jinja.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from fdg_plugins.errors import visible
from fdg_plugins.lab.analysis.figures.drawing import draw, render
from fdg_plugins.lab.analysis.figures.picture import Picture
from fdg_plugins.lab.analysis.render import Sheet

BEST = re.compile(r"\*\*(.+)\*\*")  # of a column in a Sheet


class Section(NamedTuple):
    """A heading, and tables, figures and paragraphs in any order."""

    heading: str
    parts: Sequence[Sheet | Picture | str]


def html_page(title: str, sections: Sequence[Section]) -> str:
    """Return the page."""
    style, script = ((files(__name__) / f"page.{suffix}").read_text("utf-8") for suffix in ("css", "js"))
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src {_digest(style)}; "
        f"script-src {_digest(script)}"
    )
    environment = Environment(
        autoescape=True, finalize=_printable, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string((files(__name__) / "page.html").read_text("utf-8")).render(
        title=title,
        sections=[{"heading": one.heading, "parts": list(map(_prepared, one.parts))} for one in sections],
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
    )


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _printable(value: Any) -> Any:
    """Return what an expression gives, with signs escaped that a reader would not see, or that no file can hold."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prepared(part: Sheet | Picture | str) -> Any:
    """Return a part as the template takes it."""
    if isinstance(part, str):
        return part
    if isinstance(part, Picture):
        svg = base64.b64encode(render(draw(part), part, "svg")).decode()
        return {"svg": svg, "title": part.title, "caption": part.caption}
    return {**part._asdict(), "head": list(part.frame.columns), "groups": _groups(part)}


def _groups(sheet: Sheet) -> list[tuple[str, list[list[tuple[str, bool]]]]]:
    """Return the rows by the line above them that has nothing but a name, each cell with whether it is the best."""
    groups: list[tuple[str, list[list[tuple[str, bool]]]]] = [("", [])]
    for first, *rest in sheet.frame.itertuples(index=False, name=None):
        if first.endswith(":") and not any(rest):
            groups.append((first, []))
        else:
            bests = [BEST.fullmatch(text) for text in rest]
            cells = [
                (text if best is None else best[1], best is not None) for text, best in zip(rest, bests, strict=True)
            ]
            groups[-1][1].append([(first, False), *cells])
    return groups
