# SPDX-License-Identifier: Apache-2.0
"""The mathematics of federated domain generalization, as plain functions of tensors that do not depend on FLARE.

Each module can be read alongside its paper: it lists the equations and the functions that compute them.

Shapes: U sites in the round, P trainable parameters (flattened), B samples in a batch, Y classes, D features. An
*update* is local minus global, so the server adds it. Updates are passed as one matrix ``[U, P]``, as a sequence
of ``[P]`` vectors, or as a sequence of mappings from parameter name to tensor.

Sums of many terms are accumulated in float64 and in a fixed order, so the result has the same bits for any number
of threads and any order of arrival.

>>> import torch
>>> updates = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
>>> gram_matrix(updates)
tensor([[1., 0.],
        [0., 1.]], dtype=torch.float64)
>>> invariant_direction(updates, torch.tensor([0.5, 0.5]), kappa=0.5)
tensor([0.7500, 0.7500])
"""

from fdg_plugins.core.adjustment import (
    adjust_weights,
    decayed_step,
    loss_gap,
    score_gap,
    weights_of_round,
    with_new_sites,
)
from fdg_plugins.core.alignment import classifier_gradient, gradient_alignment_penalty, update_mean_gradient
from fdg_plugins.core.conflict import least_conflict
from fdg_plugins.core.domains import allot_sites, split_indices
from fdg_plugins.core.gram import gram_matrix
from fdg_plugins.core.grouping import group_gram, group_means, group_weights, match_groups, relative_loss
from fdg_plugins.core.insight import (
    GlobalInsight,
    class_means,
    class_sums,
    feature_penalty,
    insight_from_means,
    insight_matrix,
    insight_penalty,
    logit_penalty,
    squared_norms,
    update_global_insight,
)
from fdg_plugins.core.linear import combine, inner_product
from fdg_plugins.core.matching import (
    Matching,
    invariant_coefficients,
    invariant_direction,
    invariant_weights,
    match,
    matching_objective,
)
from fdg_plugins.core.shards import add_grams, make_shards, shard_of
from fdg_plugins.core.weighting import check_weights, sample_weights, uniform_weights

__all__ = [
    "GlobalInsight",
    "Matching",
    "add_grams",
    "adjust_weights",
    "allot_sites",
    "check_weights",
    "class_means",
    "class_sums",
    "classifier_gradient",
    "combine",
    "decayed_step",
    "feature_penalty",
    "gradient_alignment_penalty",
    "gram_matrix",
    "group_gram",
    "group_means",
    "group_weights",
    "inner_product",
    "insight_from_means",
    "insight_matrix",
    "insight_penalty",
    "invariant_coefficients",
    "invariant_direction",
    "invariant_weights",
    "least_conflict",
    "logit_penalty",
    "loss_gap",
    "make_shards",
    "match",
    "match_groups",
    "matching_objective",
    "relative_loss",
    "sample_weights",
    "score_gap",
    "shard_of",
    "split_indices",
    "squared_norms",
    "uniform_weights",
    "update_global_insight",
    "update_mean_gradient",
    "weights_of_round",
    "with_new_sites",
]
