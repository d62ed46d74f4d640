# SPDX-License-Identifier: Apache-2.0
"""What this plug-in brings: one record each."""

from fdg_example_plugin.fedproto import FedProtoObjective
from fdg_plugins.data.specs import ImageFolderSpec
from fdg_plugins.models.network import Network
from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
)

FEDPROTO = Method(
    key="fedproto",
    title="FedProto",
    part="proto",
    line="features are held near the mean features that all sites have of the same class",
    reference=Reference(
        authors="Tan, Long, Liu, Zhou, Lu, Jiang, Zhang",
        title="FedProto: Federated Prototype Learning across Heterogeneous Clients",
        venue="AAAI",
        year=2022,
    ),
    classes=(FedProtoObjective,),
    defaults=(Default(objective={"strength": 1.0}, source="the paper's code"),),
    letters="h(x) features of an image; C_y prototype of its class: mean features over all sites; λ strength",
    equations=(Equation(formula="CE + λ mean ‖h(x) - C_y‖² / D", meaning="what a site minimises, C being fixed"),),
    settings=(SettingSource(name="strength", symbol="λ", remark="0 is FedAvg, bit for bit"),),
    differences=Differences(
        compared="",
        rows=(
            Difference(point="what travels", paper="prototypes alone", ours="prototypes and the model, as in FedAvg"),
        ),
    ),
    leaves=(
        Leaving(
            what="mean features by class, and how many images each is of",
            shape="[K, D] float32 and [Y] int64",
            reveals="how many images of each class the site trains on, and what is common to the features of a class",
            report="prototypes",
        ),
    ),
)

PATCHNET = Network(name="patchnet", build="fdg_example_plugin.network:patchnet", head="head", small=True)

BLOCKS = ImageFolderSpec(
    name="blocks",
    folder="blocks",
    title="Blocks",
    reference="drawn by this plug-in's tests",
    domains=("blue", "green", "red"),
    classes=("bar", "square"),
)
