# SPDX-License-Identifier: Apache-2.0
"""Keep runs that finished after the sweep which had started them was killed: their processes go on without it."""

from collections.abc import Iterable

from fdg_plugins.lab.sweep.kinds import executing, same_job
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import end_processes
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.store import Store


def recover(
    plan: Iterable[PlannedRun], store: Store, data: DataFound, *, in_one_process: bool, keep_models: bool
) -> list[str]:
    """End what a killed sweep has left running, keep the runs of ``plan`` that have finished, and return their names.

    A run whose job was another one is none of ``plan``. Raises ``DataError`` if a file cannot be written.
    """
    end_processes(store.running)
    found = []
    for run in plan:
        kind = executing(run.method, in_one_process=in_one_process)
        seconds = store.seconds_of_finished(run.name, kind.record_folder)
        if seconds is not None and same_job(kind, run, data, store.running / run.name):
            store.keep(run, kind.record_folder, seconds, keep_models)
            found.append(run.name)
    return found
