# SPDX-License-Identifier: Apache-2.0
"""``fdg explain``: what a method does, its settings and their sources, what leaves a site, and how it differs."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text
from typer import Argument, Option

from fdg_plugins.aggregators import make_aggregator, make_weighting
from fdg_plugins.cli.console import make_table, show
from fdg_plugins.cli.options import PluginFiles, load_plugins
from fdg_plugins.flare.components import GAP, filters_of
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.plugins.composition import Composition, parse_method, title_of
from fdg_plugins.plugins.method import Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.recipes.settings import JobSettings, job_settings
from fdg_plugins.record.method_settings import protocol_settings
from fdg_plugins.settings.protocol import PREFIX, Protocol

PIPE_COLUMNS = 80


class Run(NamedTuple):
    """The settings that a job runs: every setting of its aggregator, of its weighting and of its objective, by name.

    ``aggregator`` and ``objective`` have the form of a job's config, completed by the defaults of the classes.
    ``weighting`` is empty if the aggregator's weighting has no settings.
    """

    said: JobSettings
    aggregator: dict[str, Any]
    weighting: dict[str, Any]
    objective: dict[str, Any]


def run_of(composition: Composition, dataset: str) -> Run:
    """Return the settings that a job runs for a composition; raise ``SettingsError`` if its parts are incompatible."""
    said = job_settings(composition, dataset, {})
    aggregator = make_aggregator(said.aggregator_spec).settings()
    weighting: dict[str, Any] = {}
    if "weighting" in aggregator:
        rule = make_weighting(aggregator["weighting"])
        weighting = {name: getattr(rule, name) for name in parameters_of(type(rule)) if hasattr(rule, name)}
    if weighting:
        aggregator["weighting"] = {"name": composition.weighting, **weighting}
    return Run(said, {"name": said.aggregator_spec["name"], **aggregator}, weighting, said.objective.settings())


def settings_in(run: Run, record: Method) -> dict[str, Any]:
    """Return the settings that one method contributes to a run, by name.

    A method whose weighting is combined with another's direction contributes no aggregator.
    """
    found = dict(run.weighting) if record.weighting is not None else {}
    if record.key == run.aggregator["name"]:  # only the names of parts whose settings are shown separately
        found = {name: value["name"] if isinstance(value, Mapping) else value for name, value in run.aggregator.items()}
    if record.objective is not None:
        found |= run.objective
    found.pop("name", None)
    protocol = Protocol.model_validate(run.said.protocol)
    found |= {name: getattr(protocol, name) for name in protocol_settings(record)}
    if GAP in record.reports:
        found["metric"] = run.said.gap_metric
    return found


def variables_of(run: Run) -> list[str]:
    """Return the environment variables of the server that set the settings of a run's method.

    A name shared with the protocol, such as ``target``, belongs to the protocol; one shared by the aggregator and the
    objective belongs to the aggregator.
    """
    own = [name for name in (*run.aggregator, *run.objective) if name != "name" and name not in Protocol.model_fields]
    of_protocol = [name for record in run.said.method.records for name in protocol_settings(record)]
    return [PREFIX + name.upper() for name in dict.fromkeys([*own, *of_protocol])]


def explain(
    method: Annotated[str | None, Argument(help="A method, or several joined by +; without it, all methods.")] = None,
    plugin: PluginFiles = None,
    dataset: Annotated[str, Option(help="The data set whose defaults are shown.")] = "pacs",
    everything: Annotated[bool, Option("--all", help="Also the job's config, sources and differences.")] = False,
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
    composition = parse_method(method)
    run = run_of(composition, dataset)
    words = [word for record in composition.records for word in ("--method", record.key)]
    words += [word for file in plugin or () for word in ("--plugin", str(file))]
    allow = f"at every site, once: fdg kit allow KIT {shlex.join(words)}"
    show(*_page(composition, run, dataset, allow if everything else ""), width=PIPE_COLUMNS)


def _overview() -> Iterator[RenderableType]:
    problems = METHODS.load_usable()
    rows = ((record.key, ", ".join(record.acts), record.line) for record in METHODS.loaded())
    yield make_table(("method", "acts on", "what it does"), rows)
    yield from (Text(f"\nleft out: {problem}") for problem in problems)
    yield Text(
        "\nMethods that take different places go together: fdg explain fedomg+ga+dim. "
        "FedAvg stands for what is not named."
    )


def _page(composition: Composition, run: Run, dataset: str, allow: str) -> Iterator[RenderableType]:
    """Yield one screen about a composition; all about it if ``allow`` says how sites allow it."""
    if len(composition.records) > 1:
        yield Text(f"{title_of(composition.name)}: {composition.name}", style="bold")
        for one, other, source in composition.together() if allow else ():
            yield _indented(f"{one.title} with {other.title}: {source}.")
    if allow:
        yield from _job(composition, run, dataset)
        yield _indented(allow)
    for record in composition.records:
        paper, settings = record.reference, settings_in(run, record)
        yield Text(f"{chr(10) if allow else ''}{record.title}: {record.line}.", style="bold")
        yield Text(f'{paper.authors}, "{paper.title}", {paper.venue} {paper.year}.')
        if not allow:
            yield from (_indented(equation.formula, "cyan") for equation in record.equations)
            shown = ", ".join(f"{name} {_text(value)}" for name, value in settings.items())
            yield _indented(f"settings on {dataset}: {shown or 'none'}")
            continue
        yield _indented(record.letters, "dim")
        for equation in record.equations:
            yield _indented(equation.formula, "cyan")
            yield _indented(f"  {equation.number or ''} {equation.meaning}")
        if settings:
            yield _section(f"Settings, as a job on {dataset} runs them")
            yield _indented(make_table(("", "", ""), [_sourced(record, *item) for item in settings.items()]))
        if record.differences.rows:
            yield from _differences(record)
    yield from _leaves(composition, in_full=bool(allow))


def _job(composition: Composition, run: Run, dataset: str) -> Iterator[RenderableType]:
    """Yield the part of a job's config that names the method, and its variables."""
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


