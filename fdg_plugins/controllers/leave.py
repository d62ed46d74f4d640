# SPDX-License-Identifier: Apache-2.0
"""The end of a finished run at its sites: only then may they remove what they keep of it.

Had they done so after their last evaluation, a run that breaks off during that of others could not go on.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fdg_plugins.controllers.messenger import Aborted, Request
from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.controllers.sending import task_message, task_request
from fdg_plugins.errors import DataError
from fdg_plugins.messages import TASK_EVALUATE
from fdg_plugins.state.folders import remove_state, state_beside

TIMEOUT_S = 30


def take_leave(rounds: Rounds) -> None:
    """Tell all sites that the run has finished, also those that took no further part; warn about those not reached."""
    record, messenger = rounds.record, rounds.messenger
    sites = tuple(sorted((*record.sources, *record.held_out)))
    task = task_message(task_request(record, last=True), len(record.rounds), {})
    leave = Request(TASK_EVALUATE, sites, task, lambda site, model: None)
    failures: Iterable[str] = sites
    with suppress(Aborted):  # the run has finished regardless
        failures = messenger.ask([leave], TIMEOUT_S)
    for site in failures:
        messenger.warning(f"site {site} may still keep its state of the run, which fdg kit clean removes there.")


def remove_sites_state(rounds: Rounds, state: Path) -> None:
    """Remove the sites' state of a simulation, whose participants are all on this machine; ``state``: the server's.

    For a message, FLARE's simulator would start a process for each site, of several seconds.
    """
    for site in (*rounds.record.sources, *rounds.record.held_out):
        try:
            remove_state(state_beside(state, site))
        except DataError as error:  # the run has finished regardless
            rounds.messenger.warning(str(error))
