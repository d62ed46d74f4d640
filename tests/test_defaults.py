# SPDX-License-Identifier: Apache-2.0
"""The layers of defaults: families of data sets, records of methods, and protocols by name with printed values."""

from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest

from fdg_plugins.cli.options import ProtocolName
from fdg_plugins.core.partition import allot_sites
from fdg_plugins.data import DATASETS, PACS, dataset_spec
from fdg_plugins.data.catalogue import ROTATED_DIGITS, known_images
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.plans import job_settings
from fdg_plugins.plugins.composition import parse_method, published
from fdg_plugins.recipes import make_recipe, settings_of
from fdg_plugins.settings.defaults import (
    allotted_sites,
    dataset_protocol,
    domains_of_sites,
    method_defaults,
    protocol_settings,
)
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.protocols import FAMILIES, PAPER_PROTOCOLS, PLAIN_WEIGHTINGS, PROTOCOLS

CASES = [(paper, dataset) for paper, datasets in PAPER_PROTOCOLS.items() for dataset in datasets]
# rounds, local epochs, batch size, learning rate; network, head
PRINTED = {
    ("fedomg", "pacs"): (100, 5, 16, 1e-3, "resnet18", "linear"),
    ("fedomg", "officehome"): (100, 5, 16, 1e-3, "resnet18", "linear"),
    ("fedomg-fl", "mnist"): (800, 5, 16, 5e-3, "cnn", "linear"),
    ("fedomg-fl", "cifar100"): (800, 5, 16, 5e-3, "cnn", "linear"),
    ("feddg-ga", "pacs"): (40, 5, 16, 1e-3, "resnet18", "linear"),
    ("feddg-ga", "terraincognita"): (40, 5, 16, 1e-3, "resnet50", "linear"),
    ("feddg-ga", "domainnet10"): (40, 5, 16, 1e-3, "alexnet", "linear"),
    ("fediir", "rotatedmnist"): (100, 1, 64, 1e-2, "groupnorm_convnet", "linear"),
    ("fediir", "pacs"): (100, 1, 32, 2.5e-3, "resnet18", "projected_two_layer"),
    ("fediir-many", "officehome"): (100, 1, 32, 1e-3, "resnet50", "projected_two_layer"),
    ("feddim", "vlcs"): (100, 1, 32, None, "resnet18", "two_layer"),
    ("feddim", "rotatedmnist"): (100, 1, 64, None, "groupnorm_convnet", "linear"),
}


def settings_under(paper: str, dataset: str, method: str) -> dict[str, Any]:
    """Return those settings of a paper's protocol that a method has."""
    found = protocol_settings(paper, dataset, parse_method(method))
    return {name: value for name, value in found.items() if name in settings_of(method)}


def job_under(paper: str, dataset: str, method: str) -> Protocol:
    return Protocol(**job_settings(parse_method(method), dataset, settings_under(paper, dataset, method)).protocol)


def test_a_data_sets_own_protocol_replaces_that_of_its_family_field_by_field() -> None:
    own: dict[str, Any] = {"protocol": {"rounds": 12, "batch_size": 4}, "stand_in_protocol": {"rounds": 2}}
    spec, base = replace(ROTATED_DIGITS, name="scans", family="medical", **own), FAMILIES["digits"]
    DATASETS.add(spec)
    found, made = dataset_protocol(spec.name), job_settings(parse_method("fedomg"), spec.name, {})
    assert spec.families == ("digits", "medical")
    assert found.protocol == {**base.protocol, "rounds": 12, "batch_size": 4}
    assert found.stand_in == {**base.stand_in, "rounds": 2}
    assert (made.protocol["rounds"], made.protocol["batch_size"], made.stand_in["rounds"]) == (12, 4, 2)
    assert made.aggregator_spec["server_lr"] == 1.0


def test_images_with_masks_have_the_protocols_of_their_family_also_if_they_name_one_of_their_own() -> None:
    whole: dict[str, Any] = {"name": "mr", "folder": "mr", "title": "MR", "reference": "us", "domains": ("a", "b")}
    spec = SegmentationSpec(**whole, classes=("k", "l"), channels=4, family="mri")
    DATASETS.add(spec)
    models = (dataset_protocol(spec.name).protocol["model"], make_plan("erm", spec.name, "a", 0).protocol.model)
    assert protocol_settings("quick", spec.name)["image_size"] == 64
    assert models == ("monai_unet", "monai_unet")


def test_what_an_objective_says_of_the_server_holds_under_the_plain_mean_alone() -> None:
    expected = {"fedavg": "samples", "fediir": "uniform", "fednova": "samples", "fednova+iir": "samples"}
    assert {one: method_defaults(parse_method(one), PACS.name).server["weighting"] for one in expected} == expected


def test_the_commands_offer_every_protocol_and_an_unknown_one_is_refused() -> None:
    assert get_args(ProtocolName) == PROTOCOLS
    for protocol, dataset in (("feddg-ga", "vlcs"), ("slow", "pacs")):
        with pytest.raises(SettingsError) as caught:
            protocol_settings(protocol, dataset)
        assert caught.value.field == "protocol"


