# SPDX-License-Identifier: Apache-2.0
"""What FLARE writes before each line of the server's log, as one printable line of limited length.

It names the peer and the return code of its answer as they came. With line breaks in them, a site would write lines in
the server's name.
"""

from functools import partial
from typing import Any

from nvflare.apis import fl_component
from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare.internals import LOG_PREFIX, InternalsError, fetch
from fdg_plugins.values import one_line

LONGEST_PREFIX = 400  # characters; FLARE's own have about 250


def keep_prefixes_printable() -> str | None:
    """Make the components of this process log with printable prefixes, from now on.

    Returns None, or a sentence if this FLARE version lacks the internal, and prefixes stay as sites make them.
    """
    try:
        known = fetch(LOG_PREFIX, "generate_log_message")
    except InternalsError as error:
        return str(error)
    if not isinstance(known, partial):  # not replaced before
        fl_component.generate_log_message = partial(_line, known)
    return None


def _line(known: Any, fl_ctx: FLContext, msg: str) -> str:
    """Return what FLARE's function ``known`` makes of a message, with a printable prefix."""
    prefix = str(known(fl_ctx, ""))
    if not prefix.isprintable() or len(prefix) > LONGEST_PREFIX:
        prefix = f"{one_line(prefix.rstrip(), LONGEST_PREFIX)} "
    return prefix + msg
