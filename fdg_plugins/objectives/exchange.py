# SPDX-License-Identifier: Apache-2.0
"""The server side of a method that shares more than updates: what it broadcasts, accepts and learns.

In every round the server sends :meth:`Exchange.broadcast` to each site together with the model, accepts one report per
site, and learns from the reports of the sites whose updates are used. A report is untrusted input and is read with a
:class:`PayloadValidator`, which refuses anything but the names, shapes and ranges that were declared. A site reads the
server's payload in the same way. Reading changes nothing: the workflow keeps what was read and commits it with the
updates that it uses.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import torch
from torch import nn

from fdg_plugins.core.outliers import far_above_median
from fdg_plugins.core.stored import dense_tensor
from fdg_plugins.errors import ContributionError, FDGError, calling, shorten
from fdg_plugins.messages import MOST_SAMPLES
from fdg_plugins.storage import UNREADABLE

Tensors = Mapping[str, torch.Tensor]
Shapes = Mapping[str, Sequence[int]]
Phase = Literal["probe", "train"]

CLASS_COUNTS = "class_counts"  # the name of a report's number of samples of each class
EXCHANGE_STATE = 1
LARGEST_VALUE = 1e15  # the sum of the squares of 1e8 such values is still finite in float32

_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_INTEGERS = {torch.int8, torch.int16, torch.int32, torch.int64}
_INTEGERS |= {torch.uint8, torch.uint16, torch.uint32, torch.uint64}


@dataclass(frozen=True)
class PayloadValidator:
    """Checks and reads a payload from the other end.

    Both tensors and arrays are accepted, because FLARE's filters may convert one into the other. Results are copies on
    the CPU, dense and contiguous.

    Args:
        whose: the sender, as error messages name it.
        error: the type of error raised for a payload that does not fit; its message begins with ``whose``.
    """

    whose: str
    error: type[FDGError]

    def refuse(self, reason: str) -> NoReturn:
        """Raise the error with ``reason``."""
        raise self.error(f"{self.whose}: {reason}.")

    def fields(self, value: Any, expected: Iterable[str]) -> Mapping[str, Any]:
        """Return ``value`` if it is a mapping with exactly the ``expected`` names; refuse it otherwise."""
        names = sorted(expected)
        wanted = ", ".join(names) or "nothing"
        if not isinstance(value, Mapping):
            self.refuse(f"sent {_kind(value)}, expected a mapping with {wanted}")
        if missing := sorted(set(names) - value.keys()):
            self.refuse(f"{missing[0]!r} is missing, expected {wanted}")
        if extra := [name for name in value if name not in names]:
            self.refuse(f"sent {shorten(extra[0])}, expected only {wanted}")
        return value

    def numbers(self, name: str, value: Any, shape: Sequence[int], *, double: bool = False) -> torch.Tensor:
        """Return finite numbers of the given shape, float32, at most ``LARGEST_VALUE`` in magnitude.

        ``double``: float64, of any magnitude, for which the sender must send that precision.
        """
        dtypes, what = ({torch.float64}, "64-bit") if double else (_FLOATS, "floating-point")
        found = self._tensor(name, value, shape, dtypes, f"{what} numbers")
        # Converted before the check: a float64 may become infinite.
        found = found.to(torch.float64 if double else torch.float32, copy=True).contiguous()
        if bad := int((~found.isfinite()).sum()):
            self.refuse(f"{name!r} has {bad} values that are NaN or infinite, expected finite numbers")
        if not double and bool((found.abs() > LARGEST_VALUE).any()):
            self.refuse(f"{name!r} has values beyond {LARGEST_VALUE:g}")
        return found

    def update_of(self, name: str, update: Any, shape: Sequence[int], missing: str) -> torch.Tensor:
        """Return :meth:`numbers` of the parameter ``name`` in an update; refuse with the reason ``missing`` without."""
        if not isinstance(update, Mapping) or name not in update:
            self.refuse(missing)
        return self.numbers(name, update[name], shape)

    def per_parameter(self, value: Any, shapes: Shapes) -> dict[str, torch.Tensor]:
        """Return a mapping with :meth:`numbers` for each name in ``shapes``, and of its shape."""
        found = self.fields(value, shapes)
        return {name: self.numbers(name, found[name], shape) for name, shape in shapes.items()}

    def counts(self, name: str, value: Any, length: int) -> torch.Tensor:
        """Return numbers of samples, int64 ``[length]``, from 0 to ``MOST_SAMPLES`` and not all zero."""
        found = self._tensor(name, value, (length,), _INTEGERS, "whole numbers").to(torch.int64, copy=True)
        if bool(((found < 0) | (found > MOST_SAMPLES)).any()):
            self.refuse(f"{name!r} has a number outside 0 to {MOST_SAMPLES}, expected numbers of samples")
        if not bool(found.any()):
            self.refuse(f"{name!r} is zero for every class, expected at least one sample")
        return found.contiguous()

    def class_means(self, name: str, value: Any, counts: torch.Tensor, size: int) -> torch.Tensor:
        """Return means, float32 ``[Y, size]``, from the rows that came for classes with ``counts [Y]``; else zero."""
        held = counts > 0
        means = torch.zeros(len(counts), size)
        means[held] = self.numbers(name, value, (int(held.sum()), size))
        return means

    def flags(self, name: str, value: Any, length: int) -> torch.Tensor:
        """Return truth values, bool ``[length]``."""
        return self._tensor(name, value, (length,), {torch.bool}, "truth values").clone().contiguous()

    def _tensor(self, name: str, value: Any, shape: Sequence[int], dtypes: set[torch.dtype], what: str) -> torch.Tensor:
        if hasattr(value, "materialize"):  # with disk offload, FLARE passes references that load on demand
            try:
                value = value.materialize()
            except (OSError, *UNREADABLE) as error:
                raise self.error(f"{self.whose}: {name!r} cannot be loaded: {error}.") from error
        tensor = dense_tensor(value)
        if tensor is None:
            self.refuse(f"{name!r} is {_kind(value)}, expected a dense array of {what}")
        if tuple(tensor.shape) != tuple(shape):
            self.refuse(f"{name!r} has shape {list(tensor.shape)}, expected {list(shape)}")
        if tensor.dtype not in dtypes:
            self.refuse(f"{name!r} has dtype {tensor.dtype}, expected {what}")
        return tensor


class SiteFacts(NamedTuple):
    """What the server knows about a site in a round without relying on the site's report.

    From the protocol: the number of ``steps``, the ``effective_steps`` (FedNova's ``||a||_1``) and the
    ``learning_rate``. From the census: ``num_train``, the number of training samples, and ``class_counts [Y]``, upper
    bounds per class.
    """

    steps: int
    effective_steps: float
    learning_rate: float
    num_train: int
    class_counts: tuple[int, ...]


class SiteReport(NamedTuple):
    """One site's report: its ``content`` as received, untrusted, and what belongs to it.

    ``update``: the site's update by name, for reports in the phase ``"train"``. ``facts``: what the server knows about
    the site. A report that follows from the facts, or from facts and update, must agree with them.
    """

    content: Any
    update: Tensors | None = None
    facts: SiteFacts | None = None


class Exchange(ABC):
    """The server's state of one method, learned from the sites' reports in the sorted order of the sites' names.

    A round consists of :meth:`begin_round`, any number of :meth:`read`, and :meth:`finish` with the reports that count.
    The ``learned`` tensors are the state. :meth:`finish` replaces them and never changes them in place, because
    messages may still refer to them. A method defines :meth:`read_report` and, as far as it needs to, :meth:`learn`,
    :meth:`sizes`, :meth:`read_model`, :meth:`broadcast` and :meth:`published`.

    ``name``: of the objective. ``report``: the name of the report, as declared in the method's record; both are set by
    ``Objective.named``.

    Args:
        phase: the task whose answers carry the reports. ``"probe"`` precedes training and asks for nothing else; what
            is learned from it is broadcast with the training task of the same round. With ``"train"`` the reports come
            with the updates, and what is learned is broadcast in the next round.
        identity: JSON values of the state.
    """

    name: str = ""
    report: str = "tensors"

    def __init__(self, phase: Phase = "train", **identity: Any) -> None:
        self.phase: Phase = phase
        self.learned: dict[str, torch.Tensor] = {}
        self._identity = identity
        self._facts: Mapping[str, SiteFacts] = {}
        self._begun = False
        self.disagrees: float | None = None  # of classifier gradients in the round, for the record

    # --- what a method defines ---

    @abstractmethod
    def read_report(self, validator: PayloadValidator, report: SiteReport) -> Any:
        """Return the checked content of one site's report; ``validator`` refuses one that cannot be used."""

    def learn(self, reports: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return the learned tensors after the reports of one or more sites, given in the sorted order of the sites.

        None by default: the reports of a round then serve the weighting of that round alone, which finds what
        :meth:`read_report` returned in a contribution's ``reports``, under the name of the ``report``.
        """
        return {}

    def sizes(self, report: Any) -> dict[str, float]:
        """Return the lengths by which :meth:`outliers` compares a checked report with the round's others, by quantity.

        Name none that is close to zero at an honest site. Empty: nothing is compared.
        """
        return {}

    def read_model(self, state: Tensors) -> None:  # noqa: B027 - most exchanges need nothing of the model
        """Extract what the exchange needs from the global model of a round."""

    def broadcast(self, site: str = "") -> dict[str, torch.Tensor]:
        """Return the payload sent with the model to a ``site`` of the round; empty before anything was learned.

        Without a site, or for one of which nothing is known: what any site may receive. All payloads have the same
        names and shapes, or are empty: a site for which there is nothing receives the model alone.
        """
        return dict(self.learned)

    def published(self) -> dict[str, torch.Tensor]:
        """Return the learned tensors that may stand in the results, which others download: none of a single site."""
        return self.broadcast()

    # --- one round ---

    def begin_round(self, state: Tensors, facts: Mapping[str, SiteFacts] | None = None) -> None:
        """Accept the reports of a new round from now on.

        ``state``: the global model at the start of the round, by name. ``facts``: what the server knows, by site.
        """
        with calling("exchange", self):
            self.read_model(state)
        self._facts = facts or {}
        self._begun, self.disagrees = True, None

    def read(self, site: str, report: Any, update: Tensors | None) -> Any:
        """Return the checked content of one site's report; :meth:`finish` receives it if the site's update is used.

        ``update`` is local minus global, in the phase ``"train"`` only. Nothing is stored here. Raises
        ``ContributionError`` naming the site and the field if the report cannot be used.
        """
        validator = PayloadValidator(f"site {site}", ContributionError)
        if not self._begun:
            validator.refuse("sent a report while no round was asking for one")
        with calling("exchange", self):
            return self.read_report(validator, SiteReport(report, update, self._facts.get(site)))

    def outliers(self, reports: Mapping[str, Any], ratio: float) -> dict[str, str]:
        """Return the sites with one of the :meth:`sizes` more than ``ratio`` times the round's median, and why."""
        with calling("exchange", self):
            return far_above_median({site: self.sizes(report) for site, report in sorted(reports.items())}, ratio)

    def finish(self, reports: Mapping[str, Any]) -> None:
        """Learn from the ``reports`` that count, by site, and end the round; without any, the state does not change."""
        if reports:
            with calling("exchange", self):
                self.learned = self.learn(dict(sorted(reports.items())))
        self._begun = False

    def state(self) -> dict[str, Any]:
        """Return what a saved state says beside the ``learned`` tensors, which survive the round, as a JSON value."""
        known = {"version": EXCHANGE_STATE, "exchange": self.name, **self._identity}
        return {**known, "tensors": sorted(self.learned)}


def parameter_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the trainable parameters, by their names in the state dict."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def readable(values: Iterable[torch.Tensor]) -> bool:
    """Return whether all values are finite and within the range that a ``PayloadValidator`` accepts."""
    return all(bool((value.abs() <= LARGEST_VALUE).all()) for value in values)


def check_counts(validator: PayloadValidator, counts: torch.Tensor, facts: SiteFacts | None) -> None:
    """Refuse counts ``[Y]`` of the training split that contradict the census, which also counts validation images."""
    if facts is None:
        return
    told = counts.tolist()  # Python's integers: what a census claims of masks, times their pixels, may exceed 64 bits
    if sum(told) != facts.num_train:
        validator.refuse(f"{CLASS_COUNTS!r} add up to {sum(told)}, expected {facts.num_train} as in the census")
    if any(count > most for count, most in zip(told, facts.class_counts, strict=True)):
        validator.refuse(f"{CLASS_COUNTS!r} has more samples of a class than the site counted in the census")


def largest_length(rows: torch.Tensor) -> float:
    """Return the length of the longest row of ``rows [Y, D]``."""
    return float(torch.linalg.norm(rows.double(), dim=1).max())


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
