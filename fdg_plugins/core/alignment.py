# SPDX-License-Identifier: Apache-2.0
r"""FedIIR's gradient alignment: each site's classifier gradient is pulled towards the mean gradient over sites.

Reference: Guo, Guo, Cao, Wu, Chang, "Out-of-Distribution Generalization of Federated Learning via Implicit
Invariant Relationships" (FedIIR), ICML 2023.

Equations, with omega the classifier's parameters, theta all parameters and R_u the mean loss of site u:

- ``grad_omega R_u(theta)`` -> :func:`classifier_gradient`
- ``g <- v g + (1 - v) mean_u grad_omega R_u(theta)``, from zero -> :func:`update_mean_gradient`
- ``|grad_omega R_u(theta; batch) - g|^2`` -> :func:`gradient_alignment_penalty`; the caller multiplies by gamma/2
- ``mean_u |grad_omega R_u(theta) - mean_v grad_omega R_v(theta)|^2`` -> :func:`disagreement`

Shapes: a gradient is a mapping from parameter name to a tensor of the parameter's shape; for a linear classifier,
weight ``[Y, D]`` and bias ``[Y]``. Sites are keyed by name and combined in sorted order.

Participation: the mean is over the sites that reported in the round, each with the same weight.

Degenerate cases: ``v = 0`` has no memory. Because the average starts from zero, after r rounds it is a constant mean
times ``1 - v^r``, as in the authors' code.
"""

from collections.abc import Mapping

import torch

from fdg_plugins.core.linear import combine

Gradient = Mapping[str, torch.Tensor]


def classifier_gradient(
    loss: torch.Tensor, parameters: Gradient, *, create_graph: bool = False
) -> dict[str, torch.Tensor]:
    """Return the gradient of the scalar ``loss`` with respect to ``parameters``, by name; ``.grad`` is not touched.

    ``create_graph`` keeps the graph, so that the result can itself be differentiated, and the loss once more.

    >>> omega = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> classifier_gradient(omega.square().sum(), {"omega": omega})
    {'omega': tensor([2., 4.])}
    """
    names = sorted(parameters)
    found = torch.autograd.grad(loss, [parameters[name] for name in names], create_graph=create_graph)
    return dict(zip(names, found, strict=True))


def gradient_alignment_penalty(
    loss: torch.Tensor, classifier_parameters: Gradient, mean_gradient: Gradient
) -> torch.Tensor:
    """Return ``|grad_omega loss - g|^2``, a scalar that is differentiable wherever the loss is.

    ``mean_gradient`` g is a constant. The graph of ``loss`` is kept, so ``(loss + factor * penalty).backward()``
    works; with a factor of zero the gradient is that of the loss.

    >>> omega = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> loss, mean = omega.square().sum(), {"omega": torch.tensor([2.0, 1.0])}
    >>> gradient_alignment_penalty(loss, {"omega": omega}, mean).item()
    9.0
    """
    gradient = classifier_gradient(loss, classifier_parameters, create_graph=True)
    squares = [(gradient[name] - mean_gradient[name].detach().to(gradient[name])).square().sum() for name in gradient]
    return torch.stack(squares).sum()


def update_mean_gradient(
    previous: Gradient | None, gradients: Mapping[str, Gradient], decay: float
) -> dict[str, torch.Tensor]:
    """Return ``v * previous + (1 - v) * mean``, by parameter name, with the mean over the sites' ``gradients``.

    ``previous``: None before the first round, which counts as zero. ``gradients``: from site to gradient, summed in
    float64 in the sorted order of the sites; the result has the dtype of ``previous``, or of the first site. ``decay``:
    v in [0, 1], 0.95 in the paper; zero is the plain mean of the round.

    >>> gradients = {"art": {"bias": torch.tensor([2.0])}, "photo": {"bias": torch.tensor([4.0])}}
    >>> update_mean_gradient({"bias": torch.tensor([1.0])}, gradients, decay=0.5)
    {'bias': tensor([2.])}
    """
    sites = sorted(gradients)
    start = previous if previous is not None else {n: torch.zeros_like(g) for n, g in gradients[sites[0]].items()}
    coefficients = torch.tensor([decay] + [(1 - decay) / len(sites)] * len(sites), dtype=torch.float64)
    return {
        name: combine(coefficients, [start[name], *(gradients[site][name] for site in sites)]) for name in sorted(start)
    }


def disagreement(gradients: Mapping[str, Gradient]) -> float:
    """Return the mean over sites of the squared distance of a site's gradient from the mean gradient, in float64.

    >>> disagreement({"art": {"bias": torch.tensor([2.0])}, "photo": {"bias": torch.tensor([4.0])}})
    1.0
    """
    flat = [[own[name].double().flatten() for name in sorted(own)] for own in gradients.values()]
    vectors = torch.stack([torch.cat(parts) for parts in flat])
    return float((vectors - vectors.mean(dim=0)).square().sum()) / len(vectors)
