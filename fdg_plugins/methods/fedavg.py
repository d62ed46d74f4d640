# SPDX-License-Identifier: Apache-2.0
"""FedAvg: the weighted mean of the updates. The baseline for every other method.

Equation: ``theta+ = theta + server_lr * sum_u p_u g_u`` over the sites of the round, with ``p_u = n_u / sum_v n_v``.

Shapes: updates g ``[U, P]``, weights p and samples n ``[U]``.

Participation: the sites of the round only. With one site, the new global model is that site's model.

Buffers: float buffers are averaged with p; integer buffers move by the largest update.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution, Direction
from fdg_plugins.plugins import method


class FedAvgAggregator(UpdateAggregator):
    """The weighted mean of the sites' updates."""

    reads_parts = True
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return p ``[U]`` as the coefficients; nothing to report."""
        return Direction(weights, {})


METHOD = method.Method(
    key="fedavg",
    title="FedAvg",
    rank=1,
    line="the weighted mean of the updates, against which every other method is measured",
    reference=method.Reference(
        "McMahan et al.", "Communication-Efficient Learning of Deep Networks from Decentralized Data", "AISTATS", 2017
    ),
    classes=(FedAvgAggregator,),
    defaults=method.BY_SAMPLES,
    letters=(
        "θ global model; θᵤ model of site u after its training; nᵤ its number of training samples; U "
        "sites in the round; p reference weights; η server_lr"
    ),
    equations=(
        method.Equation("gᵤ = θᵤ − θ", "update of a site, which is what it sends"),
        method.Equation(
            "pᵤ = nᵤ / Σᵥ nᵥ   or   pᵤ = 1 / U", "reference weights by samples, or uniform; over the sites of the round"
        ),
        method.Equation("θ⁺ = θ + η Σᵤ pᵤ gᵤ", "step of the server"),
    ),
    settings=(
        method.WEIGHTING,
        method.SettingSource("server_lr", symbol="η", paper="1: the mean itself", remark="factor of the mean update"),
    ),
    differences=method.Differences(
        compared="FLARE's FedAvg",
        rows=(
            method.Difference(
                "weights",
                paper="numbers of samples",
                code="what a site reports as steps; 1 if it reports none",
                ours="numbers of samples, or uniform",
            ),
            method.Difference(
                "order of the sum", paper="–", code="order of arrival", ours="sorted order of site names, in float64"
            ),
        ),
    ),
    leaves=(
        method.Leaving(
            "census: names of domain, data set and classes, number of images of each class, sizes of the "
            "splits, the split's name and hash, numbers of files that were skipped (named only with "
            "report_names) and of damaged images, role, allowed reports, number of foreign classes on its "
            "allow list, device, precision, threads, whether it compiles, whether it has kept anything of the "
            "run, whether its images are the stand-in, versions",
            "a few lines",
            "the number of images of each class",
            when="once per job",
        ),
        method.Leaving(
            "update (local − global), buffers among them",
            "the model",
            "images can be reconstructed in part from updates of few steps on few images",
        ),
        method.Leaving("number of training samples", "1 number", "the size of the split"),
        method.Leaving("mean loss of each local epoch", "1 per epoch", "how well the data are fitted"),
        method.Leaving(
            "loss, accuracy, count on validation, of the model received and of the own",
            "6 numbers",
            "how well either model does on the site's data",
            when="every round in which the site trains or evaluates a model, and once after the last",
        ),
        method.Leaving(
            "steps, effective steps, learning rate, seconds, whether it keeps state",
            "4 numbers, yes or no",
            "size and speed of the site",
        ),
    ),
)
