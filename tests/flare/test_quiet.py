# SPDX-License-Identifier: Apache-2.0
"""The console drops FLARE's bookkeeping and nothing else; log files keep everything."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fdg_plugins.flare.quiet import BOOKKEEPING, BookkeepingFilter, quiet_console


@contextmanager
def console() -> Iterator[io.StringIO]:
    """Give the root logger one handler, on a stdout that is the buffer returned; pytest's own handlers are put aside.

    A fixture cannot do this: between set-up and call pytest replaces stdout and adds its handlers.
    """
    root, buffer = logging.getLogger(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", buffer)
        patch.setattr(root, "handlers", [logging.StreamHandler(sys.stdout)])
        patch.setattr(root, "level", logging.INFO)
        patch.setattr(logging.getLogger("nvflare"), "level", logging.NOTSET)  # the one-process engine raises it
        root.manager._clear_cache()  # type: ignore[attr-defined]
        yield buffer
    root.manager._clear_cache()  # type: ignore[attr-defined]


def record(text: str, *args: object, name: str = "nvflare.Worker", level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 1, text, args, None)


@pytest.mark.parametrize("text", BOOKKEEPING)
def test_bookkeeping_is_dropped_but_never_as_a_warning_or_from_this_package(text: str) -> None:
    rule = BookkeepingFilter()
    assert not rule.filter(record(f"{text}: photo"))
    assert rule.filter(record(f"{text}: photo", level=logging.WARNING))
    assert rule.filter(record(f"{text}: photo", name="fdg_plugins.controllers.federation"))


def test_other_records_are_shown() -> None:
    assert BookkeepingFilter().filter(record("round 1/3"))


def test_a_record_whose_arguments_do_not_fit_its_text_does_not_break_its_caller() -> None:
    assert BookkeepingFilter().filter(record("%d images", "many"))


def test_the_console_shows_results_and_hides_bookkeeping() -> None:
    with console() as shown:
        quiet_console()
        logging.getLogger("nvflare.Worker").info("Finished one task run for client: photo")
        logging.getLogger("fdg_plugins.site").info("round 1/3")
    assert shown.getvalue() == "round 1/3\n"


def test_the_filter_is_added_once_and_only_to_the_console(tmp_path: Path) -> None:
    with console() as shown:
        handlers = logging.getLogger().handlers
        file = logging.FileHandler(tmp_path / "log.txt")
        handlers += [file, logging.StreamHandler(io.StringIO())]
        quiet_console()
        quiet_console()
        assert [len(handler.filters) for handler in handlers] == [1, 0, 0]
        logging.getLogger("nvflare").info("set transaction info: 1")
        file.close()
    assert "set transaction info" in (tmp_path / "log.txt").read_text()
    assert shown.getvalue() == ""
