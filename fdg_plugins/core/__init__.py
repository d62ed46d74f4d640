# SPDX-License-Identifier: Apache-2.0
"""The mathematics of federated domain generalization, as plain functions of tensors; nothing here knows FLARE.

Shapes carry the letters U (sites in the round) and P (trainable parameters, flattened). An *update*
is local minus global, so that the server adds it. Updates come as one matrix ``[U, P]``, as a
sequence of ``[P]`` vectors, or as a sequence of mappings from parameter name to tensor.

>>> import torch
>>> updates = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
>>> gram_matrix(updates)
tensor([[1., 0.],
        [0., 1.]], dtype=torch.float64)
>>> invariant_direction(updates, torch.tensor([0.5, 0.5]), kappa=0.5)
tensor([0.7500, 0.7500])
"""

from fdg_plugins.core.linear import combine, gram_matrix, inner_product
from fdg_plugins.core.matching import (
    Matching,
    invariant_coefficients,
    invariant_direction,
    invariant_weights,
    match,
    matching_objective,
)
from fdg_plugins.core.weighting import check_weights, sample_weights, uniform_weights

__all__ = [
    "Matching",
    "check_weights",
    "combine",
    "gram_matrix",
    "inner_product",
    "invariant_coefficients",
    "invariant_direction",
    "invariant_weights",
    "match",
    "matching_objective",
    "sample_weights",
    "uniform_weights",
]
