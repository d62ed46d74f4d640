# SPDX-License-Identifier: Apache-2.0
"""The guard before a server step: it names outlying updates, and rejects a step that is far too long.

It compares lengths, which each round computes anyway, to about 1 %.
"""

import math
from collections.abc import Mapping

import torch

from fdg_plugins.aggregators import Contribution
from fdg_plugins.controllers.reception import Expected
from fdg_plugins.controllers.run_files import ServerRun
from fdg_plugins.core.layout import ParameterKind
from fdg_plugins.core.outliers import MAJORITY, length_ratios, usual_length
from fdg_plugins.core.stored import whole
from fdg_plugins.errors import FDGError

EARLIER_ROUNDS = 5  # number of past rounds whose updates define what is usual
HARMLESS = 1e-3  # fraction of the model's length; an update this short cannot ruin the model
HARMLESS_ALONE = 0.1  # the same fraction if neither other sites nor earlier rounds define what is usual
MANY_STEPS = 100.0  # multiple of the ratio beyond which an update is refused, however many steps its site claims
MOST_COUNTS_PER_STEP = 1000.0  # limit for a counter buffer; methods may pass a batch through the model several times


class Guard:
    """Decides which sites to exclude from a round of a run, with the reason; it changes no state."""

    def __init__(self, run: ServerRun) -> None:
        self.run = run
        self.ratio = run.record.protocol.outlier_ratio  # 0 disables all length checks

    def updates(self, expected: Mapping[str, Expected]) -> dict[str, str]:
        """Return the sites whose accepted updates are outliers, each with the reason."""
        accepted = self.run.aggregator.contributions
        refused = self._counters(accepted, expected)
        if not self.ratio or not accepted:
            return refused
        lengths = {site: one.length for site, one in accepted.items()}
        steps = {site: expected[site].facts.steps for site in accepted}
        for site, times in self._too_long(lengths, steps).items():
            refused[site] = f"its update is {_times(times)} as long as is usual in this round, {self._limit}."
        for site, times in self._buffers(accepted).items():
            refused.setdefault(site, f"its buffers are {_times(times)} as large as is usual, {self._limit}.")
        return refused

    def step(self, step: Mapping[str, torch.Tensor], longest: float) -> None:
        """Raise ``FDGError`` if a step is far longer than ``longest``, the length of the longest accepted update.

        The length of the step is its Euclidean norm divided by ``server_lr``.
        """
        length = self._length(step) / self.run.aggregator.server_lr
        if not self.ratio or length <= self.ratio * longest:
            return
        reference = max(longest, HARMLESS * self._length(self.run.model.state))
        if not length <= self.ratio * reference:
            raise FDGError(
                f"the step, over server_lr, would be {_times(length / reference)} as long as the longest update, "
                f"{self._limit}."
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
        rates = length_ratios({site: one / steps[site] for site, one in lengths.items()}, [rate for _, rate in earlier])
        found = [
            site
            for site, times in length_ratios(lengths, usual).items()
            if times > self.ratio and (rates[site] > self.ratio or times > MANY_STEPS * self.ratio)
        ]
        if not found:
            return {}
        is_alone = len(lengths) < MAJORITY and not earlier
        floor = (HARMLESS_ALONE if is_alone else HARMLESS) * self._length(self.run.model.state)
        above_floor = length_ratios(lengths, usual, floor)
        return {site: above_floor[site] for site in found if above_floor[site] > self.ratio}

    def _earlier(self) -> list[tuple[float, float]]:
        """Return the median length and the median length per step of the updates in each recent round with a step."""
        found: list[tuple[float, float]] = []
        for finished in reversed(self.run.record.rounds):
            if finished.aggregation is not None and not finished.undone and len(found) < EARLIER_ROUNDS:
                norms = finished.aggregation.update_norms
                rates = [length / finished.local[site].steps for site, length in norms.items()]
                found.append((usual_length(list(norms.values())), usual_length(rates)))
        return found

    def _buffers(self, accepted: Mapping[str, Contribution]) -> dict[str, float]:
        """Return the sites whose local float buffers (received + update) exceed the ratio, with their ratio."""
        names = self.run.model.layout.names(ParameterKind.FLOAT_BUFFER)
        if not names or len(accepted) < 2:
            return {}
        received = _flat([self.run.model.state[name] for name in names])
        own = {
            site: float(torch.linalg.vector_norm(received + _flat([whole(one.update[name]) for name in names])))
            for site, one in accepted.items()
        }
        unit = math.sqrt(len(received))  # the length of a vector with mean square 1, which is harmless
        floor = max(float(torch.linalg.vector_norm(received)), unit, min(own.values()) if len(own) < MAJORITY else 0.0)
        return {site: times for site, times in length_ratios(own, floor=floor).items() if times > self.ratio}

    def _counters(self, accepted: Mapping[str, Contribution], expected: Mapping[str, Expected]) -> dict[str, str]:
        refused = {}
        for site, one in accepted.items():
            most = MOST_COUNTS_PER_STEP * expected[site].facts.steps
            for name in self.run.model.layout.names(ParameterKind.INTEGER_BUFFER):
                counts = whole(one.update[name]).double()
                if bool(((counts < 0) | (counts > most)).any()):
                    refused[site] = f"counter {name!r} of its update is outside 0 to {most:g}."
        return refused

    def _length(self, tensors: Mapping[str, torch.Tensor]) -> float:
        names = self.run.model.layout.names(ParameterKind.TRAINABLE)
        return math.hypot(
            *(float(torch.linalg.vector_norm(torch.as_tensor(tensors[name]), dtype=torch.float64)) for name in names)
        )


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).double()


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if math.isfinite(ratio) else "infinitely many times"
