# SPDX-License-Identifier: Apache-2.0
"""``fdg explain``: what a method does, its settings and their sources, what leaves a site, and how it differs."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.cli.tables import make_table, show

if TYPE_CHECKING:
    from fdg_plugins.explained import Composition, Explanation, SettingSource
    from fdg_plugins.explained.in_code import Setting

PIPE_COLUMNS = 80


def explain(
    method: Annotated[
        str | None,
        typer.Argument(help="A method, or several joined by +: fedomg, fedomg+ga+dim. Without it: all methods."),
    ] = None,
    plugin: PluginFiles = None,
) -> None:
    """Explain a method, or a composition of methods: formulas, settings, what leaves a site, differences.

    Defaults are those of the installed code. A composition takes at most one method of each kind: a local
    objective, weights of the sites, a direction of the server's step.

    Examples:

      fdg explain

      fdg explain fediir

      fdg explain fedomg+ga+dim

      fdg explain clipped_fedavg --plugin custom/clipped_fedavg.py
    """
    from fdg_plugins.explained import compose

    load_plugins(plugin)
    if method is None:
        show(*_overview(), width=PIPE_COLUMNS)
        return
    composition = compose(method)
    show(*_page(composition), width=PIPE_COLUMNS)


def _overview() -> Iterator[RenderableType]:
    from fdg_plugins.explained import method_names, read_explanation

    methods = {name: read_explanation(name) for name in method_names()}
    rows = ((name, ", ".join(method.acts), method.line) for name, method in methods.items())
    yield make_table(("method", "sets the", "what it does"), rows)
    yield Text(
        "\nMethods that set different things go together: fdg explain fedomg+ga+dim. "
        "FedAvg stands for what is not named."
    )


def _page(composition: "Composition") -> Iterator[RenderableType]:
    from fdg_plugins.explained.in_code import job_of, method_of, settings_in
    from fdg_plugins.plugins.composition import title_of

    several = len(composition.methods) > 1
    if several:
        name = method_of(composition).name
        yield Text(f"{title_of(name)}: {name}", style="bold")
        yield from _parts(composition)
    else:
        yield from _head(*composition.methods.values())
    yield from _job(composition, job_of(composition))
    for name, explanation in composition.methods.items():
        if several:
            yield ""
            yield from _head(explanation)
        yield from _formulas(explanation)
        yield from _settings(explanation, settings_in(composition, name))
        yield from _differences(explanation)
        yield _section("Exact cases")
        yield _cases(explanation.exact)
    yield from _leaves(composition)


def _head(explanation: "Explanation") -> Iterator[RenderableType]:
    paper = explanation.reference
    yield Text(f"{explanation.title}: {explanation.line}.", style="bold")
    yield Text(f'{paper.authors}, "{paper.title}", {paper.venue} {paper.year}.')


def _parts(composition: "Composition") -> Iterator[RenderableType]:
    rows = ((", ".join(one.acts), one.title, one.in_composition) for one in composition.methods.values())
    yield _inset(make_table(("sets the", "method", "with the others"), rows))
    for first, second, source in composition.together():
        yield _indented(f"{first} with {second}: {source}.")


def _job(composition: "Composition", job: dict[str, Any]) -> Iterator[RenderableType]:
    """Yield the part of a job's config that names the method, its variables, and how a site allows it."""
    from fdg_plugins.explained.in_code import variables_of

    filters = dict.fromkeys(name for one in composition.methods.values() for name in one.components.filters)
    yield _section("In a job, every setting at its default")
    yield _indented(f'"aggregator": {json.dumps(job["aggregator"])}')
    yield _indented(f'"protocol": {{"objective": {json.dumps(job["objective"])}}}')
    if filters:
        yield _indented(f"filters: {', '.join(filters)}")
    yield _indented(f"in the server's environment: {', '.join(variables_of(composition))}")
    allowed = " ".join(f"--method {name}" for name in composition.methods)
    yield _indented(f"at every site, once: fdg allow-list --kit KIT {allowed}")


def _formulas(explanation: "Explanation") -> Iterator[RenderableType]:
    yield _section("Formulas")
    yield _indented(explanation.letters, "dim")
    grid = _grid()
    for equation in explanation.equations:
        grid.add_row(Text(equation.number or ""), Text(equation.formula, style="cyan"))
        grid.add_row("", Text(equation.meaning))
    yield _inset(grid)


def _settings(explanation: "Explanation", settings: "list[Setting]") -> Iterator[RenderableType]:
    yield _section("Settings")
    sources = {source.name: source for source in explanation.settings}
    grid = _grid(3)
    for setting in settings:
        source = sources[setting.name]
        name = f"{setting.name} ({source.symbol})" if source.symbol else setting.name
        value = setting.default if isinstance(setting.default, str) else json.dumps(setting.default)
        grid.add_row(Text(name), Text(value, style="bold"), Text(_source_text(source)))
    yield _inset(grid)


def _source_text(source: "SettingSource") -> str:
    lines = [("", source.remark), ("paper: ", source.paper), ("authors' code: ", source.code)]
    return "\n".join(label + text for label, text in lines if text is not None)


def _differences(explanation: "Explanation") -> Iterator[RenderableType]:
    differences = explanation.differences
    yield _section("Where they differ")
    head = ["point", "paper", *([differences.compared] if differences.compared else []), "here"]
    cells = ((row.point, row.paper, row.code, row.ours) for row in differences.rows)
    yield _inset(make_table(head, ([cell for cell in row if cell is not None] for row in cells)))
    if differences.remark is not None:
        yield _indented(differences.remark)


def _cases(cases: tuple[str, ...]) -> RenderableType:
    grid = _grid()
    for case in cases:
        grid.add_row("-", Text(case))
    return _inset(grid)


def _leaves(composition: "Composition") -> Iterator[RenderableType]:
    yield _section("What leaves a site")
    leaves = composition.leaves()
    for when in dict.fromkeys(one.when for one in leaves):
        yield _indented(f"{when}:", "bold")
        rows = ((one.what, one.shape, one.reveals) for one in leaves if one.when == when)
        yield _inset(make_table(("what", "shape", "what it reveals"), rows), 4)
    if reports := dict.fromkeys(one.report for one in leaves if one.report is not None):
        yield _indented(
            f"A site whose allowed_reports lack {' or '.join(reports)} fails at the census, before any training."
        )
    yield _indented("Images, labels, paths of images and single predictions never leave.")


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold underline")


def _inset(part: RenderableType, columns: int = 2) -> RenderableType:
    return Padding(part, (0, 0, 0, columns), expand=False)


def _indented(text: str, style: str = "") -> RenderableType:
    return _inset(Text(text, style=style))


def _grid(columns: int = 2) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(columns):
        grid.add_column(overflow="fold")
    return grid
