# SPDX-License-Identifier: Apache-2.0
"""StableFDG: sites train on styles of other sites and on styles beyond their own, with attention over positions.

Steps on one batch, as in the authors' code -> here; the mathematics is in ``fdg_plugins.core.style``, the attention in
``fdg_plugins.models.styled``:

- sharing: after the first stage, a share of the batch gets styles drawn from the Gaussian of another site, the rest the
  centres of the batch's own -> :meth:`StyleChanges.shared`
- exploration: after each stage; the first active one appends samples of rare classes, whose styles are moved away from
  the batch's mean -> :meth:`StyleChanges.extended`; every active one mixes styles -> :meth:`StyleChanges.mixed`
- ``CE`` of all samples, appended ones included, with attention -> :meth:`LocalStyles.loss`
- the report: mean and deviation over a site's images of their styles after the first stage
  -> :meth:`StableFDGObjective.report_received`; what each site receives of it -> :class:`StyleExchange`

Shapes: maps ``[B, C, H, W]``; styles ``[B, 2C]``; a site's report, and what it receives, two of ``[2C]``.

Participation: a site receives the styles of one other site, of the last round that had reports; of a fixed set of sites
every one gives to exactly one, and in the following rounds to each in turn. Before the first reports, and where no
other site has reported, nothing is shared; the rest of the method needs no other site.

Buffers: averaged as under FedAvg; BatchNorm sees the changed maps and the appended samples.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from fdg_plugins.core.style import (
    draw_styles,
    explore_styles,
    mix_styles,
    next_of_class,
    oversample,
    restyle,
    spread_centres,
    styles_of,
)
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.models.registry import check_pooled
from fdg_plugins.models.styled import PositionAttention, StyledClassifier, stages_of, widened
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.objectives.exchange import Exchange, PayloadValidator, SiteReport, Tensors
from fdg_plugins.objectives.objective import (
    FeatureBatch,
    LocalObjective,
    Objective,
    SiteRound,
    device_of,
    evaluating,
    to_report,
)
from fdg_plugins.plugins import method
from fdg_plugins.plugins.fields import NotNegative, Positive, Share
from fdg_plugins.randomness import numpy_generator, on_device, seeded

QUERIES = 30  # channels of queries and keys, as in the authors' code
MEAN = "style_mean"
DEVIATION = "style_deviation"
OF_SITE = "style/"
ROUNDS = "rounds"


@dataclass(frozen=True)
class StableFDGObjective(Objective):
    """Cross entropy of samples with shared and explored styles, with attention over positions."""

    name = "stable"
    acts = ("objective", "network")
    report = "style_statistics"
    needs_shared = "everything"
    needs_labelled_images = True
    needs_flat_images = True
    neutral = {"sharing_probability": 0, "exploration_probability": 0, "attention": False}

    sharing_probability: Share = 0.5
    shared_fraction: Share = 0.5
    exploration_probability: Share = 0.5
    exploration_level: NotNegative = 3.0
    oversampling: Share = 1.0
    mixing: Positive = 0.1
    attention: bool = True

    def check_network(self, model: ExtractorClassifier, image_shape: tuple[int, ...]) -> None:
        check_pooled(model, image_shape)
        stages_of(model, image_shape)

    def adapt(self, model: ExtractorClassifier, image_shape: tuple[int, ...], seed: int) -> ExtractorClassifier:
        stages, size = stages_of(model, image_shape), model.feature_size
        if not self.attention:
            return StyledClassifier(model, stages)
        with seeded(seed, self.name, "attention"):
            attention = PositionAttention(size, QUERIES)
            model.classifier = widened(model.classifier, 2 * size)
        return StyledClassifier(model, stages, attention)

    def local(self, received: Tensors, model: ExtractorClassifier, site: SiteRound = SiteRound()) -> LocalObjective:
        styled = cast("StyledClassifier", model)
        validator = self.payload_validator()
        channels = styled.stages[0].channels
        others = read_styles(validator, received, channels).to(device_of(model)) if received else None
        if not (self.attention or self.sharing_probability or self.exploration_probability):
            return LocalRisk(task=site.task)
        generator = numpy_generator(site.seed, site.site, site.number, self.name)
        return LocalStyles(self, others, generator, task=site.task)

    def report_received(
        self, model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int
    ) -> dict[str, torch.Tensor]:
        """Return mean and standard deviation of the images' styles after the first stage, float32 ``[2C]`` each.

        They are summed in float64 over the training split, in evaluation mode.
        """
        styled = cast("StyledClassifier", model)
        sums = torch.zeros(2, 2 * styled.stages[0].channels, dtype=torch.float64, device=device_of(model))
        count = 0
        for batch in seen:
            with evaluating(model), torch.no_grad():
                styles = styles_of(styled.first_stage(batch.images)).double()
            sums += torch.stack([styles.sum(dim=0), styles.square().sum(dim=0)])
            count += len(styles)
        mean, squares = sums / count
        deviation = (squares - mean.square()).clamp_min(0).sqrt()
        return to_report({MEAN: mean.float(), DEVIATION: deviation.float()})

    def exchange(self, model: ExtractorClassifier, num_classes: int, num_sites: int = 1) -> Exchange:
        return StyleExchange(cast("StyledClassifier", model).stages[0].channels)


def read_styles(validator: PayloadValidator, tensors: Any, channels: int) -> torch.Tensor:
    """Return the statistics of styles in a report or payload, ``[2, 2C]``; refuse a negative standard deviation."""
    found = validator.fields(tensors, (MEAN, DEVIATION))
    mean, deviation = (validator.numbers(name, found[name], (2 * channels,)) for name in (MEAN, DEVIATION))
    if bool((mean[channels:] < 0).any()) or bool((deviation < 0).any()):
        validator.refuse(f"{MEAN!r} or {DEVIATION!r} has a negative standard deviation")
    return torch.stack([mean, deviation])


@dataclass(frozen=True)
class LocalStyles(LocalRisk):
    """One round of StableFDG. ``others``: styles of another site ``[2, 2C]``; None: of none."""

    settings: StableFDGObjective
    others: torch.Tensor | None
    generator: np.random.Generator

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy of images ``[B, C, H, W]``, with changed styles, and of those appended."""
        network = cast("StyledClassifier", model)
        changes = StyleChanges(self, network, targets)
        with network.changed(changes):
            maps = network.feature_map(images)
        pairs = next_of_class(changes.labels, changes.num_classes) if self.settings.attention else None
        logits = network.classifier(network.pool(maps, pairs))
        return self.task.loss(logits.float(), changes.labels)


