# SPDX-License-Identifier: Apache-2.0
"""References in one process, without FLARE: algorithms on the pooled source data, and each source site alone.

They are not federated methods: each step uses a batch of every source domain, which no federation can do, or no site
learns from another. Their results show what a federated method could reach on the same data, and what it must beat.

    >>> from fdg_plugins.lab.centralised import ALGORITHMS, make_algorithm
    >>> [algorithm.title for algorithm in ALGORITHMS.values()]
    ['ERM', 'IRM', 'GroupDRO', 'V-REx', 'IGA', 'Fish', 'Fishr', 'Local']
    >>> make_algorithm("irm", {"strength": 10})
    CentralisedIRM(strength=10.0, warm_up=500)

The loss of an algorithm takes one batch per source domain and the state carried over from the previous step:

    >>> import torch
    >>> from fdg_plugins.models import build_model
    >>> model = build_model("groupnorm_convnet", num_classes=10, seed=1)
    >>> batches = [(torch.rand(4, 1, 16, 16), torch.tensor([0, 1, 2, 3])) for _ in range(3)]
    >>> algorithm = make_algorithm("groupdro", {})
    >>> loss = algorithm.loss(model, batches, step=0, state=algorithm.begin(model, num_domains=3))
    >>> loss.value.shape, loss.risks.shape, list(loss.state)
    (torch.Size([]), torch.Size([3]), ['log_weights'])

``plan`` turns an algorithm, a data set and settings into a run, and ``run`` carries it out: ``fdg run``.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fdg_plugins.errors import check_choice, check_settings_known
from fdg_plugins.lab.centralised.algorithm import Algorithm, CentralisedERM, LocalOnly
from fdg_plugins.lab.centralised.algorithms import (
    CentralisedFish,
    CentralisedGroupDRO,
    CentralisedIGA,
    CentralisedIRM,
    CentralisedVREx,
)
from fdg_plugins.lab.centralised.fishr import CentralisedFishr

_ORDER = (
    CentralisedERM,
    CentralisedIRM,
    CentralisedGroupDRO,
    CentralisedVREx,
    CentralisedIGA,
    CentralisedFish,
    CentralisedFishr,
    LocalOnly,
)
ALGORITHMS: Mapping[str, type[Algorithm]] = {algorithm.name: algorithm for algorithm in _ORDER}
"""All algorithms by name, in the order of tables."""


def algorithm_settings(name: str) -> dict[str, Any]:
    """Return the settings of the algorithm ``name`` with their defaults, in the order of its fields.

    Raises ``SettingsError`` for an unknown name.
    """
    check_choice("algorithm", name, ALGORITHMS)
    return {field.name: field.default for field in fields(ALGORITHMS[name])}


def make_algorithm(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm ``name``, with ``settings`` overriding its defaults.

    An integer given for a float setting is converted, so that equal settings have equal records. Raises
    ``SettingsError`` for an unknown name, an unknown setting, or a value out of range.
    """
    defaults = algorithm_settings(name)
    check_settings_known(f"algorithm {name!r}", settings, list(defaults))
    pointed = {
        setting: float(value) if isinstance(defaults[setting], float) and type(value) is int else value
        for setting, value in settings.items()
    }
    return ALGORITHMS[name](**pointed)
