# SPDX-License-Identifier: Apache-2.0
"""Calls of a method's parts, which may be a plug-in's: what they raise is reported with the name of the part."""

from collections.abc import Iterator
from contextlib import contextmanager

from fdg_plugins.errors import FDGError, PartError, Stopped, raised_at, told
from fdg_plugins.values import one_line


@contextmanager
def calling(kind: str, part: object) -> Iterator[None]:
    """Raise ``PartError``, which names ``kind`` and class of ``part``, for what it raises and no round can treat."""
    try:
        yield
    except (FDGError, PartError, ArithmeticError, Stopped):
        raise
    except Exception as error:
        raised = f"{kind} {type(part).__name__} raised"
        public = f"{raised} {type(error).__name__}."
        raise PartError(f"{raised} {one_line(told(error)).rstrip('.')} (in {raised_at(error)}).", public) from error
