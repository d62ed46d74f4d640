# SPDX-License-Identifier: Apache-2.0
"""The paper's table from runs: a row per method, a column per held-out domain and their average, means over seeds.

Centralised references, if there are any, follow below the federated methods.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.absences import absences, noised, notes_on_absences
from fdg_plugins.lab.analysis.batch_norm_rules import note_on_batch_norm
from fdg_plugins.lab.analysis.choosing import OPTION, Choices, Chosen, choose, notes_on
from fdg_plugins.lab.analysis.commonest import commonest_in_domains
from fdg_plugins.lab.analysis.comparable import check_comparable, notes_on_plugins, settings_key, without_repeats
from fdg_plugins.lab.analysis.estimates import Estimate, average, estimate
from fdg_plugins.lab.analysis.names import (
    default_settings,
    is_centralised,
    is_default_fedavg,
    method_order,
    settings_label,
)
from fdg_plugins.lab.analysis.papers import AVERAGE, PrintedRow, printed_rows
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.selection import SOURCE_VALIDATION, target_score
from fdg_plugins.lab.analysis.varied import references_in_words, trained_in_words
from fdg_plugins.lab.analysis.whole_data import parts_judged, parts_of_sources
from fdg_plugins.record.method_settings import differing, method_fields, method_settings
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import ScoreKind

SERVER_LR, WEIGHTING = "server_lr", "weighting"
IN_CAPTIONS = ("rounds", "image_size", "model", "max_samples_per_domain")


@dataclass(frozen=True)
class Facts:
    """The facts that all runs of a table share and a reader needs; ``sources`` are the numbers of source sites.

    ``rounds`` and ``protocol`` are those of the federated runs, ``steps`` those of the centralised ones; None if there
    are no such runs. Fields of ``protocol`` that belong to a method, target and seed are those of the first run.
    ``trained``: what the sites train, in words; empty for the whole network. ``chosen``: all values of each
    setting in :data:`IN_CAPTIONS` that was chosen, of which the other fields hold one. ``commonest``: by column, the
    share of the held-out domain's commonest class, to which an accuracy is to be compared. ``references``: how long
    centralised references trained, in words.
    """

    dataset: str
    data: str
    stand_in: bool
    initial_weights: str
    model: str
    image_size: int
    rounds: int | None
    steps: int | None
    max_samples: int | None
    sources: tuple[int, ...]
    seeds: tuple[int, ...]
    versions: tuple[str, ...]
    score: ScoreKind
    trained: str = ""
    references: str = ""
    protocol: Protocol | None = field(default=None, compare=False)
    chosen: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    commonest: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """Scores under one selection rule by column, as fractions, not percent; an absent column is missing.

    ``derived``: in the same way, the scores that the task derives.
    """

    rule: str
    cells: Mapping[str, Estimate]
    derived: Mapping[ScoreKind, Mapping[str, Estimate]] = field(default_factory=dict)


@dataclass(frozen=True)
class MethodRows:
    """One method: our results under each rule, and those printed in papers. ``label`` states distinctive settings.

    ``protocol``: that of its first run. ``own_fields``: the fields of it that belong to the method. ``by_default``:
    whether it is FedAvg with its defaults on the data set. ``chosen``: as in :class:`Facts`, of its own runs.
    ``without``: the sites without whose updates some of its runs went on in some rounds. ``noised``: the sites whose
    updates had the noise of differential privacy. ``picked``: what was chosen for it, by held-out domain.
    ``parts``: the domains of which it had other images than all, in words, beside printed numbers.
    ``server_lr``: the factor of the server's step, None if it was chosen or there is none.
    ``unchanged``: the largest number of rounds of a run that left the model unchanged. ``planned``: how many rounds
    runs that are cut off were to have. ``weighting``: the name of the rule that weighs the sites.
    """

    method: str
    label: str
    results: tuple[Result, ...]
    printed: tuple[PrintedRow, ...] = ()
    protocol: Protocol | None = field(default=None, compare=False)
    own_fields: tuple[str, ...] = field(default=(), compare=False)
    by_default: bool = field(default=False, compare=False)
    chosen: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, compare=False)
    without: tuple[str, ...] = field(default=(), compare=False)
    noised: tuple[str, ...] = field(default=(), compare=False)
    picked: tuple[Chosen, ...] = field(default=(), compare=False)
    parts: tuple[str, ...] = field(default=(), compare=False)
    server_lr: float | None = field(default=None, compare=False)
    unchanged: int = field(default=0, compare=False)
    planned: tuple[int, ...] = field(default=(), compare=False)
    weighting: str | None = field(default=None, compare=False)

    @property
    def is_reference(self) -> bool:
        """Whether this is a centralised reference, which is compared only with other references."""
        return is_centralised(self.method)


@dataclass(frozen=True)
class Table:
    """The table: ``columns`` are the held-out domains and the average; ``notes`` say what was not counted.

    ``against`` names the papers whose printed numbers were requested, None for none.
    """

    facts: Facts
    columns: tuple[str, ...]
    rules: tuple[str, ...]
    methods: tuple[MethodRows, ...]
    against: str | None
    notes: tuple[str, ...]


def build_table(
    runs: Sequence[Run],
    rules: Sequence[str] = (SOURCE_VALIDATION,),
    against: str | None = None,
    choosing: Sequence[str] = (),
) -> Table:
    """Return the table of one or more ``runs`` under the selection rules ``rules``.

    ``against`` names a paper, or ``paper`` for all, whose numbers are shown next to ours. ``choosing``: settings with
    several values among the runs, of which the best on source validation is taken for each held-out domain. Raises
    ``SettingsError`` if the runs are not comparable, or not comparable with printed numbers because they used the
    stand-in or data of no paper.
    """
    choices = _choices(runs, choosing)
    runs = choices.runs
    facts = _facts(runs, choosing)
    if against is not None:
        _check_against(runs[0], facts, choosing)
    groups = grouped(runs, lambda run: settings_key(run, choosing))
    firsts = {key: members[0] for key, members in groups.items()}
    chosen = {one.group: one.settings for one in choices.chosen}
    labels = _labels(firsts, chosen)
    domains = _domains(runs)
    methods = [
        MethodRows(
            members[0].method,
            labels[key],
            tuple(_result(members, rule, domains) for rule in rules),
            printed_rows(facts.dataset, members[0].method, against) if against is not None else (),
            protocol=members[0].record.protocol,
            own_fields=tuple(method_fields(members[0].record)),
            by_default=is_default_fedavg(members[0].record, choosing),
            chosen=_chosen(members, choosing),
            without=_distinct(site for run in members for site in absences(run.record)),
            noised=_distinct(site for run in members for site in noised(run.record)),
            parts=_distinct((*parts_judged(members), *parts_of_sources(members))) if against is not None else (),
            picked=tuple(one for one in choices.chosen if one.group == key),
            server_lr=None if SERVER_LR in choosing else method_settings(members[0].record).get(SERVER_LR),
            unchanged=max(len(run.record.idle_rounds()) for run in members),
            planned=tuple(sorted({run.planned for run in members if run.planned is not None})),
            weighting=method_settings(members[0].record).get(WEIGHTING),
        )
        for key, members in groups.items()
    ]
    methods.sort(key=lambda rows: (method_order(rows.method), rows.label))
    notes = [f"{copy.folder} repeats {first.folder} and is counted once." for copy, first in choices.copies]
    notes += notes_on(choices.chosen, _labels(firsts, chosen, named=False), facts.score)
    notes += _unjudged(runs, rules) + _judged_in_part(runs) + notes_on_plugins(runs) + notes_on_absences(runs)
    notes += note_on_batch_norm(
        (one.label, one.protocol) for one in methods if one.protocol is not None and not one.is_reference
    )
    return Table(facts, (*domains, AVERAGE), tuple(rules), tuple(methods), against, tuple(notes))


def _choices(runs: Sequence[Run], choosing: Sequence[str]) -> Choices:
    """Return the runs of the table: all, each once, unless values of settings are to be chosen."""
    if choosing:
        return choose(runs, choosing)
    check_comparable(runs)
    kept, copies = without_repeats(runs)
    return Choices(kept, (), copies)


def _check_against(run: Run, facts: Facts, choosing: Sequence[str]) -> None:
    """Raise ``SettingsError`` if the runs cannot stand beside printed numbers, which are those of one protocol."""
    if not isinstance(run.dataset, str):
        raise SettingsError(f"the runs used data of their own ({facts.data}), of which no paper prints a number.")
    if facts.stand_in:
        raise SettingsError(f"the runs used {facts.data}, and the papers real data: they cannot stand in one table.")
    if varied := [name for name in choosing if name in Protocol.model_fields]:
        raise SettingsError(
            f"{varied[0]} ({OPTION}) is a setting of the protocol, and papers have one protocol: expected one of a "
            "method beside printed numbers."
        )


def _chosen(runs: Sequence[Run], choosing: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each chosen setting that a caption names, sorted, None last; references have no rounds."""
    every = [run.record.protocol for run in runs]
    federated = [run.record.protocol for run in runs if not is_centralised(run.method)]
    found = {
        name: {getattr(one, name) for one in (federated if name == "rounds" else every)}
        for name in choosing
        if name in IN_CAPTIONS
    }
    return {
        name: (*_distinct(values - {None}), *([None] if None in values else []))
        for name, values in found.items()
        if values
    }


