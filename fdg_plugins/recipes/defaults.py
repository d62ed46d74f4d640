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
    method, as in :mod:`fdg_plugins.composition`, for which it takes other values; ``weightings`` by name.
    """

    protocol: Settings
    stand_in: Settings
    aggregators: Mapping[str, Settings]
    objectives: Mapping[str, Settings]
    weightings: Mapping[str, Settings]


_PLAIN_MEAN = {"server_lr": 1.0, "weighting": "uniform"}  # FedDIM's Eq. 5 and FedIIR's Algorithm 1: every site the same
_GA = {"ga": {"step_size": 0.05}}
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
        "fedavg": {"server_lr": 1.0, "weighting": "samples"},
        "feddim": _PLAIN_MEAN,
        "fediir": _PLAIN_MEAN,
        "fedomg": {"kappa": 0.5, "server_lr": 0.05, "weighting": "uniform"},
    },
    # FedIIR's own strength, and the one that FedOMG's paper gives it under FedOMG.
    objectives={"dim": _DIM, "iir": {"strength": 0.001, **_IIR}, "fedomg+iir": {"strength": 0.0001, **_IIR}},
    weightings=_GA,
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
    aggregators={"fedavg": _PLAIN_MEAN, "fedomg": {"kappa": 0.5, "server_lr": 1.0, "weighting": "uniform"}},
    objectives={"dim": _DIM, "iir": {"strength": 0.01, **_IIR}},
    weightings=_GA,
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
