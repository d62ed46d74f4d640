# SPDX-License-Identifier: Apache-2.0
r"""FedIIR's gradient alignment: each site's classifier gradient is pulled towards the mean gradient over sites.

Reference: Guo, Guo, Cao, Wu, Chang, "Out-of-Distribution Generalization of Federated Learning via Implicit
Invariant Relationships" (FedIIR), ICML 2023.

Equations, with omega the classifier's parameters, theta all parameters and R_u the mean loss of site u:

- ``grad_omega R_u(theta)`` -> :func:`classifier_gradient`
- ``g <- v g + (1 - v) mean_u grad_omega R_u(theta)``, from zero -> :func:`update_mean_gradient`
- ``|grad_omega R_u(theta; batch) - g|^2`` -> :func:`gradient_alignment_penalty`; the caller multiplies by gamma/2

Shapes: a gradient is a mapping from parameter name to a tensor of the parameter's shape; for a linear classifier,
weight ``[Y, D]`` and bias ``[Y]``. Sites are keyed by name and combined in sorted order.

Participation: the mean is over the sites that reported in the round, each with the same weight.

Degenerate cases: ``v = 0`` has no memory. Because the average starts from zero, after r rounds it is a constant mean
times ``1 - v^r``, as in the authors' code. A parameter that is missing, unknown, of the wrong shape, or on which the
loss does not depend is refused by name, and so is a site's gradient that is not finite.

Differences: the authors' code uses the factor gamma instead of gamma/2 and averages over the batches of all sites,
where the paper averages over sites. Here every site counts the same, and a site weighs its batches by their numbers of
samples before it reports.
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
    Raises ``ValueError`` naming a parameter without gradient, or one on which the loss does not depend.

    >>> omega = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> classifier_gradient(omega.square().sum(), {"omega": omega})
    {'omega': tensor([2., 4.])}
    """
    _refuse_fixed(parameters)
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


def _refuse_fixed(parameters: Gradient) -> None:
    """Raise ``ValueError`` without parameters, and naming those that have no gradient."""
    fixed = [name for name in sorted(parameters) if not parameters[name].requires_grad] if parameters else "none given"
    if fixed:
        raise ValueError(f"No gradient for the classifier's parameters: {fixed} without gradient.")


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
    _refuse_misfit("mean gradient", mean_gradient, classifier_parameters)
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
    if not 0 <= decay <= 1:
        raise ValueError(f"The decay of the mean gradient must lie in [0, 1], got {decay}.")
    if not gradients:
        raise ValueError("A mean gradient needs at least one site, got none.")
    sites = sorted(gradients)
    start = previous if previous is not None else {n: torch.zeros_like(g) for n, g in gradients[sites[0]].items()}
    _refuse_unusable(gradients, start)
    coefficients = torch.tensor([decay] + [(1 - decay) / len(sites)] * len(sites), dtype=torch.float64)
    return {
        name: combine(coefficients, [start[name], *(gradients[site][name] for site in sites)]) for name in sorted(start)
    }


def _refuse_unusable(gradients: Mapping[str, Gradient], expected: Gradient) -> None:
    """Raise ``ValueError`` unless every site's gradient is finite and has the names and shapes of ``expected``."""
    for site in sorted(gradients):
        _refuse_misfit(f"site {site}", gradients[site], expected)
        for name in sorted(expected):
            if not bool(gradients[site][name].isfinite().all()):
                raise ValueError(f"site {site}: the gradient of {name!r} has a value that is not finite.")


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
