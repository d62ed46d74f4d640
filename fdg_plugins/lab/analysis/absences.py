# SPDX-License-Identifier: Apache-2.0
"""What a run lacked: sites that sent no update in some rounds or sent them with noise, rounds whose updates did not
change the model, held-out sites that did not evaluate some models.

The scores are then those of a smaller federation, of one under differential privacy, or of fewer rounds; the models
that not every held-out site evaluated have none on the held-out domain.
"""

from collections.abc import Iterable, Mapping

from fdg_plugins.lab.analysis.estimates import span_with
from fdg_plugins.lab.analysis.names import is_centralised
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import unchanged
from fdg_plugins.values import counted

MOST_NAMED = 3


def absences(record: RunRecord) -> dict[str, int]:
    """Return the number of rounds that went on without a source's update, by site; those without any are left out.

    A site counts as absent in a round that drew it, and in every round in which it took no further part, if all sites
    train in each round. One that was not drawn is not absent.
    """
    everyone = record.protocol.sites_per_round is None
    missing = {
        site: sum(site not in one.sites for one in record.rounds if everyone or site in one.drawn)
        for site in record.sources
    }
    return {site: count for site, count in missing.items() if count or site in record.left_out}


def noised(record: RunRecord) -> dict[str, int]:
    """Return the number of rounds in which a source's update had the noise of differential privacy, by site.

    Such a site withholds its losses, which all others report.
    """
    counts = {
        site: sum(site in one.local and one.local[site].epoch_losses is None for one in record.rounds)
        for site in record.sources
    }
    return {site: count for site, count in counts.items() if count}


def unjudged(record: RunRecord) -> dict[str, int]:
    """Return the number of evaluations without a held-out site, by site; those in all evaluations are left out."""
    counts = {site: sum(site not in one.sites for one in record.evaluations) for site in record.held_out}
    return {site: count for site, count in counts.items() if count}


def notes_on_absences(runs: Iterable[Run]) -> list[str]:
    """Return a note for each thing that a federated run lacked, or whose updates had noise."""
    runs = list(runs)
    notes = []
    if any(run.planned is not None for run in runs):
        lengths = {run.planned or run.record.protocol.rounds for run in runs if not is_centralised(run.method)}
        notes.append(f"Later rounds are left out: the runs are of {span_with(sorted(lengths), 'round')}.")
    for run in runs:
        if is_centralised(run.method):
            continue
        if missing := absences(run.record):
            notes.append(f"{run.folder} went on without the updates of {_sites(run, missing)}.")
        if noise := noised(run.record):
            notes.append(f"{run.folder} has updates with the noise of differential privacy: {_sites(run, noise)}.")
        if lacking := unjudged(run.record):
            of = f"of {len(run.record.evaluations)} evaluations"
            notes.append(f"{run.folder} lacks the scores of the held-out site {_sites(run, lacking, of)}.")
        if (idle := unchanged(run.record)) is not None:
            notes.append(f"{run.folder}: {idle}.")
    return notes


def _sites(run: Run, counts: Mapping[str, int], of: str | None = None) -> str:
    """Return the sites with the highest counts, each with its count; ``of``: of what, the run's rounds by default."""
    total = of or f"of {counted(len(run.record.rounds), 'round')}"
    most = sorted(counts, key=lambda site: (-counts[site], site))
    named = [f"{site} in {counts[site]} {total}{_left(run, site)}" for site in most[:MOST_NAMED]]
    more = [counted(len(most) - MOST_NAMED, "more site")] if len(most) > MOST_NAMED else []
    return ", ".join([*named, *more])


def _left(run: Run, site: str) -> str:
    return " (it took no further part)" if site in run.record.left_out else ""