def test_many_sites_share_the_source_domains_by_size_and_few_are_drawn() -> None:
    for paper, dataset, numbers in (
        ("fediir-many", "vlcs", (50, 3)),
        ("fediir-many", "rotatedmnist", (50, 5)),
        ("feddim-many", "pacs", (30, 10)),
        ("feddim-many", "rotatedmnist_7k", (50, 10)),
    ):
        recipe = make_recipe("fedavg", dataset, **settings_under(paper, dataset, "fedavg"))
        protocol, spec = recipe.plans.real.protocol, dataset_spec(dataset)
        assert (len(recipe.sites) - 1, protocol.sites_per_round) == numbers
        counts = Counter(spec.share_of(site)[0] for site in recipe.sites)
        assert counts.pop(protocol.target) == 1
        sizes = {domain: known_images(dataset, domain)[0] for domain in counts}
        assert allot_sites(sizes, numbers[0]) == counts
        assert PLAIN_WEIGHTINGS[paper] == "uniform"


def test_sites_are_a_number_or_names_and_never_fewer_than_the_source_domains() -> None:
    names = domains_of_sites("vlcs", {"target": "labelme", "sites": 4})
    assert names == {"caltech101": "caltech101", "labelme": "labelme", "sun09": "sun09"} | {
        f"voc2007-{number}of2": "voc2007" for number in (1, 2)
    }
    assert make_recipe("fedavg", "vlcs", target="labelme", sites="4").sites == list(names)
    assert make_recipe("fedavg", "vlcs", sites=["a", "b"]).sites == ["a", "b"]
    assert allotted_sites("vlcs", "labelme", {"sites": 9, "max_samples_per_domain": 20}) == {
        "caltech101": 3, "sun09": 3, "voc2007": 3,
    }  # fmt: skip
    assert allotted_sites("domainnet10", "real", {"sites": 10})["clipart"] == 2, "without published numbers, equally"
    for settings, field in (({"sites": 2}, "sites"), ({"sites": 4, "partition": "dirichlet"}, "partition")):
        with pytest.raises(SettingsError) as caught:
            make_recipe("fedavg", "vlcs", **settings)
        assert caught.value.field == field


@pytest.mark.parametrize(("paper", "dataset"), PRINTED)
def test_the_values_are_those_that_the_paper_prints(paper: str, dataset: str) -> None:
    found = protocol_settings(paper, dataset)
    names = ("rounds", "local_epochs", "batch_size", "learning_rate", "model", "head")
    assert tuple(found.get(name) for name in names) == PRINTED[paper, dataset]
    if paper in ("fedomg", "feddg-ga"):
        assert (found["weight_decay"], found["lr_decay_at"], found["lr_decay_factor"]) == (5e-4, 0.8, 0.1)


def test_fedomgs_skewed_sites_are_a_hundred_by_a_dirichlet_law_trained_by_plain_sgd() -> None:
    protocol = job_under("fedomg-fl", "cifar10", "fedavg")
    recipe = make_recipe("fedavg", "cifar10", **settings_under("fedomg-fl", "cifar10", "fedavg"))
    assert recipe.sites == ["test", *(f"train-{i}of100" for i in range(1, 101))]
    assert (protocol.partition, protocol.least_images, protocol.sites_per_round) == ("dirichlet", 10, None)
    assert (protocol.optimizer, protocol.momentum, protocol.weight_decay) == ("sgd", 0.0, 0.0)


@pytest.mark.nightly
@pytest.mark.parametrize(("paper", "dataset"), CASES)
def test_every_method_has_a_job_under_it(paper: str, dataset: str) -> None:
    assert protocol_settings(paper, dataset).keys() <= Protocol.model_fields.keys()
    for method in published():
        job_under(paper, dataset, method)


@pytest.mark.parametrize("paper", ["fedomg", "feddg-ga"])
def test_momentum_is_kept_where_the_released_code_does_except_by_methods_that_count_steps(paper: str) -> None:
    kept = {method: settings_under(paper, "pacs", method).get("keep_momentum") for method in published()}
    assert {method for method, value in kept.items() if value is None} == {"fednova", "scaffold", "mofedsam"}
    assert {value for value in kept.values() if value is not None} == {True}
    assert protocol_settings("fediir", "pacs")["keep_momentum"] is False


def test_photographs_are_augmented_as_in_the_released_code() -> None:
    augmented = {("fedomg", "pacs"): (0.7, 0.4), ("feddg-ga", "terraincognita"): (0.7, 0.4)}
    augmented |= {("fediir", "officehome"): (0.7, 0.3)}
    augmented |= {("fediir", "rotatedmnist"): (0.8, 0.4), ("feddim", "pacs"): (0.8, 0.4)}  # not, or not compared
    for (paper, dataset), expected in augmented.items():
        protocol = job_under(paper, dataset, "fedavg")
        assert (protocol.crop_scale, protocol.color_jitter) == expected


def test_sites_weigh_equally_under_the_papers_that_divide_by_their_number() -> None:
    equal = {("fediir", "fedavg"), ("feddim", "fedprox")}
    for paper, method in {*equal, ("feddg-ga", "fedavg"), ("fediir", "fedga"), ("fediir", "fednova")}:
        weighting = protocol_settings(paper, "pacs", parse_method(method)).get("weighting")
        assert weighting == ("uniform" if (paper, method) in equal else None)


@pytest.mark.parametrize(
    ("paper", "method", "rule"),
    [
        ("feddg-ga", "fedga", "average"),  # our reestimate gives way
        ("feddg-ga", "fedavg", "average"),
        ("feddg-ga", "fediir", "frozen"),  # FedIIR's code
        ("feddg-ga", "fedomg+ga+iir", "frozen"),
        ("fediir", "fedga", "frozen"),
        ("feddim", "fedavg", "average"),
        ("fedomg", "fedga", "reestimate"),  # the protocol names nothing
    ],
)
def test_papers_protocol_wins_over_our_choice(paper: str, method: str, rule: str) -> None:
    assert job_under(paper, "pacs", method).batch_norm == rule