def _sourced(record: Method, name: str, value: Any) -> tuple[str, str, str]:
    """Return a setting, its value, and where that comes from; a plug-in's method need not state it."""
    source = next((one for one in record.settings if one.name == name), None)
    if source is None:
        return name, _text(value), ""
    texts = {"": source.remark, "paper: ": source.paper, "authors' code: ": source.code}
    symbol = f" ({source.symbol})" if source.symbol else ""
    said = "; ".join(label + text for label, text in texts.items() if text is not None)
    return f"{name}{symbol}", _text(value), said


def _differences(record: Method) -> Iterator[RenderableType]:
    differences = record.differences
    yield _section("Where they differ")
    head = ["point", "paper", *([differences.compared] if differences.compared else []), "here"]
    cells = ((row.point, row.paper, row.code, row.ours) for row in differences.rows)
    yield _indented(make_table(head, ([cell for cell in row if cell is not None] for row in cells)))
    if differences.remark is not None:
        yield _indented(differences.remark)


def _leaves(composition: Composition, *, in_full: bool) -> Iterator[RenderableType]:
    yield _section("What leaves a site")
    leaves = composition.leaves()
    for when in dict.fromkeys(one.when for one in leaves):
        those = [one for one in leaves if one.when == when]
        yield _indented(f"{when}:{'' if in_full else ' ' + '; '.join(one.what for one in those)}")
        if in_full:
            rows = ((one.what, one.shape, one.reveals) for one in those)
            yield _indented(make_table(("what", "shape", "what it reveals"), rows), columns=4)
    reports = dict.fromkeys(filter(None, (one.report for one in leaves)))
    if in_full and reports:
        lacking = " or ".join(reports)
        yield _indented(f"A site whose allowed_reports lack {lacking} fails at the census, before any training.")
    yield _indented("Images, labels, paths of images and single predictions never leave.")
    if not in_full:
        yield Text("--all: the job's config, sources of settings, differences to the papers, what reports reveal.")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold underline")


def _indented(part: RenderableType, style: str = "", columns: int = 2) -> RenderableType:
    return Padding(Text(part, style=style) if isinstance(part, str) else part, (0, 0, 0, columns), expand=False)
