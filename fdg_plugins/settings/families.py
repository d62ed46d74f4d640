# SPDX-License-Identifier: Apache-2.0
"""The default protocol of a data set: that of its family, and the values of the data set itself.

Sources: FedOMG's D.6 for photographs, one protocol for PACS, VLCS and Office-Home, and for label-skewed sites, of which
it states neither momentum nor weight decay; FedIIR's paper for digits. The values for segmentation and those of the
stand-in are ours. The protocol settings of a *method* are in its record (``fdg_plugins.methods``).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.data.specs import DatasetSpec
from fdg_plugins.plugins.own_dataset import DatasetRef

Settings = Mapping[str, Any]

SEGMENTATION = "segmentation"


class DatasetProtocol(NamedTuple):
    """Fields of the protocol on real data, and their replacements on the stand-in, which may include settings of the
    aggregator."""

    protocol: Settings
    stand_in: Settings


FAMILIES: Mapping[str, DatasetProtocol] = MappingProxyType(
    {
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
)
"""The families that have a protocol."""


def dataset_protocol(dataset: DatasetRef) -> DatasetProtocol:
    """Return the protocol of a data set: its families' protocols from general to specific, then its own values.

    Raises ``SettingsError`` for a data set that is not in the catalogue.
    """
    spec: DatasetSpec = dataset_spec(dataset)
    layers = [*(FAMILIES[name] for name in spec.families if name in FAMILIES), (spec.protocol, spec.stand_in_protocol)]
    protocol: dict[str, Any] = {}
    stand_in: dict[str, Any] = {}
    for real, drawn in layers:
        protocol |= real
        stand_in |= drawn
    return DatasetProtocol(protocol, stand_in)