def _facts(runs: Sequence[Run], choosing: Sequence[str]) -> Facts:
    record = runs[0].record
    federated = next((run.record.protocol for run in runs if not is_centralised(run.method)), None)
    centralised = (run.record.method.settings.get("steps") for run in runs if is_centralised(run.method))
    return Facts(
        dataset=str(record.protocol.dataset),
        data=record.data,
        stand_in=record.stand_in,
        initial_weights=record.initial_weights.label,
        model=record.protocol.model,
        image_size=record.protocol.image_size,
        rounds=None if federated is None else federated.rounds,
        steps=next(centralised, None),
        max_samples=record.protocol.max_samples_per_domain,
        sources=_distinct(len(run.record.sources) for run in runs),
        seeds=_distinct(run.seed for run in runs),
        versions=_distinct(run.record.versions.get("fdg-plugins", "unknown") for run in runs),
        score=record.score,
        trained=trained_in_words(runs),
        references=references_in_words(runs),
        protocol=federated,
        chosen=_chosen(runs, choosing),
        commonest={_column(domain): share for domain, share in commonest_in_domains(runs).items()},
    )


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


def _domains(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the domains' columns in the catalogue's order; for an unknown data set, of those that the sites named."""
    try:
        domains = dataset_spec(runs[0].dataset).domains
    except SettingsError:
        domains = _distinct(reply.domain for run in runs for reply in run.record.census.values())
    others = _distinct(run.target for run in runs if run.target not in domains)  # of another version of the data set
    return tuple(map(_column, (*domains, *others)))


def _column(domain: str) -> str:
    """Return the name of a domain's column, which is not that of the average, whatever a folder is called."""
    return f"{domain} (domain)" if domain == AVERAGE else domain


def _result(runs: Sequence[Run], rule: str, domains: Sequence[str]) -> Result:
    kinds = runs[0].record.task.derived_kinds
    derived = {kind: _cells(runs, rule, domains, kind.name) for kind in kinds}
    return Result(rule, _cells(runs, rule, domains), derived)


def _cells(runs: Sequence[Run], rule: str, domains: Sequence[str], derived: str | None = None) -> dict[str, Estimate]:
    values: dict[str, dict[int, float]] = {domain: {} for domain in domains}
    for run in runs:
        score = target_score(run.record, rule, derived)
        if score is not None:
            values[_column(run.target)][run.seed] = score
    found = {column: estimate(by_seed) for column, by_seed in (*values.items(), (AVERAGE, average(values)))}
    return {column: cell for column, cell in found.items() if cell is not None}


def _unjudged(runs: Sequence[Run], rules: Sequence[str]) -> list[str]:
    """Return a note for each run that has no score under a rule."""
    return [
        f"{run.folder} has no {run.record.score.name} on {run.target} for the rule {rule}, and is missing there."
        for run in runs
        for rule in rules
        if target_score(run.record, rule) is None
    ]


def _judged_in_part(runs: Sequence[Run]) -> list[str]:
    """Return a note if the held-out domains were judged on other images than all."""
    parts = parts_judged(runs)
    return [f"Not judged on all images of the held-out domain: {', '.join(parts)}."] if parts else []


def _labels(
    firsts: Mapping[tuple[Any, ...], Run], chosen: Mapping[tuple[Any, ...], Sequence[str]], *, named: bool = True
) -> dict[tuple[Any, ...], str]:
    """Return each group's label: the method's title, settings that differ among its groups or from its defaults, and
    those chosen.

    ``named``: whether it names those that were chosen.
    """
    own = {
        key: {name: value for name, value in method_settings(run.record).items() if name not in chosen.get(key, ())}
        for key, run in firsts.items()
    }
    labels = {}
    for key, run in firsts.items():
        siblings = [own[other] for other in firsts if firsts[other].method == run.method]
        default = default_settings(run.record)
        shown = differing([*siblings, *([] if default is None else [default])], chosen.get(key, ()))
        labels[key] = settings_label(run.method, own[key], shown, chosen.get(key, ()), named=named)
    return labels
