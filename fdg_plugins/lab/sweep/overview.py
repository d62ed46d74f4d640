# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a sweep: a summary of its plan, and a line for each run that starts or ends."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fdg_plugins.data import dataset_spec
from fdg_plugins.lab.sweep.execute import Ended, Store
from fdg_plugins.lab.sweep.kinds import kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.prepare import Prepared
from fdg_plugins.lab.sweep.values import as_json
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.record.text import duration

STATES = ("finished", "failed", "to do")


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
    groups: dict[tuple[str, str], list[str]] = {}
    for what, value, run in _values(prepared):
        groups.setdefault((what, _text(value)), []).append(states[run.name])
    last = ""
    for (what, value), found in groups.items():
        counts = [str(found.count(state)) for state in STATES]
        table.add_row("" if what == last else what, Text(value), str(len(found)), *counts)  # a name may have brackets
        last = what
    return table


def _values(prepared: Prepared) -> Iterator[tuple[str, Any, PlannedRun]]:
    """Yield each run with its value of each grouping criterion."""
    for what, field in (("method", "method"), ("held out", "target"), ("seed", "seed")):
        yield from ((what, getattr(run, field), run) for run in prepared.plan)
    for axis in sorted({axis for grid in prepared.grids.values() for axis in grid.axes}):
        yield from ((axis, run.settings[axis], run) for run in prepared.plan if axis in prepared.grids[run.method].axes)


def notes(prepared: Prepared) -> Iterator[str]:
    """Yield remarks on the plan: the fixed settings, one line for all methods that share them, and missing axes."""
    alike: dict[str, list[str]] = {}
    for method, grid in prepared.grids.items():
        fixed = ", ".join(f"{name} {_text(value)}" for name, value in grid.fixed.items())
        alike.setdefault(fixed or kind_of(method).unset, []).append(method)
    yield from (f"{', '.join(methods)}: {fixed}" for fixed, methods in alike.items())
    for axis in sorted({axis for grid in prepared.grids.values() for axis in grid.axes}):
        having = [method for method, grid in prepared.grids.items() if axis in grid.axes]
        if without := [method for method in prepared.grids if method not in having]:
            once = f"run{'s' * (len(without) == 1)} once"
            yield f"{axis} is an axis of {', '.join(having)}; {', '.join(without)} {once} for all its values"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


class Lines:
    """Prints one line for each run that starts or ends, with the number of runs of the plan that have finished."""

    def __init__(self, plan: Iterable[PlannedRun], store: Store, console: Console) -> None:
        states = [store.state(run.name) for run in plan]
        self._total = len(states)
        self._done = states.count("finished")
        self._console = console

    def __call__(self, event: PlannedRun | Ended) -> None:
        """Print a line of a run."""
        name = event.name if isinstance(event, PlannedRun) else event.run.name
        if isinstance(event, PlannedRun):
            text = "started"
        elif event.status == "failed":
            text = f"FAILED: {event.reason}"
        else:
            self._done += event.status == "finished"
            text = f"{event.status} after {duration(event.seconds)}"
        self._console.print(Text(f"[{self._done}/{self._total}] {name} {text}"), soft_wrap=True)
