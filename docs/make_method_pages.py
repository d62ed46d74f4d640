# SPDX-License-Identifier: Apache-2.0
"""Makes the methods' pages from their records and the notes in ``methods/``, when the site is built.

The notes are written by hand: a title, whom the method is for, and a section of remarks. The table of all methods in
``methods/index.md`` is made too. The README's list is committed: ``nox -s generate``.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from mathml import math, with_symbols
from page_table import markdown_table
from pictures import picture

from fdg_plugins.data import DATASETS
from fdg_plugins.filters import GapReportFilter
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.plugins.method import ANY_DATASET, Default, Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.recipes import JOBS
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.protocols import FAMILIES

METRIC_DEFAULT = inspect.signature(GapReportFilter).parameters["metric"].default
README = Path(__file__).parents[1] / "README.md"
KINDS = ("server", "weighting", "objective", "protocol")
FROM = {
    "protocol": " (of the protocol)",
    "metric": " (of `GapReportFilter`)",
}
ACTS = {
    "direction": "direction of the server's step",
    "weighting": "weights of the sites",
    "objective": "local objective",
    "network": "network",
    "step": "local step",
    "personal": "personal model",
}
_PART = re.compile(r"<!-- made: (?P<name>[\w-]+) -->.*?<!-- end -->", re.DOTALL)


def method_page(page: str, notes: str) -> str:
    """Return the page of a method from its record and its notes; any other page as it is, with its made parts."""
    records = METHODS.own()
    key = page.removeprefix("methods/").removesuffix(".md")
    if page == "methods/index.md":
        head = ("method", "what it does", "where it acts", "jobs")
        return with_parts(notes, {"methods": f"\n{markdown_table(head, map(_job, records.values()))}\n"})
    if not page.startswith("methods/"):
        return notes
    record = records[key]
    title, _, rest = notes.partition("\n")
    intro, _, remarks = rest.partition("\n## ")
    sections = {"Equations": _equations(record), "Settings": _settings(record)}
    ends = {"What leaves the site": _leaves(record), "Paper, code and this package": _differences(record)}
    parts = [title, intro.strip(), picture(key), _about(record)]
    parts += [f"## {head}\n\n{text}" for head, text in sections.items()]
    parts += [f"## {remarks.strip()}"] if remarks else []
    return "\n\n".join([*filter(None, parts), *(f"## {head}\n\n{text}" for head, text in ends.items())]) + "\n"


def _about(record: Method) -> str:
    paper = record.reference
    jobs = ", ".join(f"[`{name}`](../../jobs/{name})" for name in _jobs_of(record))
    file = f"fdg_plugins/methods/{record.key}.py"
    return (
        f'{paper.authors}, "{paper.title}", {paper.venue} {paper.year}. Code: [`{file}`](../../{file}). Jobs: {jobs}. '
        f"In a terminal: `fdg explain {record.key}`."
    )


def readme() -> str:
    """Return the README with its list of methods, which is committed, as it must be written."""
    return with_parts(README.read_text(encoding="utf-8"), {"methods": f"\n{_groups(METHODS.own().values())}\n"})


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    """Return ``page`` with its made parts replaced; in a line of text a part stays in the line."""

    def made(part: re.Match[str]) -> str:
        space = "\n" if "\n" in part[0] else ""
        if part["name"] not in parts:
            return part[0]
        text = parts[part["name"]]
        return f"<!-- made: {part['name']} -->{space}{text}{space}<!-- end -->"

    return _PART.sub(made, page)


def _equations(record: Method) -> str:
    line = record.line[:1].upper() + record.line[1:]
    letters = [f"*Letters:* {with_symbols(_text(record.letters), is_list=True)}.", ""] if record.letters else []
    return "\n".join([f"**In short.** {_text(line)}.", "", *letters, *_equation_lines(record)])


def _equation_lines(record: Method) -> Iterator[str]:
    for equation in record.equations:
        yield from (math(line, display=True) for line in equation.formula.splitlines())
        number = f"**{equation.number}.** " if equation.number else ""
        meaning = with_symbols(_text(equation.meaning))
        yield f"\n{number}{meaning[:1].upper()}{meaning[1:]}.\n"


def _settings(record: Method) -> str:
    rows = [*_sourced(record), *_unsourced(record)]
    head = ("setting", "symbol", "default", "paper", "code", "remark")
    how = "Set one with `--set NAME=VALUE`, by its name in a recipe, or as `FDG_NAME` in the server's environment."
    return f"{markdown_table(head, rows)}\n\n{how}" if rows else "None of its own."


def _sourced(record: Method) -> Iterator[tuple[str, ...]]:
    for one in record.settings:
        kind = kind_of(record, one.name)
        said = (
            math(one.symbol) if one.symbol else "",
            default_cell(record, one.name, kind),
            one.paper,
            one.code,
            one.remark,
        )
        yield (f"`{one.name}`{FROM.get(one.name) or FROM.get(kind, '')}", *(_text(text or "") for text in said))


def _unsourced(record: Method) -> Iterator[tuple[str, ...]]:
    """Yield what a job of the method has otherwise than another's, and the method has no setting of its own for."""
    own = {one.name for one in record.settings}
    for kind in KINDS:
        for name in dict.fromkeys(name for entry in record.defaults for name in getattr(entry, kind)):
            if name not in own:
                yield f"`{name}`{FROM.get(kind, '')}", "", default_cell(record, name, kind), "", "", ""


