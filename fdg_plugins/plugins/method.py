# SPDX-License-Identifier: Apache-2.0
"""The record of a published method: every fact about it, stated once. Everything else is derived from it."""

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.fields import check_fields

Role = Literal["aggregator", "weighting", "objective"]
ANY_DATASET = "*"


@dataclass(frozen=True)
class Reference:
    """The paper: authors, title, venue and year."""

    authors: str
    title: str
    venue: str
    year: int


@dataclass(frozen=True)
class Equation:
    """A formula of one or more lines, its meaning, and its number in the paper (None: unnumbered)."""

    formula: str
    meaning: str
    number: str | None = None


@dataclass(frozen=True)
class SettingSource:
    """The sources of a setting's value: the paper and the authors' code. The default is the value that jobs run."""

    name: str
    symbol: str | None = None
    paper: str | None = None
    code: str | None = None
    remark: str | None = None


@dataclass(frozen=True)
class Leaving:
    """Data that a site sends in addition to its update: its shape, when it is sent, and what it reveals.

    ``report``: the name in a site's ``allowed_reports`` that permits it; None: it is always sent.
    """

    what: str
    shape: str
    reveals: str
    when: str = "every round in which the site trains"
    report: str | None = None


@dataclass(frozen=True)
class Difference:
    """A point on which the paper, other code and this package differ; ``code`` is None if no code was compared."""

    point: str
    ours: str
    paper: str = "not established"
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class Differences:
    """All such points, and whose code was compared (empty: none)."""

    rows: tuple[Difference, ...] = ()
    compared: str = "authors' code"
    remark: str | None = None


