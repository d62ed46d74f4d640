# SPDX-License-Identifier: Apache-2.0
r"""Classifier gradients of FedIIR: each site's is drawn to the mean over sites, so that one classifier suits all.

Reference: Guo, Guo, Cao, Wu, Chang, "Out-of-Distribution Generalization of Federated Learning via Implicit
Invariant Relationships" (FedIIR), ICML 2023.

Equations (here), with omega the classifier's parameters and R_u the mean loss of site u:

- ``grad_omega R_u(theta)`` -> :func:`classifier_gradient`
- ``g <- v g + (1 - v) mean_u grad_omega R_u(theta)``, from zero -> :func:`update_mean_gradient`
- ``|grad_omega R_u(theta; batch) - g|^2`` -> :func:`gradient_alignment_penalty`; its factor gamma/2 is the caller's

Shapes: a gradient is a mapping from parameter name to a tensor of that parameter's shape. Sites are keyed by
name and combined in sorted order.

Degenerate cases: ``v = 0`` has no memory; starting from zero, g is short of a constant mean by the factor
``1 - v^r`` after r rounds, as in the authors' code. A parameter that is missing, superfluous, of another
shape, or on which the loss does not depend is refused by name, and so is a site's gradient that is not finite.

Differences: the authors' code penalises with gamma, not gamma/2, and pools over batches where the paper
takes the mean over sites of gradients of mean losses; here every site counts the same, and a site weighs its
batches by their numbers of samples before it reports.
"""

from collections.abc import Mapping

import torch

from fdg_plugins.core.linear import combine

Gradient = Mapping[str, torch.Tensor]


def classifier_gradient(
    loss: torch.Tensor, parameters: Gradient, *, create_graph: bool = False
) -> dict[str, torch.Tensor]:
    """Return the gradient of the scalar ``loss`` with respect to each of ``parameters``, by name; ``.grad`` stays.

    ``create_graph`` keeps the graph, so that the result can be differentiated with respect to everything the
    loss depends on, and so that the loss can be differentiated again.
    """
    fixed = sorted(name for name, parameter in parameters.items() if not parameter.requires_grad)
    if fixed or not parameters:
        raise ValueError(f"No gradient for the classifier's parameters: {fixed or 'none given'} without gradient.")
    names = sorted(parameters)
    found = torch.autograd.grad(
        loss, [parameters[name] for name in names], create_graph=create_graph, allow_unused=True
    )
    gradients = {}
    for name, gradient in zip(names, found, strict=True):
        if gradient is None:
            raise ValueError(f"The loss does not depend on the classifier's parameter {name!r}.")
        gradients[name] = gradient
    return gradients


def gradient_alignment_penalty(
    loss: torch.Tensor, classifier_parameters: Gradient, mean_gradient: Gradient
) -> torch.Tensor:
    """Return ``|grad_omega loss - g|^2`` as a scalar, differentiable with respect to all that the loss depends on.

    ``mean_gradient`` g is held fixed. The graph of ``loss`` is kept, so ``(loss + factor * penalty).backward()``
    is legal; times a factor of zero it leaves the loss as it was.
    """
    _refuse_misfit("mean gradient", mean_gradient, classifier_parameters)
    gradient = classifier_gradient(loss, classifier_parameters, create_graph=True)
    squares = [(gradient[name] - mean_gradient[name].detach().to(gradient[name])).square().sum() for name in gradient]
    return torch.stack(squares).sum()


def update_mean_gradient(
    previous: Gradient | None, gradients: Mapping[str, Gradient], decay: float
) -> dict[str, torch.Tensor]:
    """Return ``v * previous + (1 - v) * mean`` over the sites' ``gradients``, by parameter name.

    ``previous``: None before the first round, which counts as zero. ``gradients``: from site to gradient; summed
    in float64 in sorted order of the sites, in the dtype of the previous or the first site's. ``decay``: v in
    [0, 1], 0.95 in the paper; zero is the plain mean of the round.
    """
    if not 0 <= decay <= 1:
        raise ValueError(f"The decay of the mean gradient must lie in [0, 1], got {decay}.")
    if not gradients:
        raise ValueError("A mean gradient needs at least one site, got none.")
    sites = sorted(gradients)
    start = previous if previous is not None else {n: torch.zeros_like(g) for n, g in gradients[sites[0]].items()}
    for site in sites:
        _refuse_misfit(f"site {site}", gradients[site], start)
        for name in sorted(start):
            if not bool(gradients[site][name].isfinite().all()):
                raise ValueError(f"site {site}: the gradient of {name!r} has a value that is not finite.")
    coefficients = torch.tensor([decay] + [(1 - decay) / len(sites)] * len(sites), dtype=torch.float64)
    return {
        name: combine(coefficients, [start[name], *(gradients[site][name] for site in sites)]) for name in sorted(start)
    }


def _refuse_misfit(whose: str, gradient: Gradient, expected: Gradient) -> None:
    """Raise ``ValueError`` unless ``gradient`` has the names and shapes of ``expected``."""
    for name in sorted(set(gradient) | set(expected)):
        if name not in gradient:
            raise ValueError(f"{whose}: parameter {name!r} is missing from the gradient.")
        if name not in expected:
            raise ValueError(f"{whose}: parameter {name!r} of the gradient is not one of {sorted(expected)}.")
        if gradient[name].shape != expected[name].shape:
            raise ValueError(
                f"{whose}: the gradient of {name!r} has shape {list(gradient[name].shape)}, "
                f"expected {list(expected[name].shape)}."
            )
