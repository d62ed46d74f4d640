# SPDX-License-Identifier: Apache-2.0
"""Protocols by name: ``paper`` leaves a recipe unchanged, ``quick`` makes a run small enough for a CPU.

``fedomg``, ``fedomg-fl``, ``fediir``, ``feddim`` and ``feddg-ga`` are those of a paper's comparisons. The numbers of
``quick`` are declared only here. They are meant to show what each method does and come from no paper.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.data.specs import DatasetSpec
from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.settings.families import SEGMENTATION, dataset_protocol
from fdg_plugins.settings.paper_protocols import PAPER_PROTOCOLS, paper_protocol

PAPER = "paper"
QUICK = "quick"
PROTOCOLS = (PAPER, QUICK, *PAPER_PROTOCOLS)

# Photographs: a quarter of the pixels per side, a few hundred images per domain, ten rounds of one pass. Starting from
# random weights, so few steps must be larger, at the sites and at the server (FedOMG's own 0.05 is for 500 epochs).
_QUICK_PHOTOGRAPHS: Mapping[str, Any] = MappingProxyType(
    {
        "rounds": 10,
        "local_epochs": 1,
        "image_size": 64,
        "max_samples_per_domain": 300,
        "learning_rate": 0.01,
        "server_lr": 1.0,
    }
)
# Twenty label-skewed sites of a hundred small images each: a step is cheap, and there are many sites.
_QUICK_SITES: Mapping[str, Any] = MappingProxyType(
    {
        "rounds": 20,
        "local_epochs": 1,
        "batch_size": 16,
        "max_samples_per_domain": 2000,
        "learning_rate": 0.05,
        "server_lr": 1.0,
        "sites_per_domain": 20,
    }
)
# Grey digits of 28 pixels: a step is cheap, so there are more of them, in smaller batches.
_QUICK_DIGITS: Mapping[str, Any] = MappingProxyType(
    {
        "rounds": 20,
        "local_epochs": 1,
        "batch_size": 16,
        "max_samples_per_domain": 600,
        "learning_rate": 0.02,
        "server_lr": 1.0,
    }
)
# Images with masks: optimizer, learning rate and batch size stay those of the data set; volumes are the dearer.
_QUICK_MASKS: Mapping[str, Any] = MappingProxyType({"rounds": 10, "local_epochs": 1, "server_lr": 1.0})
_QUICK_MASKS_BY_DIMS: Mapping[int, Mapping[str, int]] = MappingProxyType(
    {
        2: {"image_size": 64, "max_samples_per_domain": 300},
        3: {"image_size": 32, "max_samples_per_domain": 30},
    }
)


def protocol_settings(protocol: str, dataset: DatasetRef) -> dict[str, Any]:
    """Return the settings of a protocol for a data set; a method ignores those that it does not have.

    Raises ``SettingsError`` for an unknown protocol or data set, and for a paper that does not use the data set.
    """
    spec: DatasetSpec = dataset_spec(dataset)
    if protocol in PAPER_PROTOCOLS:
        return dict(paper_protocol(protocol, spec.name))
    if protocol == PAPER:
        return {}
    if protocol == QUICK:
        return dict(_quick_of(spec, dataset_protocol(dataset).protocol))
    raise SettingsError(f"protocol is {protocol!r}, expected one of {', '.join(PROTOCOLS)}.")


def _quick_of(spec: DatasetSpec, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the quick protocol of a data set, by its families; ``own`` is the protocol that it has otherwise.

    A grey data set with masks is of the family of digits too, and is not treated as such.
    """
    if SEGMENTATION in spec.families:
        small = _QUICK_MASKS_BY_DIMS[spec.dims]
        return {**_QUICK_MASKS, **{name: min(value, own.get(name) or value) for name, value in small.items()}}
    if "label_skew" in spec.families:
        return _QUICK_SITES
    return _QUICK_DIGITS if "digits" in spec.families else _QUICK_PHOTOGRAPHS
