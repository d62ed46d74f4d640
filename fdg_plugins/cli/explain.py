# SPDX-License-Identifier: Apache-2.0
"""``fdg explain``: what a method does, its settings and their sources, what leaves a site, and how it differs."""

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fdg_plugins.cli.options import PluginFiles, load_plugins
from fdg_plugins.cli.tables import make_table, show

if TYPE_CHECKING:
    from fdg_plugins.cli.method_settings import Run
    from fdg_plugins.plugins.composition import Composition
    from fdg_plugins.plugins.method import Method

PIPE_COLUMNS = 80


def explain(
    method: Annotated[
        str | None,
        typer.Argument(help="A method, or several joined by +: fedomg, fedomg+ga+dim. Without it: all methods."),
    ] = None,
    plugin: PluginFiles = None,
    dataset: Annotated[str, typer.Option(help="The data set whose defaults are shown: those of a job on it.")] = "pacs",
    everything: Annotated[
        bool, typer.Option("--all", help="Also the job's config, sources of settings and differences.")
    ] = False,
) -> None:
    """Explain a method, or a composition of methods.

    One screen: what it does, its formulas, its settings with their defaults, and what leaves a site. The settings shown
    are those that a job runs on the data set by default. A composition has at most one method in each place: the
    direction of the server's step, the weights of the sites, the local objective.

    Examples:

      fdg explain

      fdg explain fediir --dataset rotatedmnist

      fdg explain fedomg+ga+dim

      fdg explain clipped_fedavg --plugin custom/clipped_fedavg.py
    """
    load_plugins(plugin)
    if method is None:
        show(*_overview(), width=PIPE_COLUMNS)
        return
    from fdg_plugins.plugins.composition import parse_method

    composition = parse_method(method)
    from fdg_plugins.cli.method_settings import run_of

    run = run_of(composition, dataset)
    files = [word for file in plugin or () for word in ("--plugin", str(file))]
    page = _page(composition, run, dataset, files) if everything else _screen(composition, run, dataset)
    show(*page, width=PIPE_COLUMNS)


def _overview() -> Iterator[RenderableType]:
    from fdg_plugins.plugins.methods import METHODS

    problems = METHODS.load_usable()
    rows = ((record.key, ", ".join(record.acts), record.line) for record in METHODS.loaded())
    yield make_table(("method", "acts on", "what it does"), rows)
    yield from (Text(f"\nleft out: {problem}") for problem in problems)
    yield Text(
        "\nMethods that take different places go together: fdg explain fedomg+ga+dim. "
        "FedAvg stands for what is not named."
    )


def _screen(composition: "Composition", run: "Run", dataset: str) -> Iterator[RenderableType]:
    """Yield what fits one screen: what each method does, formulas, settings, and what leaves a site."""
    from fdg_plugins.cli.method_settings import settings_in

    yield from _title(composition)
    for record in composition.records:
        yield from _head(record)
        yield from (_indented(equation.formula, "cyan") for equation in record.equations)
        shown = [f"{name} {_text(value)}" for name, value in settings_in(run, record).items()]
        yield _indented(f"settings on {dataset}: {', '.join(shown) or 'none'}")
    yield Text("What leaves a site (images, labels, paths and single predictions never do):")
    leaves = composition.leaves()
    for when in dict.fromkeys(one.when for one in leaves):
        yield _indented(f"{when}: {'; '.join(one.what for one in leaves if one.when == when)}")
    yield Text("--all shows the job's config, sources of settings, differences to the papers, and what reports reveal.")


def _page(composition: "Composition", run: "Run", dataset: str, files: Sequence[str]) -> Iterator[RenderableType]:
    """Yield all about a composition; ``files``: the words that bring its plug-in files."""
    from fdg_plugins.cli.method_settings import settings_in

    records = composition.records
    yield from _title(composition)
    if len(records) > 1:
        rows = ((", ".join(record.acts), record.title, record.line) for record in records)
        yield _inset(make_table(("acts on", "method", "what it does"), rows))
        for one, other, source in composition.together():
            yield _indented(f"{one.title} with {other.title}: {source}.")
    yield from _job(composition, run, dataset, files)
    for record in records:
        yield ""
        yield from _head(record)
        if record.equations:  # a plug-in's method need not state any
            yield _section("Formulas")
            yield _indented(record.letters, "dim")
            pairs = (((one.number or "", one.formula), ("", one.meaning)) for one in record.equations)
            yield _grid([row for pair in pairs for row in pair])
        if settings := settings_in(run, record):
            yield _section(f"Settings, as a job on {dataset} runs them")
            yield _grid([_sourced(record, name, _text(value)) for name, value in settings.items()])
        if record.differences.rows:
            yield from _differences(record)
    yield from _leaves(composition)


