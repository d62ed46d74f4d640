# SPDX-License-Identifier: Apache-2.0
"""A console that a person can read: FLARE's bookkeeping of every task and download stays in the log files."""

import logging
import sys

BOOKKEEPING = (
    "Finished one task run for client",
    "Initialize ClientRunner for client",
    "Clean up ClientRunner for",
    "object has been downloaded to all",
    "set transaction info",
    "Tensorboard records can be found",
)


class BookkeepingFilter(logging.Filter):
    """Drops FLARE's INFO records about the handling of single tasks; never a warning, never another logger's."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is shown."""
        # The text before its arguments are put in: a record whose arguments do not fit is not this filter's to raise.
        own = record.name.startswith("fdg_plugins")
        return own or record.levelno > logging.INFO or not any(text in str(record.msg) for text in BOOKKEEPING)


def quiet_console() -> None:
    """Put the filter on the root logger's console handlers, once; handlers that write to files are left alone."""
    for handler in logging.getLogger().handlers:
        is_console = isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.stderr)
        if is_console and not any(isinstance(known, BookkeepingFilter) for known in handler.filters):
            handler.addFilter(BookkeepingFilter())
