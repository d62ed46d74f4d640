# SPDX-License-Identifier: Apache-2.0
r"""FedDIM's insight matrices: features times classifier weights, pulled towards the mean of the sample's class.

Reference: Liao, Xie, Fu, Huang, Deng, Chen, Zheng, "Federated Domain Generalization with Decision Insight
Matrix" (FedDIM), IJCAI 2025.

Equations (number in the paper -> here), for the last layer ``o = W z + b``, whose bias is not used:

- Eq. 2, 3, ``I[d, y] = W[y, d] z[d]``; summed over d, these are the logits -> :func:`insight_matrix`
- Eq. 4, ``I_u^(k)``, the mean over a site's samples of class k -> :class:`ClassSums`, :func:`insight_matrix`
- Eq. 5, 6, mean over sites and ``(1 - m) previous + m mean`` -> :func:`update_global_insight`
- Eq. 7, ``1/B sum_i |I_i - J^(y_i)|^2``, J the global insight -> :func:`insight_penalty`; the caller multiplies it by
  the strength lambda
- Table 3, the same distance between features, or logits -> :func:`feature_penalty`

Two exact identities make this cheap. All samples of a mean share W, so ``I_u^(k)[d, y] = W_u[y, d] zbar_{u,k}[d]``, and
a site sends class means ``[Y, D]`` instead of insights ``[Y, D, Y]``. And
``|I_i - J|^2 = sum_d z_d^2 s_d - 2 sum_d z_d c_d + |J|^2`` with ``s_d = sum_j W_jd^2`` and ``c_d = sum_j W_jd J_dj``,
so a step needs one table ``[Y, D]`` and no tensor of size ``B x D x Y``. The remaining cost is reading J once, for the
classes in the batch only, which is why the forward pass computes the gradients too.

Shapes: features z ``[B, D]``, labels ``[B]``, weight W ``[Y, D]``, an insight matrix ``[D, Y]`` as in the paper
(classes last), the global insight ``[Y, D, Y]`` with the class of the samples first, present ``[Y]`` bool.

Participation: a class is averaged over the sites of the round that have samples of it.

Shares: where classes are weighed equally, ``1/B sum_i`` becomes ``1/K sum_k 1/n_k sum_(i of class k)`` over the K
classes of the batch -> :func:`class_shares`, which every penalty takes.

Degenerate cases: a class without samples has no mean (NaN, not zero) and enters no average. A class that no site has
had so far is not present; its samples are not penalised. The penalty of an empty batch is zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class GlobalInsight:
    """The state that the server keeps between rounds.

    ``values``: ``[Y, D, Y]``, or ``[Y, ...]`` for another target; zero for classes that are not present. ``present``:
    bool ``[Y]``, whether any site has had the class so far.
    """

    values: torch.Tensor
    present: torch.Tensor


def insight_matrix(features: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``I[b, d, y] = weight[y, d] * features[b, d]``, ``[B, D, Y]``; summed over d, the logits without bias.

    Of the mean features ``[Y, D]`` of each class, it is the mean insight of each class (Eq. 4).

    >>> insight_matrix(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])).tolist()
    [[[3.0], [8.0]]]
    """
    return features.unsqueeze(-1) * weight.t()


