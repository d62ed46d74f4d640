# SPDX-License-Identifier: Apache-2.0
"""FedCSA: FedAvg, except that each class's row of the last layer has weights from the sites' shares of that class.

With a the reference weights and ``r_{u,k}`` the share of class k at site u, all other parameters move by
``sum_u a_u Delta_u``, and row k of the last layer's weight and bias by ``sum_u w_{u,k} Delta_u[k]``
-> :func:`class_weights`. If a is by samples, ``w_{u,k}`` is the site's share of the round's images of class k.

Shapes: U sites of the round, Y classes; a ``[U]``, r ``[U, Y]``, w ``[U, Y]`` with columns that sum to one.

Participation: the sites of the round only; a row whose owners are all absent follows a. The counts come from the census
and cover a site's training and validation images, which are split class by class, so those of the training images are
in proportion up to rounding. Label-skewed sites' validation images are those that they are evaluated on, so the weights
know how many of each class there are, as the counts in the census do.

Buffers: as under FedAvg.
"""

from collections.abc import Sequence

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.core.linear import combine
from fdg_plugins.core.stored import Values, flattened, part_of
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.plugins import method


class FedCSAAggregator(FedAvgAggregator):
    """The weighted mean of the updates, with separate weights for each class's row of the last layer."""

    needs_head = True
    whole_updates = False  # each row of the last layer has weights of its own
    reads_census = "the sites' class counts"

    def check(self, contribution: Contribution) -> None:
        """Raise ``SettingsError`` unless the workflow has named the last layer; the contribution is not at fault."""
        if not self.facts.last_layer:
            raise SettingsError(
                "the names of the last layer's parameters are not known, whose rows FedCSA averages by classes: "
                "it needs the workflow FederationController."
            )

    def step_of(
        self, name: str, weights: torch.Tensor, coefficients: torch.Tensor, contributions: Sequence[Contribution]
    ) -> torch.Tensor:
        tensors = [contribution.update[name] for contribution in contributions]
        if name not in self.facts.last_layer:
            return combine(coefficients, tensors)
        counts = [self.facts.class_counts[contribution.site] for contribution in contributions]
        return combine_rows(class_weights(weights, class_shares(counts)) * self.server_lr, tensors)


def class_shares(counts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return ``r_{u,k} = n_{u,k} / n_u``, float64 ``[U, Y]``, from the class counts ``[U, Y]`` of the sites."""
    images = torch.tensor(counts, dtype=torch.float64)
    return images / images.sum(dim=1, keepdim=True)


def class_weights(weights: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return ``w_{u,k} = a_u r_{u,k} / sum_v a_v r_{v,k}``, float64 ``[U, Y]``.

    A class of which all sites have the same share gets the weights a, bit for bit. So does a class that no site with a
    weight has.

    Args:
        weights: a ``[U]``.
        shares: r ``[U, Y]``, in [0, 1].
    """
    products = weights[:, None] * shares
    totals = products.sum(dim=0)
    as_the_rest = (totals == 0) | (shares == shares[0]).all(dim=0)
    return torch.where(as_the_rest, weights[:, None], products / totals)


def combine_rows(weights: torch.Tensor, tensors: Sequence[Values]) -> torch.Tensor:
    """Return ``sum_u weights[u, k] * tensors[u][k]`` for each row k: a tensor ``[Y, ...]``.

    Args:
        weights: ``[U, Y]``.
        tensors: U tensors of one shape ``[Y, ...]``.
    """
    shape = tensors[0].shape
    flat, size = [flattened(tensor) for tensor in tensors], shape[1:].numel()
    parts = [slice(row * size, (row + 1) * size) for row in range(shape[0])]
    rows = [
        combine(column, [part_of(values, part) for values in flat])
        for column, part in zip(weights.t(), parts, strict=True)
    ]
    return torch.cat(rows).view(shape)


METHOD = method.Method(
    key="fedcsa",
    title="FedCSA",
    rank=12,
    line="the last layer's row of each class is averaged by who holds images of that class",
    reference=method.Reference(
        "Ma, Zhao, Cai, Jia",
        "Fast-convergent federated learning with class-weighted aggregation",
        "Journal of Systems Architecture",
        2021,
    ),
    classes=(FedCSAAggregator,),
    defaults=method.BY_SAMPLES,
    letters=(
        "Δᵤ update of site u (local − global); nᵤ,ₖ its images of class k; nᵤ all its images; a reference "
        "weights; η server_lr"
    ),
    equations=(
        method.Equation("rᵤ,ₖ = nᵤ,ₖ / nᵤ", "share of class k at site u, from the images that the census counted"),
        method.Equation("wᵤ,ₖ = aᵤ rᵤ,ₖ / Σᵥ aᵥ rᵥ,ₖ", "weights of row k of the last layer's weight and bias"),
        method.Equation(
            "θ⁺ = θ + η Σᵤ aᵤ Δᵤ\nθ⁺[k] = θ[k] + η Σᵤ wᵤ,ₖ Δᵤ[k]", "step of the server, of all else and of row k"
        ),
    ),
    settings=(
        method.SettingSource(
            "weighting",
            symbol="a",
            paper="not established",
            remark=(
                "samples: wᵤ,ₖ are shares of the images of class k; uniform: of the sites' shares; or an object "
                "with a name and settings, such as ga"
            ),
        ),
        method.SettingSource(
            "server_lr", symbol="η", paper="not established", remark="factor of the step; 1 steps as far as FedAvg"
        ),
    ),
    differences=method.Differences(
        compared="",
        remark="No code of the authors was compared; none is known.",
        rows=(
            method.Difference(
                "rule",
                paper="two strategies, whose exact form is not established",
                ours="FedDG-GA's description of it, one sentence",
            ),
        ),
    ),
    combined={"fedga": "reported in FedDG-GA's paper (Tables 1 and 2), without code"},
)
