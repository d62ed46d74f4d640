# SPDX-License-Identifier: Apache-2.0
"""The job's answer to ``show_stats`` and ``nvflare job stats``."""

from collections.abc import Callable
from typing import Any

from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare.internals import fetch


def answer_stats(group: str, stats: Callable[[], dict[str, Any]], event_type: str, fl_ctx: FLContext) -> None:
    """Pass ``stats()`` to FLARE under the name ``group`` if the event requests it; call this with every event."""
    if event_type != fetch("InfoCollector.EVENT_TYPE_GET_STATS"):
        return
    collector = fl_ctx.get_prop(fetch("InfoCollector.CTX_KEY_STATS_COLLECTOR"))
    if hasattr(collector, "add_info"):
        collector.add_info(group, stats())