@dataclass(frozen=True, kw_only=True)
class Default:
    """Settings that a job has unless told otherwise, and their source.

    ``on``: a data set, a family of data sets (``"photographs"``, ``"digits"``), or ``"*"`` for any. ``beside``: the
    entry applies only if the method is composed with this one, by key. ``protocol``, ``server``, ``weighting`` and
    ``objective`` are settings of the protocol, of the aggregator (for a method without one, under the plain mean), of
    the method's weighting and of its objective. ``source``: the paper or the code that has them, or ``ours`` and why. A
    choice of ours for the protocol gives way to what another part of a composition, or a paper's protocol, demands.
    """

    on: str = ANY_DATASET
    beside: str | None = None
    protocol: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    weighting: Mapping[str, Any] = field(default_factory=dict)
    objective: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether the settings are a choice of ours, and no paper or code has them."""
        return self.source.startswith("ours")

    def __or__(self, other: "Default") -> "Default":
        """Return both combined; the other's settings override this one's."""
        kinds = ("protocol", "server", "weighting", "objective")
        both: dict[str, Any] = {kind: {**getattr(self, kind), **getattr(other, kind)} for kind in kinds}
        return Default(**both)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One published method.

    Args:
        key: the published name in lower case, used by jobs, commands and tables: ``"fedomg"``.
        title: the name for display: ``"FedOMG"``.
        line: what it does, in one line without a full stop.
        reference: the paper.
        classes: the classes that it has, at most one of each: a subclass of ``UpdateAggregator``, the server's rule of
            the method alone; of ``Weighting``, the weights of the sites under any direction; of ``Objective``, what
            sites minimise and report, with its server side.
        part: its name as a part of a composition, ``"ga"`` in ``fedomg+ga``; default: its objective's name, or the key.
        defaults: the settings of a job unless told otherwise. More specific entries override, setting by setting; a
            setting in no entry takes the default of its class.
        letters, equations, settings, differences, leaves: the contents of its page. Fields of the protocol among the
            ``settings`` are treated as settings of the method.
        rank: its place among the published methods in tables; those without come last.
        combined: with which other methods it has been combined, by key, and by whom.

    Raises ``SettingsError`` for an invalid key, a field of another type than it is to have, and other classes.
    """

    key: str
    title: str
    line: str
    reference: Reference
    classes: tuple[type[Any], ...]
    part: str = ""
    defaults: tuple[Default, ...] = ()
    letters: str = ""
    equations: tuple[Equation, ...] = ()
    settings: tuple[SettingSource, ...] = ()
    differences: Differences = Differences()
    leaves: tuple[Leaving, ...] = ()
    rank: int = 1000
    combined: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key.isidentifier() or self.key != self.key.lower():
            raise SettingsError(field="a method's key", value=self.key, expected="lower-case letters, digits and '_'")
        check_fields(self, f"method {self.key!r}")
        roles = [getattr(one, "role", None) for one in self.classes]
        if not roles or None in roles or len(set(roles)) < len(roles) or any(map(inspect.isabstract, self.classes)):
            expected = "at most one complete UpdateAggregator, one Weighting and one Objective"
            named = [one.__name__ for one in self.classes]
            raise SettingsError(field=f"classes of method {self.key!r}", value=named, expected=expected)

    def class_of(self, role: Role) -> type[Any] | None:
        """Return the method's aggregator, weighting or objective; None if it has none."""
        return next((one for one in self.classes if one.role == role), None)

    @property
    def aggregator(self) -> type[Any] | None:
        return self.class_of("aggregator")

    @property
    def weighting(self) -> type[Any] | None:
        return self.class_of("weighting")

    @property
    def objective(self) -> type[Any] | None:
        return self.class_of("objective")

    @property
    def acts(self) -> tuple[str, ...]:
        """Where it acts: on the direction of the server's step, the weights of the sites, or as its objective says."""
        server = ("direction",) if self.sets_direction else ("weighting",) if self.weighting is not None else ()
        return (*server, *getattr(self.objective, "acts", ()))

    @property
    def name(self) -> str:
        """The name as records of every kind have it: the key."""
        return self.key

    @property
    def names(self) -> tuple[str, ...]:
        """All names that refer to the method: its key, and its name as a part."""
        return tuple(dict.fromkeys((self.key, self.part_name)))

    @property
    def part_name(self) -> str:
        """The name as a part of a composition: ``"ga"``."""
        return self.part or getattr(self.objective, "name", self.key)

    @property
    def part_title(self) -> str:
        """The part's name for display, in the title's spelling: ``"GA"`` of FedDG-GA."""
        bare = self.title.replace("Fed", "").replace("-", "")
        start = bare.lower().find(self.part_name)
        return self.title if start < 0 else bare[start : start + len(self.part_name)]

    @property
    def sets_direction(self) -> bool:
        """Whether the aggregator has its own direction, and is not FedAvg's with the method's weighting."""
        return self.aggregator is not None and self.weighting is None

    @property
    def takes_rule(self) -> bool:
        """Whether its direction starts from the mean update of another rule, which a composition may name."""
        return self.sets_direction and bool(getattr(self.aggregator, "takes_rule", False))

    @property
    def stands_below(self) -> bool:
        """Whether such a direction can start from its rule: its step is one combination of whole updates."""
        return self.sets_direction and not self.takes_rule and getattr(self.aggregator, "whole_updates", False)

    @property
    def reports(self) -> tuple[str, ...]:
        """The names that a site's ``allowed_reports`` must contain for this method."""
        return tuple(dict.fromkeys(leaving.report for leaving in self.leaves if leaving.report is not None))

    def entries_on(self, *datasets: str, beside: Collection[str]) -> list[Default]:
        """Return the defaults that apply on a data set, composed with the methods ``beside``; later ones override.

        ``datasets``: the names of the data set, from the most general (its family) to the most specific (its own).
        """
        places = [(name, company) for company in (None, *sorted(beside)) for name in (ANY_DATASET, *datasets)]
        return [entry for place in places for entry in self.defaults if (entry.on, entry.beside) == place]


# What several records state alike.

BY_SAMPLES = (
    Default(on="photographs", server={"server_lr": 1.0, "weighting": "samples"}, source="FedAvg"),
    Default(on="digits", server={"server_lr": 1.0, "weighting": "uniform"}, source="domains of one size"),
    Default(on="label_skew", server={"weighting": "samples"}, source="FedAvg"),
)
SGD_ON_SEGMENTATION = Default(
    on="segmentation",
    protocol={"optimizer": "sgd", "learning_rate": 0.05},
    source="ours: SGD where others use Adam; the rate was not tuned",
)
WEIGHTING = SettingSource(
    "weighting",
    symbol="p",
    paper="numbers of samples",
    remark="samples, uniform, or an object with a name and settings, such as ga",
)
NORMALIZATION = Leaving(
    "sums, sums of squares and counts of the inputs of each BatchNorm layer over the training images",
    "2 numbers per channel, 1 per layer",
    "means and variances of features over all training images",
    when="only with batch_norm reestimate and a network with BatchNorm: every round, once after the last",
    report="normalization_statistics",
)
OWN_MODEL = Leaving(
    "loss, accuracy, count on validation, of the site's own model",
    "3 numbers",
    "how well a model fitted to the site does on its data",
    when="every round in which the site trains or evaluates a model, and once after the last",
)
TRAINING_LOSS = Leaving(
    "loss, accuracy, count on the training split, of both models",
    "6 numbers",
    "how well either model does on the site's data",
    report="training_loss",
)
