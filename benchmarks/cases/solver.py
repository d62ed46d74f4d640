# SPDX-License-Identifier: Apache-2.0
"""FedOMG's matching problem, solved with a certificate, against the authors' 21 evaluations of SGD on a softmax."""

import torch

from cases.measure import Goal, Row, interleave, lap
from cases.released_solver import released_weights
from fdg_plugins.core import match, matching_objective

KAPPA = 0.5
SECONDS = {100: 0.02, 1000: 2.0}  # the goals
ROUNDING = 1e-9  # relative; the authors' way can reach the optimum as well, and then differs by rounding


def rows(quick: bool = False) -> list[Row]:
    """Return seconds, objective and certified gap for each number of sites; ``quick``: 3 and 10 sites."""
    return [row for sites in ((3, 10) if quick else (3, 10, 100, 1000)) for row in _rows_of(sites, 1 if quick else 5)]


def gram_of(sites: int, parameters: int = 2048) -> torch.Tensor:
    """Return the Gram matrix, float64 ``[U, U]``, of random updates ``[U, P]`` with a part common to all."""
    generator = torch.Generator().manual_seed(sites)
    lengths = torch.rand(sites, 1, generator=generator, dtype=torch.float64) + 0.5
    common = torch.randn(1, parameters, generator=generator, dtype=torch.float64)
    own = torch.randn(sites, parameters, generator=generator, dtype=torch.float64)
    updates = lengths * (common + own) / parameters**0.5
    return updates @ updates.T


def _rows_of(sites: int, repetitions: int) -> list[Row]:
    gram = gram_of(sites)
    uniform = torch.full((sites,), 1 / sites, dtype=torch.float64)
    matching = match(gram, uniform, KAPPA)
    released = matching_objective(gram, uniform, KAPPA, released_weights(gram, KAPPA))
    seconds = interleave(
        [
            lambda: lap("ours", lambda: match(gram, uniform, KAPPA)),
            lambda: lap("released", lambda: released_weights(gram, KAPPA)),
        ],
        repetitions,
    )
    limit = SECONDS.get(sites)
    return [
        Row(
            f"solver, {sites} sites: exact / released",
            seconds["ours"],
            seconds["released"],
            goal=Goal("ours", limit, f"ours ≤ {limit:g} s") if limit else None,
        ),
        Row(
            f"its objective, {sites} sites: exact / released",
            matching.objective,
            released,
            unit="",
            goal=Goal("ratio", 1 + ROUNDING, "ratio ≤ 1"),
        ),
        Row(
            f"its certified relative gap, {sites} sites", matching.gap, unit="", goal=Goal("ours", 1e-6, "ours ≤ 1e-6")
        ),
    ]