def kind_of(record: Method, name: str) -> str:
    """Return which part of a job has a setting of the method: one of ``KINDS``, or ``metric``."""
    for kind, class_ in _classes(record).items():
        if name in inspect.signature(class_).parameters:
            return kind
    return "protocol" if name in Protocol.model_fields else "metric"


def default_cell(record: Method, name: str, kind: str) -> str:
    """Return what a job has for a setting where nobody says otherwise, by data set, with where it is from."""
    if kind == "metric":
        return f"`{METRIC_DEFAULT}`"
    entries = [entry for entry in record.defaults if name in getattr(entry, kind)]
    general = {entry.on for entry in entries if entry.beside is None}
    everywhere = ANY_DATASET in general or all(general & set(spec.families) for spec in DATASETS.own().values())
    lines = [] if everywhere else [*_of_others(record, name, kind, general)]
    lines += [_said(record, entry, getattr(entry, kind)[name], kind) for entry in entries]
    return "<br>".join(lines)


def _of_others(record: Method, name: str, kind: str, said: Collection[str]) -> Iterator[str]:
    """Yield what a job has where the record says nothing: the class's value, and those of the families' protocols."""
    value = _of_class(record, name, kind)
    yield f"`{_value(value)}`"
    for family, protocol in FAMILIES.items() if kind == "protocol" else ():
        if family not in said and protocol.protocol.get(name, value) != value:
            yield f"`{_value(protocol.protocol[name])}` on {family}"


def _said(record: Method, entry: Default, value: Any, kind: str) -> str:
    on = (
        ""
        if entry.on == ANY_DATASET
        else f" on {DATASETS.get(entry.on).title if entry.on in DATASETS.own() else entry.on}"
    )
    beside = "" if entry.beside is None else f" with {METHODS.get(entry.beside).title}"
    under = " under the plain mean" if kind == "server" and record.aggregator is None else ""
    return f"`{_value(value)}`{on}{beside}{under} ({entry.source})"


def _of_class(record: Method, name: str, kind: str) -> Any:
    if kind == "protocol":
        return Protocol.model_fields[name].get_default(call_default_factory=True, validated_data={})
    if kind == "server" and record.aggregator is None:
        record = METHODS.get(BASE)
    return inspect.signature(_classes(record)[kind]).parameters[name].default


def _classes(record: Method) -> dict[str, Callable[..., Any]]:
    named = {"weighting": record.weighting, "objective": record.objective, "server": record.aggregator}
    return {kind: class_ for kind, class_ in named.items() if class_ is not None}


def _leaves(record: Method) -> str:
    base = record.key == BASE
    if not record.leaves:
        return f"*What leaves the site:* as under [{METHODS.get(BASE).title}]({BASE}.md), and nothing more."
    rows = [tuple(map(_text, (one.what, one.shape, one.when, one.reveals, one.report or ""))) for one in record.leaves]
    beyond = "" if base else f" beyond what does under [{METHODS.get(BASE).title}]({BASE}.md)"
    head = ("what", "size", "when", "what it reveals", "word in `allowed_reports`")
    return f"*What leaves the site*{beyond}:\n\n{markdown_table(head, rows)}"


def _differences(record: Method) -> str:
    compared = record.differences.compared
    head = ("point", "paper", *([compared] if compared else []), "here")
    rows = [
        tuple(map(_text, (row.point, row.paper, *([row.code or ""] if compared else []), row.ours)))
        for row in record.differences.rows
    ]
    remark = f"\n\n{_text(record.differences.remark)}" if record.differences.remark else ""
    return f"{markdown_table(head, rows) if rows else 'None known.'}{remark}"


def _job(record: Method) -> tuple[str, ...]:
    acts = ", ".join(ACTS[point] for point in record.acts)
    jobs = ", ".join(f"[`{name}`](../../jobs/{name})" for name in _jobs_of(record))
    return f"[{record.title}]({record.key}.md)", _text(record.line), acts, jobs


def _jobs_of(record: Method) -> list[str]:
    return [f"{dataset}_{method}" for dataset, method in JOBS if method == record.key]


def _groups(records: Collection[Method]) -> str:
    """Return a table of the methods by the first point at which they act."""
    links = {point: [one for one in records if one.acts[0] == point] for point in ACTS}
    rows = [
        (ACTS[point], ", ".join(f"[{one.title}](docs/methods/{one.key}.md)" for one in found))
        for point, found in links.items()
        if found
    ]
    return markdown_table(("acts on", "methods"), rows)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _text(text: str) -> str:
    """Return plain text as Markdown, also for a cell of a table; what has been marked up already stays."""
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
