# SPDX-License-Identifier: Apache-2.0
"""What a recipe takes where it is told nothing: the papers' protocol and settings for each data set, in one place.

Sources: FedOMG's D.6 and Table 4 for photographs, FedIIR's Table 3, FedDG-GA's paper for its step. FedDIM's paper
prints neither of its two settings, and no paper FedOMG's on digits; these, and the stand-in's, are ours (docs/methods).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fdg_plugins.data import DatasetSpec, dataset_spec

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Defaults:
    """The defaults of one data set.

    ``protocol`` is that of real data, ``stand_in`` what replaces parts of it, and settings of the aggregator, on the
    stand-in. ``aggregators`` and ``objectives`` are keyed by the name of an aggregator or objective, or by that of a
    method, as in ``plugins.composition``, for which it takes other values; ``weightings`` by name. ``parts`` is what an
    objective or a weighting, by name, needs of the protocol.
    """

    protocol: Settings
    stand_in: Settings
    aggregators: Mapping[str, Settings]
    objectives: Mapping[str, Settings]
    weightings: Mapping[str, Settings]
    parts: Mapping[str, Settings]


_SIZES = {"server_lr": 1.0, "weighting": "samples"}
_PLAIN_MEAN = {"server_lr": 1.0, "weighting": "uniform"}  # FedDIM's Eq. 5 and FedIIR's Algorithm 1: every site the same
_GA = {"ga": {"step_size": 0.05}}
# SCAFFOLD and MoFedSAM are stated for plain SGD; ARFL's loss is that of the training images.
_PARTS: Mapping[str, Settings] = {
    "scaffold": {"momentum": 0.0},
    "mosam": {"momentum": 0.0},
    "arfl": {"gap_split": "train"},
}
# Averaged without the sites' sizes by their authors.
_UNIFORM = dict.fromkeys(("scaffold", "harmofl", "fedsr"), _PLAIN_MEAN)
# The values of FedDG-GA's code, where that has the method, and of FedOMG's Table 4.
_BASELINES: Mapping[str, Settings] = {"prox": {"strength": 0.1}, "mosam": {"radius": 0.6, "beta": 0.6}}
_DIM = {"strength": 0.01, "insight_momentum": 0.5, "target": "insight"}
_IIR = {"ema": 0.95, "probe": "extra_task"}

PACS = Defaults(
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
    aggregators={
        "fedavg": _SIZES,
        "feddim": _PLAIN_MEAN,
        "fediir": _PLAIN_MEAN,
        "fedomg": {"kappa": 0.5, "server_lr": 0.05, "weighting": "uniform"},
        "fednova": _SIZES,
        "fedcsa": _SIZES,
        **_UNIFORM,
    },
    # FedIIR's own strength, and the one that FedOMG's paper gives it under FedOMG.
    objectives={
        **_BASELINES,
        "dim": _DIM,
        "iir": {"strength": 0.001, **_IIR},
        "fedomg+iir": {"strength": 0.0001, **_IIR},
        "fedomg+sam": {"radius": 0.6},
    },
    weightings=_GA,
    parts=_PARTS,
)

ROTATED_MNIST = Defaults(
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
    aggregators={
        "fedavg": _PLAIN_MEAN,
        "fedomg": {"kappa": 0.5, "server_lr": 1.0, "weighting": "uniform"},
        "fednova": _PLAIN_MEAN,
        "fedcsa": _PLAIN_MEAN,
    },
    objectives={**_BASELINES, "dim": _DIM, "iir": {"strength": 0.01, **_IIR}},
    weightings=_GA,
    parts=_PARTS,
)

# One protocol for all three in FedOMG's D.6; FedIIR's strength is another in each.
VLCS = replace(PACS, objectives={**PACS.objectives, "iir": {"strength": 0.005, **_IIR}})
OFFICE_HOME = replace(PACS, objectives={**PACS.objectives, "iir": {"strength": 0.0005, **_IIR}})

_OF_DATASET = {"pacs": PACS, "vlcs": VLCS, "officehome": OFFICE_HOME, "rotatedmnist": ROTATED_MNIST}
_OF_CHANNELS = {3: PACS, 1: ROTATED_MNIST}


def defaults_of(dataset: str) -> Defaults:
    """Return the defaults of a data set; one without its own has those of PACS in colour, of RotatedMNIST in grey.

    Raises ``SettingsError`` for a data set that is not in the catalogue.
    """
    spec: DatasetSpec = dataset_spec(dataset)
    return _OF_DATASET.get(spec.name) or _OF_CHANNELS[spec.channels]
