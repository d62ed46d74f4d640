# SPDX-License-Identifier: Apache-2.0
"""FedAvg: the weighted mean of the updates. The baseline for every other method.

Equation: ``theta+ = theta + server_lr * sum_u p_u g_u`` over the sites of the round, with ``p_u = n_u / sum_v n_v``
-> :class:`FedAvgAggregator`, :func:`fdg_plugins.core.weighting.sample_weights`.

Shapes: updates g ``[U, P]``, weights p and samples n ``[U]``.

Participation: the sites of the round only. With one site, the new global model is that site's model.

Buffers: float buffers are averaged with p; integer buffers move by the largest update.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution, Direction
from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
)


class FedAvgAggregator(UpdateAggregator):
    """The weighted mean of the sites' updates.

    Args:
        weighting: reference weights p: ``"samples"`` (the paper), ``"uniform"``, or ``{"name": ..., settings}``.
        server_lr: eta_g > 0, the factor of the mean update; one is FedAvg.
    """

    reads_parts: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return p ``[U]`` as the coefficients; nothing to report."""
        return Direction(weights, {})


METHOD = Method(
    key="fedavg",
    title="FedAvg",
    line="the weighted mean of the updates, against which every other method is measured",
    reference=Reference(
        authors="McMahan et al.",
        title="Communication-Efficient Learning of Deep Networks from Decentralized Data",
        venue="AISTATS",
        year=2017,
    ),
    classes=(FedAvgAggregator,),
    defaults=(
        Default(on="photographs", server={"server_lr": 1.0, "weighting": "samples"}, source="FedAvg"),
        Default(on="digits", server={"server_lr": 1.0, "weighting": "uniform"}, source="domains of one size"),
        Default(on="label_skew", server={"weighting": "samples"}, source="FedAvg"),
    ),
    letters=(
        "θ global model; θᵤ model of site u after its training; nᵤ its number of training samples; U "
        "sites in the round; p reference weights; η server_lr"
    ),
    equations=(
        Equation(formula="gᵤ = θᵤ − θ", meaning="update of a site, which is what it sends"),
        Equation(
            formula="pᵤ = nᵤ / Σᵥ nᵥ   or   pᵤ = 1 / U",
            meaning="reference weights by samples, or uniform; over the sites of the round",
        ),
        Equation(formula="θ⁺ = θ + η Σᵤ pᵤ gᵤ", meaning="step of the server"),
    ),
    settings=(
        SettingSource(
            name="weighting",
            symbol="p",
            paper="numbers of samples",
            remark="samples, uniform, or an object with a name and settings, such as ga",
        ),
        SettingSource(name="server_lr", symbol="η", paper="1: the mean itself", remark="factor of the mean update"),
    ),
    differences=Differences(
        compared="FLARE's FedAvg",
        rows=(
            Difference(
                point="weights",
                paper="numbers of samples",
                code="what a site reports as steps; 1 if it reports none",
                ours="numbers of samples, or uniform",
            ),
            Difference(
                point="order of the sum",
                paper="–",
                code="order of arrival",
                ours="sorted order of site names, in float64",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what=(
                "census: names of domain, data set and classes, number of images of each class, sizes of the "
                "splits, the split's name and hash, numbers of files that were skipped (named only with report_names) "
                "and of damaged images, role, allowed reports, number of foreign classes on its allow list, device, "
                "precision, whether it compiles, whether it has kept anything of the run, whether its images are the "
                "stand-in, versions"
            ),
            shape="a few lines",
            when="once per job",
            reveals="the number of images of each class",
        ),
        Leaving(
            what="update (local − global), buffers among them",
            shape="the model",
            reveals="images can be reconstructed in part from updates of few steps on few images",
        ),
        Leaving(what="number of training samples", shape="1 number", reveals="the size of the split"),
        Leaving(what="mean loss of each local epoch", shape="1 per epoch", reveals="how well the data are fitted"),
        Leaving(
            what="loss, accuracy, count on validation, of the model received and of the own",
            shape="6 numbers",
            when="every round in which the site trains or judges a model, and once after the last",
            reveals="how well either model does on the site's data",
        ),
        Leaving(
            what="steps, effective steps, learning rate, seconds, whether it keeps state",
            shape="4 numbers, yes or no",
            reveals="size and speed of the site",
        ),
    ),
)
