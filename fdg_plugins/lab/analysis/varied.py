# SPDX-License-Identifier: Apache-2.0
"""Settings of which the runs of one method have several values, as in a sweep with an axis."""

import json
from collections.abc import Hashable, Sequence
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import FREE_FIELDS
from fdg_plugins.lab.analysis.estimates import span_of
from fdg_plugins.lab.analysis.names import is_centralised
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.record.method_settings import method_settings


def value_of(run: Run, setting: str) -> Any:
    """Return a run's value of a setting of its method, else of its protocol; None if it has no such setting."""
    own = method_settings(run.record)
    return own[setting] if setting in own else getattr(run.record.protocol, setting, None)


def varied_settings(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the settings that have several values among the runs of one method, sorted by name."""
    values: dict[tuple[str, str], set[Any]] = {}
    for run in runs:
        protocol = run.record.protocol.model_dump(exclude={*FREE_FIELDS})
        for name, value in {**protocol, **method_settings(run.record)}.items():
            values.setdefault((run.method, name), set()).add(hashable(value))
    return tuple(sorted({name for (_, name), found in values.items() if len(found) > 1}))


def trained_in_words(runs: Sequence[Run]) -> str:
    """Return what the sites of runs train, with all that occurs among them; empty for the whole network in all."""
    found = sorted({run.record.protocol.trained for run in runs})
    return " or ".join(text or "whole network trained" for text in found) if any(found) else ""


def references_in_words(runs: Sequence[Run]) -> str:
    """Return how long the centralised references among the runs trained; with passes if those of the methods differ."""
    pooled = [run for run in runs if is_centralised(run.method)]
    if not pooled:
        return ""
    words = f"centralised references of {span_of(run.record.method.settings['steps'] for run in pooled)} steps"
    theirs = sorted(map(passes_of, pooled))
    ours = sorted(passes_of(run) for run in runs if not is_centralised(run.method))
    # Steps are whole, so equal budgets differ by a step in each round.
    if ours and (theirs[-1] > 1.25 * ours[0] + 1 or theirs[0] < 0.8 * ours[-1] - 1):
        spans = [" to ".join(dict.fromkeys(f"{one:.3g}" for one in (found[0], found[-1]))) for found in (theirs, ours)]
        words += f" ({spans[0]} passes over the images, the methods {spans[1]})"
    return words


def passes_of(run: Run) -> float:
    """Return the number of passes over the source images that a run makes: the planned ones of a federated run."""
    record, protocol = run.record, run.record.protocol
    if not is_centralised(run.method):
        return float(protocol.rounds * protocol.local_epochs)
    images = sum(record.census[site].num_train for site in record.sources)
    return record.method.settings["steps"] * protocol.batch_size * len(record.sources) / max(images, 1)


def hashable(value: Any) -> Any:
    """Return what tells values apart in a set: the value, or its text if it is a dict or list, as own data sets are."""
    return value if isinstance(value, Hashable) else json.dumps(value, sort_keys=True, default=str)


def check_varies(runs: Sequence[Run], setting: str, option: str) -> None:
    """Raise ``SettingsError``, naming the ``option``, unless ``setting`` has several values in the runs of a method."""
    varied = varied_settings(runs)
    if setting not in varied:
        others = f"one that varies: {', '.join(varied)}" if varied else "a setting that varies; none does"
        raise SettingsError(f"setting {setting!r} ({option}) {_constant(runs, setting)}; expected {others}.")


def _constant(runs: Sequence[Run], setting: str) -> str:
    """Return what is to be said of a setting that does not vary."""
    found = sorted({str(value) for run in runs if (value := value_of(run, setting)) is not None})
    return f"is {', '.join(found)} in every run of a method" if found else "is not a setting of these runs"
