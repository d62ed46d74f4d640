# SPDX-License-Identifier: Apache-2.0
"""The papers' own protocols by name: their printed values, and a job of every method under them."""

import pytest

from fdg_plugins.cli.sweep_options import ProtocolName
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.sweep.kinds import FederatedRuns
from fdg_plugins.plugins.composition import parse_method, published
from fdg_plugins.recipes import make_recipe, settings_of
from fdg_plugins.recipes.settings import job_settings
from fdg_plugins.settings.named_protocols import PROTOCOLS, protocol_settings
from fdg_plugins.settings.paper_protocols import PAPER_PROTOCOLS
from fdg_plugins.settings.protocol import Protocol

CASES = [(paper, dataset) for paper, datasets in PAPER_PROTOCOLS.items() for dataset in datasets]
# rounds, local epochs, batch size, learning rate; network, head
PRINTED = {
    ("fedomg", "pacs"): (100, 5, 16, 1e-3, "resnet18", "linear"),
    ("fedomg", "officehome"): (100, 5, 16, 1e-3, "resnet18", "linear"),
    **{
        ("fedomg-fl", dataset): (800, 5, 16, 5e-3, "cnn", "linear")
        for dataset in ("mnist", "emnist", "cifar10", "cifar100")
    },
    ("feddg-ga", "pacs"): (40, 5, 16, 1e-3, "resnet18", "linear"),
    ("feddg-ga", "terraincognita"): (40, 5, 16, 1e-3, "resnet50", "linear"),
    ("fediir", "rotatedmnist"): (100, 1, 64, 1e-2, "groupnorm_convnet", "linear"),
    ("fediir", "pacs"): (100, 1, 32, 2.5e-3, "resnet18", "two_layer"),
    ("fediir", "officehome"): (100, 1, 32, 1e-3, "resnet50", "two_layer"),
    ("feddim", "vlcs"): (100, 1, 32, None, "resnet18", "two_layer"),
    ("feddim", "rotatedmnist"): (100, 1, 64, None, "groupnorm_convnet", "linear"),
}


def test_the_commands_offer_every_protocol() -> None:
    assert tuple(ProtocolName) == PROTOCOLS


def test_the_values_are_those_that_the_paper_prints() -> None:
    for paper, dataset in PRINTED:
        found = protocol_settings(paper, dataset)
        names = ("rounds", "local_epochs", "batch_size", "learning_rate", "model", "head")
        assert tuple(found.get(name) for name in names) == PRINTED[paper, dataset]
        if paper in ("fedomg", "feddg-ga"):
            assert (found["weight_decay"], found["lr_decay_at"], found["lr_decay_factor"]) == (5e-4, 0.8, 0.1)


def test_fedomgs_skewed_sites_are_a_hundred_by_a_dirichlet_law_trained_by_plain_sgd() -> None:
    for dataset in ["mnist", "emnist", "cifar10", "cifar100"]:
        settings = FederatedRuns().base_settings("fedomg-fl", dataset, "fedavg")
        known = {name: value for name, value in settings.items() if name in settings_of("fedavg")}
        assert make_recipe("fedavg", dataset, **known).sites == ["test", *(f"train-{i}of100" for i in range(1, 101))]
        protocol = Protocol.model_validate(job_settings(parse_method("fedavg"), dataset, known).protocol)
        assert (protocol.partition, protocol.least_images, protocol.sites_per_round) == ("dirichlet", 10, None)
        assert (protocol.optimizer, protocol.momentum, protocol.weight_decay) == ("sgd", 0.0, 0.0)


@pytest.mark.nightly
@pytest.mark.parametrize(("paper", "dataset"), CASES)
def test_every_method_whose_network_it_has_has_a_job_under_it(paper: str, dataset: str) -> None:
    assert protocol_settings(paper, dataset).keys() <= Protocol.model_fields.keys()
    for method in published():
        settings = FederatedRuns().base_settings(paper, dataset, method)
        known = {name: value for name, value in settings.items() if name in settings_of(method)}
        if paper == "fedomg-fl" and parse_method(method).objective in ("rsc", "stable"):
            with pytest.raises(SettingsError, match=r"does not go with model 'cnn': .* no AdaptiveAvgPool2d"):
                make_recipe(method, dataset, **known)
        else:
            make_recipe(method, dataset, **known)


