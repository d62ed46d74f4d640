# SPDX-License-Identifier: Apache-2.0
"""Rect-4: four domains of points in the plane and a network of two parameters, so that a round can be drawn.

Reference: after the toy of the same name in Nguyen et al., "Federated Domain Generalization with Data-free On-server
Matching Gradient" (FedOMG), ICLR 2025: four two-dimensional domains, a network of two parameters, and the update
vectors of the sites, FedAvg, FedOMG and ERM in an FL and an FDG setting. The distribution, the training and all numbers
here are our own.

Distribution. A point ``x [2]`` has a label ``y``, +1 or -1. Given the label, it is uniform in a square of side 2 whose
centre is ``y * (0.5, slant)``. The first coordinate speaks for the label in the same way in every domain, and the
squares overlap, so that it is right three times in four: this is what is invariant. The second one speaks for the label
in three domains, to a falling degree, and against it in the fourth: this is what is not, as colour in ColoredMNIST. The
slants were fixed before anything was computed from them, and nothing was chosen by what came out.

    >>> result = play_round(make_domains(), sources=("A", "B", "C"), judged=("D",))
    >>> [step.name for step in result.steps]
    ['FedAvg', 'FedOMG', 'ERM']

Shapes: ``n`` points of a domain; the network is ``f(x) = <w, x>`` with ``w [2]``. Everything is float64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cosine_similarity, softplus

from fdg_plugins.core import Matching, combine, gram_matrix, invariant_coefficients, match, uniform_weights
from fdg_plugins.randomness import torch_generator

SLANTS: Mapping[str, float] = {"A": 0.9, "B": 0.6, "C": 0.3, "D": -0.6}
INVARIANT_CENTRE = 0.5
HALF_SIDE = 1.0
POINTS_PER_CLASS = 100
LOCAL_STEPS = 20
LEARNING_RATE = 0.5
KAPPA = 0.5  # FedOMG's Table 4


@dataclass(frozen=True)
class Domain:
    """The points ``[n, 2]`` of one domain and their labels ``[n]``, +1 or -1.

    ``slant`` is the mean of the second coordinate where the label is +1, and minus that where it is -1; None: the
    points are of several domains.
    """

    name: str
    slant: float | None
    points: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class Step:
    """What the server may do with a round's updates: a ``vector [2]`` that it adds to the network."""

    name: str
    vector: torch.Tensor


@dataclass(frozen=True)
class Round:
    """One round from ``start [2]``.

    ``sources`` are the domains that trained, ``judged`` those on which the result is judged: the same in FL, the
    held-out one in FDG. ``updates [U, 2]`` are local - global in the order of ``sources``; ``matching`` is FedOMG's
    solution; ``steps`` are FedAvg, FedOMG and ERM.
    """

    sources: tuple[Domain, ...]
    judged: tuple[Domain, ...]
    start: torch.Tensor
    updates: torch.Tensor
    matching: Matching
    steps: tuple[Step, ...]

    def cosines(self, step: Step) -> torch.Tensor:
        """Return the cosine ``[U]`` between the step and each source's update."""
        return cosine_similarity(self.updates, step.vector[None])

    def least_inner_product(self, step: Step) -> float:
        """Return ``min over u of <step, g_u>``; FedOMG's is the largest within ``kappa |g_FL|`` of FedAvg's step."""
        return float((self.updates @ step.vector).min())


def make_domains(seed: int = 0) -> dict[str, Domain]:
    """Return the four domains by name, with 100 points of each label."""
    return {name: _make_domain(name, slant, seed) for name, slant in SLANTS.items()}


def deal(domains: Mapping[str, Domain], names: Sequence[str], seed: int = 0) -> dict[str, Domain]:
    """Return IID sites in the place of the domains called ``names``: their points together, dealt at random."""
    points, labels = _pooled(_pick(domains, names))
    order = torch.randperm(len(labels), generator=torch_generator(seed, "rect4", "iid"))
    parts = zip(names, order.chunk(len(names)), strict=True)
    return {**domains, **{name: Domain(name, None, points[own], labels[own]) for name, own in parts}}


