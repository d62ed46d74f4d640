# SPDX-License-Identifier: Apache-2.0
"""The guard before a server step: it names outlying updates, and rejects a step that is far too long.

It compares lengths, which each round already computes roughly. It computes a length exactly only if the rough value
stands out.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

import torch

from fdg_plugins.aggregators import Contribution, UpdateAggregator
from fdg_plugins.controllers.expectations import Expected
from fdg_plugins.core.layout import ParameterKind
from fdg_plugins.core.linear import inner_product
from fdg_plugins.core.outliers import MAJORITY, length_ratios, usual_length
from fdg_plugins.core.stored import whole
from fdg_plugins.errors import FDGError
from fdg_plugins.record.run_record import AggregationRecord, RoundRecord, RunRecord
from fdg_plugins.training.global_model import GlobalModel

EARLIER_ROUNDS = 5  # number of past rounds whose updates define what is usual
HARMLESS = 1e-3  # fraction of the model's length; an update this short cannot ruin the model
HARMLESS_ALONE = 0.1  # the same fraction if neither other sites nor earlier rounds define what is usual
MANY_STEPS = 100.0  # multiple of the ratio beyond which an update is refused, however many steps its site claims
SUSPECT = 0.5  # fraction of the ratio beyond which a rough length is recomputed exactly
OF_NOISE = (
    " Some sites withhold their losses, as those with differential privacy do: their noise is that long, and only "
    "outlier_ratio 0 lets sites with and without it count together."
)
MOST_COUNTS_PER_STEP = 1000.0  # limit for a counter buffer; methods may pass a batch through the model several times


@dataclass(frozen=True)
class Behind:
    """What a step of the server is made of.

    ``longest``: the approximate length of the longest accepted update; 0 if there is none. ``steps``: each site's
    effective steps, if the length of the step depends on them.
    """

    longest: float
    steps: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, aggregator: UpdateAggregator) -> Self:
        """Return what the accepted updates say, before the aggregator takes its step."""
        accepted = aggregator.accepted()
        longest = max((one.length for one in accepted.values()), default=0.0)
        if not aggregator.reads_effective_steps:
            return cls(longest)
        return cls(longest, {site: one.training.effective_steps for site, one in accepted.items() if one.training})


class Guard:
    """Decides which sites to exclude from a round, with the reason; it changes no state.

    ``ratio``: the protocol's ``outlier_ratio``; 0 disables all length checks.
    """

    def __init__(self, record: RunRecord, model: GlobalModel, ratio: float) -> None:
        self.record = record
        self.model = model
        self.ratio = ratio

    def updates(self, aggregator: UpdateAggregator, expected: Mapping[str, Expected]) -> dict[str, str]:
        """Return the sites whose accepted updates are outliers, each with the reason.

        If some sites of the round withhold their losses, reasons name the noise of privacy.
        """
        accepted = aggregator.accepted()
        refused = self._counters(accepted, expected)
        if not self.ratio or not accepted:
            return refused
        withheld = any(one.training is not None and one.training.epoch_losses is None for one in accepted.values())
        steps, hint = {site: expected[site].facts.steps for site in accepted}, OF_NOISE if withheld else ""
        refused |= {
            site: f"its update is {_times(times)} as long as is usual in this round, {self._limit}.{hint}"
            for site, times in self._too_long(aggregator, accepted, steps).items()
        }
        for site, times in self._buffers(accepted).items():
            refused.setdefault(site, f"its buffers are {_times(times)} as large as is usual, {self._limit}.{hint}")
        return refused

    def _too_long(
        self, aggregator: UpdateAggregator, accepted: Mapping[str, Contribution], steps: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the sites whose updates are too long, with their ratio; exact lengths are computed only if needed."""
        if not self._beyond({site: one.length for site, one in accepted.items()}, steps, SUSPECT * self.ratio):
            return {}
        parts = {site: aggregator.trainable(one) for site, one in accepted.items()}
        lengths = {site: math.sqrt(inner_product(part, part)) for site, part in parts.items()}
        return self._beyond(lengths, steps, self.ratio)

    def step(self, step: Mapping[str, torch.Tensor], server_lr: float, behind: Behind) -> None:
        """Raise ``FDGError`` if a step is far longer than the longest update behind it.

        The length of the step is its Euclidean norm divided by ``server_lr``. The error names the sites that by their
        census take far more steps than usual, if these lengthen the step.
        """
        if not self.ratio:
            return
        parts = [torch.as_tensor(step[name]) for name in self._names(ParameterKind.TRAINABLE)]
        rough = math.hypot(*(float(torch.linalg.vector_norm(part)) for part in parts)) / server_lr
        if rough <= SUSPECT * self.ratio * behind.longest:
            return
        length = math.sqrt(math.fsum(map(_squared_length, parts))) / server_lr
        reference = max(behind.longest, HARMLESS * self._model_length())
        if not length <= self.ratio * reference:
            raise FDGError(
                f"the step, over server_lr, would be {_times(length / reference)} as long as the longest update, "
                f"{self._limit}{self._of_many_steps(behind.steps)}."
            )

    def _of_many_steps(self, steps: Mapping[str, float]) -> str:
        """Return who takes so many steps that the step of all becomes too long; nothing if nobody stands out."""
        many = _above(self.ratio, length_ratios(steps))
        named = "; ".join(
            f"site {site} takes {_times(times)} as many effective steps as usual" for site, times in many.items()
        )
        return f"; by the images in its census, {named}" if named else ""

    def finds_ruined(self, sites: Collection[str], not_finite: Collection[str]) -> bool:
        """Return whether more than half of ``sites``, which were sent the model, are among those it is not finite for.

        These must be at least two sources, counted over the rounds since the model's step, unless only one is left: if
        one site is drawn for a round, it cannot take back another's step on its own.
        """
        steps, record = standing_steps(self.record), self.record
        since = [one for one in record.rounds if steps and one.round > steps[-1][0].round]
        doubting = {*not_finite, *(site for one in since for site in one.not_finite)}.intersection(record.sources)
        sources_left = [site for site in record.sources if site not in record.left_out]
        most = 2 * len(set(not_finite).intersection(sites)) > len(sites)
        return most and len(doubting) >= min(2, len(sources_left))

    def standing_out(self) -> str | None:
        """Return the site with the most outlying update in the last round that took a step; None if none is clear."""
        standing = standing_steps(self.record)
        norms = standing[-1][1].update_norms if standing else {}
        if len(norms) < MAJORITY:
            return None
        ratios = length_ratios(norms)
        first, second = sorted(ratios, key=lambda site: ratios[site], reverse=True)[:2]
        return first if ratios[first] > 2 * ratios[second] else None

    @property
    def _limit(self) -> str:
        return f"expected at most {self.ratio:g} times (outlier_ratio)"

    def _beyond(self, lengths: Mapping[str, float], steps: Mapping[str, float], ratio: float) -> dict[str, float]:
        """Return the sites beyond ``ratio`` in both length and length per step, with their ratio to the usual length.

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
            for site, times in _above(ratio, length_ratios(lengths, usual)).items()
            if per_step[site] > ratio or times > MANY_STEPS * ratio
        }
        if not found:
            return {}
        of_length = length_ratios(lengths, usual, self._harmless(len(lengths), len(earlier)))
        return _above(ratio, {site: of_length[site] for site in sorted(found)})

    def _harmless(self, num_sites: int, num_earlier: int) -> float:
        """Return the length up to which an update is harmless, given how many sites and earlier rounds show others."""
        is_alone = num_sites < MAJORITY and not num_earlier
        return (HARMLESS_ALONE if is_alone else HARMLESS) * self._model_length()

    def _earlier(self) -> list[tuple[float, float]]:
        """Return the median length and the median length per step of the updates in each recent round with a step."""
        found: list[tuple[float, float]] = []
        for finished, aggregation in standing_steps(self.record)[::-1][:EARLIER_ROUNDS]:
            norms, local = aggregation.update_norms, finished.local
            rates = [length / local[site].steps for site, length in norms.items()]
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
                if not _are_between(0, counts, most):
                    refused[site] = f"counter {name!r} of its update is outside 0 to {most:g}."
        return refused

    def _names(self, kind: ParameterKind) -> list[str]:
        return self.model.layout.names(kind)

    def _model_length(self) -> float:
        names = self._names(ParameterKind.TRAINABLE)
        return math.sqrt(math.fsum(_squared_length(self.model.state[name]) for name in names))


def standing_steps(record: RunRecord) -> list[tuple[RoundRecord, AggregationRecord]]:
    """Return the rounds whose step was taken and not undone, each with the record of its step."""
    return [(one, one.aggregation) for one in record.rounds if one.aggregation is not None and not one.undone]


def _squared_length(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.double())) ** 2


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return all values as one vector ``[P]``, float64."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).double()


def _above(ratio: float, ratios: Mapping[str, float]) -> dict[str, float]:
    """Return the sites whose ratio is above ``ratio``, with their ratio."""
    return {site: times for site, times in ratios.items() if times > ratio}


def _are_between(lowest: float, values: torch.Tensor, highest: float) -> bool:
    """Return whether all values, if there are any, are from ``lowest`` to ``highest``."""
    return not values.numel() or (float(values.min()) >= lowest and float(values.max()) <= highest)


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if math.isfinite(ratio) else "infinitely many times"
