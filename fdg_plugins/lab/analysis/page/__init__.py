# SPDX-License-Identifier: Apache-2.0
"""A page in HTML that needs no other file and no network, of runs and of evaluations.

It has sections of tables that sort, figures and text: results, protocol, what left each site, versions. Run folders and
records may be anybody's: every text is escaped, and the page's own policy forbids whatever is not in it: it names the
digests of its style and its script, and images must be inline. Figures are images, in which a browser runs nothing. The
same sections result in the same bytes. Needs matplotlib and Jinja.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from fdg_plugins.audit.file import AUDIT_FILE, read_audit
from fdg_plugins.errors import FDGError, counted, visible
from fdg_plugins.lab.analysis.facts import noised
from fdg_plugins.lab.analysis.figures import pictures_of
from fdg_plugins.lab.analysis.figures.drawing import draw, render
from fdg_plugins.lab.analysis.figures.evaluation import pictures_of_evaluation, sheet_of
from fdg_plugins.lab.analysis.figures.picture import Picture
from fdg_plugins.lab.analysis.runs import Run, grouped, method_title
from fdg_plugins.lab.analysis.table import NONE, Sheet, Table
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.record.evaluation import EvaluationResult
from fdg_plugins.record.method_settings import method_settings
from fdg_plugins.settings.protocol import Protocol

BEST = re.compile(r"\*\*(.+)\*\*")  # of a column in a Sheet
NEVER = "Images, labels, paths of images and single predictions never leave a site."
MOST_VALUES = 12  # of one setting, that are named


class Section(NamedTuple):
    """A heading, and tables, figures and paragraphs in any order."""

    heading: str
    parts: Sequence[Sheet | Picture | str]


def make_page(
    runs: Sequence[Run], table: Table | None, evaluations: Sequence[EvaluationResult], paths: Iterable[Path] = ()
) -> str:
    """Return the page of runs with their ``table``, of evaluations, or of both; ``paths``: for the sites' audit files.

    One of them at least is not empty.
    """
    data = dict.fromkeys([*(run.record.data for run in runs), *(one.data for one in evaluations)])
    counts = [counted(len(of), name) for of, name in ((runs, "finished run"), (evaluations, "evaluation")) if of]
    sections = [] if table is None else sections_of_runs(runs, table)
    for result in evaluations:
        sections += sections_of_evaluation(result)
    if audited := _audited(paths):
        sections.append(Section("Audit files of the sites", audited))
    return html_page(f"{', '.join(data)}: {' and '.join(counts)}", sections)


def html_page(title: str, sections: Sequence[Section]) -> str:
    """Return the page of some sections."""
    parts = {suffix: (files(__name__) / f"page.{suffix}").read_text("utf-8") for suffix in ("css", "js", "html")}
    digests = {
        suffix: base64.b64encode(hashlib.sha256(parts[suffix].encode()).digest()).decode() for suffix in ("css", "js")
    }
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'sha256-{digests['css']}'; script-src 'sha256-{digests['js']}'"
    )
    environment = Environment(
        autoescape=True, finalize=_printable, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(parts["html"]).render(
        title=title,
        sections=[{"heading": one.heading, "parts": list(map(_prepared, one.parts))} for one in sections],
        policy=Markup(policy),
        style=Markup(parts["css"]),
        script=Markup(parts["js"]),
    )


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
            cells = [(best[1], True) if (best := BEST.fullmatch(text)) else (text, False) for text in rest]
            groups[-1][1].append([(first, False), *cells])
    return groups


# --- what it says of runs ---


def sections_of_runs(runs: Sequence[Run], table: Table) -> list[Section]:
    """Return the sections of finished runs and their ``table``."""
    return [
        Section("Results", table.sheets()),
        Section("Figures", pictures_of(runs)[0]),
        Section("Runs", [_runs(runs)]),
        Section("Protocol", [_protocol(runs), _methods(runs)]),
        Section("What left each site", [*_arrived(runs), *_declared(runs), NEVER]),
        Section("Versions", [_versions(runs)]),
    ]


def _sheet(caption: str, words: int, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Sheet:
    texts = ([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows)
    return Sheet(caption, pd.DataFrame(texts, columns=list(head)), words, ())


def _runs(runs: Sequence[Run]) -> Sheet:
    rows = [
        (one.folder, method_title(one.method), one.target, record.started, str(one.seed), len(record.rounds), seconds)
        for one, record, seconds in ((run, run.record, round(run.record.seconds)) for run in runs)
    ]
    head = ("folder", "method", "held out", "started", "seed", "rounds", "seconds")
    return _sheet(f"{counted(len(runs), 'finished run')}.", 4, head, rows)


def _protocol(runs: Sequence[Run]) -> Sheet:
    """Return the settings of the runs, each with all its values."""
    every = [{**run.record.protocol.model_dump(mode="json"), "dataset": str(run.dataset)} for run in runs]
    rows = []
    for name, field in Protocol.model_fields.items():
        values = [*dict.fromkeys(_text(one[name]) for one in every)]
        more = [f"{len(values) - MOST_VALUES} more"] * (len(values) > MOST_VALUES)
        default = _text(field.get_default(call_default_factory=True))
        rows.append((name, "; ".join([*values[:MOST_VALUES], *more]), default))
    return _sheet("The protocol, with all values that the runs have.", 3, ("setting", "value", "default"), rows)


def _text(value: Any) -> str:
    return value or NONE if isinstance(value, str) else json.dumps(value)


def _methods(runs: Sequence[Run]) -> Sheet:
    found = (
        (method_title(run.method), ", ".join(f"{name} {value}" for name, value in method_settings(run.record).items()))
        for run in runs
    )
    return _sheet("The settings of the methods.", 2, ("method", "settings"), dict.fromkeys(found))


def _arrived(runs: Sequence[Run]) -> list[Sheet | str]:
    """Return what arrived from each site, as the runs' records say."""
    head = ("site", "domain", "role", "runs", "updates used", "with noise", "models evaluated")
    found = [
        (
            site,
            record.census[site].domain,
            "held out" if site in record.held_out else "source",
            1,
            sum(site in one.sites for one in record.rounds),
            noise[site],
            sum(site in one.sites for one in record.evaluations),
        )
        for record, noise in ((run.record, noised(run.record)) for run in runs if not run.is_reference)
        for site in (*record.sources, *record.held_out)
    ]
    if not found:
        return ["Centralised references are trained on the pooled images of all sources."]
    counts = pd.DataFrame(found, columns=head).groupby(list(head[:3])).sum().reset_index()
    size = sum(one.bytes_up for run in runs for one in run.record.rounds)
    told = "What arrived at the server, by the records: a census in each run, updates, and scores of models."
    sizes = [f"All sites together sent {size:,} bytes of tensors."] if size else []  # a study's records have none
    return [_sheet(told, 3, head, counts.itertuples(index=False)), *sizes]


