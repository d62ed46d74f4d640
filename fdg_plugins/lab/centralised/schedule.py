# SPDX-License-Identifier: Apache-2.0
"""The schedule of a centralised run, for any algorithm, and the settings that it shares with federated runs.

A step takes one batch of every source domain, m batches of the shape ``[B, C, S, S]``.
"""

from dataclasses import dataclass, fields

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised.algorithm import MOST_STEPS
from fdg_plugins.settings.protocol import MOST_ROUNDS, SGD
from fdg_plugins.values import check_choice, check_count

ADAM = "adam"
OPTIMIZERS = (ADAM, "adamw", SGD)
DOMAINBED_STEPS = 5001

# The settings of a protocol that determine model and images are shared by both kinds of runs; the others are not.
SHARED_SETTINGS = (
    "model",
    "head",
    "normalization",
    "trainable",
    "adapter_rank",
    "pretrained",
    "image_size",
    "crop_scale",
    "color_jitter",
    "preset",
    "max_samples_per_domain",
    "precision",
    "channels_last",
)


@dataclass(frozen=True)
class Schedule:
    """Optimizer, number of steps and distance of checkpoints.

    Args:
        optimizer: ``"adam"`` (DomainBed), ``"adamw"``, or ``"sgd"`` with the learning rate, momentum and weight decay
            of the federated runs.
        steps: total number of steps, each with one batch of every source domain. DomainBed: 5001.
        checkpoint_every: steps between two evaluations; the last interval may be shorter. DomainBed: 300 on PACS.

    Raises ``SettingsError`` for a value out of range, or for more checkpoints than a record can hold as rounds.
    """

    optimizer: str = ADAM
    steps: int = DOMAINBED_STEPS
    checkpoint_every: int = 300

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_count("steps", self.steps, at_least=1, at_most=MOST_STEPS)
        check_count("checkpoint_every", self.checkpoint_every, at_least=1, at_most=MOST_STEPS)
        if self.checkpoints > MOST_ROUNDS:
            raise SettingsError(
                f"checkpoint_every is {self.checkpoint_every}, expected at most {MOST_ROUNDS:,} checkpoints in "
                f"{self.steps:,} steps."
            )

    @property
    def checkpoints(self) -> int:
        """The number of evaluations after that of the initial model: ``steps / checkpoint_every``, rounded up."""
        return -(-self.steps // self.checkpoint_every)

    def steps_of(self, checkpoint: int) -> int:
        """Return the number of steps between a checkpoint (counted from 1) and the previous one."""
        return min(self.checkpoint_every, self.steps - (checkpoint - 1) * self.checkpoint_every)


SCHEDULE_SETTINGS = tuple(field.name for field in fields(Schedule))
