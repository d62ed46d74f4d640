# SPDX-License-Identifier: Apache-2.0
"""Centralised references: algorithms of domain generalization on the pooled source data, in one process, without FLARE.

They are not federated methods: each step uses a batch of every source domain, which no federation can do. Their results
are a reference for what a federated method could reach on the same data.

    >>> from fdg_plugins.lab.centralised import ALGORITHMS, make_algorithm
    >>> [algorithm.title for algorithm in ALGORITHMS.values()]
    ['ERM', 'IRM', 'GroupDRO', 'V-REx', 'IGA', 'Fish', 'Fishr']
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

from fdg_plugins.lab.centralised.algorithm import Algorithm, Loss
from fdg_plugins.lab.centralised.catalogue import ALGORITHMS, algorithm_settings, make_algorithm
from fdg_plugins.lab.centralised.erm import CentralisedERM
from fdg_plugins.lab.centralised.fish import CentralisedFish
from fdg_plugins.lab.centralised.fishr import CentralisedFishr
from fdg_plugins.lab.centralised.groupdro import CentralisedGroupDRO
from fdg_plugins.lab.centralised.iga import CentralisedIGA
from fdg_plugins.lab.centralised.irm import CentralisedIRM
from fdg_plugins.lab.centralised.vrex import CentralisedVREx

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "CentralisedERM",
    "CentralisedFish",
    "CentralisedFishr",
    "CentralisedGroupDRO",
    "CentralisedIGA",
    "CentralisedIRM",
    "CentralisedVREx",
    "Loss",
    "algorithm_settings",
    "make_algorithm",
]
