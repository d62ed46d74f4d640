# SPDX-License-Identifier: Apache-2.0
"""The numbers of protocols: those of families of data sets, and those by name, which papers and ``quick`` use.

Families: FedOMG's D.6 for photographs, one protocol for PACS, VLCS and Office-Home, and for label-skewed sites, of
which it states neither momentum nor weight decay; FedIIR's paper for digits. The values for segmentation and those of
the stand-in are ours. The protocol settings of a *method* are in its record (``fdg_plugins.methods``).

The protocols under which papers compare methods say how long and how sites train, and what (``docs/sweep.md`` has
them as a table, with what papers and codes leave open). Sources: FedOMG, D.6, with momentum, weight decay and schedule
of its code; FedIIR, Section 5.1 and Table 3, with momentum and weight decay of its code; FedDIM, Section 5.1, which
states no learning rate; FedDG-GA, Section 4.1, with the optimizer of its code. ``fedomg-fl`` is FedOMG's other protocol
(D.6, Tables 1 and 5) of 100 label-skewed sites, which states neither momentum nor weight decay, so there is none.
``fediir-many`` (FedIIR, Tables 2 and 8 to 11) and ``feddim-many`` (FedDIM, Tables 2 and 3) have many sites, which share
the source domains by size, and draw a few for each round; in the others all sites take part in every round. What
neither a paper nor its code says is that of the data set. Momentum is 0.9 in all but ``fedomg-fl``, which is the
default of the package, and stays that of a method which demands another. In the code of FedOMG and FedDG-GA a site has
one optimizer for all rounds (``optimizer_dict`` of both ``trainval_func.py``), in FedIIR's a new one in every round.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

Settings = Mapping[str, Any]

SEGMENTATION = "segmentation"


class DatasetProtocol(NamedTuple):
    """Fields of the protocol on real data, and their replacements on the stand-in, which may include settings of the
    aggregator."""

    protocol: Settings
    stand_in: Settings


FAMILIES: Mapping[str, DatasetProtocol] = {
    "photographs": DatasetProtocol(
        protocol={
            "model": "resnet18",
            "pretrained": "auto",
            "image_size": 224,
            "rounds": 100,
            "local_epochs": 5,
            "batch_size": 16,
            "learning_rate": 0.001,
        },
        stand_in={
            "model": "convnet",
            "pretrained": "none",
            "image_size": 32,
            "rounds": 4,
            "local_epochs": 8,
            "learning_rate": 0.03,
            "server_lr": 1.0,
        },
    ),
    "digits": DatasetProtocol(
        protocol={
            "model": "groupnorm_convnet",
            "pretrained": "none",
            "image_size": 28,
            "rounds": 100,
            "local_epochs": 1,
            "batch_size": 64,
            "learning_rate": 0.01,
            "weight_decay": 0.0,
            "lr_decay_factor": 1.0,
        },
        stand_in={"rounds": 4, "local_epochs": 4, "learning_rate": 0.05},
    ),
    "label_skew": DatasetProtocol(
        protocol={
            "model": "cnn",
            "pretrained": "none",
            "image_size": 32,
            "rounds": 800,
            "local_epochs": 5,
            "batch_size": 16,
            "learning_rate": 0.005,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "lr_decay_factor": 1.0,
            "sites_per_domain": 100,
            "partition": "dirichlet",
        },
        stand_in={"model": "cnn", "rounds": 4, "local_epochs": 2, "learning_rate": 0.05},
    ),
    SEGMENTATION: DatasetProtocol(
        protocol={
            "task": "segmentation",
            "model": "monai_unet",
            "normalization": "batch",
            "pretrained": "none",
            "image_size": 192,
            "rounds": 40,
            "local_epochs": 2,
            "batch_size": 4,
            "optimizer": "adam",
            "learning_rate": 0.001,
            "weight_decay": 0.0,
            "lr_decay_factor": 1.0,
        },
        stand_in={
            "model": "monai_unet",
            "image_size": 64,
            "rounds": 4,
            "local_epochs": 4,
            "learning_rate": 0.003,
            "server_lr": 1.0,
        },
    ),
}
"""The families that have a protocol."""

# Photographs: a quarter of the pixels per side, a few hundred images per domain, ten rounds of one pass. Starting from
# random weights, so few steps must be larger, at the sites and at the server (FedOMG's own 0.05 is for 500 epochs).
# Grey digits of 28 pixels: a step is cheap, so there are more of them, in smaller batches. Of label-skewed sites there
# are twenty, of a hundred small images each. Images with masks: optimizer, learning rate and batch size stay those of
# the data set; volumes are the dearer.
_QUICK_PHOTOGRAPHS = {
    "rounds": 10,
    "local_epochs": 1,
    "image_size": 64,
    "max_samples_per_domain": 300,
    "learning_rate": 0.01,
    "server_lr": 1.0,
}
_QUICK = {"rounds": 20, "local_epochs": 1, "batch_size": 16, "server_lr": 1.0}
QUICK_PROTOCOLS: Mapping[str, Settings] = {
    "photographs": _QUICK_PHOTOGRAPHS,
    # Of the network that photographs of one's own train, a CPU computes channels last in two thirds of the time.
    "own_photographs": {**_QUICK_PHOTOGRAPHS, "rounds": 5, "image_size": 96, "channels_last": True},
    "digits": {**_QUICK, "max_samples_per_domain": 600, "learning_rate": 0.02},
    "label_skew": {**_QUICK, "max_samples_per_domain": 2000, "learning_rate": 0.05, "sites_per_domain": 20},
    SEGMENTATION: {"rounds": 10, "local_epochs": 1, "server_lr": 1.0},
}
"""The protocol ``quick`` by family. Its numbers show what each method does on a CPU, and come from no paper."""

QUICK_MASKS: Mapping[int, Mapping[str, int]] = {
    2: {"image_size": 64, "max_samples_per_domain": 300},
    3: {"image_size": 32, "max_samples_per_domain": 30},
}
"""The most that ``quick`` takes of images with masks, by their dimensions."""

# FedOMG's and FedDG-GA's code
_STEPS = {"weight_decay": 5e-4, "lr_decay_at": 0.8, "lr_decay_factor": 0.1, "keep_momentum": True}
_CONSTANT = {"weight_decay": 0.0, "lr_decay_factor": 1.0, "keep_momentum": False}  # FedIIR's code
_FROZEN = {"batch_norm": "frozen"}  # ``ResNet.train`` of FedIIR's code
_CROPS = {"crop_scale": 0.7}  # ``RandomResizedCrop`` of all three codes
_JITTER = {"color_jitter": 0.3}  # ``ColorJitter`` of FedIIR's code; 0.4 in the others
_PHOTOGRAPHS = {"image_size": 224, "head": "linear", **_CROPS}
_TWO_LAYERS = {"image_size": 224, "head": "two_layer", "batch_size": 32}
_DIGITS = {"model": "groupnorm_convnet", "image_size": 28, "head": "linear", "batch_size": 64}

_FEDOMG = {**_STEPS, **_PHOTOGRAPHS, "rounds": 100, "local_epochs": 5, "batch_size": 16, "learning_rate": 1e-3}
_FEDDG_GA = {**_FEDOMG, "rounds": 40, "batch_norm": "average"}  # of all entries, ``FedAvg`` of ``fed_merge.py``
_FEDOMG_FL = {**FAMILIES["label_skew"].protocol, **_CONSTANT, "head": "linear"}
_FEDIIR = {**_CONSTANT, "rounds": 100, "local_epochs": 1}
_FEDIIR_PHOTOGRAPHS = {**_FEDIIR, **_TWO_LAYERS, "head": "projected_two_layer", **_FROZEN, **_CROPS, **_JITTER}
_FEDIIR_ON: dict[str, Settings] = {
    "rotatedmnist": {**_FEDIIR, **_DIGITS, "learning_rate": 1e-2},
    "vlcs": {**_FEDIIR_PHOTOGRAPHS, "model": "resnet18", "learning_rate": 1e-3},
    "pacs": {**_FEDIIR_PHOTOGRAPHS, "model": "resnet18", "learning_rate": 2.5e-3},
    "officehome": {**_FEDIIR_PHOTOGRAPHS, "model": "resnet50", "learning_rate": 1e-3},
}
_FEDDIM = {"rounds": 100, "local_epochs": 1}
_FEDDIM_ON: dict[str, Settings] = {
    **{name: {**_FEDDIM, **_DIGITS} for name in ("rotatedmnist", "rotatedmnist_7k")},
    "vlcs": {**_FEDDIM, **_TWO_LAYERS, "model": "resnet18"},
    "pacs": {**_FEDDIM, **_TWO_LAYERS, "model": "resnet18"},
    "officehome": {**_FEDDIM, **_TWO_LAYERS, "model": "resnet50"},
}


def _many(on: Mapping[str, Settings], sites: int, drawn: int, on_digits: tuple[int, int]) -> dict[str, Settings]:
    numbers = {name: on_digits if "mnist" in name else (sites, drawn) for name in on}
    return {name: {**on[name], "sites": own[0], "sites_per_round": own[1]} for name, own in numbers.items()}


PAPER_PROTOCOLS: Mapping[str, Mapping[str, Settings]] = {
    "fedomg": {name: {**_FEDOMG, "model": "resnet18"} for name in ("pacs", "vlcs", "officehome")},
    "fedomg-fl": {
        **{name: {**_FEDOMG_FL, "image_size": 28} for name in ("mnist", "emnist")},
        **dict.fromkeys(("cifar10", "cifar100"), _FEDOMG_FL),
        "celeba": {**_FEDOMG_FL, "image_size": 64},
    },
    "fediir": _FEDIIR_ON,
    "fediir-many": _many(_FEDIIR_ON, 50, 3, on_digits=(50, 5)),
    "feddim": _FEDDIM_ON,
    "feddim-many": _many(_FEDDIM_ON, 30, 10, on_digits=(50, 10)),
    "feddg-ga": {
        "pacs": {**_FEDDG_GA, "model": "resnet18"},
        "officehome": {**_FEDDG_GA, "model": "resnet18"},
        "terraincognita": {**_FEDDG_GA, "model": "resnet50"},
        **{name: {**_FEDDG_GA, "model": "alexnet", "normalization": "batch"} for name in ("domainnet", "domainnet10")},
    },
}
"""The settings by paper and data set. FedDG-GA's AlexNet has BatchNorm and began from ImageNet weights that nobody has
published; from torchvision's, of AlexNet without it, the same function begins."""


PLAIN_WEIGHTINGS: Mapping[str, str] = dict.fromkeys(("fediir", "fediir-many", "feddim", "feddim-many"), "uniform")
"""How a paper weighs the sites where the step is their plain mean, as in FedAvg: FedIIR's code and FedDIM's Eq. 5
divide by their number. The others weigh by samples or do not say: then the default of the method holds."""

PAPER = "paper"  # leaves a recipe unchanged
QUICK = "quick"  # makes a run small enough for a CPU
PROTOCOLS = (PAPER, QUICK, *PAPER_PROTOCOLS)
"""The protocols by name."""