class ClassSums:
    """Sums of features and numbers of samples of each class over batches, of which none is read before all are added.

    So an accelerator never waits between batches, and a label out of range is found only when a result is asked for.
    """

    def __init__(self, num_classes: int, feature_size: int, device: torch.device) -> None:
        self._sums = torch.zeros(num_classes, feature_size, dtype=torch.float64, device=device)
        self._counts = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self._are_classes = torch.ones((), dtype=torch.bool, device=device)

    def add(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a batch of features ``[B, D]`` and labels ``[B]``."""
        inside = (labels >= 0) & (labels < len(self._counts))
        labels = labels * inside
        sums = torch.zeros_like(self._sums)
        sums.index_add_(0, labels, features.detach().to(torch.float64) * inside[:, None])
        self._sums += sums
        self._counts.index_add_(0, labels, inside.long())
        self._are_classes &= inside.all()

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sums ``[Y, D]``, float64, and the numbers ``[Y]``; ``ValueError`` for a label out of range."""
        if not bool(self._are_classes):
            raise ValueError(f"Expected labels from 0 to {len(self._counts) - 1}, got others.")
        return self._sums, self._counts

    def means_of_held(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean features of the classes that have samples, in order, float32 ``[K, D]``, and all numbers ``[Y]``.

        Both are on the CPU. Raises as :meth:`result` does.
        """
        sums, counts = (values.cpu() for values in self.result())
        held = counts > 0
        return (sums[held] / counts[held, None]).float(), counts


def update_global_insight(
    previous: GlobalInsight | None, site_insights: Iterable[torch.Tensor], counts: torch.Tensor, momentum: float
) -> GlobalInsight:
    """Return Eq. 6 applied to the mean (Eq. 5) over the sites: per class ``(1 - m) previous + m mean``.

    ``previous``: None before the first round. ``site_insights [U, Y, D, Y]``: an iterable that yields one ``[Y, D, Y]``
    per site, read once, so that the U insights need not be in memory together; any ``[Y, ...]`` is accepted (mean
    features ``[Y, D]``, mean logits ``[Y, Y]``). ``counts [U, Y]``: samples of each class at each site; a site's row is
    not read where its count is zero. ``momentum``: m in [0, 1]; 0 keeps the first value of each class, 1 has no memory.

    A class is averaged over the sites that have it. Its first mean is used unchanged, and a class that no site has in
    this round keeps its value. Summed in float64 in the order given; the dtype is that of the previous insight, or of
    the sites'.
    """
    mean, reported = _mean_over_holders(site_insights, counts)
    if previous is None:
        return GlobalInsight(mean, reported)
    values, known = previous.values.clone(), reported & previous.present
    values[known] = torch.lerp(previous.values[known].double(), mean[known].double(), momentum).to(values.dtype)
    first = reported & ~previous.present
    values[first] = mean[first].to(values.dtype)
    return GlobalInsight(values, previous.present | reported)


def squared_norms(insight: torch.Tensor) -> torch.Tensor:
    """Return ``|J^(k)|^2`` of each class, ``[Y]``, of ``insight [Y, D, Y]``.

    >>> squared_norms(torch.tensor([[[3.0, 0.0], [0.0, 4.0]]])).tolist()
    [25.0]
    """
    return torch.linalg.vector_norm(insight.to(_working_dtype(insight)), dim=(1, 2)).square()


def class_shares(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Return each sample's share ``1 / (K n_k)``, float64 ``[B]``, of a mean over the K classes of ``labels [B]``.

    Each class is the mean over its n_k samples; K <= ``num_classes``, Y.

    >>> class_shares(torch.tensor([2, 0, 2, 0]), 3).tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> class_shares(torch.tensor([2, 2, 2, 2, 0]), 3).tolist()
    [0.125, 0.125, 0.125, 0.125, 0.5]
    """
    # Not by bincount, whose length depends on values: it would synchronise with an accelerator.
    counts = labels.new_zeros(num_classes).scatter_add_(0, labels, torch.ones_like(labels))
    return ((counts > 0).sum() * counts).double().reciprocal()[labels]


def insight_penalty(
    features: torch.Tensor,
    labels: torch.Tensor,
    weight: torch.Tensor,
    global_insight: torch.Tensor,
    present: torch.Tensor,
    norms: torch.Tensor | None = None,
    shares: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``1/B sum_i |I_i - J^(y_i)|^2``, differentiable once in ``features [B, D]`` and ``weight [Y, D]``.

    ``shares [B]``: the samples' shares in the mean, in place of ``1/B``.

    ``global_insight [Y, D, Y]`` is a constant and must be finite everywhere. Samples of classes that are not
    ``present [Y]`` contribute zero, but count in B. With a strength of zero the gradient is that of the loss alone.
    ``norms [Y]``: the :func:`squared_norms` of the global insight, worth computing once if it is used for many steps;
    its values are then best laid out as ``[Y, Y, D]``, transposed in memory.

    Accuracy: the expanded square suffers from cancellation. In float32 the error is a few times
    ``1e-7 (|I_i| + |J|)^2``, which hides distances below a thousandth of the norms, and can make the value of a sample
    at its target negative. Negative values are clamped to zero. Their gradients are not: a gradient has a rounding
    its own error, and clamping it too would leave half of those samples without a pull. Computed in at least
    float32, also under autocast.
    """
    z, w, target = (x.to(_working_dtype(features, weight)) for x in (features, weight, global_insight.detach()))
    with torch.autocast(features.device.type, enabled=False):
        norms = squared_norms(target) if norms is None else norms.to(z.dtype)
        return _MeanSquaredDistance.apply(z, w, labels, target, present[labels], norms[labels], shares)


def feature_penalty(
    features: torch.Tensor,
    labels: torch.Tensor,
    global_features: torch.Tensor,
    present: torch.Tensor,
    shares: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``1/B sum_i |z_i - zbar^(y_i)|^2``, a scalar (Table 3); ``shares [B]`` in place of ``1/B`` if given.

    ``features [B, D]``, or logits ``[B, Y]``, and ``labels [B]``; ``global_features``: their global mean for each
    class. ``present [Y]``: samples of other classes contribute zero, but count in B.

    >>> z, labels = torch.tensor([[4.0, 4.0]]), torch.tensor([0])
    >>> feature_penalty(z, labels, torch.tensor([[1.0, 0.0]]), present=torch.tensor([True])).item()
    25.0
    """
    dtype = _working_dtype(features)
    distances = features.to(dtype) - global_features.detach().to(dtype)[labels]
    return _mean_of_present(distances.square().sum(dim=1), present[labels], shares)


class _MeanSquaredDistance(torch.autograd.Function):
    """The penalty; forward also computes the gradients, so that the insight, the largest tensor, is read once."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        ctx.save_for_backward(*inputs)
        value, *ctx.gradients = _distance_and_gradients(*inputs)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # The gradients are scaled in place to save memory; a second backward pass computes them again.
        by_features, by_weight = ctx.gradients or _distance_and_gradients(*ctx.saved_tensors)[1:]
        ctx.gradients = None
        return by_features.mul_(grad), by_weight.mul_(grad), None, None, None, None, None


def _distance_and_gradients(
    z: torch.Tensor,
    w: torch.Tensor,
    labels: torch.Tensor,
    target: torch.Tensor,
    counted: torch.Tensor,
    norms: torch.Tensor,
    given: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the mean over the samples, those not ``counted [B]`` as zero, and its gradients ``[B, D]``, ``[Y, D]``.

    Uses the second identity of the module docstring; ``norms [B]``: ``|J|^2`` for each sample; ``given [B]``: the
    samples' shares, 1/B if None.
    """
    whole = counted.to(z.dtype)
    shares = whole / max(len(labels), 1) if given is None else whole * given.to(z.dtype)
    s = w.square().sum(dim=0)  # [D]
    if _reads_by_class(z):
        labels, c, pull = _by_class(z, w, labels, target, shares)
    else:
        c = torch.einsum("jd,kdj->kd", w, target)
        pull = torch.einsum("kd,kdj->jd", _sums_by_row(z, labels, shares, len(target)), target)
    squared = z.square() @ s - 2 * (z * c[labels]).sum(dim=1) + norms
    value = _mean_of_present(squared.clamp(min=0), counted, given)
    by_features = (z * s).sub_(c[labels]).mul_(2 * shares.unsqueeze(1))
    by_weight = pull.mul_(-2).addcmul_(w, 2 * (shares @ z.square()))
    return value, by_features, by_weight


def _by_class(
    z: torch.Tensor, w: torch.Tensor, labels: torch.Tensor, target: torch.Tensor, shares: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the row of each sample in c, c itself, and ``sum_i shares_i z_i J^(y_i)`` as ``[Y, D]``.

    Loops over the classes in the batch. A table of all classes would read matrices that no sample needs, and copying
    the ones that are needed costs more than reading them in place. On an accelerator, reading all classes at once is
    faster than synchronising to find out which are needed.
    """
    classes, labels = labels.unique(return_inverse=True)
    rows = _sums_by_row(z, labels, shares, len(classes))
    pull, product = torch.zeros_like(w), torch.empty_like(w)
    for row, label in zip(rows, classes.tolist(), strict=True):
        insight = target[label].t()
        pull.addcmul_(row, insight)
        torch.mul(w, insight, out=product)
        torch.sum(product, dim=0, out=row)  # reuses the memory of the row, which is no longer needed
    return labels, rows, pull


def _sums_by_row(z: torch.Tensor, labels: torch.Tensor, shares: torch.Tensor, rows: int) -> torch.Tensor:
    """Return ``sum_i shares_i z_i`` over the samples with each label, ``[rows, D]``."""
    row = torch.arange(rows, device=z.device).unsqueeze(1)
    return ((labels == row).to(z.dtype) * shares) @ z


def _reads_by_class(features: torch.Tensor) -> bool:
    return features.device.type == "cpu"


def _mean_over_holders(
    site_insights: Iterable[torch.Tensor], counts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    holds = torch.as_tensor(counts) > 0
    total, dtype = torch.zeros(0), torch.float32
    for site, (insight, held) in enumerate(zip(site_insights, holds, strict=True)):
        if site == 0:
            total, dtype = torch.zeros_like(insight, dtype=torch.float64), insight.dtype
        total[held] += insight[held].detach()
    numbers = holds.sum(dim=0).clamp(min=1).to(total.device)
    return (total / numbers.view(-1, *[1] * (total.ndim - 1))).to(dtype), holds.any(dim=0).to(total.device)


def _mean_of_present(squared: torch.Tensor, present: torch.Tensor, shares: torch.Tensor | None) -> torch.Tensor:
    counted = torch.where(present, squared, 0.0)
    return counted.sum() / max(len(squared), 1) if shares is None else (counted * shares.to(squared.dtype)).sum()


def _working_dtype(*tensors: torch.Tensor) -> torch.dtype:
    return reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
