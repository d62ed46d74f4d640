# SPDX-License-Identifier: Apache-2.0
"""HarmoFL: every image gets one amplitude spectrum, that of all sites together, and steps are sharpness-aware.

Equations: the running amplitude Abar, which replaces an image's own in a band -> :class:`AmplitudeNormalization`; its
mean over sites is the server's average of float buffers, of which Abar is one; steps -> :class:`LocalHarmonized`, with
``fdg_plugins.core.moved_gradients``.

Shapes: images ``[B, C, H, W]`` of one size; Abar float32 ``[C, H, W // 2 + 1]``.

Participation: as long as the network that a site receives has no Abar, the site collects its own. That is the case in
the first round, and longer only if no update of it was usable. From then on Abar is frozen, and its update is exactly
zero. A site that joins later, or is held out, uses the Abar of the others.

Buffers: averaged with the weights p, Abar among them.
"""

from dataclasses import dataclass
from typing import Annotated, cast

import torch
from pydantic import Field
from torch import nn

from fdg_plugins.core.moved_gradients import sharpness_aware_gradients
from fdg_plugins.core.spectrum import centred_band, mean_amplitude, replace_amplitude
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import ComputeGradients, LocalObjective, Objective, SiteRound
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative, Share


class AmplitudeNormalization(nn.Module):
    """Images ``[B, C, H, W]`` -> the same images, with the amplitudes in the band replaced by those in a buffer.

    The buffer ``amplitude``, float32 ``[C, H, W // 2 + 1]``, is zero until a spectrum is known; until then images pass
    unchanged. In training mode, while ``collects`` is set, it is the running mean ``(1 - v) amplitude + v batch mean``,
    starting with the first batch; each batch is normalised with the mean that it has just updated. Otherwise, and once
    ``frozen``, the buffer never changes. Outside the band it stays zero, so unused values do not leave a site.
    """

    amplitude: torch.Tensor
    band: torch.Tensor
    frozen: torch.Tensor

    def __init__(self, image_shape: tuple[int, ...], band: float, momentum: float) -> None:
        super().__init__()
        channels, height, width = image_shape
        self.momentum = momentum
        self.collects = False
        self.register_buffer("amplitude", torch.zeros(channels, height, width // 2 + 1))
        self.register_buffer("band", centred_band(height, width, band), persistent=False)
        self.register_buffer("frozen", torch.tensor(False), persistent=False)

    @property
    def known(self) -> torch.Tensor:
        """Whether a spectrum is known, a scalar on the device: reading it there would wait for an accelerator."""
        return self.amplitude.any()

    def freeze_if_known(self) -> None:
        self.frozen.copy_(self.known)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.collects and self.training:
            self._collect(images)
        return torch.where(self.known, replace_amplitude(images, self.amplitude, self.band), images)

    @torch.no_grad()
    def _collect(self, images: torch.Tensor) -> None:
        if self.frozen.device.type == "cpu" and bool(self.frozen):  # costs no wait there, and saves a transform
            return
        mean = torch.where(self.band, mean_amplitude(images), 0.0)
        running = (1 - self.momentum) * self.amplitude + self.momentum * mean
        moved = torch.where(self.known, running, mean)
        self.amplitude.copy_(torch.where(self.frozen, self.amplitude, moved))


class AmplitudeNormalizedClassifier(ExtractorClassifier):
    """A network with unchanged parameter names and an :class:`AmplitudeNormalization` in front of the extractor."""

    def __init__(self, network: ExtractorClassifier, normalization: AmplitudeNormalization) -> None:
        super().__init__(network.extractor, network.classifier)
        self.normalization = normalization

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return super().features(self.normalization(images))


@dataclass(frozen=True)
class HarmoFLObjective(Objective):
    """Cross entropy of amplitude-normalised images, minimised by sharpness-aware steps."""

    name = "harmo"
    acts = ("network", "step")
    needs_shared = "everything"
    needs_flat_images = True
    neutral = {"radius": 0, "normalize": False}

    radius: NotNegative = 0.05
    amplitude_momentum: Share = 0.1
    band: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    normalize: bool = True

    def adapt(self, model: ExtractorClassifier, image_shape: tuple[int, ...], seed: int) -> ExtractorClassifier:
        if not self.normalize:
            return model
        normalization = AmplitudeNormalization(image_shape, self.band, self.amplitude_momentum)
        return AmplitudeNormalizedClassifier(model, normalization)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        if not self.normalize:
            return LocalHarmonized(self.radius, task=site.task) if self.radius > 0 else LocalRisk(task=site.task)
        normalization = cast("AmplitudeNormalizedClassifier", model).normalization
        normalization.freeze_if_known()
        return LocalHarmonized(self.radius, normalization, task=site.task)


@dataclass(frozen=True)
class LocalHarmonized(LocalRisk):
    """Cross entropy with sharpness-aware steps; ``collecting``: the normalization that collects, unless frozen."""

    radius: float
    collecting: AmplitudeNormalization | None = None

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:

        def compute() -> torch.Tensor:
            loss = compute_gradients()
            self._collect(False)  # the perturbed pass normalises the images as this one did
            return loss

        self._collect(True)
        loss = sharpness_aware_gradients(model, compute, self.radius)
        optimizer.step()
        return loss

    def _collect(self, collects: bool) -> None:
        if self.collecting is not None:
            self.collecting.collects = collects


METHOD = method.Method(
    key="harmofl",
    title="HarmoFL",
    rank=11,
    line="every image gets the amplitude spectrum of all sites together, and steps are sharpness-aware",
    reference=method.Reference(
        "Jiang, Wang, Dou",
        "HarmoFL: Harmonizing Local and Global Drifts in Federated Learning on Heterogeneous Medical Images",
        "AAAI",
        2022,
    ),
    classes=(HarmoFLObjective,),
    defaults=(method.Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="HarmoFL's code"),),
    letters=(
        "x image [C, H, W]; F its discrete Fourier transform; A amplitude; Ā running amplitude; p weights "
        "of the sites; w parameters; η learning rate; v amplitude_momentum; L band; α radius"
    ),
    equations=(
        method.Equation("A = |F(x)| / (H W)", "of each channel; at frequency zero the absolute mean"),
        method.Equation(
            "Āᵤ ← (1 − v) Āᵤ + v mean A",
            "over a site's batches of the first round, from the first batch's mean; each is normalised with it",
        ),
        method.Equation("Ā = Σᵤ pᵤ Āᵤ", "by the server, as for every float buffer; frozen from then on"),
        method.Equation(
            "A' = Ā in the band,   x' = Re F⁻¹(A' exp(i angle F(x)))",
            "band: frequencies up to floor(L min(H, W)) along both sides",
        ),
        method.Equation(
            "w ← w − η ∇L(w + e),   e = α ∇L(w) / |∇L(w)|",
            "one step, over all parameters together; the gradient goes through the site's SGD",
        ),
    ),
    settings=(
        method.SettingSource(
            "radius",
            symbol="α",
            code="0.05",
            remark="distance of the perturbed weights; 0 takes plain steps",
        ),
        method.SettingSource(
            "amplitude_momentum",
            symbol="v",
            code="0.1, cut to 0 by its type",
            remark="a batch's share; 0 keeps the first batch's mean",
        ),
        method.SettingSource(
            "band",
            symbol="L",
            code="0",
            remark=(
                "half-width as a fraction of the shorter side: 0 is the mean of each channel, 0.5 the whole "
                "spectrum of a square image"
            ),
        ),
        method.SettingSource(
            "normalize",
            paper="true",
            code="true",
            remark="false leaves the network as it is: FedSAM, and with radius 0 FedAvg, bit for bit",
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference(
                "what is replaced",
                paper="amplitudes; that it is the whole spectrum is not established",
                code="the mean of each channel",
                ours="band, 0 by default",
            ),
            method.Difference(
                "images", code="in [0, 1]", ours="normalised tensors; the phase at frequency zero, 0 or π, is kept"
            ),
            method.Difference("first round", code="every pass collects, the perturbed one too", ours="each batch once"),
            method.Difference(
                "BatchNorm",
                code="no running statistics, also in evaluation",
                ours="the network's; running statistics are those of the unperturbed pass",
            ),
            method.Difference(
                "optimiser's momentum",
                code="kept from round to round",
                ours="starts anew each round, unless keep_momentum",
            ),
            method.Difference("evaluation before Ā is frozen", code="collects too", ours="never collects"),
        )
    ),
    leaves=(
        method.Leaving(
            "running mean of the training images' amplitudes, within the update",
            "channels × frequencies in the band",
            "average brightness, contrast and texture of the site's images; of a single image its amplitudes",
            when="in the first round",
        ),
    ),
    combined={"fedga": "reported in FedDG-GA's paper (Tables 1 and 2)"},
)
