# SPDX-License-Identifier: Apache-2.0
"""The messages between FLARE's process and the training process: orders down, log lines and outcomes up."""

from pathlib import Path

from fdg_plugins.executors.frames import Frame, FrameError, pack
from fdg_plugins.executors.shared_memory import SharedMemory
from fdg_plugins.executors.work import SiteTask, TaskResult
from fdg_plugins.settings.site_config import SiteConfig


def pack_order(order: SiteTask, config: SiteConfig, folder: Path, memory: SharedMemory | None = None) -> list[bytes]:
    """Return the frame for an order, with the site's config and the folder of the run's state.

    ``memory``: as in :func:`~fdg_plugins.executors.frames.pack`.
    """
    header = {
        "order": {name: getattr(order, name) for name in ("task", "site", "request", "round_number", "job", "custom")},
        "config": config.model_dump(mode="json"),
        "folder": str(folder),
    }
    return pack(header, {"state": order.state, "received": order.received}, memory)


def read_order(frame: Frame) -> tuple[SiteTask, SiteConfig, Path]:
    """Return the order in a frame, with the site's config and the folder of the run's state."""
    header = frame.header
    order = SiteTask(**header["order"], state=frame.groups["state"], received=frame.groups["received"])
    return order, SiteConfig.model_validate(header["config"]), Path(header["folder"])


def pack_line(line: str) -> list[bytes]:
    """Return the frame for a log line."""
    return pack({"say": line})


def pack_outcome(outcome: TaskResult, memory: SharedMemory | None = None) -> list[bytes]:
    """Return the frame for an outcome; ``memory``: as in :func:`~fdg_plugins.executors.frames.pack`."""
    fields = {name: getattr(outcome, name) for name in ("kind", "value", "reason", "public", "trace", "stand_in")}
    return pack({"outcome": fields}, outcome.tensors, memory)


def read_answer(frame: Frame) -> str | TaskResult:
    """Return the log line or the outcome in a frame; raise ``FrameError`` if it holds neither."""
    match frame.header:
        case {"say": str(line)}:
            return line
        case {
            "outcome": {
                "kind": "ok" | "failed" | "aborted" as kind,
                "reason": str(reason),
                "public": str(public),
                "trace": str(trace),
                "stand_in": bool() | None as stand_in,
                "value": value,
            }
        }:
            return TaskResult(kind, value, frame.groups, reason, public, trace, stand_in)
    raise FrameError(
        "the training process sent a frame that is neither a line for the log nor an outcome.", public=True
    )
