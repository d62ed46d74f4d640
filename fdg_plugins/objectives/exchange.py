# SPDX-License-Identifier: Apache-2.0
"""The server half of a method that shares more than updates: what it broadcasts, accepts and learns.

In every round the server sends :meth:`Exchange.down` to each site together with the model, accepts one report per site,
and learns from the reports of the sites whose updates are used. A report is untrusted input and is read with a
:class:`Reader`, which refuses anything but the names, shapes and ranges that were declared. A site reads the server's
payload in the same way.
Reading changes nothing: the workflow keeps what was read and commits it with the updates that it uses.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from fdg_plugins.core.dense import dense_tensor
from fdg_plugins.core.outliers import usual_length
from fdg_plugins.errors import ContributionError, FDGError, SettingsError
from fdg_plugins.messages import MOST_SAMPLES, shorten

Tensors = Mapping[str, torch.Tensor]
Shapes = Mapping[str, Sequence[int]]
Phase = Literal["probe", "train"]

EXCHANGE_STATE = 1
LARGEST_VALUE = 1e15  # the sum of the squares of 1e8 such values is still finite in float32

TYPICAL_ROUNDS = 5  # earlier rounds whose reports say what is usual

_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_INTEGERS = {torch.int8, torch.int16, torch.int32, torch.int64}
_INTEGERS |= {torch.uint8, torch.uint16, torch.uint32, torch.uint64}


@dataclass(frozen=True)
class Reader:
    """Reads what the other end sent; what does not fit raises ``error``, one sentence that begins with ``whose``.

    Tensors and arrays are both read, for FLARE's filters may turn one into the other. What is returned is a copy:
    on the CPU, dense and contiguous.
    """

    whose: str
    error: type[FDGError]

    def refuse(self, reason: str) -> NoReturn:
        """Raise the error with the reason."""
        raise self.error(f"{self.whose}: {reason}.")

    def fields(self, value: Any, expected: Iterable[str]) -> Mapping[str, Any]:
        """Return ``value``, a mapping with exactly the expected names."""
        names = sorted(expected)
        wanted = ", ".join(names) or "nothing"
        if not isinstance(value, Mapping):
            self.refuse(f"sent {_kind(value)}, expected a mapping with {wanted}")
        if missing := [name for name in names if name not in value]:
            self.refuse(f"{missing[0]!r} is missing, expected {wanted}")
        if extra := [name for name in value if name not in names]:
            self.refuse(f"sent {shorten(extra[0])}, expected only {wanted}")
        return value

    def numbers(self, name: str, value: Any, shape: Sequence[int]) -> torch.Tensor:
        """Return finite numbers of ``shape`` as float32, none beyond ``LARGEST_VALUE``."""
        tensor = self._tensor(name, value, shape, _FLOATS, "floating-point numbers")
        found = tensor.to(torch.float32, copy=True).contiguous()  # before the check: a float64 may become infinite
        if bad := int((~found.isfinite()).sum()):
            self.refuse(f"{name!r} has {bad} values that are NaN or infinite in float32, expected finite numbers")
        if bool((found.abs() > LARGEST_VALUE).any()):
            self.refuse(f"{name!r} has values beyond {LARGEST_VALUE:g}")
        return found

    def per_parameter(self, value: Any, shapes: Shapes) -> dict[str, torch.Tensor]:
        """Return a mapping with :meth:`numbers` for each name in ``shapes``, and of its shape."""
        found = self.fields(value, shapes)
        return {name: self.numbers(name, found[name], shape) for name, shape in shapes.items()}

    def counts(self, name: str, value: Any, length: int) -> torch.Tensor:
        """Return ``[length]`` numbers of samples as int64, none negative, not all zero."""
        found = self._tensor(name, value, (length,), _INTEGERS, "whole numbers").to(torch.int64, copy=True)
        if bool(((found < 0) | (found > MOST_SAMPLES)).any()):
            self.refuse(f"{name!r} has a number outside 0 to {MOST_SAMPLES}, expected numbers of samples")
        if not bool(found.any()):
            self.refuse(f"{name!r} is zero for every class, expected at least one sample")
        return found.contiguous()

    def flags(self, name: str, value: Any, length: int) -> torch.Tensor:
        """Return ``[length]`` truth values."""
        return self._tensor(name, value, (length,), {torch.bool}, "truth values").clone().contiguous()

    def _tensor(self, name: str, value: Any, shape: Sequence[int], dtypes: set[torch.dtype], what: str) -> torch.Tensor:
        tensor = dense_tensor(self._loaded(name, value))
        if tensor is None:
            self.refuse(f"{name!r} is {_kind(value)}, expected a dense array of {what}")
        if tuple(tensor.shape) != tuple(shape):
            self.refuse(f"{name!r} has shape {list(tensor.shape)}, expected {list(shape)}")
        if tensor.dtype not in dtypes:
            self.refuse(f"{name!r} has dtype {tensor.dtype}, expected {what}")
        return tensor

    def _loaded(self, name: str, value: Any) -> Any:
        # With disk offload FLARE hands over references that load on demand.
        if not hasattr(value, "materialize"):
            return value
        try:
            return value.materialize()
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise self.error(f"{self.whose}: {name!r} cannot be loaded: {error}.") from error


class SiteFacts(NamedTuple):
    """What the server knows of a site in a round without its word: how it steps, by the protocol (how often, how far,
    which is FedNova's ``||a||_1``, at which rate), and by the census how many training samples it has, and at most how
    many of each class."""

    steps: int
    effective_steps: float
    learning_rate: float
    num_train: int
    class_counts: tuple[int, ...]


class Exchange(ABC):
    """What one method's server learns from reports, which are learned from in the sorted order of the sites' names.

    One round is :meth:`begin_round`, any number of :meth:`read`, and :meth:`finish` with the reports that count. What
    has been learned is the state: replaced in :meth:`finish`, never changed in place, since messages may still hold it.

    ``report`` is the name of what it reads, as the method's record declares it (``fdg_plugins.plugins.reports``).
    ``phase`` names the task whose answers bring the reports: ``"probe"`` comes before training and asks for nothing
    else, so that what is learned from it is sent down with the same round's training; ``"train"`` brings them beside
    the updates, and what is learned is sent down in the next round.
    """

    report: ClassVar[str] = "tensors"

    def __init__(self, phase: Phase) -> None:
        self.phase: Phase = phase
        self._learned: dict[str, torch.Tensor] = {}
        self._facts: Mapping[str, SiteFacts] = {}
        self._typical: dict[str, list[float]] = {}
        self._begun = False

    # --- what a method defines ---

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what a state must agree in to be taken back, as a value for JSON."""

    @abstractmethod
    def read_report(self, reader: Reader, report: Any, update: Tensors | None, facts: SiteFacts | None = None) -> Any:
        """Return what is kept of one site's report; refuse one that cannot be used.

        ``facts``: what the workflow knows of the site; a report that follows from them, or from them and the update,
        must be as it follows.
        """

    def sizes(self, report: Any) -> dict[str, float]:
        """Return the lengths by which a report that was read is compared with those of other sites and earlier rounds,
        by the name of the quantity; empty if nothing is left to compare, for the server could compute all of it."""
        return {}

    def floors(self, lengths: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Return by quantity the length below which a report never stands out, whatever the others send; default 0.

        ``lengths``: the round's, by quantity and site.
        """
        return {}

    @abstractmethod
    def learn(self, reports: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return what is known after the reports of one or more sites, given in sorted order."""

    @abstractmethod
    def read_learned(self, reader: Reader, tensors: Any) -> dict[str, torch.Tensor]:
        """Return ``tensors`` as :meth:`learn` would have returned them; refuse what does not fit."""

    def read_model(self, state: Tensors) -> None:  # noqa: B027 - most exchanges need nothing of the model
        """Take what is needed of the global model of a round."""

    # --- one round ---

    def begin_round(self, state: Tensors, facts: Mapping[str, SiteFacts] | None = None) -> None:
        """Read reports of a new round from now on; ``state`` is the global model that it starts from, by name, and
        ``facts`` what is known of each site."""
        self.read_model(state)
        self._facts = facts or {}
        self._begun = True

    def down(self) -> dict[str, torch.Tensor]:
        """Return what every site of the round is sent beside the model; empty before anything was learned."""
        return dict(self._learned)

    def read(self, site: str, report: Any, update: Tensors | None) -> Any:
        """Return what counts of one site's report, sent in the phase ``"train"`` with an update (local - global).

        Nothing is kept of it here. Raises ``ContributionError`` naming site and field if it cannot be used.
        """
        reader = Reader(f"site {site}", ContributionError)
        if not self._begun:
            reader.refuse("sent a report while no round was asking for one")
        return self.read_report(reader, report, update, self._facts.get(site))

    def lengths(self, reports: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Return the :meth:`sizes` of the round's reports, as :meth:`read` gave them, by quantity and site."""
        found: dict[str, dict[str, float]] = {}
        for site, report in sorted(reports.items()):
            for quantity, size in self.sizes(report).items():
                found.setdefault(quantity, {})[site] = size
        return found

    def typical(self, quantity: str) -> list[float]:
        """Return the medians of a quantity in the last rounds from which was learned."""
        return list(self._typical.get(quantity, ()))

    def finish(self, reports: Mapping[str, Any]) -> None:
        """Learn from the ``reports`` that count, by site, and end the round; without any, the state stays as it was."""
        if reports:
            medians = {name: usual_length(list(one.values())) for name, one in self.lengths(reports).items()}
            learned = self.learn(dict(sorted(reports.items())))
            self._typical = {name: [*self.typical(name), median][-TYPICAL_ROUNDS:] for name, median in medians.items()}
            self._learned = learned
        self._begun = False

    # --- what survives the round ---

    def state(self) -> dict[str, Any]:
        """Return what must survive beside :meth:`tensors`, as a value for JSON."""
        return {
            "version": EXCHANGE_STATE,
            **self.identity(),
            "tensors": sorted(self._learned),
            "typical": {name: list(values) for name, values in self._typical.items()},
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what has been learned; empty before anything was."""
        return dict(self._learned)

    def restore(self, state: Mapping[str, Any], tensors: Tensors) -> None:
        """Take back what :meth:`state` and :meth:`tensors` returned; raise ``SettingsError`` for what does not fit."""
        reader = Reader("state of the exchange", SettingsError)
        if not isinstance(state, Mapping):
            reader.refuse(f"is {_kind(state)}, expected a mapping")
        for name, expected in {"version": EXCHANGE_STATE, **self.identity(), "tensors": sorted(tensors)}.items():
            if state.get(name) != expected:
                reader.refuse(f"{name!r} is {shorten(state.get(name))}, expected {expected!r}")
        self._learned = self.read_learned(reader, tensors) if tensors else {}
        # A state of version 0.1.0 has none.
        self._typical = {str(name): [float(one) for one in values] for name, values in state.get("typical", {}).items()}
        self._begun = False


def parameter_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the trainable parameters, by their names in the state dict."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
