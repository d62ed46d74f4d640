# SPDX-License-Identifier: Apache-2.0
"""A readable summary of a plan: counts by method, held-out domain, seed and axis, the state of runs, fixed settings."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from fdg_plugins.data import dataset_spec
from fdg_plugins.lab.sweep.kinds import kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun, methods_with
from fdg_plugins.lab.sweep.prepare import Prepared
from fdg_plugins.lab.sweep.store import Store
from fdg_plugins.lab.sweep.values import as_json
from fdg_plugins.plugins.own_dataset import DatasetRef

STATES = ("finished", "failed", "to do")


def states_of(prepared: Prepared, store: Store) -> dict[str, str]:
    """Return the state of each run of the plan, by name: one of ``STATES``."""

    def state(name: str) -> str:
        if store.is_finished(name):
            return "finished"
        return "to do" if store.failure(name) is None else "failed"

    return {run.name: state(run.name) for run in prepared.plan}


def headline(prepared: Prepared) -> str:
    """Return a description of the sweep, in one line."""
    request, data = prepared.content.request, prepared.content.data
    count = len(prepared.plan)
    title = title_of_data(request.dataset, stand_in=data.stand_in)
    return f"{count} run{'s' * (count > 1)} on {title}, protocol {request.protocol}"


def title_of_data(dataset: DatasetRef, *, stand_in: bool) -> str:
    """Return what runs on this data set are told to be on; the stand-in is named as such."""
    title = dataset_spec(dataset).title
    return f"the STAND-IN for {title} (not the data itself)" if stand_in else title


def plan_table(prepared: Prepared, states: Mapping[str, str]) -> Table:
    """Return the table of counts: one row for each method, held-out domain, seed, and value of an axis."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "", "runs", *STATES):
        table.add_column(column, justify="right" if column else "left")
    for what, value, names in _groups(prepared):
        counts = [sum(states[name] == state for name in names) for state in STATES]
        table.add_row(what, Text(value), str(len(names)), *map(str, counts))  # a name may have brackets
    return table


def notes(prepared: Prepared) -> list[str]:
    """Return remarks on the plan: the settings of each method, and the methods that lack an axis."""
    return [*_notes_on_settings(prepared), *_notes_on_axes(prepared)]


def _notes_on_settings(prepared: Prepared) -> list[str]:
    """Return the fixed settings, one line for all methods that share them."""
    alike: dict[str, list[str]] = {}
    for method, grid in prepared.grids.items():
        fixed = ", ".join(f"{name} {_text(value)}" for name, value in grid.fixed.items())
        alike.setdefault(fixed or kind_of(method).unset, []).append(method)
    return [f"{', '.join(methods)}: {fixed}" for fixed, methods in alike.items()]


def _notes_on_axes(prepared: Prepared) -> Iterator[str]:
    """Yield a line for each axis that some of the methods lack."""
    for axis in _axes(prepared):
        having = methods_with(axis, prepared.grids)
        if without := [method for method in prepared.grids if method not in having]:
            once = f"run{'s' * (len(without) == 1)} once"
            yield f"{axis} is an axis of {', '.join(having)}; {', '.join(without)} {once} for all its values"


def _groups(prepared: Prepared) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each grouping criterion, its value, and the names of the runs with that value."""
    fields: dict[str, Callable[[PlannedRun], Any]] = {
        "method": lambda run: run.method,
        "held out": lambda run: run.target,
        "seed": lambda run: run.seed,
    }
    for what, field in fields.items():
        yield from _by_value(what, [(run.name, field(run)) for run in prepared.plan])
    for axis in _axes(prepared):
        having = methods_with(axis, prepared.grids)
        yield from _by_value(axis, [(run.name, run.settings[axis]) for run in prepared.plan if run.method in having])


def _by_value(what: str, pairs: list[tuple[str, Any]]) -> Iterator[tuple[str, str, list[str]]]:
    for number, text in enumerate(dict.fromkeys(_text(value) for _, value in pairs)):
        yield "" if number else what, text, [name for name, value in pairs if _text(value) == text]


def _axes(prepared: Prepared) -> list[str]:
    return sorted({axis for grid in prepared.grids.values() for axis in grid.axes})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)
