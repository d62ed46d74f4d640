# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can cause. Each message is one sentence: site, file or parameter, actual and expected value.

The full text is for the log of the participant where the error occurs. A site must not tell the *server* the name of a
file, path or image, so an error has a second text for others, :attr:`FDGError.public`: a category and counts.
"""

import reprlib
import sysconfig
import traceback
from pathlib import Path
from typing import ClassVar

_LIBRARIES = (Path(__file__).parent, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")))


class FDGError(Exception):
    """Base of all errors that this package raises for bad input; its text is meant to be shown unchanged.

    Args:
        text: one sentence for the log of this participant. Without it, the sentence is made of the fields below.
        public: the text for other participants; ``True`` to use ``text`` itself, if it holds only what they already
            know (values of the job, names that they sent, counts). By default, only the category.
        site, field, value, expected: whose value it is, its name, what came and what would be right.
    """

    category: ClassVar[str] = "it met an error."

    def __init__(
        self,
        text: str = "",
        *,
        public: str | bool = False,
        site: str | None = None,
        field: str | None = None,
        value: object = None,
        expected: str | None = None,
    ) -> None:
        if not text and field:
            text = f"{field} is {reprlib.repr(value)}, expected {expected}."
            text = f"{site}: {text}" if site else text
        super().__init__(text)
        self._public = public
        self.site, self.field, self.value, self.expected = site, field, value, expected

    @property
    def public(self) -> str:
        """The sentence that may leave this participant."""
        if isinstance(self._public, str):
            return self._public
        return str(self) if self._public else self.category


class SettingsError(FDGError, ValueError):
    """A setting of the job, the environment or a site's own config is unknown or out of range."""

    category = "a setting does not fit."


class MissingPackageError(SettingsError):
    """A setting needs a package of an optional extra that is not installed."""


class DataError(FDGError):
    """A data root, folder, file, image or split is missing, unreadable or not as declared."""

    category = "data or a file of its own cannot be used."


class CensusError(FDGError):
    """The sites are not compatible; no round was started."""

    category = "the sites do not fit together."


class ContributionError(FDGError, ValueError):
    """One site's contribution cannot be used; the round continues without it."""

    category = "a contribution cannot be used."


class PartError(RuntimeError):
    """A part of a method, such as a plug-in's weighting, raised an error: the text names both, the cause is the error.

    At the server it ends the run, since such a part would fail in every round. ``public``: which part, and the type of
    the error, without its text.
    """

    def __init__(self, text: str, public: str) -> None:
        super().__init__(text)
        self.public = public


class Stopped(Exception):  # noqa: N818 - a request that was followed, not an error
    """The job was aborted; raised within one batch of the signal."""


def told(error: Exception) -> str:
    """Return an error as one sentence: the text of an error of this package, any other's text with its type."""
    return str(error) if isinstance(error, FDGError | PartError) else f"{type(error).__name__}: {error}"


def raised_at(error: Exception) -> str:
    """Return in which function an error was raised, with file and line; nothing of its text.

    Of a user's own code, such as a plug-in file, it is the line there, not that in a library which it called.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(map(Path(frame.filename).is_relative_to, _LIBRARIES))]
    frame = (own or frames)[-1]
    return f"{frame.name}, {Path(frame.filename).name}:{frame.lineno}"


def logged(error: Exception) -> str:
    """Return an error for this participant's log: in one sentence, and an unforeseen one with its traceback."""
    trace = "" if isinstance(error, FDGError) else "\n" + "".join(traceback.format_exception(error)).rstrip()
    return told(error) + trace
