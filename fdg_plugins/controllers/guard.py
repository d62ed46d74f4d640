# SPDX-License-Identifier: Apache-2.0
"""The guard before a server step: it names outlying updates, and rejects a step that is far too long.

It compares lengths, which each round computes anyway, to about 1 %.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

import torch

from fdg_plugins.aggregators import Contribution, UpdateAggregator
from fdg_plugins.controllers.reception import Expected
from fdg_plugins.core.layout import ParameterKind
from fdg_plugins.core.outliers import MAJORITY, length_ratios, usual_length
from fdg_plugins.core.stored import whole
from fdg_plugins.errors import FDGError
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.training.global_model import GlobalModel

EARLIER_ROUNDS = 5  # number of past rounds whose updates define what is usual
HARMLESS = 1e-3  # fraction of the model's length; an update this short cannot ruin the model
HARMLESS_ALONE = 0.1  # the same fraction if neither other sites nor earlier rounds define what is usual
MANY_STEPS = 100.0  # multiple of the ratio beyond which an update is refused, however many steps its site claims
MOST_COUNTS_PER_STEP = 1000.0  # limit for a counter buffer; methods may pass a batch through the model several times
OF_NOISE = " Some sites add noise, as with differential privacy; only outlier_ratio 0 lets both kinds count together."


@dataclass(frozen=True)
class Behind:
    """What a step of the server is made of.

    ``longest``: the length of the longest accepted update; 0 if there is none. ``steps``: each site's effective steps,
    if the length of the step depends on them.
    """

    longest: float
    steps: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, aggregator: UpdateAggregator) -> Self:
        """Return what the accepted updates say, before the aggregator takes its step."""
        accepted = aggregator.contributions
        longest = max((one.length for one in accepted.values()), default=0.0)
        counts = accepted if aggregator.reads_effective_steps else {}
        return cls(longest, {site: one.training.effective_steps for site, one in counts.items() if one.training})


class Guard:
    """Decides which sites to exclude from a round, with the reason; it changes no state.

    ``ratio``: the protocol's ``outlier_ratio``; 0 disables all length checks.
    """

    def __init__(self, record: RunRecord, model: GlobalModel, ratio: float) -> None:
        self.record = record
        self.model = model
        self.ratio = ratio

    def updates(self, aggregator: UpdateAggregator, expected: Mapping[str, Expected]) -> dict[str, str]:
        """Return the sites whose accepted updates are outliers, each with the reason."""
        accepted = aggregator.contributions
        refused = self._counters(accepted, expected)
        if not self.ratio or not accepted:
            return refused
        withheld = any(one.training is not None and one.training.epoch_losses is None for one in accepted.values())
        limit = f"{self._limit}.{OF_NOISE if withheld else ''}"
        lengths = {site: one.length for site, one in accepted.items()}
        steps = {site: expected[site].facts.steps for site in accepted}
        for site, times in self._too_long(lengths, steps).items():
            refused[site] = f"its update is {_times(times)} as long as is usual in this round, {limit}"
        for site, times in self._buffers(accepted).items():
            refused.setdefault(site, f"its buffers are {_times(times)} as large as is usual, {limit}")
        return refused

    def step(self, step: Mapping[str, torch.Tensor], server_lr: float, behind: Behind) -> None:
        """Raise ``FDGError`` if a step is far longer than the longest update behind it.

        The length of the step is its Euclidean norm divided by ``server_lr``. The error names the sites that by their
        census take far more steps than usual, if these lengthen the step.
        """
        length = _length(torch.as_tensor(step[name]) for name in self._names(ParameterKind.TRAINABLE)) / server_lr
        if not self.ratio or length <= self.ratio * behind.longest:
            return
        reference = max(behind.longest, HARMLESS * self._model_length())
        if not length <= self.ratio * reference:
            many = "".join(
                f"; by the images in its census, site {site} takes {_times(times)} as many effective steps as usual"
                for site, times in _above(self.ratio, length_ratios(behind.steps)).items()
            )
            raise FDGError(
                f"the step, over server_lr, would be {_times(length / reference)} as long as the longest update, "
                f"{self._limit}{many}."
            )

    @property
    def _limit(self) -> str:
        return f"expected at most {self.ratio:g} times (outlier_ratio)"

    def _too_long(self, lengths: Mapping[str, float], steps: Mapping[str, float]) -> dict[str, float]:
        """Return the sites beyond the ratio in both length and length per step, with their ratio to the usual length.

        A site with many more steps than the others moves farther in total; a site with far fewer moves farther per
        step. The number of steps follows from the site's own census counts, which may be false, so lengths far beyond
        the ratio are refused regardless of steps.
        """
        earlier = self._earlier()
        usual = [length for length, _ in earlier]
        rates = {site: length / steps[site] for site, length in lengths.items()}
        per_step = length_ratios(rates, [rate for _, rate in earlier])
        found = {
            site
            for site, times in _above(self.ratio, length_ratios(lengths, usual)).items()
            if per_step[site] > self.ratio or times > MANY_STEPS * self.ratio
        }
        if not found:
            return {}
        is_alone = len(lengths) < MAJORITY and not earlier
        harmless = (HARMLESS_ALONE if is_alone else HARMLESS) * self._model_length()
        of_length = length_ratios(lengths, usual, harmless)
        return _above(self.ratio, {site: of_length[site] for site in sorted(found)})

    def _earlier(self) -> list[tuple[float, float]]:
        """Return the median length and the median length per step of the updates in each recent round with a step."""
        stepped = [one for one in self.record.rounds if one.aggregation is not None and not one.undone]
        found: list[tuple[float, float]] = []
        for finished in stepped[::-1][:EARLIER_ROUNDS]:
            norms = finished.aggregation.update_norms if finished.aggregation is not None else {}
            rates = [length / finished.local[site].steps for site, length in norms.items()]
            found.append((usual_length(list(norms.values())), usual_length(rates)))
        return found

    def _buffers(self, accepted: Mapping[str, Contribution]) -> dict[str, float]:
        """Return the sites whose local float buffers (received + update) exceed the ratio, with their ratio."""
        names = self._names(ParameterKind.FLOAT_BUFFER)
        if not names or len(accepted) < 2:
            return {}
        received = _flat([self.model.state[name] for name in names])
        own = {
            site: float(torch.linalg.vector_norm(received + _flat([whole(one.update[name]) for name in names])))
            for site, one in accepted.items()
        }
        unit = math.sqrt(len(received))  # the length of a vector with mean square 1, which is harmless
        floor = max(float(torch.linalg.vector_norm(received)), unit, min(own.values()) if len(own) < MAJORITY else 0.0)
        return _above(self.ratio, length_ratios(own, floor=floor))

    def _counters(self, accepted: Mapping[str, Contribution], expected: Mapping[str, Expected]) -> dict[str, str]:
        refused = {}
        for site, one in accepted.items():
            most = MOST_COUNTS_PER_STEP * expected[site].facts.steps
            for name in self._names(ParameterKind.INTEGER_BUFFER):
                counts = whole(one.update[name]).double()
                if bool(((counts < 0) | (counts > most)).any()):
                    refused[site] = f"counter {name!r} of its update is outside 0 to {most:g}."
        return refused

    def _names(self, kind: ParameterKind) -> list[str]:
        return self.model.layout.names(kind)

    def _model_length(self) -> float:
        return _length(self.model.state[name] for name in self._names(ParameterKind.TRAINABLE))


def _length(tensors: Iterable[torch.Tensor]) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) for tensor in tensors))


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return all values as one vector ``[P]``, float64."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).double()


def _above(ratio: float, ratios: Mapping[str, float]) -> dict[str, float]:
    """Return the sites whose ratio is above ``ratio``, with their ratio."""
    return {site: times for site, times in ratios.items() if times > ratio}


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if math.isfinite(ratio) else "infinitely many times"