@pytest.mark.parametrize("paper", ["fedomg", "feddg-ga"])
def test_momentum_is_kept_where_the_released_code_does_except_by_methods_that_count_steps(paper: str) -> None:
    runs = FederatedRuns()
    kept = {method: runs.base_settings(paper, "pacs", method).get("keep_momentum") for method in published()}
    assert {method for method, value in kept.items() if value is None} == {"fednova", "scaffold", "mofedsam"}
    assert {value for value in kept.values() if value is not None} == {True}
    assert protocol_settings("fediir", "pacs")["keep_momentum"] is False


def test_batch_norm_is_frozen_for_every_method_where_the_released_code_does_it() -> None:
    runs = FederatedRuns()
    for dataset in ("vlcs", "pacs", "officehome"):
        assert runs.base_settings("fediir", dataset, "fedavg")["batch_norm"] == "frozen"
        assert "batch_norm" in settings_of("fedavg")
    assert "batch_norm" not in protocol_settings("fediir", "rotatedmnist")  # a network without BatchNorm
    assert "batch_norm" not in protocol_settings("feddim", "pacs")


def test_photographs_are_augmented_as_in_the_released_code() -> None:
    cases: list[tuple[str, str, float, float]] = [
        ("fedomg", "pacs", 0.7, 0.4),
        ("feddg-ga", "terraincognita", 0.7, 0.4),
        ("fediir", "officehome", 0.7, 0.3),
        ("fediir", "rotatedmnist", 0.8, 0.4),  # not augmented
        ("feddim", "pacs", 0.8, 0.4),  # no code was compared
    ]
    for paper, dataset, crop_scale, color_jitter in cases:
        settings = FederatedRuns().base_settings(paper, dataset, "fedavg")
        known = {name: value for name, value in settings.items() if name in settings_of("fedavg")}
        protocol = Protocol.model_validate(job_settings(parse_method("fedavg"), dataset, known).protocol)
        assert (protocol.crop_scale, protocol.color_jitter) == (crop_scale, color_jitter)


def test_sites_weigh_equally_under_the_papers_that_divide_by_their_number() -> None:
    cases: list[tuple[str, str, str | None]] = [
        ("fediir", "fedavg", "uniform"),
        ("feddim", "fedavg", "uniform"),
        ("feddim", "fedprox", "uniform"),
        ("feddg-ga", "fedavg", None),
        ("fedomg", "fedavg", None),
        ("fediir", "fedga", None),
        ("fediir", "fednova", None),
    ]
    for paper, method, weighting in cases:
        assert FederatedRuns().base_settings(paper, "pacs", method).get("weighting") == weighting


def test_a_papers_protocol_wins_over_our_choice_for_a_method_and_not_over_its_papers() -> None:
    cases: list[tuple[str, str, str]] = [
        ("feddg-ga", "fedga", "average"),  # our reestimate gives way
        ("feddg-ga", "fedavg", "average"),
        ("feddg-ga", "fediir", "frozen"),  # FedIIR's code
        ("feddg-ga", "fediir+ga", "frozen"),
        ("fediir", "fedga", "frozen"),
        ("fedomg", "fedga", "reestimate"),  # the protocol names nothing
    ]
    for paper, method, rule in cases:
        settings = FederatedRuns().base_settings(paper, "pacs", method)
        given = {name: value for name, value in settings.items() if name in settings_of(method)}
        assert job_settings(parse_method(method), "pacs", given).protocol.get("batch_norm", "average") == rule


def test_a_data_set_that_the_paper_does_not_use_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"^protocol 'feddg-ga' has nothing for data set vlcs, expected one of pacs, "
    ):
        protocol_settings("feddg-ga", "vlcs")
