# SPDX-License-Identifier: Apache-2.0
"""The duration of a round and its parts, per method (FedOMG paper, Fig. 14)."""

import statistics
from collections.abc import Callable, Mapping, Sequence

from fdg_plugins.lab.analysis.figures.groups import Group, caption_of, checked, group_runs, origin_of
from fdg_plugins.lab.analysis.figures.picture import Bar, Bars
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.record.run_record import RoundRecord


def _slowest(finished: RoundRecord) -> float | None:
    return max((local.seconds for local in finished.local.values()), default=None)


PARTS: Mapping[str, Callable[[RoundRecord], float | None]] = {
    "whole round": lambda finished: finished.seconds,
    "local training, slowest site": _slowest,
    "aggregation at the server": lambda finished: finished.aggregation_seconds or None,
}
"""The measured parts of a round, in seconds; None if no update was used, or nothing is aggregated (a reference)."""


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile, linearly interpolated; for a single value, it three times."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, median, upper


def seconds_of(runs: Sequence[Run], part: Callable[[RoundRecord], float | None]) -> list[float]:
    """Return the seconds of a part of every round of ``runs``."""
    found = [part(finished) for run in runs for finished in run.record.rounds]
    return [seconds for seconds in found if seconds is not None]


def time_per_round(runs: Sequence[Run]) -> tuple[Bars, ...]:
    """Return bars per method over all rounds of all its runs; raise ``SettingsError`` if runs are not comparable."""
    runs, notes = checked(runs)
    groups = group_runs(runs)
    devices = sorted({run.record.census[site].device for run in runs for site in run.record.sources})
    return (
        Bars(
            name="time",
            title="Seconds per round",
            caption=f"{caption_of(runs)}; median and quartiles over rounds; devices of the sites: {', '.join(devices)}",
            origin=origin_of(runs),
            notes=notes,
            x_label="seconds",
            panels={title: bars for title, part in PARTS.items() if (bars := tuple(_bars(groups, part)))},
        ),
    )


def _bars(groups: Sequence[Group], part: Callable[[RoundRecord], float | None]) -> list[Bar]:
    values = [(group, seconds_of(group.runs, part)) for group in groups]
    return [Bar(group.label, group.look, *quartiles(seconds), len(seconds)) for group, seconds in values if seconds]
