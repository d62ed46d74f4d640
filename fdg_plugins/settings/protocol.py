# SPDX-License-Identifier: Apache-2.0
"""The protocol of a run: which model is trained on which data, for how long and how. The server sets it for all sites.

Its values come, in rising order of precedence, from the defaults below, the job's config, and the server's
environment, where ``FDG_<FIELD IN CAPITALS>`` sets a field.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import Field, StringConstraints

from fdg_plugins.core.outliers import check_ratio
from fdg_plugins.errors import LARGEST, SettingsError, did_you_mean, shorten
from fdg_plugins.plugins.classes import name_in
from fdg_plugins.plugins.own_dataset import OwnDataset, read_own_dataset
from fdg_plugins.plugins.registry import REGISTRY_OF
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.settings.site_config import FROM_ENVIRONMENT
from fdg_plugins.tasks import TASKS, Task

PREFIX = "FDG_"

# Upper bounds on settings that determine memory, traffic or waiting time; each far exceeds any plausible use.
MOST_EPOCHS = 1_000
MOST_ROUNDS = 100_000
MOST_SITES = 10_000
LARGEST_BATCH = 65_536
LARGEST_DOMAIN = 100_000_000
LONGEST_WAIT = 31_536_000  # a year, in seconds
LARGEST_RATE = LARGEST  # of numbers that only multiply, as of every factor
SMALLEST_RATE = 1e-30
LARGEST_RATIO = 1_000_000
LARGEST_RANK = 1_024

EVERY = "*"  # as target: every domain is held out, for the evaluation of finished models
SGD = "sgd"
AUTO = "auto"
ADAPTERS = "adapters"

PluginName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,99}$")]
SetName = Annotated[str, StringConstraints(max_length=200)]
Patterns = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=200)], ...],
    Field(min_length=1, max_length=100, fail_fast=True),
]
RuleName = Annotated[str, StringConstraints(pattern="^(personal|frozen)$")]
Travels = Literal["all", "head", "extractor", "body"] | Annotated[dict[RuleName, Patterns], Field(min_length=1)]

# Variables that are not fields of the protocol: each server or site reads its own.
OTHER_VARIABLES = {
    **{f"{PREFIX}{name.upper()}": f"`{name}` of a site, unless its own config has it" for name in FROM_ENVIRONMENT},
    "FDG_CACHE": "folder for what is made once and kept (the stand-in); default: the user's cache folder",
    "FDG_STATE": "folder for what a stopped simulation needs to be resumed, outside the workspace, which FLARE erases",
    "FDG_PRETRAINED_FILE": "file with pretrained weights on the server (`.pth` or `.safetensors`)",
    "FDG_PRETRAINED_SHA256": "SHA-256 that this file must have",
    "FDG_TRACKING": "`mlflow` or `wandb`: the server hands the metrics of a run to it too; `none`: to no tracker",
    "FDG_STATSD": "`HOST:PORT`: server and sites send [metrics](monitoring.md) to StatsD there",
}


class Protocol(pydantic.BaseModel):
    """One run's protocol. The defaults are those of the FedOMG paper for PACS (D.6), or of the authors' code."""

    model_config = pydantic.ConfigDict(use_attribute_docstrings=True, frozen=True, extra="forbid", allow_inf_nan=False)

    dataset: SetName | OwnDataset = "pacs"
    """data set, by name, or the description of a data set of one's own"""
    target: SetName = Field("art_painting", description="held-out domain; all others are sources")
    task: SetName = Field("classification", description="what is learned, by name; it must be the data set's")
    model: SetName = "resnet18"
    """network, by name: `resnet18`, `vit_b_16`, `convnet`, `monai_unet`, [and others](networks.md)"""
    head: Literal["linear", "two_layer", "projected_two_layer"] = "linear"
    """classifier on the extractor's features: one linear layer, or two with a ReLU between; `projected_two_layer`:
    before the two, the extractor has a linear layer as wide as the features (FedIIR)"""
    normalization: Literal["default", "batch", "instance", "group"] = "default"
    """layers of the ResNets, `convnet` and `strided_convnet` (`batch`, `group`) and the MONAI networks (`batch`,
    `instance`, `group`); `default`: the network's own"""
    batch_norm: Literal["average", "frozen", "local", "reestimate"] = "average"
    """BatchNorm's running statistics: `average`: as updates; `frozen`: those of the initial model, in training too;
    `local`: each site uses its own; `reestimate`: measured anew for every model that is evaluated"""
    pretrained: Literal["auto", "imagenet", "none"] = "auto"
    """ImageNet weights: `imagenet` demands them, `auto` takes them if they are on the server, and without published
    weights any file that is named there, `none` trains from scratch"""
    objective: dict[str, Any] = Field(default_factory=lambda: {"name": "erm"})
    """what a site minimises: a method's name as a part (`erm`, `dim`, `iir`, `sam` ...), or an object with a name
    and settings"""
    plugins: tuple[PluginName, ...] = Field((), max_length=100, fail_fast=True)
    """files `<name>.py` in the job's own `custom/` folders that bring methods, networks or data sets"""
    rounds: int = Field(100, ge=1, le=MOST_ROUNDS, description="rounds")
    local_epochs: int = Field(5, ge=1, le=MOST_EPOCHS, description="passes over a site's training data per round")
    batch_size: int = Field(16, ge=1, le=LARGEST_BATCH, description="examples per step")
    learning_rate: float = Field(1e-3, ge=SMALLEST_RATE, le=LARGEST_RATE, description="learning rate of the sites")
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """the sites' optimizer, new in every round (but see `keep_momentum`): `sgd`, `adam`, `adamw`"""
    momentum: float = Field(0.9, ge=0, lt=1)
    """momentum of the sites' SGD (authors' code; the paper is silent); other optimizers have none, 0 by default"""
    keep_momentum: bool = False
    """a site's momentum goes on from its last round, as in FedOMG's and FedDG-GA's code; otherwise it starts at zero
    in every round"""
    weight_decay: float = Field(5e-4, ge=0, le=LARGEST_RATE)
    """weight decay of the sites' optimizer (authors' code)"""
    lr_decay_at: float = Field(0.8, gt=0, le=1)
    """fraction of the rounds after which the learning rate falls (authors' code)"""
    lr_decay_factor: float = Field(0.1, ge=SMALLEST_RATE, le=1, description="factor by which it falls (authors' code)")
    image_size: int = Field(224, ge=16, le=1024, description="side of the square input images, pixels")
    crop_scale: float = Field(0.8, ge=0.01, le=1)
    """of photographs: smallest fraction of the area that the random crop of a training image has"""
    color_jitter: float = Field(0.4, ge=0, le=0.5)
    """of photographs: largest random change of brightness, contrast and saturation of a training image, and of its
    hue in turns"""
    max_samples_per_domain: int | None = Field(None, ge=14, le=LARGEST_DOMAIN)
    """seeded, stratified subsample of each domain; unset or `none`: all images"""
    preset: SetName = ""
    """for segmentation: how files become the network's input, `photo`, `photo_patches`, `mri_patches` or
    `ct_patches`; empty: the data set's own"""
    sites_per_domain: int = Field(1, ge=1, le=MOST_SITES)
    """sites that share each source domain; read when a job is made by name"""
    sites: int | None = Field(None, ge=1, le=MOST_SITES)
    """source sites in all, allotted to the source domains by their published numbers of images, in place of
    `sites_per_domain`; read when a job is made by name"""
    partition: Literal["equal", "iid", "dirichlet", "shards", "mix"] = "equal"
    """how sites share a domain: `equal` parts of its splits, or its images divided at random (`iid`), by a
    `dirichlet` law of their classes, or in two `shards` of images sorted by class; `mix`: all sites divide
    `mix_share` of every source domain, whose own sites divide the rest"""
    mix_share: float = Field(0.5, ge=0, le=1)
    """of the partition `mix`: 0 keeps domains apart, 1 gives all sites the same mix"""
    dirichlet_alpha: float = Field(0.1, gt=0, le=LARGEST_RATIO)
    """of the partition `dirichlet`: the smaller, the fewer classes a site has"""
    least_images: int = Field(10, ge=2, le=LARGEST_DOMAIN)
    """fewest images of a site, under all partitions but `equal`"""
    seed: int = Field(0, ge=0, lt=2**31, description="seed of splits, initial weights, order and augmentation")
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """`bfloat16`: autocast in forward passes; `auto`: bfloat16 with channels last at sites whose hardware is fast in
    it (GPUs of compute capability 8.0 or newer, CPUs with AMX or AVX512_BF16), else float32"""
    update_precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: updates are rounded to it on their way to the server; needs a job made for it"""
    enable_tensor_disk_offload: bool = False
    """FLARE writes updates to files in the server's temporary folder as they arrive, and they are combined from
    there; without effect in the simulator"""
    travels: Travels = "all"
    """which parameters travel: `all`; `head`: the extractor is frozen; `extractor`: each site keeps its own head;
    `body`: the head is frozen; or `{"personal": [patterns], "frozen": [patterns]}` of names, others being shared"""
    trainable: Literal["all", "head", "adapters"] = "all"
    """which parameters the sites train, and so which of those that `travels` names: `all`; `head`: the classifier
    alone; `adapters`: the classifier and [low-rank adapters](trainable.md) on the extractor's layers"""
    adapter_rank: int = Field(8, ge=1, le=LARGEST_RANK)
    """rank of the adapters; without effect unless `trainable` is `adapters`"""
    channels_last: bool = Field(False, description="memory format of the convolutions at the sites")
    gap_split: Literal["validation", "train"] = "validation"
    """split on which the generalization gap is measured: `train` as in the GA paper's text"""
    sites_per_round: int | None = Field(None, ge=1, le=MOST_SITES)
    """sources drawn at random, by the seed, for each round, at least `min_sites`; unset or `none`: all of them"""
    validate_all: bool = Field(False, description="sources that were not drawn for a round evaluate its model too")
    keep_local_models: bool = False
    """the models that the sites trained in the last round are kept among the results, for figures"""
    selection: Literal["mean", "median"] = "mean"
    """how source validation selects a model: by the mean over domains, or by the median over sites, which one site's
    false score moves little"""
    selected_by: SetName = ""
    """score by which source validation selects; empty: the task's own, such as `accuracy`"""
    scores: tuple[SetName, ...] = Field((), max_length=100, fail_fast=True)
    """[other scores](report.md#other-scores), with `+` between them: `auroc`, `auprc`, `f1`, `balanced_accuracy`,
    `calibration_error`, `sensitivity_at_90`, of masks `hausdorff_95`; sites then send histograms or confusion
    matrices too"""
    outlier_ratio: Annotated[float, pydantic.AfterValidator(check_ratio)] = Field(10.0, ge=0, le=LARGEST_RATIO)
    """an update or report this many times as long as the round's median is refused; 0: never"""
    clip_to_median: float | None = Field(None, gt=0, le=LARGEST_RATIO)
    """updates longer than this many medians of the round are shortened to it; unset or `none`: never"""
    min_sites: int = Field(2, ge=1, le=MOST_SITES)
    """usable updates below which a round leaves the model as it is"""
    patience: float | None = Field(None, ge=0, le=LONGEST_WAIT)
    """seconds that a round waits for the rest once `min_sites` updates have come"""
    task_timeout: int = Field(14400, ge=1, le=LONGEST_WAIT)
    """seconds after which a site that has not answered is left behind"""

    @pydantic.field_validator("dataset", "objective", "travels", mode="before")
    @classmethod
    def _from_text(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = json.loads(value)
            except RecursionError as error:
                raise ValueError("it is nested too deeply") from error
        if info.field_name == "dataset" and isinstance(value, Mapping):
            return read_own_dataset(value)
        return {"name": value} if info.field_name == "objective" and isinstance(value, str) else value

    @pydantic.field_validator("plugins", "scores", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return [name.strip() for name in value.replace("+", ",").split(",") if name.strip()]

    @pydantic.field_validator(
        "max_samples_per_domain", "sites", "sites_per_round", "patience", "clip_to_median", mode="before"
    )
    @classmethod
    def _none_as_text(cls, value: Any) -> Any:
        # Values from the environment are text, and must be able to remove a limit that the job sets.
        return None if isinstance(value, str) and value.strip().lower() == "none" else value

    @property
    def trained(self) -> str:
        """What the sites train, in words; empty for the whole network."""
        by_setting = {"head": "head alone trained", ADAPTERS: f"head and adapters of rank {self.adapter_rank} trained"}
        return by_setting.get(self.trainable, "")

    @property
    def learned(self) -> Task:
        """The task, with the ``scores`` that evaluations also have; ``SettingsError`` if it has no such score."""
        return TASKS.get(self.task).asked(self.scores)

    @property
    def uses(self) -> list[tuple[str, str]]:
        """Pairs of setting and name for the settings that may refer to plug-ins, such as ``("model", "resnet18")``."""
        named = ((setting, name_in(getattr(self, setting))) for setting in NAMING)
        return [(setting, name) for setting, name in named if name is not None]

    def holds_out(self, domain: str) -> bool:
        """Return whether ``domain`` is only evaluated."""
        return self.target in (domain, EVERY)

    def learning_rate_at(self, round_number: int) -> float:
        """Return the learning rate of a round, counted from 0."""
        decayed = round_number >= max(1, int(self.lr_decay_at * self.rounds + 1e-9))  # 0.7 * 90 is 63
        return self.learning_rate * (self.lr_decay_factor if decayed else 1.0)

    def draw_sites(self, sources: tuple[str, ...], number: int) -> tuple[str, ...]:
        """Return the ``sources`` that train in round ``number``, counted from 1: all, or a seeded draw of them."""
        count = self.sites_per_round
        if count is None or count >= len(sources):
            return sources
        generator = numpy_generator(self.seed, "sites of the round", number)
        return tuple(sorted(generator.choice(sources, size=count, replace=False).tolist()))


NAMING = tuple(setting for setting in REGISTRY_OF if setting in Protocol.model_fields)
"""The settings by which a protocol names what plug-ins may bring."""


class Overrides(NamedTuple):
    """Settings by name, divided into those of the protocol, of the aggregator, and of the local objective."""

    protocol: dict[str, Any]
    aggregator: dict[str, Any]
    objective: dict[str, Any]


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in ``FDG_*`` variables, by lower-case name, without blanks around; empty ones are unset."""
    return {
        key[len(PREFIX) :].lower(): value
        for key, text in environment.items()
        if key.startswith(PREFIX) and key not in OTHER_VARIABLES and (value := text.strip())
    }


def part_settings(
    settings: Mapping[str, Any], aggregator_settings: Iterable[str], objective_settings: Iterable[str], origin: str
) -> Overrides:
    """Divide ``settings`` by their owner; raise ``SettingsError``, which names ``origin``, for an unknown name.

    A name that several share belongs to the protocol first, then to the aggregator, then to the objective.
    """
    known = (set(Protocol.model_fields), set(aggregator_settings), set(objective_settings))
    parted = Overrides({}, {}, {})
    for name, value in settings.items():
        owners = [part for part, names in zip(parted, known, strict=True) if name in names]
        if not owners:
            of_machine = (variable[len(PREFIX) :].lower() for variable in OTHER_VARIABLES)
            hint = did_you_mean(name, sorted({*of_machine, *set().union(*known)}))
            raise SettingsError(f"{origin}: there is no setting {shorten(name)}; {hint}", field=str(name))
        owners[0][name] = value
    return parted


def check_unshared(server: Iterable[str], objective: Collection[str], origin: str) -> None:
    """Raise ``SettingsError`` for a setting of the ``server`` that the ``objective`` has too: whose is meant?"""
    if both := [name for name in server if name in objective]:
        expected = f'it in one of weighting and objective, as {{"name": ..., "{both[0]}": ...}}: both have it'
        raise SettingsError(f"{origin}: {both[0]}: expected {expected}.", field=both[0], expected=expected)


def make_protocol(layers: Iterable[Mapping[str, Any]]) -> Protocol:
    """Return the protocol from layers of settings, later ones override; raise ``SettingsError`` naming the field."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(layer)
    if merged.get("optimizer", SGD) != SGD:
        merged.setdefault("momentum", 0.0)  # the default is SGD's
    try:
        return Protocol.model_validate(merged)
    except pydantic.ValidationError as error:
        detail = error.errors(include_url=False)[0]
        name = str(detail["loc"][0])
        said = str(detail["msg"]).removeprefix("Value error, ").rstrip(".")
        text = f"setting {name} ({PREFIX}{name.upper()}) is {shorten(merged.get(name))}: {said}."
        raise SettingsError(text, public=True, field=name, value=merged.get(name)) from error