def _title(composition: "Composition") -> Iterator[RenderableType]:
    from fdg_plugins.plugins.composition import title_of

    if len(composition.records) > 1:
        yield Text(f"{title_of(composition.name)}: {composition.name}", style="bold")


def _head(record: "Method") -> Iterator[RenderableType]:
    paper = record.reference
    yield Text(f"{record.title}: {record.line}.", style="bold")
    yield Text(f'{paper.authors}, "{paper.title}", {paper.venue} {paper.year}.')


def _job(composition: "Composition", run: "Run", dataset: str, files: Sequence[str]) -> Iterator[RenderableType]:
    """Yield the part of a job's config that names the method, its variables, and the command that allows it."""
    from fdg_plugins.cli.method_settings import variables_of
    from fdg_plugins.flare.components import filters_of
    from fdg_plugins.record.method_settings import protocol_settings
    from fdg_plugins.settings.protocol import Protocol

    filters = dict.fromkeys(name for record in composition.records for name in filters_of(record.key))
    fields = {name: field.default for name, field in Protocol.model_fields.items()} | run.said.protocol
    own = {name: fields[name] for record in composition.records for name in protocol_settings(record)}
    yield _section(f"In a job on {dataset}, every setting at its default")
    yield _indented(f'"aggregator": {json.dumps(run.aggregator)}')
    yield _indented(f'"protocol": {json.dumps({"objective": run.objective, **own})}')
    if filters:
        yield _indented(f"filters: {', '.join(filters)}")
    yield _indented(f"in the server's environment: {', '.join(variables_of(run))}")
    yield _indented(", ".join(f"{name}: {fields[name]}" for name in ("trainable", "batch_norm", "precision")))
    words = [word for record in composition.records for word in ("--method", record.key)]
    yield _indented(f"at every site, once: fdg kit allow KIT {shlex.join([*words, *files])}")


def _sourced(record: "Method", name: str, value: str) -> tuple[str, str, str]:
    """Return a setting, its value, and where that comes from; a plug-in's method need not state it."""
    source = next((one for one in record.settings if one.name == name), None)
    if source is None:
        return name, value, ""
    lines = [("", source.remark), ("paper: ", source.paper), ("authors' code: ", source.code)]
    text = "\n".join(label + text for label, text in lines if text is not None)
    return f"{name} ({source.symbol})" if source.symbol else name, value, text


def _differences(record: "Method") -> Iterator[RenderableType]:
    differences = record.differences
    yield _section("Where they differ")
    head = ["point", "paper", *([differences.compared] if differences.compared else []), "here"]
    cells = ((row.point, row.paper, row.code, row.ours) for row in differences.rows)
    yield _inset(make_table(head, ([cell for cell in row if cell is not None] for row in cells)))
    if differences.remark is not None:
        yield _indented(differences.remark)


def _leaves(composition: "Composition") -> Iterator[RenderableType]:
    yield _section("What leaves a site")
    leaves = composition.leaves()
    for when in dict.fromkeys(one.when for one in leaves):
        yield _indented(f"{when}:", "bold")
        rows = ((one.what, one.shape, one.reveals) for one in leaves if one.when == when)
        yield _inset(make_table(("what", "shape", "what it reveals"), rows), 4)
    if reports := dict.fromkeys(filter(None, (one.report for one in leaves))):
        yield _indented(
            f"A site whose allowed_reports lack {' or '.join(reports)} fails at the census, before any training."
        )
    yield _indented("Images, labels, paths of images and single predictions never leave.")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold underline")


def _inset(part: RenderableType, columns: int = 2) -> RenderableType:
    return Padding(part, (0, 0, 0, columns), expand=False)


def _indented(text: str, style: str = "") -> RenderableType:
    return _inset(Text(text, style=style))


def _grid(rows: Sequence[tuple[str, ...]]) -> RenderableType:
    """Return rows of a name, a value or formula, and what it means."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for column in range(len(rows[0])):
        grid.add_column(overflow="fold", no_wrap=column < len(rows[0]) - 1)
    for row in rows:
        grid.add_row(*map(Text, row))
    return _inset(grid)