class StyleChanges:
    """What happens to one batch on its way through the stages; ``labels [B]`` grow with the batch."""

    def __init__(self, local: LocalStyles, network: StyledClassifier, labels: torch.Tensor) -> None:
        self.settings, self.others, self.generator = local.settings, local.others, local.generator
        self.labels = labels
        self.num_classes = network.last_layer.out_features
        draws = self.generator.random(1 + len(network.stages))
        self.shares = self.others is not None and bool(draws[0] < self.settings.sharing_probability)
        self.explores = [bool(draw < self.settings.exploration_probability) for draw in draws[1:]]

    def __call__(self, number: int, maps: torch.Tensor) -> torch.Tensor:
        """Return the maps ``[B', C, H, W]`` of a stage as the next one sees them; B' exceeds B after appending."""
        with torch.autocast(maps.device.type, enabled=False):
            if number == 0 and self.shares and self.others is not None:
                maps = self.shared(maps, self.others)
            if self.explores[number]:
                maps = self.mixed(maps if any(self.explores[:number]) else self.extended(maps))
        return maps

    def shared(self, maps: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """Return the maps with the centres of their own styles, and with styles drawn from ``others [2, 2C]``."""
        number = whole_part(self.settings.shared_fraction, len(maps))
        styles = styles_of(maps)
        new = draw_styles(others, self._drawn(self.generator.standard_normal((number, styles.shape[1])), maps))
        if number < len(maps):
            uniforms = self._drawn(self.generator.random(len(maps) - number), maps)
            new = torch.cat([spread_centres(styles, uniforms), new.to(styles)])
        return restyle(maps, new)

    def extended(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the maps and copies of some of rare classes, with explored styles; extend the labels alike."""
        number = whole_part(self.settings.oversampling, len(maps))
        if number == 0:
            return maps
        added = oversample(self.labels, self.num_classes, number)
        styles = styles_of(maps)
        explored = explore_styles(styles[added], styles, self.settings.exploration_level)
        self.labels = torch.cat([self.labels, self.labels[added]])
        return torch.cat([maps, restyle(maps[added], explored)])

    def mixed(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the maps, each with its style mixed with that of another one of the batch."""
        partners = on_device(torch.from_numpy(self.generator.permutation(len(maps))), maps.device)
        shares = self._drawn(self.generator.beta(self.settings.mixing, self.settings.mixing, len(maps)), maps)
        return restyle(maps, mix_styles(styles_of(maps), partners, shares))

    def _drawn(self, numbers: np.typing.NDArray[np.float64], maps: torch.Tensor) -> torch.Tensor:
        return on_device(torch.from_numpy(numbers).float(), maps.device)


def whole_part(fraction: float, size: int) -> int:
    """Return ``floor(fraction size)``, where a product such as 0.29 * 100 = 28.999999999999996 counts as whole."""
    return int(fraction * size + 1e-9)


class StyleExchange(Exchange):
    """The server side of StableFDG: receives statistics of styles, and sends each site those of one other site."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels=channels)
        self.channels = channels

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> torch.Tensor:
        return read_styles(validator, report.content, self.channels)

    def sizes(self, report: torch.Tensor) -> dict[str, float]:
        return {"mean style": float(report[0].norm()), "deviation of styles": float(report[1].norm())}

    def learn(self, reports: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        rounds = self.learned.get(ROUNDS, torch.zeros(1, dtype=torch.int64)) + 1
        return {ROUNDS: rounds, **{f"{OF_SITE}{site}": style for site, style in reports.items()}}

    def published(self) -> dict[str, torch.Tensor]:
        return {}

    def broadcast(self, site: str = "") -> dict[str, torch.Tensor]:
        names = sorted(name for name in self.learned if name.startswith(OF_SITE))
        own = f"{OF_SITE}{site}"
        others = [name for name in names if name != own]
        if not others:
            return {}
        # Of sites that all have reported, the one at place i is followed by all others before its turn comes again.
        place = sum(name < own for name in names) + int(self.learned[ROUNDS]) - 1
        mean, deviation = self.learned[others[place % len(others)]]
        return {MEAN: mean.clone(), DEVIATION: deviation.clone()}


METHOD = method.Method(
    key="stablefdg",
    title="StableFDG",
    rank=20,
    line=("sites train on styles of other sites and on styles beyond their own, with attention over positions"),
    reference=method.Reference(
        "Park, Han, Kim, Wang, Brinton, Moon",
        "StableFDG: Style and Attention Based Learning for Federated Domain Generalization",
        "NeurIPS",
        2023,
    ),
    classes=(StableFDGObjective,),
    defaults=(
        method.Default(server={"server_lr": 1.0, "weighting": "uniform"}, source="StableFDG's code"),
        method.Default(
            objective={
                "sharing_probability": 0.5,
                "shared_fraction": 0.5,
                "exploration_probability": 0.5,
                "exploration_level": 3.0,
                "oversampling": 1.0,
                "mixing": 0.1,
                "attention": True,
            },
            source="StableFDG's code",
        ),
    ),
    letters=(
        "x feature map [C, H, W] of an image; s its style (μ; σ) [2C]; m, d mean and deviation of another "
        "site's styles; b size of the batch; f shared_fraction; l exploration_level; o oversampling; β "
        "mixing; q, k queries and keys [30, H, W], of length 1 at each position; a attention [1, H, W]"
    ),
    equations=(
        method.Equation("μ = mean x,   σ = √(var x + 1e-6)", "style of an image, over the positions"),
        method.Equation("x' = σ' (x − μ)/σ + μ'", "the image with another style s' = (μ'; σ')"),
        method.Equation(
            "s' = centres of the batch's styles,   s' ~ N(m, d²)",
            "sharing, after the first stage: b − ⌊f b⌋ samples by k-means++ and one step of Lloyd's, and ⌊f b⌋",
        ),
        method.Equation(
            "s' = s + l (s − mean s)", "exploration: the style of ⌊o b⌋ appended samples, rarest classes first"
        ),
        method.Equation(
            "s' = λ s + (1 − λ) s_partner,   λ ~ Beta(β, β)",
            "mixture at every active stage, with a random permutation of the batch",
        ),
        method.Equation(
            "a = softmax( k · mean (q + q_pair)/2 )",
            "over the positions of the last map; the pair is the next image of the class, in evaluation itself",
        ),
        method.Equation("CE(head([mean x; Σ a x]), y)", "what a site minimises, over the extended batch"),
    ),
    settings=(
        method.SettingSource("sharing_probability", code="0.5", remark="of each batch; 0 shares nothing"),
        method.SettingSource("shared_fraction", symbol="f", code="16 of 32", remark="share of the batch, rounded down"),
        method.SettingSource(
            "exploration_probability",
            code="0.5",
            remark="of each stage and batch; 0 explores nothing",
        ),
        method.SettingSource(
            "exploration_level",
            symbol="l",
            code="3",
            remark="how far explored styles move from the mean, relative to their distance; 0 keeps them",
        ),
        method.SettingSource(
            "oversampling",
            symbol="o",
            code="32 of 32",
            remark="share of the batch, rounded down; 0 appends nothing",
        ),
        method.SettingSource("mixing", symbol="β", code="0.1", remark="of the Beta distribution of the mixture"),
        method.SettingSource(
            "attention",
            paper="true",
            code="true",
            remark="false leaves the network as it is: with both probabilities 0 FedAvg, bit for bit",
        ),
    ),
    differences=method.Differences(
        rows=(
            method.Difference(
                "styles received",
                code="of a random other site, a derangement of the round's",
                ours="of another site in each round, in turn; from the last round's reports",
            ),
            method.Difference(
                "class with one sample in the batch",
                code="a second, class-balanced batch supplies another, at the cost of one more pass",
                ours="the sample itself, with its explored style",
            ),
            method.Difference(
                "number of styles",
                code="16 and 32, which need batches of more than 16",
                ours="shares of the batch, of any size",
            ),
            method.Difference(
                "stages",
                code="the first three layers of a ResNet",
                ours="the last three sizes of map before the smallest: the same in a ResNet",
            ),
            method.Difference(
                "negative deviations", code="drawn ones become 0, explored ones stay", ours="both become 0"
            ),
        )
    ),
    leaves=(
        method.Leaving(
            "mean and deviation, over the training images, of the styles after the first stage",
            "2 × 2 × channels",
            "average brightness, contrast and texture of the images as the first layers see them, and how "
            "much they vary; of a single image its style. The server passes it on to one other site, or to "
            "several if more sites train than reported in the round before",
            report="style_statistics",
        ),
    ),
)
