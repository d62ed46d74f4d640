# SPDX-License-Identifier: Apache-2.0
"""Settings of which the runs of one method have several values, as in a sweep with an axis."""

import json
from collections.abc import Hashable, Sequence
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import FREE_FIELDS
from fdg_plugins.lab.analysis.names import method_settings
from fdg_plugins.lab.analysis.runs import Run


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
