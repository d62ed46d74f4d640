# SPDX-License-Identifier: Apache-2.0
"""What came out of rounds on Rect-4, as text: how the steps agree with the sites, and every domain held out in turn."""

from collections.abc import Mapping, Sequence

import torch
from rect4_rounds import KAPPA, Domain, Round, Step, loss, play_round


def round_table(result: Round) -> str:
    """Return the round's table: a line per step, with its cosine to each source's update and the losses after it.

    A longer step is not a better direction, so losses stand there twice: after the step, and after the same step
    brought to the length of FedAvg's.
    """
    names = [domain.name for domain in result.sources]
    head = ["", "w1", "w2", *(f"cos {name}" for name in names), "least <d,g>", "loss", "same length", "worst source"]
    return _aligned([head, *([step.name, *_round_cells(result, step)] for step in result.steps)])


def held_out_table(domains: Mapping[str, Domain], kappa: float = KAPPA) -> str:
    """Return the losses on every domain where it is held out, after the step of each method, and the mean and worst.

    Losses are after steps of the length of FedAvg's, so that they compare directions.
    """
    columns: dict[str, list[float]] = {}
    for held_out in domains:
        result = play_round(domains, [name for name in domains if name != held_out], [held_out], kappa)
        for step in result.steps:
            columns.setdefault(step.name, []).append(_loss_at_length_of_fedavg(result, step, result.judged))
    head = ["held out", *domains, "mean", "worst"]
    lines = [
        [name, *(f"{value:.3f}" for value in (*values, sum(values) / len(values), max(values)))]
        for name, values in columns.items()
    ]
    return _aligned([head, *lines])


def _round_cells(result: Round, step: Step) -> list[str]:
    same_length = [
        _loss_at_length_of_fedavg(result, step, result.judged),
        max(_loss_at_length_of_fedavg(result, step, [domain]) for domain in result.sources),
    ]
    after = float(loss(result.start + step.vector, result.judged))
    numbers = [*step.vector, *result.cosines(step), result.least_inner_product(step), after, *same_length]
    return [f"{float(number):.3f}" for number in numbers]


def _loss_at_length_of_fedavg(result: Round, step: Step, domains: Sequence[Domain]) -> float:
    length = torch.linalg.vector_norm(result.steps[0].vector)
    vector = step.vector * (length / torch.linalg.vector_norm(step.vector))
    return float(loss(result.start + vector, domains))


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = (
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    )
    return "\n".join(rows)
