# SPDX-License-Identifier: Apache-2.0
"""Training on the pooled source domains: endless batches of each domain, and the steps of an algorithm on them.

Shapes: m domains; each step takes images ``[B, C, S, S]`` and labels ``[B]`` of every domain, S the protocol's image
size, and yields risks of shape ``[m]``.
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from fdg_plugins.data import AugmentationRanges, DomainData, training_epochs
from fdg_plugins.errors import FDGError
from fdg_plugins.lab.centralised.algorithm import MOST_STEPS, Algorithm, Batch
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK, Task
from fdg_plugins.training.loop import DevicePolicy

CPU = torch.device("cpu")


def endless_batches(
    data: DomainData, protocol: Protocol, *, workers: int = 0, device: torch.device = CPU
) -> Iterator[Batch]:
    """Yield augmented batches of a domain's training images without end, reshuffled in each pass.

    Each batch holds images ``[B, C, S, S]`` and labels ``[B]``. B is the protocol's batch size, or the number of images
    in a smaller domain. The incomplete batch at the end of a pass is dropped, so all batches have one size. Order and
    augmentation depend only on the protocol's seed, the domain and the number of the pass.
    """
    size = min(protocol.batch_size, len(data.train))
    passes = training_epochs(
        data,
        image_size=protocol.image_size,
        batch_size=protocol.batch_size,
        seed=protocol.seed,
        scope=("pooled", data.domain),
        epochs=MOST_STEPS,
        augmentation=AugmentationRanges(protocol.crop_scale, protocol.color_jitter),
        workers=workers,
        device=device,
    )
    for batches in passes:
        for images, labels in batches:
            if len(labels) >= size:
                yield images[:size], labels[:size]


class PooledTraining:
    """A model in training, changed in place, each step on one batch of every source domain.

    ``domains`` are endless batches of each, in the order of the risks. ``make_optimizer`` returns a new optimizer of
    the model's parameters; it is called again if the algorithm restarts it.
    """

    def __init__(
        self,
        model: ExtractorClassifier,
        algorithm: Algorithm,
        domains: Sequence[Iterator[Batch]],
        make_optimizer: Callable[[], torch.optim.Optimizer],
        policy: DevicePolicy,
        task: Task = DEFAULT_TASK,
    ) -> None:
        self.model = model
        self.state = algorithm.begin(model, len(domains))
        self.steps_done = 0
        self._task = task
        self._algorithm = algorithm
        self._domains = domains
        self._make_optimizer = make_optimizer
        self._optimizer = make_optimizer()
        self._policy = policy

    def train(self, steps: int) -> list[float]:
        """Take ``steps`` >= 1 steps; return the mean risk of each domain over them, ``[m]``.

        Raises ``FDGError`` if a parameter is not finite at the end.
        """
        self.model.train()
        total = torch.zeros(len(self._domains), dtype=torch.float64, device=self._policy.device)
        for _ in range(steps):
            if self.steps_done == self._algorithm.restarts_at:
                self._optimizer = self._make_optimizer()
            drawn = [next(domain) for domain in self._domains]
            device, images_of = self._policy.device, self._policy.images
            batches = [(images_of(images), labels.to(device, non_blocking=True)) for images, labels in drawn]
            # Summed on the device: reading the loss after every step would synchronise with an accelerator.
            total += self._algorithm.update(self.model, batches, self._compute_gradients, self._optimizer)
            self.steps_done += 1
        for name, value in self.model.named_parameters():
            if not bool(torch.isfinite(value).all()):
                expected = f"finite ones: a smaller learning_rate, or other settings of {self._algorithm.title}"
                raise FDGError(field=f"parameter {name}", value=f"after step {self.steps_done}", expected=expected)
        return [float(value) / steps for value in total]

    def _compute_gradients(self, batches: Sequence[Batch]) -> torch.Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        with self._policy.autocast():
            loss = self._algorithm.loss(self.model, batches, self.steps_done, self.state, self._task)
        loss.value.backward()
        self.state = loss.state
        return loss.risks
