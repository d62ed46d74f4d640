# SPDX-License-Identifier: Apache-2.0
"""Which sites' updates are missing in the rounds of a run, whose scores are then those of a smaller federation."""

from collections.abc import Iterable

from fdg_plugins.analysis.names import is_centralised
from fdg_plugins.analysis.runs import Run
from fdg_plugins.record.run_record import RunRecord

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


def notes_on_absences(runs: Iterable[Run]) -> list[str]:
    """Return a note for each federated run that went on without some updates."""
    federated = (run for run in runs if not is_centralised(run.method))
    return [_note(run, missing) for run in federated if (missing := absences(run.record))]


def _note(run: Run, missing: dict[str, int]) -> str:
    rounds = len(run.record.rounds)
    most = sorted(missing, key=lambda site: (-missing[site], site))
    named = [f"{site} in {missing[site]} of {rounds} rounds{_left(run, site)}" for site in most[:MOST_NAMED]]
    more = [f"{len(most) - MOST_NAMED} more sites"] if len(most) > MOST_NAMED else []
    return f"{run.folder} went on without the updates of {', '.join([*named, *more])}."


def _left(run: Run, site: str) -> str:
    return " (it took no further part)" if site in run.record.left_out else ""
