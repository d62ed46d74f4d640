# SPDX-License-Identifier: Apache-2.0
"""Whether the server's operator allows the plug-in that brings a job's weighting.

This package's workflow asks before it begins; FLARE's own workflows, which can use our aggregators too, do not.
"""

from collections.abc import Mapping
from typing import Any

from nvflare.apis.fl_context import FLContext

from fdg_plugins.aggregators.weightings import is_brought
from fdg_plugins.flare.site_file import allowed_at_server
from fdg_plugins.plugins.admission import check_allowed


def check_weighting(spec: str | Mapping[str, Any], fl_ctx: FLContext | None) -> None:
    """Raise ``SettingsError`` if ``spec`` names a weighting of a plug-in that is not allowed at the server.

    ``fl_ctx``: of the job; None: there is no job. Loads no plug-in.
    """
    if fl_ctx is not None and is_brought(spec):
        name = spec["name"] if isinstance(spec, Mapping) else spec
        check_allowed("weighting", name, allowed_at_server(fl_ctx))
