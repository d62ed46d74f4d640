# SPDX-License-Identifier: Apache-2.0
"""FLARE's lines in the server's log stay lines: some quote ids of tasks as a site sent them.

With line breaks in them, a site would write lines in the server's name.
"""

import logging

from fdg_plugins.values import one_line

LONGEST = 1000  # characters


def keep_to_one_line() -> None:
    """Make all handlers of this process write each line of FLARE's as one printable line, from now on."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_in_one_line)  # once, however often


def _in_one_line(record: logging.LogRecord) -> bool:
    """Make a record one printable line, unless it is this package's, or of an error, which may have a traceback."""
    if record.levelno < logging.ERROR and not record.name.startswith("fdg_plugins"):
        text = record.getMessage()
        if not text.isprintable() or len(text) > LONGEST:
            record.msg, record.args = one_line(text, LONGEST), ()
    return True
