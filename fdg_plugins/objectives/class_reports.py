# SPDX-License-Identifier: Apache-2.0
"""What the server checks in a report of class means and class counts, for the methods whose sites send them."""

import torch

from fdg_plugins.objectives.exchange import PayloadValidator, SiteFacts

CLASS_COUNTS = "class_counts"


def check_counts(validator: PayloadValidator, counts: torch.Tensor, facts: SiteFacts) -> None:
    """Refuse counts ``[Y]`` of the training split that contradict the census, which also counts validation images."""
    told = counts.tolist()  # Python's integers: what a census claims of masks, times their pixels, may exceed 64 bits
    if sum(told) != facts.num_train:
        validator.refuse(f"{CLASS_COUNTS!r} add up to {sum(told)}, expected {facts.num_train} as in the census")
    if any(count > most for count, most in zip(told, facts.class_counts, strict=True)):
        validator.refuse(f"{CLASS_COUNTS!r} has more samples of a class than the site counted in the census")


def largest_length(rows: torch.Tensor) -> float:
    """Return the length of the longest row of ``rows [Y, D]``."""
    return float(torch.linalg.norm(rows.double(), dim=1).max())
