# SPDX-License-Identifier: Apache-2.0
"""One task of a site from order to outcome, without FLARE: the same work in FLARE's process and in one of its own."""

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.executors.memory import read_memory, write_memory
from fdg_plugins.executors.training import ShouldStop, Stopped
from fdg_plugins.messages import TASK_CENSUS, TASK_EVALUATE, TASK_PROBE, TASK_TRAIN, CensusRequest, TaskRequest
from fdg_plugins.protocol import Protocol
from fdg_plugins.site_config import SiteConfig
from fdg_plugins.storage import read_json, user_path, write_json

if TYPE_CHECKING:
    from fdg_plugins.executors.session import SiteSession

CENSUS_FILE = "fdg_census.json"

Say = Callable[[str], None]
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Order:
    """What a site is to do: the task, for which site, the request as a JSON value, the round from 0, the global model
    in ``state``, and in ``received`` what came beside it."""

    task: str
    site: str
    request: Any
    round_number: int = 0
    state: Tensors = field(default_factory=dict)
    received: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of an order: if ``ok``, a JSON value (NaN allowed) and named groups of tensors; if ``failed``, the
    reason in one sentence, with a traceback in ``trace`` if the error was not foreseen.

    ``stand_in``: whether the site's images only stand in for others; None where that is not known.
    """

    kind: Literal["ok", "failed", "aborted"]
    value: Any = None
    tensors: dict[str, Tensors] = field(default_factory=dict)
    reason: str = ""
    trace: str = ""
    stand_in: bool | None = None


class SiteWork:
    """Does a site's tasks in this process. Keeps the data open between tasks; holds nothing that must survive one."""

    def __init__(self) -> None:
        self._session: SiteSession | None = None

    def do_work(self, order: Order, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say) -> Outcome:
        """Return what came of ``order``, and never raise an ``Exception``.

        ``folder`` holds the run's state at the site; ``say`` gets each line for the log; once ``should_stop()`` is
        true the work ends within one batch, as ``aborted``.
        """
        try:
            value, tensors = self._do(order, config, folder, should_stop, say)
        except Stopped:
            return Outcome("aborted", stand_in=self._stand_in())
        except FDGError as error:
            return Outcome("failed", reason=str(error), stand_in=self._stand_in())
        except Exception as error:  # noqa: BLE001 - the server must learn why, and the site goes on
            return Outcome("failed", reason=reason_of(error), trace=traceback.format_exc(), stand_in=self._stand_in())
        return Outcome("ok", value, tensors, stand_in=self._stand_in())

    def _do(
        self, order: Order, config: SiteConfig, folder: Path, should_stop: ShouldStop, say: Say
    ) -> tuple[Any, dict[str, Tensors]]:
        if order.task == TASK_CENSUS:
            return self._census(order, config, folder, say), {}
        session = self._resume(order, config, folder)
        if order.task == TASK_PROBE:
            return {"count": len(session.data.train)}, {"report": session.probe(order.state, should_stop)}
        if order.task == TASK_TRAIN:
            return _train(session, order, folder, should_stop, say)
        if order.task == TASK_EVALUATE:
            split: Literal["test", "validation"] = "test" if session.domain == session.protocol.target else "validation"
            evaluation = session.evaluate(session.load(order.state), split, should_stop)
            return evaluation.model_dump(mode="python"), {}
        raise SettingsError(f"unknown task {order.task!r}.")

    def _census(self, order: Order, config: SiteConfig, folder: Path, say: Say) -> dict[str, Any]:
        request = CensusRequest.read(order.request, "census request", SettingsError)
        session = self._open(order.site, config, request.protocol)
        if session.stand_in:
            session = self._open(order.site, config, request.stand_in_protocol)
        reply = session.census()
        write_json(folder / CENSUS_FILE, {"split": reply.split, "split_hash": reply.split_hash}, private=True)
        counts = f"{reply.num_train} train, {reply.num_validation} validation, {reply.num_test} in all"
        say(_line(session, f"domain {reply.domain}: {counts}; split {reply.split}; device {reply.device}"))
        for skipped in reply.skipped:
            say(_line(session, f"skipped {skipped}, which is known to be mislabelled"))
        return reply.model_dump(mode="json")

    def _resume(self, order: Order, config: SiteConfig, folder: Path) -> "SiteSession":
        """Return the session of the protocol in a task, on the very data that the census counted."""
        request = TaskRequest.read(order.request, "task request", SettingsError)
        session = self._open(order.site, config, request.protocol)
        if session.stand_in != request.stand_in:
            raise DataError("the data changed between the real data set and the STAND-IN since the census.")
        counted = read_json(folder / CENSUS_FILE)
        if counted.get("split_hash") != session.data.split_hash:
            raise DataError(
                f"split {session.data.split} has the hash {session.data.split_hash}, "
                f"but the census counted {counted.get('split_hash')}: the data folder has changed."
            )
        return session

    def _open(self, site: str, config: SiteConfig, protocol: Protocol) -> "SiteSession":
        # Imported by the process that works: FLARE's own, beside it, needs none of data, models and methods.
        from fdg_plugins.executors.session import SiteSession

        opened = self._session
        if opened is None or (opened.site, opened.config, opened.protocol) != (site, config, protocol):
            if config.threads is not None:
                torch.set_num_threads(config.threads)
            cache = os.environ.get("FDG_CACHE", "").strip()
            folder = user_path(cache, os.environ) if cache else None
            self._session = opened = SiteSession(site, config, protocol, folder)
        return opened

    def _stand_in(self) -> bool | None:
        return None if self._session is None else self._session.stand_in


def _train(
    session: "SiteSession", order: Order, folder: Path, should_stop: ShouldStop, say: Say
) -> tuple[dict[str, Any], dict[str, Tensors]]:
    protocol = session.protocol

    def on_epoch(epoch: int, loss: float) -> None:
        where = f"round {order.round_number + 1}/{protocol.rounds} | epoch {epoch + 1}/{protocol.local_epochs}"
        say(_line(session, f"{where} | train loss {loss:.4f}"))

    memory = read_memory(folder, order.round_number)
    result = session.train(order.state, order.round_number, should_stop, on_epoch, order.received, memory)
    write_memory(folder, order.round_number, result.memory)
    value = {"samples": len(session.data.train), "report": result.report.model_dump(mode="python")}
    return value, {"update": result.update, "report": result.tensors}


def reason_of(error: Exception) -> str:
    """Return the kind and the first line of an error that was not foreseen."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def mark(stand_in: bool | None) -> str:
    """Return the beginning of every line on images that only stand in for others."""
    return "STAND-IN | " if stand_in else ""


def _line(session: "SiteSession", text: str) -> str:
    return f"{mark(session.stand_in)}site {session.site} | {text}"
