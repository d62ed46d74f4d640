# SPDX-License-Identifier: Apache-2.0
"""The protocols under which papers compare methods, by paper and data set: how long and how sites train, and what.

Sources: FedOMG, D.6, with momentum, weight decay and schedule of its code; FedIIR, Section 5.1 and Table 3, with
momentum and weight decay of its code; FedDIM, Section 5.1, which states no learning rate; FedDG-GA, Section 4.1, with
the optimizer of its code. All sites take part in every round. What neither a paper nor its code says is that of the
data set; settings of a method, such as its strength, are in its record (``fdg_plugins.methods``). Momentum is 0.9 in
all four, which is the default of the package, and stays that of a method which demands another. In the code of FedOMG
and FedDG-GA a site has one optimizer for all rounds (``optimizer_dict`` of both ``trainval_func.py``), in FedIIR's a
new one in every round.

FedIIR's code keeps BatchNorm of its ResNets in evaluation mode whatever the algorithm. FedDIM says that it follows
FedIIR's methodology and prints nothing about BatchNorm; no code of it was compared, so ``feddim`` leaves it to the data
set, as it does the learning rate and the augmentation, of which the papers say nothing and the codes of the other three
crop more than the default. No setting has the initial weights of a new head: FedIIR's code draws them by
``kaiming_normal_``, this package as torch does, 2.4 times narrower (√6).

``fedomg-fl`` is FedOMG's other protocol (D.6, Tables 1 and 5): 100 label-skewed sites. The paper states SGD, neither
momentum nor weight decay, so there is none; nor how a site's images are split, nor what size CelebA's images have
(``docs/label-skew.md``).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fdg_plugins.errors import SettingsError

Settings = Mapping[str, Any]

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
_FEDOMG_FL = {
    **_CONSTANT,
    "model": "cnn",
    "head": "linear",
    "rounds": 800,
    "local_epochs": 5,
    "batch_size": 16,
    "learning_rate": 5e-3,
    "momentum": 0.0,
    "sites_per_domain": 100,
    "partition": "dirichlet",
}
_FEDIIR = {**_CONSTANT, "rounds": 100, "local_epochs": 1}
_FEDIIR_PHOTOGRAPHS = {**_FEDIIR, **_TWO_LAYERS, **_FROZEN, **_CROPS, **_JITTER}
_FEDDIM = {"rounds": 100, "local_epochs": 1}

PAPER_PROTOCOLS: Mapping[str, Mapping[str, Settings]] = MappingProxyType(
    {
        "fedomg": {name: {**_FEDOMG, "model": "resnet18"} for name in ("pacs", "vlcs", "officehome")},
        "fedomg-fl": {
            **{name: {**_FEDOMG_FL, "image_size": 28} for name in ("mnist", "emnist")},
            **{name: {**_FEDOMG_FL, "image_size": 32} for name in ("cifar10", "cifar100")},
            "celeba": {**_FEDOMG_FL, "image_size": 64},
        },
        "fediir": {
            "rotatedmnist": {**_FEDIIR, **_DIGITS, "learning_rate": 1e-2},
            "vlcs": {**_FEDIIR_PHOTOGRAPHS, "model": "resnet18", "learning_rate": 1e-3},
            "pacs": {**_FEDIIR_PHOTOGRAPHS, "model": "resnet18", "learning_rate": 2.5e-3},
            "officehome": {**_FEDIIR_PHOTOGRAPHS, "model": "resnet50", "learning_rate": 1e-3},
        },
        "feddim": {
            **{name: {**_FEDDIM, **_DIGITS} for name in ("rotatedmnist", "rotatedmnist_7k")},
            "vlcs": {**_FEDDIM, **_TWO_LAYERS, "model": "resnet18"},
            "pacs": {**_FEDDIM, **_TWO_LAYERS, "model": "resnet18"},
            "officehome": {**_FEDDIM, **_TWO_LAYERS, "model": "resnet50"},
        },
        "feddg-ga": {
            "pacs": {**_FEDDG_GA, "model": "resnet18"},
            "officehome": {**_FEDDG_GA, "model": "resnet18"},
            "terraincognita": {**_FEDDG_GA, "model": "resnet50"},
        },
    }
)
"""The settings by paper and data set. FedDG-GA's DomainNet is missing, because AlexNet is not available."""


PLAIN_WEIGHTINGS: Mapping[str, str] = MappingProxyType({"fediir": "uniform", "feddim": "uniform"})
"""How a paper weighs the sites where the step is their plain mean, as in FedAvg: FedIIR's code and FedDIM's Eq. 5
divide by their number. The others weigh by samples or do not say: then the default of the method holds."""


def paper_protocol(paper: str, dataset: str) -> Settings:
    """Return the settings of a paper's protocol for a data set.

    Raises ``SettingsError`` if the paper does not use the data set, and KeyError for a paper without a protocol.
    """
    by_dataset = PAPER_PROTOCOLS[paper]
    if dataset not in by_dataset:
        raise SettingsError(
            f"protocol {paper!r} has nothing for data set {dataset}, expected one of {', '.join(by_dataset)}."
        )
    return by_dataset[dataset]
