# SPDX-License-Identifier: Apache-2.0
"""FedADG: features are drawn to those of a generator that all sites train, class by class.

Steps on one batch, in the order of the authors' code, with F the extractor, C the head, G the generator, D the
discriminator, z = F(x), g = G(u, y) and u uniform on [0, 1), drawn once per batch:

- (a) D: ``mean (1 - D(g, y))^2 + D(z, y)^2`` -> :meth:`LocalAdversarial.discriminator_loss`
- (b) F and C: ``w CE(C(z), y) + (1 - w) mean (1 - D(z, y))^2``, with smoothed labels, and
  (c) G: ``mean D(g, y)^2``, in one backward pass, since the three do not meet -> :meth:`LocalAdversarial.loss`

Shapes: features and noise ``[B, D]``, labels ``[B]``, codes of labels ``[B, Y]``.

Participation: G is part of the network, averaged as the rest. D is personal: kept by the site for its next round, and
never sent. A new site starts with its own D, from seed and name. A class that a site lacks does not train G there.

Buffers: averaged as under FedAvg; the extractor runs once per step, so BatchNorm's statistics are updated once.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import (
    ComputeGradients,
    LocalObjective,
    Objective,
    SiteRound,
    Trained,
    device_of,
    kept_state,
)
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import Positive, Share
from fdg_plugins.randomness import on_device, seeded, torch_generator
from fdg_plugins.tasks import Task

CODE = 0.7  # the value that marks the class, as in FedADG's code
WEIGHT_DECAY = 1e-5  # of G and D, in the authors' code


def class_code(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Return ``0.7`` in the column of each label and zero elsewhere, float32 ``[B, Y]``.

    >>> class_code(torch.tensor([1]), 3).tolist()
    [[0.0, 0.699999988079071, 0.0]]
    """
    return CODE * (labels[:, None] == torch.arange(num_classes, device=labels.device)).float()


