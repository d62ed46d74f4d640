# SPDX-License-Identifier: Apache-2.0
"""The mathematics of federated domain generalization, as plain functions of tensors that do not depend on FLARE.

Each module can be read alongside its paper: it lists the equations and the functions that compute them.

Shapes: U sites in the round, P trainable parameters (flattened), B samples in a batch, Y classes, D features. An
*update* is local minus global, so the server adds it. Updates are passed as one matrix ``[U, P]``, as a sequence
of ``[P]`` vectors, or as a sequence of mappings from parameter name to tensor.

Sums of many terms are accumulated in float64 and in a fixed order, so the result is bit-identical for any number
of threads and any order of arrival.

>>> import torch
>>> updates = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
>>> gram_matrix(updates)
tensor([[1., 0.],
        [0., 1.]], dtype=torch.float64)
>>> invariant_direction(updates, torch.tensor([0.5, 0.5]), kappa=0.5)
tensor([0.7500, 0.7500])
"""

from fdg_plugins.core.gram import gram_matrix
from fdg_plugins.core.grouping import group_means, match_groups
from fdg_plugins.core.linear import combine, inner_product
from fdg_plugins.core.matching import Matching, invariant_coefficients, invariant_direction, match, matching_objective
from fdg_plugins.core.weighting import sample_weights, uniform_weights

__all__ = [
    "Matching",
    "combine",
    "gram_matrix",
    "group_means",
    "inner_product",
    "invariant_coefficients",
    "invariant_direction",
    "match",
    "match_groups",
    "matching_objective",
    "sample_weights",
    "uniform_weights",
]
