# SPDX-License-Identifier: Apache-2.0
"""Keeps the console readable: FLARE's log records about every task and download go only to the log files."""

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
    """Drops FLARE's INFO records about single tasks; keeps all warnings and all records of this package."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is shown."""
        # Use the unformatted message, so that a record with wrong arguments does not raise an error here.
        own = record.name.startswith("fdg_plugins")
        return own or record.levelno > logging.INFO or not any(text in str(record.msg) for text in BOOKKEEPING)


def quiet_console() -> None:
    """Add the filter to the root logger's console handlers, once each; file handlers are unchanged."""
    for handler in logging.getLogger().handlers:
        if _is_console(handler) and not any(isinstance(known, BookkeepingFilter) for known in handler.filters):
            handler.addFilter(BookkeepingFilter())


def _is_console(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.stderr)