def play_round(
    domains: Mapping[str, Domain], sources: Sequence[str], judged: Sequence[str], kappa: float = KAPPA
) -> Round:
    """Return one round of the domains called ``sources``, from a network that knows nothing (``w = 0``).

    Every source takes 20 steps of gradient descent on its own points, and ERM the same on the points of all sources
    together, which no server can do. Reference weights are uniform. Raises ``ValueError`` for an unknown domain.
    """
    trained, judges = _pick(domains, sources), _pick(domains, judged)
    start = torch.zeros(2, dtype=torch.float64)
    updates = torch.stack([_train(start, [domain]) for domain in trained])
    p, gram = uniform_weights(len(trained)), gram_matrix(updates)
    matching = match(gram, p, kappa)
    coefficients = {"FedAvg": p, "FedOMG": invariant_coefficients(gram, p, kappa, matching.weights)}
    steps = [Step(name, combine(values, list(updates))) for name, values in coefficients.items()]
    return Round(trained, judges, start, updates, matching, (*steps, Step("ERM", _train(start, trained))))


def loss(w: torch.Tensor, domains: Sequence[Domain]) -> torch.Tensor:
    """Return the mean logistic loss over all points of ``domains`` for each network in ``w [..., 2]``: ``[...]``."""
    points, labels = _pooled(domains)
    return softplus(-labels * (w @ points.T)).mean(dim=-1)


def optimum(domains: Sequence[Domain]) -> torch.Tensor:
    """Return the network ``[2]`` of least loss on ``domains``, by Newton's method; the loss is convex.

    Raises ``ArithmeticError`` if there is none, because one network tells all points apart.
    """
    w = torch.zeros(2, dtype=torch.float64)
    for _ in range(50):
        gradient, curvature = _derivatives(w, domains)
        # Relative to the loss: where that falls for ever, the gradient falls with it.
        if float(gradient.norm()) <= 1e-9 * float(loss(w, domains)):
            return w
        w = w - torch.linalg.lstsq(curvature, gradient[:, None]).solution[:, 0]
    raise ArithmeticError("The loss has no minimum: one network tells the points of these domains apart.")


def _pooled(domains: Sequence[Domain]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([domain.points for domain in domains]), torch.cat([domain.labels for domain in domains])


def _derivatives(w: torch.Tensor, domains: Sequence[Domain]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient ``[2]`` and the Hessian ``[2, 2]`` of the loss at ``w [2]``."""
    points, labels = _pooled(domains)
    doubt = torch.sigmoid(-labels * (points @ w))  # of each point, how far its label is from certain
    curvature = (points * (doubt * (1 - doubt))[:, None]).T @ points / len(labels)
    return -(points.T @ (labels * doubt)) / len(labels), curvature


def _make_domain(name: str, slant: float, seed: int) -> Domain:
    generator = torch_generator(seed, "rect4", name)
    labels = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(POINTS_PER_CLASS)
    centre = torch.tensor([INVARIANT_CENTRE, slant], dtype=torch.float64)
    offsets = HALF_SIDE * (2 * torch.rand(len(labels), 2, dtype=torch.float64, generator=generator) - 1)
    return Domain(name, slant, labels[:, None] * centre + offsets, labels)


def _train(start: torch.Tensor, domains: Sequence[Domain]) -> torch.Tensor:
    """Return the update ``[2]`` of gradient descent on all points of ``domains``: local - global."""
    w = start
    for _ in range(LOCAL_STEPS):
        w = w - LEARNING_RATE * _derivatives(w, domains)[0]
    return w - start


def _pick(domains: Mapping[str, Domain], names: Sequence[str]) -> tuple[Domain, ...]:
    if not names or (unknown := [name for name in names if name not in domains]):
        got = repr(unknown[0]) if names else "none"
        raise ValueError(f"Domains are named {', '.join(domains)}; got {got}.")
    return tuple(domains[name] for name in names)
