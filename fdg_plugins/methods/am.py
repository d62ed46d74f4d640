# SPDX-License-Identifier: Apache-2.0
"""AM (amplitude mix): images of a batch mix their amplitude spectra, and keep their phase and label.

Equations: ``fdg_plugins.core.spectrum``, and the record below. With a probability, a batch is replaced by its mixture,
the partners being a random permutation of the batch -> :meth:`LocalAmplitudeMix.augmented`.

Shapes: images ``[B, C, H, W]``, normalised as the data set yields them; the whole spectrum is mixed.

Participation, buffers: as under FedAvg; nothing is exchanged or kept. BatchNorm sees the mixed images.
"""

from dataclasses import dataclass

import torch

from fdg_plugins.core.spectrum import mix_amplitudes
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import LocalObjective, Objective, SiteRound
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import Share
from fdg_plugins.randomness import on_device, torch_generator


@dataclass(frozen=True)
class AMObjective(Objective):
    """Cross entropy of images whose amplitude spectra are mixed within the batch."""

    name = "am"
    needs_flat_images = True
    neutral = {"probability": 0}

    probability: Share = 0.5

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        if self.probability == 0:
            return LocalRisk(task=site.task)
        generator = torch_generator(site.seed, site.site, site.number, "amplitude mix")
        return LocalAmplitudeMix(self.probability, generator, task=site.task)


@dataclass(frozen=True)
class LocalAmplitudeMix(LocalRisk):
    """The task's loss of a batch, which is mixed with the given probability; every call draws anew, on the CPU."""

    probability: float
    generator: torch.Generator

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(model, self.augmented(images), targets)

    def augmented(self, images: torch.Tensor) -> torch.Tensor:
        """Return the batch ``[B, C, H, W]`` to train on: ``images`` unchanged, or mixed within the batch."""
        if float(torch.rand((), generator=self.generator)) >= self.probability:
            return images
        partners = torch.randperm(len(images), generator=self.generator)
        shares = torch.rand(len(images), generator=self.generator)
        return mix_amplitudes(images, on_device(partners, images.device), on_device(shares, images.device))


METHOD = method.Method(
    key="am",
    title="AM",
    rank=14,
    line="images of a batch mix their amplitude spectra, and keep phase and label",
    reference=method.Reference(
        "Xu, Zhang, Zhang, Wang, Tian", "A Fourier-based Framework for Domain Generalization", "CVPR", 2021
    ),
    classes=(AMObjective,),
    letters=(
        "x image, each channel on its own; F its discrete Fourier transform; A amplitude, ph phase; s "
        "share of an image's own amplitude; P probability"
    ),
    equations=(
        method.Equation(
            "A(x) = |F(x)|,   ph(x) = angle F(x)", "over height and width, the whole spectrum of the normalised image"
        ),
        method.Equation(
            "A' = s A(x) + (1 − s) A(partner),   s ~ U(0, 1)",
            "s for each image; partners are a random permutation of the site's batch",
        ),
        method.Equation("x' = Re F⁻¹(A' exp(i ph(x)))", "what is trained on, with the label of x; nothing is clipped"),
    ),
    settings=(
        method.SettingSource(
            "probability",
            symbol="P",
            paper="1: every batch, beside the original",
            code="0.5",
            remark="that a batch is mixed; 0 is FedAvg, bit for bit",
        ),
    ),
    differences=method.Differences(
        compared="FedDG-GA's code",
        remark=(
            "Not implemented: the variant in which sites exchange amplitudes once and mix with those of "
            "others (Liu, Chen, Qin, Dou, Heng, FedDG, CVPR 2021), because it sends spectra of single images."
        ),
        rows=(
            method.Difference(
                "s", paper="what the partner gives is U(0, η), η a setting", code="U(0, 1)", ours="U(0, 1)"
            ),
            method.Difference("consistency between teacher and student", paper="yes", code="–", ours="–"),
            method.Difference(
                "partner",
                paper="another image of the pooled sources",
                code="a permutation of the site's batch, by a helper that its module lacks",
                ours="a permutation of the site's batch",
            ),
            method.Difference(
                "input",
                paper="pixels, clipped to their range",
                code="normalised tensor, not clipped",
                ours="normalised tensor, not clipped",
            ),
        ),
    ),
    combined={"fedga": "reported in FedDG-GA's paper (Tables 1 and 2)"},
)
