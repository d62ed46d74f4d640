# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a sweep: a summary of its plan, and a line for each run that starts or ends."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import counted
from fdg_plugins.lab.sweep.execute import Ended, Store
from fdg_plugins.lab.sweep.kinds import kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.prepare import Prepared
from fdg_plugins.lab.sweep.values import as_json
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.record.text import duration


def headline(prepared: Prepared) -> str:
    """Return a description of the sweep, in one line."""
    request, count = prepared.content.request, counted(len(prepared.plan), "run")
    title = title_of_data(request.dataset, stand_in=prepared.content.data.stand_in)
    sizes = [counted(len(getattr(request, name)), name[:-1]) for name in ("methods", "targets", "seeds")]
    return f"{count} on {title}, protocol {request.protocol}: {', '.join(sizes)}"


def title_of_data(dataset: DatasetRef, *, stand_in: bool) -> str:
    """Return what runs on this data set are told to be on; the stand-in is named as such."""
    title = dataset_spec(dataset).title
    return f"the STAND-IN for {title} (not the data itself)" if stand_in else title


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
