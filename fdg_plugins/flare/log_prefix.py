# SPDX-License-Identifier: Apache-2.0
"""What FLARE writes to the server's log of what sites say of themselves, as one printable line of limited length.

Before each line, it names the peer and the return code of its answer as they came; some lines have ids of tasks as they
came. With line breaks in them, a site would write lines in the server's name.
"""

import logging
from functools import partial
from typing import Any

from nvflare.apis import fl_component
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.utils.log_utils import get_obj_logger

from fdg_plugins.flare.internals import LOG_PREFIX, InternalsError, fetch
from fdg_plugins.values import one_line

LONGEST_PREFIX = 400  # characters; FLARE's own have about 250
LONGEST_LINE = 1000  # characters, with the prefix


def keep_prefixes_printable() -> str | None:
    """Make the components of this process log with printable prefixes, and printable ids of tasks, from now on.

    Returns None, or a sentence if this FLARE version lacks the internal, and prefixes stay as sites make them.
    """
    try:
        known = fetch(LOG_PREFIX, "generate_log_message")
        naming = [fetch(LOG_PREFIX, name) for name in ("SubmitUpdateCommand", "ServerRunner")]
    except InternalsError as error:
        return str(error)
    for kind in naming:
        get_obj_logger(kind).addFilter(_in_one_line)  # once, however often
    if not isinstance(known, partial):  # not replaced before
        fl_component.generate_log_message = partial(_line, known)
    return None


def _in_one_line(record: logging.LogRecord) -> bool:
    """Make a record one printable line, unless it tells of an error, which may have a traceback."""
    if record.levelno < logging.ERROR:
        text = record.getMessage()
        if not text.isprintable() or len(text) > LONGEST_LINE:
            record.msg, record.args = one_line(text, LONGEST_LINE), ()
    return True


def _line(known: Any, fl_ctx: FLContext, msg: str) -> str:
    """Return what FLARE's function ``known`` makes of a message, with a printable prefix."""
    prefix = str(known(fl_ctx, ""))
    if not prefix.isprintable() or len(prefix) > LONGEST_PREFIX:
        prefix = f"{one_line(prefix.rstrip(), LONGEST_PREFIX)} "
    return prefix + msg
