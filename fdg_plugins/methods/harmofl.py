# SPDX-License-Identifier: Apache-2.0
r"""HarmoFL: every image gets one amplitude spectrum, that of all sites together, and steps are sharpness-aware.

For federations whose sites' images differ in brightness, contrast or imaging device, and should look alike to the
network.

Reference: Jiang, Wang, Dou, "HarmoFL: Harmonizing Local and Global Drifts in Federated Learning on Heterogeneous
Medical Images", AAAI 2022.

Equations (here), with A an image's amplitude and v, L, alpha the settings:

- ``Abar <- (1 - v) Abar + v mean_batch A``, from the first batch's mean; in the band of half-width
  ``floor(L min(H, W))``, ``A' = Abar``, phase kept -> ``fdg_plugins.models.amplitude``
- Abar: the mean over sites -> the server's average of float buffers, of which Abar is one
- ``w - eta grad L(w + e)``, ``e = alpha grad L(w) / |grad L(w)|`` -> :class:`LocalHarmonized`, with
  ``fdg_plugins.core.sharpness``

Shapes: images ``[B, C, H, W]`` of one size; Abar float32 ``[C, H, W // 2 + 1]``.

Participation: as long as the network that a site receives has no Abar, the site collects its own. That is the case in
the first round, and longer only if no update of it was usable. From then on Abar is frozen, and its update is exactly
zero. A site that joins later, or is held out, uses the Abar of the others.

Buffers: averaged with the weights p, Abar among them.

Differences: see docs/methods/harmofl.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fdg_plugins.core.sharpness import sharpness_aware_gradients
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.amplitude import AmplitudeNormalization, AmplitudeNormalizedClassifier
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Tensors
from fdg_plugins.objectives.objective import ComputeGradients, LocalObjective, Objective, Shared, SiteRound
from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
    Together,
)
from fdg_plugins.values import check_number, check_truth


@dataclass(frozen=True)
class HarmoFLObjective(Objective):
    """Cross entropy of amplitude-normalised images, minimised by sharpness-aware steps.

    With ``radius`` 0 and ``normalize`` false it is FedAvg, bit for bit, and the network is not adapted.

    Args:
        radius: alpha >= 0, the length of the perturbation over all parameters together; 0 takes plain steps. 0.05 in
            the authors' code.
        amplitude_momentum: v in [0, 1], the share of a batch in the running amplitude; 0 keeps that of the first batch.
            0.1 in the authors' code, where it is however parsed as an integer, hence 0.
        band: L in [0, 0.5], the half-width of the band that is replaced, as a fraction of the shorter side: 0, as in
            the authors' code, replaces only the mean of each channel (DC), 0.5 the whole spectrum of a square image.
        normalize: whether amplitudes are normalised.
    """

    name: ClassVar[str] = "harmo"
    needs_shared: ClassVar[Shared] = "everything"
    needs_flat_images: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any] | None] = {"radius": 0, "normalize": False}

    radius: float = 0.05
    amplitude_momentum: float = 0.1
    band: float = 0.0
    normalize: bool = True

    def __post_init__(self) -> None:
        check_number("radius", self.radius)
        check_number("amplitude_momentum", self.amplitude_momentum, at_most=1.0)
        check_number("band", self.band, at_most=0.5)
        check_truth("normalize", self.normalize)

    def adapt(self, model: ExtractorClassifier, image_shape: tuple[int, ...], seed: int) -> ExtractorClassifier:
        """Return ``model`` preceded by an amplitude normalization that has no amplitude yet; parameters are kept."""
        if not self.normalize:
            return model
        normalization = AmplitudeNormalization(image_shape, self.band, self.amplitude_momentum)
        return AmplitudeNormalizedClassifier(model, normalization)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        """Return the loss with sharpness-aware steps; it also collects an amplitude if ``model`` has none yet.

        Raises ``SettingsError`` if anything was received, or for a network that was not adapted.
        """
        self.refuse_payload(received)
        if not self.normalize:
            return LocalHarmonized(self.radius, task=site.task) if self.radius > 0 else LocalRisk(task=site.task)
        if not isinstance(model, AmplitudeNormalizedClassifier):
            raise SettingsError("objective 'harmo' got a network that does not normalise, expected one of its own.")
        model.normalization.freeze_if_known()
        return LocalHarmonized(self.radius, model.normalization, task=site.task)


@dataclass(frozen=True)
class LocalHarmonized(LocalRisk):
    """Cross entropy with sharpness-aware steps; ``collecting``: the normalization that collects, unless frozen."""

    radius: float
    collecting: AmplitudeNormalization | None = None

    def step(
        self, model: ExtractorClassifier, compute_gradients: ComputeGradients, optimizer: torch.optim.Optimizer
    ) -> torch.Tensor:
        """Step with the gradients at the perturbed weights; each batch is collected once, in its first pass."""

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


METHOD = Method(
    key="harmofl",
    title="HarmoFL",
    part="harmo",
    part_title="Harmo",
    rank=11,
    line="every image gets the amplitude spectrum of all sites together, and steps are sharpness-aware",
    reference=Reference(
        authors="Jiang, Wang, Dou",
        title="HarmoFL: Harmonizing Local and Global Drifts in Federated Learning on Heterogeneous Medical Images",
        venue="AAAI",
        year=2022,
    ),
    acts=("network", "step"),
    objective=HarmoFLObjective,
    defaults=(Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="HarmoFL's code"),),
    in_composition="Weights average the spectrum too, as they do other buffers; the direction does not see it.",
    letters=(
        "x image [C, H, W]; F its discrete Fourier transform; A amplitude; Ā running amplitude; p "
        "weights of the sites; w parameters; η learning rate; v amplitude_momentum; L band; α radius"
    ),
    equations=(
        Equation(formula="A = |F(x)| / (H W)", meaning="of each channel; at frequency zero the absolute mean"),
        Equation(
            formula="Āᵤ ← (1 − v) Āᵤ + v mean A",
            meaning=(
                "over a site's batches of the first round, from the first batch's mean; each is normalised with it"
            ),
        ),
        Equation(formula="Ā = Σᵤ pᵤ Āᵤ", meaning="by the server, as for every float buffer; frozen from then on"),
        Equation(
            formula="A' = Ā in the band,   x' = Re F⁻¹(A' exp(i angle F(x)))",
            meaning="band: frequencies up to floor(L min(H, W)) along both sides",
        ),
        Equation(
            formula="w ← w − η ∇L(w + e),   e = α ∇L(w) / |∇L(w)|",
            meaning="one step, over all parameters together; the gradient goes through the site's SGD",
        ),
    ),
    settings=(
        SettingSource(
            name="radius",
            symbol="α",
            paper="not established",
            code="0.05",
            remark="distance of the perturbed weights; 0 takes plain steps",
        ),
        SettingSource(
            name="amplitude_momentum",
            symbol="v",
            paper="not established",
            code="0.1, cut to 0 by its type",
            remark="a batch's share; 0 keeps the first batch's mean",
        ),
        SettingSource(
            name="band",
            symbol="L",
            paper="not established",
            code="0",
            remark=(
                "half-width as a fraction of the shorter side: 0 is the mean of each channel, 0.5 the whole "
                "spectrum of a square image"
            ),
        ),
        SettingSource(
            name="normalize",
            paper="true",
            code="true",
            remark="false leaves the network as it is: FedSAM, and with radius 0 FedAvg, bit for bit",
        ),
    ),
    exact=(
        "radius 0 with normalize false is FedAvg, bit for bit; normalize false alone is FedSAM.",
        "Before the first round images pass as they are; from the second on Ā is frozen, its update exactly zero.",
        "band 0: the centred image stays; the mean of each channel keeps its sign and gets the size of Ā.",
        "An image whose amplitudes agree with Ā in the band stays, up to rounding.",
        "A site that comes later, and the held-out one, use what the first round's sites made.",
    ),
    differences=Differences(
        rows=(
            Difference(
                point="what is replaced",
                paper="amplitudes; that it is the whole spectrum is not established",
                code="the mean of each channel",
                ours="band, 0 by default",
            ),
            Difference(
                point="images",
                paper="not established",
                code="in [0, 1]",
                ours="normalised tensors; the phase at frequency zero, 0 or π, is kept",
            ),
            Difference(
                point="first round",
                paper="not established",
                code="every pass collects, the perturbed one too",
                ours="each batch once",
            ),
            Difference(
                point="BatchNorm",
                paper="not established",
                code="no running statistics, also in evaluation",
                ours="the network's; running statistics are those of the unperturbed pass",
            ),
            Difference(
                point="weights", paper="not established", code="uniform", ours="the job's; uniform in its recipe"
            ),
            Difference(
                point="optimiser's momentum",
                paper="not established",
                code="kept from round to round",
                ours="starts anew each round, unless keep_momentum",
            ),
            Difference(
                point="v",
                paper="not established",
                code="0.1, cut to 0 by its type",
                ours="0.1",
            ),
            Difference(
                point="evaluation before Ā is frozen",
                paper="not established",
                code="collects too",
                ours="never collects",
            ),
            Difference(
                point="smallest norm in e",
                paper="–",
                code="1e-12 added",
                ours="1e-7 added",
            ),
        ),
    ),
    leaves=(
        Leaving(
            what="running mean of the training images' amplitudes, within the update",
            shape="channels × frequencies in the band",
            when="in the first round",
            reveals="average brightness, contrast and texture of the site's images; of a single image its amplitudes",
        ),
    ),
    together=(Together(method="fedga", source="reported in FedDG-GA's paper (Tables 1 and 2)"),),
)
