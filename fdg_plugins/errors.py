# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can cause, checks of single values, and how a message shows values and names.

Each message is one sentence: site, file or parameter, actual and expected value. The full text is for the log of the
participant where the error occurs. A site must not tell the *server* the name of a file, path or image, so an error has
a second text for others, :attr:`FDGError.public`: a category and counts.
"""

import difflib
import json
import reprlib
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import pydantic

LARGEST = 1e30
"""The largest allowed value of a factor or strength; its product with a loss is still finite in float32."""

SHOWN = 80  # characters of a value in a message
LONGEST_QUOTE = 200
"""The most characters of another participant's text that a message quotes."""

LONGEST_REASON = 400
MOST_PROBLEMS = 1_000  # of one message

# With which a spreadsheet begins a formula, some also with the full-width signs.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")

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
            text = f"{field} is {shorten(value)}, expected {expected}."
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


def check_extra(package: str, whose: str, extra: str = "medical") -> None:
    """Raise MissingPackageError, naming ``whose`` use it is, unless ``package``, of the ``extra``, is installed."""
    if find_spec(package) is None:  # without importing it
        lacks = f"{whose} needs the package {package}, which is not installed"
        raise MissingPackageError(f"{lacks}: pip install 'fdg-plugins[{extra}]'.", public=True)


def load_extra(module: str, whose: str, extra: str = "medical") -> ModuleType:
    """Return ``module``, whose import may take seconds; its package is of the ``extra``: see :func:`check_extra`."""
    check_extra(module.partition(".")[0], whose, extra)
    return import_module(module)


# --- values and names in messages ---

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = SHOWN
_REPR.maxlevel = 3


def shorten(value: Any, limit: int = SHOWN) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters, however deep or long the value is; a path is shown whole."""
    if isinstance(value, PurePath):
        return visible(str(value))
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)} keys"
    text = repr(value[: limit + 1]) if isinstance(value, str | bytes) else _REPR.repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def visible(text: str) -> str:
    """Return ``text`` with every non-printable character escaped, as Python does.

    A file name or another participant's text can then neither forge log lines nor control a terminal.
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def harmless(cell: Any) -> Any:
    """Return a cell of CSV that no spreadsheet runs as a formula: numbers as they are, text printable and defused.

    Names of tasks, tensors, domains and values come from jobs and from strangers' records. An apostrophe in front,
    which a spreadsheet shows as text, prevents that.

    >>> harmless('=HYPERLINK("x")'), harmless(" @SUM(A1)"), harmless(-0.5), harmless("photo")
    ('\\'=HYPERLINK("x")', "' @SUM(A1)", -0.5, 'photo')
    """
    if not isinstance(cell, str):
        return cell
    text = visible(cell)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def one_line(text: str, limit: int = LONGEST_REASON) -> str:
    """Return another participant's text as one :func:`visible` line, cut to ``limit`` characters plus its length."""
    printable = visible(text[:limit])
    if len(text) <= limit and len(printable) <= limit:
        return printable
    return f"{printable[:limit]}... ({len(text)} characters)"


def counted(number: int | float, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 round``, ``2 rounds``, ``1,000 images``; ``several``: an irregular plural."""
    digits = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{digits} {one if number == 1 else several or one + 's'}"


def nearest(name: Any, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name in ``known`` most like ``name``, apart from case; None if none has a similarity of ``cutoff``."""
    if not isinstance(name, str):
        return None
    names = {other.casefold(): other for other in reversed(list(known))}
    near = difflib.get_close_matches(name[:100].casefold(), list(names), n=1, cutoff=cutoff)
    return names[near[0]] if near else None


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known name, or else all known names."""
    names = list(dict.fromkeys(known))
    if near := nearest(name, names):
        return f"did you mean {near!r}?"
    listed = ", ".join(names[:100]) or "nothing: there is none"
    return f"expected one of {listed}." if len(names) <= 100 else f"expected one of {listed} and others."


def first_problem(error: "pydantic.ValidationError", known: Collection[str] = ()) -> str:
    """Return pydantic's first error as one sentence: field, actual value, expected value.

    ``known``: the fields there are, for a person who has misspelt one.
    """
    if (count := error.error_count()) > MOST_PROBLEMS:  # whose details would take far more memory than the values
        return f"{count:,} values are not as expected."
    detail = error.errors(include_url=False)[0]
    field = one_line(".".join(map(str, detail["loc"])) or "value", LONGEST_QUOTE)
    if detail["type"] == "extra_forbidden":
        hint = f": {did_you_mean(field, known)}" if known and len(detail["loc"]) == 1 else "."
        return f"unknown field {field!r}{hint}"
    if detail["type"] == "missing":
        return f"field {field!r} is missing."
    said = str(detail["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{field} is {shorten(detail['input'])}, but {said[:1].lower() + said[1:]}."


# --- checks of single values ---


def is_number(value: Any) -> bool:
    """Return whether ``value`` is an integer or float (not a boolean or NaN) in [-LARGEST, LARGEST]."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise ``SettingsError`` unless ``value`` is one of ``choices``."""
    if value not in (known := sorted(choices)):
        raise SettingsError(field=name, value=value, expected=f"one of {', '.join(known)}")


def check_settings_known(whose: str, settings: Iterable[Any], known: Collection[str]) -> None:
    """Raise ``SettingsError``, whose text begins with ``whose``, for the first setting that is not in ``known``."""
    for setting in settings:
        if setting not in known:
            has = ", ".join(known) or "none"
            raise SettingsError(f"{whose} has no setting {shorten(setting)}; it has {has}.", field=str(setting))


def read_like(value: Any, like: Any) -> Any:
    """Convert text, such as an environment variable, to the type of ``like``: a boolean, text, or otherwise a number.

    A value that is not text is returned unchanged. If ``like`` is text or a mapping, or the text is of no other type,
    the stripped text is returned, for the class to refuse. A whole number is an integer if ``like`` is one.
    """
    text = value.strip() if isinstance(value, str) else value
    if not isinstance(value, str) or isinstance(like, str | Mapping):
        return text
    if isinstance(like, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    try:
        read = float(text)
    except ValueError:
        return text
    return int(read) if isinstance(like, int) and read.is_integer() else read


def parsed_object(value: Any) -> Any:
    """Return the object in a text that is one in JSON; anything else as it is."""
    try:
        return json.loads(value) if isinstance(value, str) and value.strip().startswith("{") else value
    except (ValueError, RecursionError):
        return value
