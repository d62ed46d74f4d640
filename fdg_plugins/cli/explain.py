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

from fdg_plugins.aggregators import make_weighting
from fdg_plugins.cli.console import make_table, show
from fdg_plugins.cli.options import PluginFiles, load_plugins
from fdg_plugins.flare.components import GAP, filters_of
from fdg_plugins.plans import JobSettings, job_settings
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.plugins.composition import Composition, parse_method, title_of
from fdg_plugins.plugins.method import Differences, Method
from fdg_plugins.plugins.methods import METHODS, REFERENCES
from fdg_plugins.record.method_settings import protocol_settings
from fdg_plugins.settings.protocol import PREFIX, Protocol

PIPE_COLUMNS = 80


class Run(NamedTuple):
    """The settings that a job runs, by name: of aggregator and objective as in its config, completed by defaults."""

    said: JobSettings
    aggregator: dict[str, Any]
    objective: dict[str, Any]


def run_of(composition: Composition, dataset: str) -> Run:
    """Return the settings that a job runs for a composition; raise ``SettingsError`` if its parts are incompatible."""
    said = job_settings(composition, dataset, {})
    aggregator = said.plans.real.aggregator.settings()
    if "weighting" in aggregator:
        rule = make_weighting(aggregator["weighting"])
        if own := {name: getattr(rule, name) for name in parameters_of(type(rule)) if hasattr(rule, name)}:
            aggregator["weighting"] = {"name": composition.weighting, **own}
    return Run(said, {"name": said.aggregator_spec["name"], **aggregator}, said.objective.settings())


def settings_in(run: Run, record: Method) -> dict[str, Any]:
    """Return the settings that one method contributes to a run, by name.

    A method whose weighting is combined with another's direction contributes no aggregator.
    """
    found: dict[str, Any] = {}
    if record.weighting is not None and isinstance(weighting := run.aggregator.get("weighting"), Mapping):
        found |= weighting
    if record.key == run.aggregator["name"]:  # only the names of parts whose settings are shown separately
        found = {name: value["name"] if isinstance(value, Mapping) else value for name, value in run.aggregator.items()}
    if record.objective is not None:
        found |= run.objective
    found.pop("name", None)
    protocol = Protocol.model_validate(run.said.protocol)
    found |= {name: getattr(protocol, name) for name in protocol_settings(record)}
    return found | ({"metric": run.said.gap_metric} if GAP in record.reports else {})


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
    everything: Annotated[bool, Option("--all", help="Also the job's config, sources and differences.")] = False,
) -> None:
    """Explain a method, or a composition of methods.

    One screen: what it does, its formulas, its settings as a job on the data set has them, and what leaves a site. A
    composition has at most one method in each place: the direction of the server's step, the weights of the sites, the
    local objective.

    Examples:

      fdg explain
      fdg explain fedomg+ga+dim
      fdg explain clipped_fedavg --plugin custom/clipped_fedavg.py --all
    """
    load_plugins(plugin)
    dataset = "pacs"  # that of the papers' defaults
    if method in REFERENCES:
        show(*_reference(method), width=PIPE_COLUMNS)
        return
    if method is None:
        show(*_overview(), width=PIPE_COLUMNS)
        return
    composition = parse_method(method)
    run, records = run_of(composition, dataset), composition.records
    parts: list[RenderableType] = []
    if len(records) > 1:
        parts.append(Text(f"{title_of(composition.name)}: {composition.name}", style="bold"))
    if everything:
        parts += [_indented(f"{one.title} with {other.title}: {why}.") for one, other, why in composition.together()]
        parts += _job(run, dataset)
        words = [word for record in records for word in ("--method", record.key)]
        words += [word for file in plugin or () for word in ("--plugin", str(file))]
        parts.append(_indented(f"at every site, once: fdg kit allow KIT {shlex.join(words)}"))
    for record in records:
        parts += _method(record, settings_in(run, record), dataset, in_full=everything)
    show(*parts, *_leaves(composition, in_full=everything), width=PIPE_COLUMNS)


def _reference(name: str) -> Iterator[RenderableType]:
    from fdg_plugins.lab.centralised import ALGORITHMS

    data = "each site alone, without a server's step" if name == "local" else "the pooled images of the source domains"
    yield Text(f"{ALGORITHMS[name].title}: a reference, no federated method: trains on {data}.", style="bold")
    yield Text(f"fdg run {name}, or with methods in one table: fdg sweep FOLDER --methods fedavg,{name}")


def _overview() -> Iterator[RenderableType]:
    problems = METHODS.load_usable()
    rows = ((record.key, ", ".join(record.acts), record.line) for record in METHODS.loaded())
    yield make_table(("method", "acts on", "what it does"), rows)
    yield from (Text(f"\nleft out: {problem}") for problem in problems)
    yield Text(
        "\nMethods that take different places go together: fdg explain fedomg+ga+dim. "
        "FedAvg stands for what is not named."
    )


def _method(record: Method, settings: Mapping[str, Any], dataset: str, *, in_full: bool) -> Iterator[RenderableType]:
    paper = record.reference
    yield Text(f"{chr(10) if in_full else ''}{record.title}: {record.line}.", style="bold")
    yield Text(f'{paper.authors}, "{paper.title}", {paper.venue} {paper.year}.')
    if in_full:
        yield _indented(record.letters, "dim")
    for equation in record.equations:
        yield _indented(equation.formula, "cyan")
        if in_full:
            yield _indented(f"  {equation.number or ''} {equation.meaning}")
    if not in_full:
        shown = ", ".join(f"{name} {_text(value)}" for name, value in settings.items())
        yield _indented(f"settings on {dataset}: {shown or 'none'}")
    elif settings:
        yield _section(f"Settings, as a job on {dataset} runs them")
        yield _indented(make_table(("", "", ""), [_sourced(record, *item) for item in settings.items()]))
    if in_full and record.differences.rows:
        yield from _differences(record.differences)


def _job(run: Run, dataset: str) -> Iterator[RenderableType]:
    records = run.said.method.records
    filters = dict.fromkeys(name for record in records for name in filters_of(record.key))
    fields = {name: field.default for name, field in Protocol.model_fields.items()} | run.said.protocol
    own = {name: fields[name] for record in records for name in protocol_settings(record)}
    yield _section(f"In a job on {dataset}, every setting at its default")
    yield _indented(f'"aggregator": {json.dumps(run.aggregator)}')
    yield _indented(f'"protocol": {json.dumps({"objective": run.objective, **own})}')
    if filters:
        yield _indented(f"filters: {', '.join(filters)}")
    yield _indented(f"in the server's environment: {', '.join(variables_of(run))}")


def _sourced(record: Method, name: str, value: Any) -> tuple[str, str, str]:
    source = next((one for one in record.settings if one.name == name), None)
    if source is None:
        return name, _text(value), ""
    texts = {"": source.remark, "paper: ": source.paper, "authors' code: ": source.code}
    said = "; ".join(label + text for label, text in texts.items() if text is not None)
    return f"{name} ({source.symbol})" if source.symbol else name, _text(value), said


def _differences(differences: Differences) -> Iterator[RenderableType]:
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
    if in_full and (reports := dict.fromkeys(filter(None, (one.report for one in leaves)))):
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