class FeatureGenerator(nn.Module):
    """Noise ``[B, D]``, uniform on [0, 1), and a code ``[B, Y]`` -> features ``[B, D]``, at least 0.

    Two linear layers with ``2 D`` units between them: at D = 2048, the sizes of FedADG's code.
    """

    def __init__(self, size: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size + num_classes, 2 * size), nn.LeakyReLU(), nn.Linear(2 * size, size), nn.ReLU()
        )
        self.size = size

    def forward(self, noise: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.layers(torch.cat([noise, code], dim=1))
        return features


class FeatureDiscriminator(nn.Module):
    """Features ``[B, D]`` and a code ``[B, Y]`` -> a number in (0, 1) for each: 1 for generated features, 0 for real.

    A projection without bias to ``D / 2``, to which the code is appended, and two linear layers.
    """

    def __init__(self, size: int, num_classes: int) -> None:
        super().__init__()
        hidden = max(size // 2, 1)
        self.projection = nn.Linear(size, hidden, bias=False)
        self.layers = nn.Sequential(nn.Linear(hidden + num_classes, hidden), nn.LeakyReLU(), nn.Linear(hidden, 1))

    def forward(self, features: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(torch.cat([self.projection(features), code], dim=1))
        return scores.sigmoid()[:, 0]


class GeneratingClassifier(ExtractorClassifier):
    """A network with unchanged parameter names, and a generator of its features that its own passes do not use."""

    def __init__(self, network: ExtractorClassifier, generator: FeatureGenerator) -> None:
        super().__init__(network.extractor, network.classifier)
        self.generator = generator


@dataclass(frozen=True)
class FedADGObjective(Objective):
    """Cross entropy, and features that a discriminator cannot tell from those of a shared generator."""

    name = "adg"
    acts = ("objective", "network", "step")
    needs_labelled_images = True
    needs_trained = ("generator",)
    changes_effective_steps = True  # the generator has a separate rate, and no steps while warming up
    neutral = {"classification_weight": 1, "smoothing": 0}

    classification_weight: Share = 0.85
    smoothing: Share = 0.01
    warmup: Share = 0.3
    adversary_rate: Positive = 0.7

    def adapt(self, model: ExtractorClassifier, image_shape: tuple[int, ...], seed: int) -> ExtractorClassifier:
        if self.classification_weight == 1:
            return model
        with seeded(seed, self.name, "generator"):
            generator = FeatureGenerator(model.feature_size, model.last_layer.out_features)
        return GeneratingClassifier(model, generator)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        if self.classification_weight == 1:
            return LocalSmoothed(site.task, self.smoothing) if self.smoothing else LocalRisk(task=site.task)
        network = cast("GeneratingClassifier", model)
        with seeded(site.seed, site.site, self.name, "discriminator"):
            discriminator = FeatureDiscriminator(model.feature_size, model.last_layer.out_features)
        if site.memory:
            discriminator.load_state_dict(dict(site.memory))
        discriminator.to(device_of(model))
        return LocalAdversarial(
            site.task,
            self.smoothing,
            self,
            discriminator,
            self._optimizer(discriminator, site),
            self._optimizer(network.generator, site),
            torch_generator(site.seed, site.site, site.number, self.name),
            int(self.warmup * site.epochs + 1e-9),
        )

    def _optimizer(self, module: nn.Module, site: SiteRound) -> torch.optim.Optimizer:
        rate = self.adversary_rate * site.learning_rate
        return torch.optim.SGD(module.parameters(), lr=rate, momentum=site.momentum, weight_decay=WEIGHT_DECAY)


@dataclass
class LocalSmoothed(LocalObjective):
    """Mean cross entropy with the share ``smoothing`` of every label spread over the other classes, evenly."""

    task: Task
    smoothing: float

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.classification_loss(model, model.features(images), targets)

    def classification_loss(
        self, model: ExtractorClassifier, features: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the smoothed cross entropy of features ``[B, D]``, from logits in float32."""
        logits = model.classifier(features).float()
        of_label = self.task.loss(logits, labels)
        if self.smoothing == 0:
            return of_label
        of_others = -logits.log_softmax(dim=1).sum(dim=1).mean() - of_label
        return (1 - self.smoothing) * of_label + self.smoothing / max(logits.shape[1] - 1, 1) * of_others


@dataclass
class LocalAdversarial(LocalSmoothed):
    """One round of FedADG. All that D and G compute is in float32, even under autocast.

    D is on the model's device; ``noise`` draws u, on the CPU. The site's own optimizer leaves D and G alone. The first
    ``warm_epochs`` epochs, of which ``epochs`` counts those begun, have cross entropy alone. In D's turn the next
    gradients are D's; it leaves ``features`` and the ``drawn`` noise behind.
    """

    settings: FedADGObjective
    discriminator: FeatureDiscriminator
    discriminator_optimizer: torch.optim.Optimizer
    generator_optimizer: torch.optim.Optimizer
    noise: torch.Generator
    warm_epochs: int = 0
    epochs: int = 0
    turn_of_discriminator: bool = False
    features: torch.Tensor | None = None
    drawn: torch.Tensor | None = None
    generator_loss: torch.Tensor | None = None

    def prepare(self, model: ExtractorClassifier) -> None:
        self.epochs += 1

    @property
    def _is_warming_up(self) -> bool:
        return self.epochs <= self.warm_epochs and self.warm_epochs > 0

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return (b) plus (c) of images ``[B, C, H, W]`` and labels ``[B]``, a scalar; in D's turn (a)."""
        network = cast("GeneratingClassifier", model)
        if self._is_warming_up:
            return super().loss(model, images, targets)
        if self.turn_of_discriminator:
            self.features = network.features(images)
            return self.discriminator_loss(network, self.features, targets)
        kept, self.features = self.features, None
        noise, self.drawn = self.drawn, None
        features = network.features(images) if kept is None else kept
        self._let_discriminator_learn(False)
        classification = self.classification_loss(network, features, targets)
        with torch.autocast(features.device.type, enabled=False):
            code = class_code(targets, network.last_layer.out_features)
            judged = self.discriminator(features.float(), code)
            noise = self._draw(network, code) if noise is None else noise
            generated = self.discriminator(network.generator(noise, code), code)
            generator_loss = generated.square().mean()
            adversarial = (1 - judged).square().mean()
        self.generator_loss = generator_loss.detach()
        weight = self.settings.classification_weight
        return weight * classification + (1 - weight) * adversarial + generator_loss

    def discriminator_loss(
        self, network: GeneratingClassifier, features: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return (a) of features ``[B, D]`` and labels ``[B]``, a scalar whose gradient reaches D alone."""
        self._let_discriminator_learn(True)
        with torch.autocast(features.device.type, enabled=False):
            code = class_code(labels, network.last_layer.out_features)
            self.drawn = self._draw(network, code)
            with torch.no_grad():
                generated = network.generator(self.drawn, code)
            of_generated = (1 - self.discriminator(generated, code)).square()
            return (of_generated + self.discriminator(features.detach().float(), code).square()).mean()

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        self.generator_loss = None
        if not self._is_warming_up:
            self._step_of_discriminator(compute_gradients)
        loss = compute_gradients()
        self.generator_optimizer.step()  # of no effect without gradients
        self.generator_optimizer.zero_grad(set_to_none=True)  # so that the site's optimizer leaves G as it is
        optimizer.step()
        return loss if self.generator_loss is None else loss - self.generator_loss

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        return kept_state(self.discriminator)

    def _step_of_discriminator(self, compute_gradients: ComputeGradients) -> None:
        self.discriminator_optimizer.zero_grad(set_to_none=True)
        self.turn_of_discriminator = True
        try:
            compute_gradients()
        finally:
            self.turn_of_discriminator = False
        self.discriminator_optimizer.step()

    def _let_discriminator_learn(self, learns: bool) -> None:
        for parameter in self.discriminator.parameters():
            parameter.requires_grad_(learns)

    def _draw(self, network: GeneratingClassifier, code: torch.Tensor) -> torch.Tensor:
        """Return new noise ``[B, D]`` for a batch of codes of labels, on their device."""
        return on_device(torch.rand(len(code), network.generator.size, generator=self.noise), code.device)


METHOD = method.Method(
    key="fedadg",
    title="FedADG",
    rank=17,
    line="features are drawn to those of a generator that all sites train, class by class",
    reference=method.Reference(
        "Zhang, Lei, Shi, Huang, Chen", "Federated Learning with Domain Generalization", "arXiv", 2021
    ),
    classes=(FedADGObjective,),
    defaults=(
        method.Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="FedADG's code"),
        method.Default(
            objective={"classification_weight": 0.85, "smoothing": 0.01, "warmup": 0.3, "adversary_rate": 0.7},
            source="FedADG's code for PACS",
        ),
        method.Default(on="vlcs", objective={"smoothing": 0.2}, source="FedADG's code"),
    ),
    letters=(
        "F extractor; C head; z = F(x) features [D]; y label; G generator, g = G(u, y), u uniform on [0, "
        "1)^D, one draw per batch; D discriminator: 1 generated, 0 real; w classification_weight; "
        "CE cross entropy with smoothed labels: 1 − ε of the right class, ε/(Y − 1) of "
        "each other one; ε smoothing"
    ),
    equations=(
        method.Equation("D: mean (1 − D(g, y))² + D(z, y)²", "first step of a batch; only D moves"),
        method.Equation(
            "F, C: w CE(C(z), y) + (1 − w) mean (1 − D(z, y))²", "second step: features that D takes for generated ones"
        ),
        method.Equation("G: mean D(g, y)²", "third step: generated features that D takes for real ones"),
    ),
    settings=(
        method.SettingSource(
            "classification_weight",
            symbol="w",
            code="0.85",
            remark="1 has no adversary, and with smoothing 0 is FedAvg, bit for bit",
        ),
        method.SettingSource(
            "smoothing",
            symbol="ε",
            code="0.01; 0.2 for VLCS",
            remark="share of a label that is spread over the other classes",
        ),
        method.SettingSource(
            "warmup",
            code="3 of 10 epochs",
            remark="share of a round's epochs with cross entropy alone, rounded down",
        ),
        method.SettingSource(
            "adversary_rate",
            code="0.007 beside 0.01; 0.0007 beside 0.001 for VLCS",
            remark="learning rate of G and D, relative to the site's",
        ),
    ),
    differences=method.Differences(
        remark=(
            "The FDG benchmark's code detaches the generated features in the generator's own step, so that "
            "its generator never trains; this is not reproduced."
        ),
        rows=(
            method.Difference(
                "sizes of generator and discriminator",
                code="noise 2048, 4096 and 1024 units, at 2048 features",
                ours="D, 2 D and D/2 for D features: the same at 2048",
            ),
            method.Difference(
                "initial weights of generator and discriminator",
                code="Xavier uniform with gain 0.5; Kaiming uniform",
                ours="torch's, 1/√6 of the latter",
            ),
            method.Difference(
                "features in the discriminator's step",
                code="in evaluation mode, by a separate pass",
                ours="those of the next step, in training mode: one pass of the extractor",
            ),
            method.Difference(
                "model that a site sends",
                code="meant to be the epoch of best validation; the last one, because references are kept",
                ours="the last epoch",
            ),
        ),
    ),
    leaves=(
        method.Leaving(
            "the generator of features, within the update",
            "2 D (2 D + Y) numbers and 3 D biases, for D features and Y classes",
            "what the features of each class look like at the site: anyone who has it can draw such features",
        ),
    ),
)
