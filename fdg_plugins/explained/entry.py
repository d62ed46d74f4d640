# SPDX-License-Identifier: Apache-2.0
"""The shape of one method's explanation, and how it is read from the package."""

import tomllib
from importlib.resources import files
from typing import Literal

import pydantic

from fdg_plugins.errors import SettingsError

SUFFIX = ".toml"

Point = Literal["objective", "weighting", "direction"]


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, str_min_length=1)


class Reference(_Part):
    """The paper: authors, title, venue and year."""

    authors: str
    title: str
    venue: str
    year: int


class Components(_Part):
    """What a job names for the method, by the names of the code, and from which the settings follow.

    ``aggregator`` is that of the method alone; ``filters`` are classes of ``fdg_plugins.filters``; ``protocol`` are
    fields of the protocol that only such methods read.
    """

    aggregator: str | None = None
    weightings: tuple[str, ...] = ()
    objective: str | None = None
    filters: tuple[str, ...] = ()
    protocol: tuple[str, ...] = ()


class Equation(_Part):
    """A formula, of one line or several, with its place in the paper (None: it has no number) and what it is."""

    number: str | None = None
    formula: str
    meaning: str


class SettingSource(_Part):
    """Where a setting's value comes from: what the paper and the authors' code use. The default is in the code."""

    name: str
    symbol: str | None = None
    paper: str | None = None
    code: str | None = None
    remark: str | None = None


class Leaving(_Part):
    """What a site sends: its shape, when, what it reveals.

    ``report``: the word of a site's ``allowed_reports`` without which it does not leave; None: it always does.
    """

    what: str
    shape: str
    when: str = "every round in which the site trains"
    reveals: str
    report: str | None = None


class Difference(_Part):
    """A point on which the paper, other code and this package part ways; ``code`` is None where none was compared."""

    point: str
    paper: str
    code: str | None = None
    ours: str


class Differences(_Part):
    """All such points, with whose code was compared (empty: nobody's)."""

    compared: str = pydantic.Field("authors' code", min_length=0)
    remark: str | None = None
    rows: tuple[Difference, ...]

    @pydantic.model_validator(mode="after")
    def _code_where_compared(self) -> "Differences":
        for row in self.rows:
            if (row.code is None) == bool(self.compared):
                raise ValueError(f"point {row.point!r} must say what the code does exactly if code was compared")
        return self


class Together(_Part):
    """Another method with which this one was used before, and by whom."""

    method: str = pydantic.Field(alias="with")
    source: str


class Explanation(_Part):
    """One method: what it does in one line, where it acts, formulas, settings, what leaves a site, differences.

    ``leaves`` is what leaves beyond FedAvg's; in FedAvg's own file, everything. ``exact`` are the cases whose result
    is known exactly.
    """

    title: str
    line: str
    acts: tuple[Point, ...] = pydantic.Field(min_length=1)
    in_composition: str
    reference: Reference
    components: Components
    letters: str
    equations: tuple[Equation, ...] = pydantic.Field(min_length=1)
    settings: tuple[SettingSource, ...] = ()
    leaves: tuple[Leaving, ...] = ()
    differences: Differences
    exact: tuple[str, ...]
    together: tuple[Together, ...] = ()


def method_names() -> tuple[str, ...]:
    """Return the names of all methods that are explained, sorted."""
    entries = files(__package__).iterdir()
    return tuple(sorted(entry.name.removesuffix(SUFFIX) for entry in entries if entry.name.endswith(SUFFIX)))


def read_explanation(name: str) -> Explanation:
    """Return the explanation of the method called ``name``; raise ``SettingsError`` if there is none."""
    if name not in method_names():
        raise SettingsError(f"method is {name!r}, expected one of {', '.join(method_names())}.")
    text = files(__package__).joinpath(name + SUFFIX).read_text(encoding="utf-8")
    return Explanation.model_validate(tomllib.loads(text))
