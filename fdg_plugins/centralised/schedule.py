# SPDX-License-Identifier: Apache-2.0
"""How a centralised run goes whatever the algorithm, and what it has in common with federated ones."""

from dataclasses import dataclass, fields

from fdg_plugins.centralised.algorithm import check_count
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives.objective import check_choice
from fdg_plugins.settings.protocol import MOST_ROUNDS, SGD

ADAM = "adam"
OPTIMIZERS = (ADAM, "adamw", SGD)
DOMAINBED_STEPS = 5001

# What of a protocol says what is trained on which images: the same for both kinds of runs. The rest says how.
SHARED_SETTINGS = ("model", "head", "pretrained", "image_size", "max_samples_per_domain", "precision", "channels_last")


@dataclass(frozen=True)
class Schedule:
    """Optimizer, steps and checkpoints.

    Args:
        optimizer: ``"adam"`` (DomainBed), ``"adamw"``, or ``"sgd"``, with rate, momentum and weight decay of the
            federated runs.
        steps: steps in all, one batch of each source domain in each; DomainBed: 5001.
        checkpoint_every: steps between two evaluations; the last may come sooner. DomainBed: 300 on PACS.
    """

    optimizer: str = ADAM
    steps: int = DOMAINBED_STEPS
    checkpoint_every: int = 300

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_count("steps", self.steps, at_least=1)
        check_count("checkpoint_every", self.checkpoint_every, at_least=1)
        if self.checkpoints > MOST_ROUNDS:
            raise SettingsError(
                f"checkpoint_every is {self.checkpoint_every}, expected at most {MOST_ROUNDS:,} checkpoints in "
                f"{self.steps:,} steps."
            )

    @property
    def checkpoints(self) -> int:
        """How often the model is evaluated after training has begun: the rounds of the run's record."""
        return -(-self.steps // self.checkpoint_every)

    def steps_of(self, checkpoint: int) -> int:
        """Return the steps that lead to a checkpoint, counted from 1."""
        return min(self.checkpoint_every, self.steps - (checkpoint - 1) * self.checkpoint_every)


SCHEDULE_SETTINGS = tuple(field.name for field in fields(Schedule))
