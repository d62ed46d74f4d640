# SPDX-License-Identifier: Apache-2.0
"""``fdg explain``: what a method does, its settings and their sources, what leaves a site, and how it differs."""

import json
import shlex
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
    from fdg_plugins.cli.method_settings import Run
    from fdg_plugins.plugins.composition import Composition
    from fdg_plugins.plugins.method import Method, SettingSource

PIPE_COLUMNS = 80

_BATCH_NORM = {
    "average": "averaged like parameters",
    "frozen": "those of the initial model, in training too",
    "local": "each site's own",
    "reestimate": "measured anew for every model that is judged",
}


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

    composition = parse_method(method)  # reject an unknown name before torch is loaded
    from fdg_plugins.cli.method_settings import run_of

    files = " ".join(f"--plugin {shlex.quote(str(file))}" for file in plugin or ())
    run = run_of(composition, dataset)
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
    from fdg_plugins.plugins.composition import title_of

    if len(composition.records) > 1:
        yield Text(f"{title_of(composition.name)}: {composition.name}", style="bold")
    for record in composition.records:
        yield from _head(record)
        yield from (_indented(equation.formula, "cyan") for equation in record.equations)
        values = settings_in(run, record).items()
        shown = (f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in values)
        yield _indented(f"settings on {dataset}: {', '.join(shown) or 'none'}")
    yield Text("What leaves a site (images, labels, paths and single predictions never do):")
    leaves = composition.leaves()
    for when in dict.fromkeys(one.when for one in leaves):
        yield _indented(f"{when}: {'; '.join(one.what for one in leaves if one.when == when)}")
    yield Text("--all shows the job's config, sources of settings, differences to the papers, and what reports reveal.")


def _page(composition: "Composition", run: "Run", dataset: str, files: str) -> Iterator[RenderableType]:
    """Yield all about a composition; ``files``: the options that bring its plug-in files."""
    from fdg_plugins.cli.method_settings import settings_in
    from fdg_plugins.plugins.composition import title_of

    several = len(composition.records) > 1
    if several:
        yield Text(f"{title_of(composition.name)}: {composition.name}", style="bold")
        yield from _parts(composition)
    else:
        yield from _head(composition.records[0])
    yield from _job(composition, run, dataset, files)
    for record in composition.records:
        if several:
            yield ""
            yield from _head(record)
        yield from _formulas(record)
        yield from _settings(record, settings_in(run, record), dataset)
        if record.differences.rows:
            yield from _differences(record)
    yield from _leaves(composition)


def _head(record: "Method") -> Iterator[RenderableType]:
    paper = record.reference
    yield Text(f"{record.title}: {record.line}.", style="bold")
    yield Text(f'{paper.authors}, "{paper.title}", {paper.venue} {paper.year}.')


def _parts(composition: "Composition") -> Iterator[RenderableType]:
    rows = ((", ".join(record.acts), record.title, record.line) for record in composition.records)
    yield _inset(make_table(("acts on", "method", "what it does"), rows))
    for one, other, source in composition.together():
        yield _indented(f"{one.title} with {other.title}: {source}.")


def _job(composition: "Composition", run: "Run", dataset: str, files: str) -> Iterator[RenderableType]:
    """Yield the part of a job's config that names the method, its variables, and the command that allows it."""
    from fdg_plugins.cli.method_settings import variables_of
    from fdg_plugins.flare.components import filters_of
    from fdg_plugins.settings.protocol import Protocol

    filters = dict.fromkeys(name for record in composition.records for name in filters_of(record.key))
    fields = {name: field.default for name, field in Protocol.model_fields.items()} | run.said.protocol
    own = {name: fields[name] for record in composition.records for name in record.protocol}
    yield _section(f"In a job on {dataset}, every setting at its default")
    yield _indented(f'"aggregator": {json.dumps(run.aggregator)}')
    yield _indented(f'"protocol": {json.dumps({"objective": run.objective, **own})}')
    if filters:
        yield _indented(f"filters: {', '.join(filters)}")
    yield _indented(f"in the server's environment: {', '.join(variables_of(run))}")
    yield _indented(f"trainable: {fields['trainable']}; FDG_TRAINABLE names another part")
    rule = fields["batch_norm"]
    yield _indented(
        f"batch_norm: {rule}; BatchNorm's running statistics are {_BATCH_NORM[rule]}; FDG_BATCH_NORM sets another rule"
    )
    yield _indented(
        f"precision: {fields['precision']}; with "
        "FDG_PRECISION=auto, bfloat16 with channels last at sites whose hardware is fast in it, as fdg doctor says"
    )
    allowed = " ".join([*(f"--method {record.key}" for record in composition.records), *([files] if files else [])])
    yield _indented(f"at every site, once: fdg kit allow --kit KIT {allowed}")


def _formulas(record: "Method") -> Iterator[RenderableType]:
    if not record.equations:  # a plug-in's method need not state any
        return
    yield _section("Formulas")
    yield _indented(record.letters, "dim")
    grid = _grid()
    for equation in record.equations:
        grid.add_row(Text(equation.number or ""), Text(equation.formula, style="cyan"))
        grid.add_row("", Text(equation.meaning))
    yield _inset(grid)


def _settings(record: "Method", settings: dict[str, Any], dataset: str) -> Iterator[RenderableType]:
    if not settings:
        return
    yield _section(f"Settings, as a job on {dataset} runs them")
    sources = {source.name: source for source in record.settings}
    grid = _grid(3)
    for name, value in settings.items():
        source = sources.get(name)
        shown = value if isinstance(value, str) else json.dumps(value)
        grid.add_row(Text(name + _symbol_text(source)), Text(shown, style="bold"), Text(_source_text(source)))
    yield _inset(grid)


def _symbol_text(source: "SettingSource | None") -> str:
    return f" ({source.symbol})" if source is not None and source.symbol else ""


def _source_text(source: "SettingSource | None") -> str:
    if source is None:  # a plug-in's method need not state the sources of its values
        return ""
    lines = [("", source.remark), ("paper: ", source.paper), ("authors' code: ", source.code)]
    return "\n".join(label + text for label, text in lines if text is not None)


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


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold underline")


def _inset(part: RenderableType, columns: int = 2) -> RenderableType:
    return Padding(part, (0, 0, 0, columns), expand=False)


def _indented(text: str, style: str = "") -> RenderableType:
    return _inset(Text(text, style=style))


def _grid(columns: int = 2) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for column in range(columns):
        grid.add_column(overflow="fold", no_wrap=column < columns - 1)
    return grid
