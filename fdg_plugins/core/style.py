# SPDX-License-Identifier: Apache-2.0
r"""The style of feature maps: the mean and the standard deviation of each channel, which can be exchanged.

Reference: Park, Han, Kim, Wang, Brinton, Moon, "StableFDG: Style and Attention Based Learning for Federated Domain
Generalization", NeurIPS 2023, as its authors' code computes it.

Functions, with s an image's style, (mu; sigma), over the positions of one map:

- ``sigma = sqrt(var + 1e-6)`` -> :func:`styles_of`
- ``x' = sigma' (x - mu) / sigma + mu'`` -> :func:`restyle`
- ``b`` centres of a batch's styles, by k-means++ and one step of Lloyd's -> :func:`spread_centres`
- ``s ~ N(m, d^2)``, m and d over another site's images -> :func:`draw_styles`
- ``s' = s + l (s - mean s)`` -> :func:`explore_styles`
- ``s' = c s + (1 - c) s[partner]``, MixStyle -> :func:`mix_styles`
- which images to append, rarest classes first -> :func:`oversample`

Shapes: maps ``[B, C, H, W]``; styles ``[B, 2C]``, the C means first; a summary of styles ``[2, 2C]``, their mean and
their standard deviation; labels ``[B]``.

Degenerate cases: a map that is constant has sigma = 1e-3, so that re-styling it gives mu'. No sigma that is drawn or
explored is below zero. Re-styling with the own style returns the map up to rounding.

Nothing here waits for an accelerator, and all random numbers are arguments. Styles are constants: no gradient passes
through them. Arguments are not changed in place.
"""

import torch

SMALLEST_VARIANCE = 1e-6  # as in the authors' code


def styles_of(maps: torch.Tensor) -> torch.Tensor:
    """Return the styles ``[B, 2C]`` of ``maps [B, C, H, W]``, at least float32, without a gradient.

    >>> styles_of(torch.tensor([[[[1.0, 3.0], [1.0, 3.0]]]])).round(decimals=3).tolist()
    [[2.0, 1.0]]
    """
    wide = maps.detach().to(torch.promote_types(maps.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, dim=(2, 3), correction=0)
    return torch.cat([mean, (variance + SMALLEST_VARIANCE).sqrt()], dim=1)


def restyle(maps: torch.Tensor, styles: torch.Tensor) -> torch.Tensor:
    """Return ``maps [B, C, H, W]`` with the styles ``[B, 2C]``; the gradient passes through the maps alone."""
    mean, deviation = _halves(styles_of(maps))
    new_mean, new_deviation = _halves(styles.to(mean))
    normalised = (maps - mean) / deviation
    return (normalised * new_deviation + new_mean).to(maps.dtype)


def _halves(styles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return means and deviations, ``[B, C, 1, 1]`` each."""
    mean, deviation = styles[:, :, None, None].chunk(2, dim=1)
    return mean, deviation


def _with_deviations_from_zero(styles: torch.Tensor) -> torch.Tensor:
    mean, deviation = styles.chunk(2, dim=1)
    return torch.cat([mean, deviation.clamp_min(0)], dim=1)


def draw_styles(summary: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return styles ``[N, 2C]`` drawn from the Gaussian that ``summary [2, 2C]`` describes, by standard ``noise``.

    >>> draw_styles(torch.tensor([[1.0, 0.5], [2.0, 1.0]]), torch.tensor([[0.5, 1.0], [0.0, -1.0]])).tolist()
    [[2.0, 1.5], [1.0, 0.0]]
    """
    mean, deviation = summary
    return _with_deviations_from_zero(mean + deviation * noise)


def explore_styles(styles: torch.Tensor, reference: torch.Tensor, level: float) -> torch.Tensor:
    """Return ``styles [N, 2C]`` moved away from the mean of ``reference [B, 2C]`` by ``level`` times their distance."""
    return _with_deviations_from_zero(styles + level * (styles - reference.mean(dim=0)))


def mix_styles(styles: torch.Tensor, partners: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return ``styles [B, 2C]``, each mixed with that of its partner, an index of the batch.

    ``shares [B]``: the share of its own style, in [0, 1].
    """
    return torch.lerp(styles[partners], styles, shares.to(styles.dtype)[:, None])


def spread_centres(styles: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return K centres ``[K, S]`` of ``styles [B, S]``: seeds by k-means++, then one step of Lloyd's algorithm.

    ``uniforms [K]``: numbers in [0, 1), one for each seed; K is at most B. A seed is drawn with a probability
    proportional to its squared distance from the nearest earlier seed; if there is no such distance any more, the rest
    are the last style. A centre to which no style belongs stays where it is.
    """
    points, draws = styles.double(), uniforms.to(styles.device, torch.float64)
    seeds = _seeds(points, draws)
    belongs = _squared_distances(points, seeds).argmin(dim=1)[:, None] == torch.arange(len(seeds), device=points.device)
    counts = belongs.sum(dim=0)[:, None]
    means = belongs.double().T @ points / counts.clamp_min(1)
    return torch.where(counts > 0, means, seeds).to(styles.dtype)


def _seeds(points: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Return points ``[K, S]`` of ``points [B, S]``, spread out by k-means++."""
    weights = torch.ones(len(points), dtype=torch.float64, device=points.device)
    found: list[torch.Tensor] = []
    for draw in draws[:, None]:
        heights = weights.cumsum(0)
        place = torch.searchsorted(heights, draw * heights[-1], right=True).clamp(max=len(points) - 1)
        found.append(points.index_select(0, place))
        distances = _squared_distances(points, found[-1])[:, 0]
        weights = distances if len(found) == 1 else torch.minimum(weights, distances)
    return torch.cat(found)


def _squared_distances(points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    return (points[:, None] - centres[None]).square().sum(dim=2)


def _groups(labels: torch.Tensor, num_classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return an order ``[B]`` of the samples by class, where each class begins in it, and their numbers ``[Y]``."""
    counts = (labels[:, None] == torch.arange(num_classes, device=labels.device)).sum(dim=0)
    return labels.argsort(stable=True), counts.cumsum(0) - counts, counts


def oversample(labels: torch.Tensor, num_classes: int, number: int) -> torch.Tensor:
    """Return the indices ``[number]`` of samples to append to a batch with ``labels [B]``, rarest classes first.

    Each goes to the class of the batch that has the fewest samples by then, the first of equal ones; the samples of a
    class take turns.

    >>> oversample(torch.tensor([0, 0, 0, 2, 0]), num_classes=3, number=5).tolist()
    [3, 3, 3, 0, 3]
    """
    order, starts, counts = _groups(labels, num_classes)
    turns = torch.arange(number, device=labels.device)
    levels = counts[:, None] + turns
    levels = torch.where(counts[:, None] > 0, levels, len(labels) + number)  # an absent class comes after all others
    keys = levels * num_classes + torch.arange(num_classes, device=labels.device)[:, None]
    chosen = keys.flatten().argsort(stable=True)[:number]
    classes = chosen // max(number, 1)
    turn = chosen - classes * number
    return order[starts[classes] + turn % counts[classes].clamp_min(1)]


def next_of_class(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Return for each sample the index of the next one of its class in the batch, cyclically; itself if it is alone.

    >>> next_of_class(torch.tensor([1, 0, 1, 1]), num_classes=2).tolist()
    [2, 1, 3, 0]
    """
    order, starts, counts = _groups(labels, num_classes)
    classes = labels[order]
    places = torch.arange(len(labels), device=labels.device) - starts[classes]
    following = order[starts[classes] + (places + 1) % counts[classes]]
    return torch.empty_like(order).scatter_(0, order, following)