def _declared(runs: Sequence[Run]) -> Iterator[Sheet | str]:
    """Yield what the methods declare to send."""
    methods: dict[tuple[str, str, str, str], list[str]] = {}
    unknown: list[str] = []
    for name in dict.fromkeys(run.method for run in runs if not run.is_reference):
        try:
            for one in parse_method(name).leaves():
                methods.setdefault((one.what, one.shape, one.when, one.reveals), []).append(method_title(name))
        except FDGError:  # of a plug-in that is not at hand
            unknown.append(name)
    if rows := [(*what, ", ".join(of)) for what, of in methods.items()]:
        head = ("what", "shape", "when", "what it reveals", "methods")
        yield _sheet("What the methods send.", 5, head, rows)
    if unknown:
        yield f"Not known here, so without this list: {', '.join(unknown)}."


def _versions(runs: Sequence[Run]) -> Sheet:
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for record in (run.record for run in runs):
        for place, versions in ((0, record.versions), *((1, reply.versions) for reply in record.census.values())):
            for name, version in versions.items():
                found.setdefault(name, ({}, {}))[place][version] = None
    rows = [(name, *(", ".join(of) for of in places)) for name, places in sorted(found.items())]
    return _sheet("Versions, by the records.", 3, ("package", "at the server", "at the sites"), rows)


# --- of evaluations, and of audit files ---


def sections_of_evaluation(result: EvaluationResult) -> list[Section]:
    """Return the sections of an evaluation of finished models."""
    models = [(one.name, one.method, one.trained_on, ", ".join(one.sources), one.sha256) for one in result.models]
    sites = [(name, one.domain, len(one.models), one.images) for name, one in result.sites.items()]
    counts = "Of each model, right images, also of pairs of models, a confusion matrix and histograms: counts alone."
    versions = _sheet("At the server.", 2, ("package", "version"), result.versions.items())
    return [
        Section(f"Evaluation of {result.started}", [sheet_of(result), *pictures_of_evaluation(result)]),
        Section("Models", [_sheet("The models.", 5, ("model", "method", "trained on", "domains", "SHA-256"), models)]),
        Section(
            "What left each evaluating site", [_sheet(counts, 2, ("site", "domain", "models", "images"), sites), NEVER]
        ),
        Section("Versions of the evaluation", [versions]),
    ]


def _audited(paths: Iterable[Path]) -> list[Sheet]:
    """Return what the audit files of sites below ``paths`` say; none if there are none."""
    files = dict.fromkeys(file for path in paths for file in sorted(path.rglob(AUDIT_FILE)))
    lines = [line for file in files for line in read_audit(file) if line.stage == "sent"]
    rows = []
    for key, those in grouped(lines, lambda one: (one.site, one.job, one.task)).items():
        parts = ", ".join(dict.fromkeys(one.part for line in those for one in line.tensors)) or NONE
        passed = dict.fromkeys(one.filter.rpartition(".")[2] for line in those for one in line.filters or ())
        values = sum(len(line.values) + len(line.others) for line in those)
        rows.append((*key, ", ".join(passed) or NONE, parts, len(those), sum(line.bytes for line in those), values))
    head = ("site", "job", "task", "filters", "tensors of", "answers", "bytes", "values")
    return [_sheet("What was sent, by the audit files below the folders of this page.", 5, head, rows)] if rows else []
