# SPDX-License-Identifier: Apache-2.0
r"""AM (amplitude mix): images of a batch mix their amplitude spectra, and keep their phase and label.

Equations; the mathematics is in ``fdg_plugins.core.spectrum``. If a batch is mixed, with ``s ~ U(0, 1)`` drawn for each
image and the partners a random permutation of the batch:

- ``x' = Re F^-1((s |F(x)| + (1 - s) |F(partner)|) e^(i angle F(x)))`` ->
  ``mix_amplitudes``, :meth:`LocalAmplitudeMix.augmented`
- cross entropy of x' with the label of x -> :class:`LocalAmplitudeMix`

Shapes: images ``[B, C, H, W]``, normalised as the data set yields them; the whole spectrum is mixed.

Participation: as under FedAvg; nothing is exchanged and nothing is kept between rounds.

Buffers: averaged as under FedAvg; BatchNorm sees the mixed images.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fdg_plugins.core.spectrum import mix_amplitudes
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import LocalObjective, Objective, SiteRound
from fdg_plugins.plugins.fields import Share
from fdg_plugins.plugins.method import Difference, Differences, Equation, Method, Reference, SettingSource
from fdg_plugins.randomness import on_device, torch_generator


@dataclass(frozen=True)
class AMObjective(Objective):
    """Cross entropy of images whose amplitude spectra are mixed within the batch.

    Args:
        probability: that a batch is mixed, in [0, 1]; zero is FedAvg, bit for bit. 0.5 in FedDG-GA's code.
    """

    name: ClassVar[str] = "am"
    needs_flat_images: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any] | None] = {"probability": 0}

    probability: Share = 0.5

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        self.refuse_payload(received)
        if self.probability == 0:
            return LocalRisk(task=site.task)
        generator = torch_generator(site.seed, site.site, site.number, "amplitude mix")
        return LocalAmplitudeMix(self.probability, generator, task=site.task)


@dataclass(frozen=True)
class LocalAmplitudeMix(LocalRisk):
    """The task's loss of a batch, which is mixed with the given probability.

    Each call of :meth:`loss` draws anew from ``generator``, on the CPU, so the mixture does not depend on the device. A
    step that computes the loss of one batch twice (SAM) would see two mixtures; no method here combines the two.
    """

    probability: float
    generator: torch.Generator

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of images ``[B, C, H, W]``, possibly mixed, and the task's targets."""
        return super().loss(model, self.augmented(images), targets)

    def augmented(self, images: torch.Tensor) -> torch.Tensor:
        """Return the batch ``[B, C, H, W]`` to train on: ``images`` unchanged, or mixed within the batch."""
        if float(torch.rand((), generator=self.generator)) >= self.probability:
            return images
        partners = torch.randperm(len(images), generator=self.generator)
        shares = torch.rand(len(images), generator=self.generator)
        return mix_amplitudes(images, on_device(partners, images.device), on_device(shares, images.device))


METHOD = Method(
    key="am",
    title="AM",
    line="images of a batch mix their amplitude spectra, and keep phase and label",
    reference=Reference(
        authors="Xu, Zhang, Zhang, Wang, Tian",
        title="A Fourier-based Framework for Domain Generalization",
        venue="CVPR",
        year=2021,
    ),
    classes=(AMObjective,),
    letters=(
        "x image, each channel on its own; F its discrete Fourier transform; A amplitude, ph phase; s "
        "share of an image's own amplitude; P probability"
    ),
    equations=(
        Equation(
            formula="A(x) = |F(x)|,   ph(x) = angle F(x)",
            meaning="over height and width, the whole spectrum of the normalised image",
        ),
        Equation(
            formula="A' = s A(x) + (1 − s) A(partner),   s ~ U(0, 1)",
            meaning="s for each image; partners are a random permutation of the site's batch",
        ),
        Equation(
            formula="x' = Re F⁻¹(A' exp(i ph(x)))",
            meaning="what is trained on, with the label of x; nothing is clipped",
        ),
    ),
    settings=(
        SettingSource(
            name="probability",
            symbol="P",
            paper="1: every batch, beside the original",
            code="0.5",
            remark="that a batch is mixed; 0 is FedAvg, bit for bit",
        ),
    ),
    differences=Differences(
        compared="FedDG-GA's code",
        remark="Not implemented: the variant in which sites exchange amplitudes once and mix with those of others "
        "(Liu, Chen, Qin, Dou, Heng, FedDG, CVPR 2021), because it sends spectra of single images.",
        rows=(
            Difference(
                point="s", paper="what the partner gives is U(0, η), η a setting", code="U(0, 1)", ours="U(0, 1)"
            ),
            Difference(point="consistency between teacher and student", paper="yes", code="–", ours="–"),
            Difference(
                point="partner",
                paper="another image of the pooled sources",
                code="a permutation of the site's batch, by a helper that its module lacks",
                ours="a permutation of the site's batch",
            ),
            Difference(
                point="input",
                paper="pixels, clipped to their range",
                code="normalised tensor, not clipped",
                ours="normalised tensor, not clipped",
            ),
            Difference(
                point="which batches",
                paper="all, beside the originals",
                code="with probability 0.5, in their place",
                ours="with probability, in their place",
            ),
        ),
    ),
)
