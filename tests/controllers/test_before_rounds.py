# SPDX-License-Identifier: Apache-2.0
"""Before the first round: whose word counts in the plans of a run, and which sites fit together; others are named."""

from itertools import permutations
from typing import Any

import pytest
from nvflare.apis.filter import Filter

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.errors import CensusError, SettingsError
from fdg_plugins.filters import ExchangeCheckFilter, GapCheckFilter, RoundedUpdateReceiveFilter
from fdg_plugins.messages import TASK_PROBE, TASK_TRAIN, CensusReply
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.plans import Plans, check_filters, make_plans
from fdg_plugins.record.census import Federation, check_min_sites, check_versions, take_census
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import GROUP_CLASSIFICATION
from tests.controllers.federation_stubs import CLASSES, DOMAINS, HELD_OUT, SOURCES, census_reply


def plans(
    job: dict[str, Any] | None = None,
    stand_in: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    rule: UpdateAggregator | None = None,
) -> Plans:
    return make_plans(job or {}, stand_in or {}, environment or {}, rule or FedOMGAggregator())


def test_the_stand_in_replaces_what_the_job_says_only_on_the_stand_in() -> None:
    made = plans({"rounds": 100, "model": "resnet18", "seed": 5}, {"rounds": 4, "model": "convnet", "server_lr": 1.0})
    drawn, usual = made.stand_in, FedOMGAggregator().settings()
    assert (made.real.protocol.rounds, made.real.protocol.model) == (100, "resnet18")
    assert made.real.aggregator.settings() == usual
    assert (drawn.protocol.rounds, drawn.protocol.model, drawn.protocol.seed) == (4, "convnet", 5)
    assert drawn.aggregator.settings() == {**usual, "server_lr": 1.0}


def test_the_environment_wins_over_both_and_on_both() -> None:
    environment = {"FDG_ROUNDS": "2", "FDG_SERVER_LR": "0.5", "FDG_KAPPA": "0.1", "FDG_DATA_ROOT": "/data"}
    made = plans({"rounds": 100}, {"rounds": 4, "server_lr": 1.0}, environment)
    for plan in made:
        assert plan.protocol.rounds == 2
        assert plan.aggregator.settings().items() >= {"server_lr": 0.5, "kappa": 0.1}.items()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"job": {"round": 3}}, "config of the job, protocol: there is no setting 'round'; did you mean 'rounds'?"),
        ({"stand_in": {"kapa": 1}}, "config of the job, stand_in_protocol: there is no setting 'kapa'"),
        ({"environment": {"FDG_TARGET": "clipart"}}, "target (FDG_TARGET) is 'clipart'"),
        ({"job": {"dataset": "no_such_set"}}, "data set 'no_such_set' is unknown"),
        (
            {"job": {"dataset": "vessels", "target": "drive", "task": "segmentation", "partition": "shards"}},
            "partition (FDG_PARTITION) is 'shards'",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_where_it_stands(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        plans(**arguments)
    assert str(caught.value).startswith(text)


def test_another_optimizer_has_no_momentum_and_none_may_be_asked_of_it() -> None:
    made = plans({"optimizer": "adam"})
    assert made.real.protocol.momentum == 0
    with pytest.raises(SettingsError):
        plans({"momentum": 0.9}, environment={"FDG_OPTIMIZER": "adam"})


TASKS = (TASK_TRAIN, TASK_PROBE)


@pytest.mark.parametrize("layer", ["stand_in", "environment"])
def test_an_update_precision_for_which_the_job_was_not_made_is_refused(layer: str) -> None:
    by_operator, drawn = {"FDG_UPDATE_PRECISION": "bfloat16"}, {"update_precision": "bfloat16"}
    rounded = plans(environment=by_operator) if layer == "environment" else plans(stand_in=drawn)
    with pytest.raises(SettingsError) as caught:
        check_filters(rounded, lambda asked: [GapCheckFilter()])
    assert caught.value.field == "update_precision (FDG_UPDATE_PRECISION)"
    check_filters(rounded, lambda asked: None)
    if layer != "stand_in":
        check_filters(rounded, lambda asked: [GapCheckFilter(), RoundedUpdateReceiveFilter()])


@pytest.mark.parametrize(("probe", "task", "other"), [("previous_round", *TASKS), ("extra_task", *reversed(TASKS))])
def test_objective_whose_reports_the_job_lacks_is_refused(probe: str, task: str, other: str) -> None:
    wanted = plans({"objective": {"name": "iir", "probe": probe}})
    lacking: list[dict[str, list[Filter]]] = [{task: [GapCheckFilter()]}, {task: [], other: [ExchangeCheckFilter()]}]
    for there in lacking:
        with pytest.raises(SettingsError) as caught:
            check_filters(wanted, there.get)
        assert (caught.value.field, caught.value.value) == ("objective (FDG_OBJECTIVE)", "iir")
    check_filters(wanted, lambda asked: [ExchangeCheckFilter()] if asked == task else [])
    check_filters(wanted, lambda asked: None)
    check_filters(plans(), lambda asked: [])


def test_a_weighting_by_gaps_whose_reports_the_job_lacks_is_refused() -> None:
    by_gap = FedAvgAggregator(weighting="ga")
    check_filters(plans(rule=by_gap), lambda asked: [GapCheckFilter()])
    with pytest.raises(SettingsError) as caught:
        check_filters(plans(rule=by_gap), lambda asked: [ExchangeCheckFilter()])
    assert caught.value.field == "weighting (FDG_WEIGHTING)"
    with pytest.raises(SettingsError):  # the losses, which no filter attaches here
        check_filters(plans({"gap_split": "train"}, rule=by_gap), lambda asked: [ExchangeCheckFilter()])


def replies(**changes: dict[str, Any]) -> dict[str, CensusReply]:
    """Return the replies of the small federation, with the fields given for some sites (``_`` for ``-``)."""
    by_site = {name.replace("_", "-"): fields for name, fields in changes.items()}
    return {site: census_reply(**{"domain": domain, **by_site.get(site, {})}) for site, domain in DOMAINS.items()}


def test_sites_that_fit_make_a_federation_of_sources_and_held_out_sites_in_any_order() -> None:
    for order in (replies(), dict(reversed(replies().items()))):
        federation = take_census(order, {}, "sketch")
        assert federation == Federation(SOURCES, HELD_OUT, CLASSES, False, replies())
        assert list(federation.replies) == sorted(order)
    assert take_census(replies(), {}, "photo").held_out == ("photo-1", "photo-2")


def test_sites_may_share_a_domain_by_parts_or_each_have_images_of_their_own() -> None:
    parts = {f"photo_{n}": {"split": f"pacs/kfold/part{n}of2", "split_hash": f"of part {n}"} for n in (1, 2)}
    take_census(replies(**parts), {}, "sketch")
    take_census(replies(photo_1={"split": "own/parts"}, photo_2={"split": "own/partly"}), {}, "sketch")


PART = {"split": "pacs/kfold/part1of2", "split_hash": "of part 1"}
OTHER_PART = {"split": "pacs/kfold/part2of3", "split_hash": "of part 2"}


@pytest.mark.parametrize(
    ("site", "changes"),
    [
        ("cartoon", {"cartoon": {"stand_in": True}}),
        ("photo-2", {"photo_2": {"dataset": "vlcs"}}),
        ("photo-2", {"photo_2": {"classes": ("cat", "dog")}}),
        ("photo-2", {"photo_2": {"classes": ("elephant", "dog")}}),
        ("photo-2", {"photo_2": {"versions": {"fdg-plugins": "0.2.0", "nvflare": "2.9.0"}}}),
        ("photo-2", {"photo_2": {"class_counts": (5, 5, 5)}}),
        ("photo-2", {"photo_2": {"role": "held_out"}}),
        ("photo-2", {"photo_2": {"num_train": 0}}),
        ("photo-2", {"photo_2": {"num_validation": 0}}),
        ("photo-2", {"photo_1": PART, "photo_2": PART}),
        ("photo-2", {"photo_1": PART, "photo_2": OTHER_PART}),
        ("sketch", {"sketch": {"num_test": 0, "num_train": 0, "num_validation": 0, "class_counts": (0, 0)}}),
        ("sketch", {"sketch": {"num_test": 11}}),
        ("sketch", {"sketch": {"role": "source"}}),
    ],
)
def test_a_site_that_does_not_fit_is_refused_by_name(site: str, changes: dict[str, Any]) -> None:
    answers, texts = replies(**changes), set()
    for order in permutations(answers):
        with pytest.raises(CensusError) as caught:
            take_census({name: answers[name] for name in order}, {}, "sketch")
        texts.add(str(caught.value))
    (text,) = texts
    assert text.startswith((f"site {site} ", f"site {site}: "))


def test_a_federation_that_cannot_train_or_be_judged_is_refused() -> None:
    for answers, failures, target in (
        (replies(), {"photo-2": "did not answer.", "photo-1": "has no data."}, "sketch"),
        (replies(), {}, "art_painting"),
        ({"a": census_reply("sketch"), "b": census_reply("sketch")}, {}, "sketch"),
        ({}, {}, "sketch"),
    ):
        with pytest.raises(CensusError):
            take_census(answers, failures, target)
    federation, own = take_census(replies(), {}, "sketch"), {"fdg-plugins": "0.1.0", "nvflare": "2.9.0"}
    check_versions(federation, {**own, "torch": "1.0"})
    check_min_sites(Protocol(min_sites=3), federation)
    with pytest.raises(CensusError):
        check_versions(federation, {**own, "nvflare": "0.1.1"})
    with pytest.raises(CensusError):
        check_min_sites(Protocol(min_sites=4), federation)


def test_a_site_that_forbids_the_counts_of_groups_ends_the_run_before_training() -> None:
    common = {"dataset": "celeba", "classes": ("blond", "not_blond")}
    for site in ("train", "test"):
        answers = {name: census_reply(name, **common) for name in ("train", "test")}
        assert take_census(answers, {}, "test", GROUP_CLASSIFICATION).held_out == ("test",)
        answers[site] = census_reply(site, **common, allowed_reports=("gap",))
        with pytest.raises(CensusError, match=f"site {site} forbids the report 'group_scores'"):
            take_census(answers, {}, "test", GROUP_CLASSIFICATION)
        assert take_census(answers, {}, "test").held_out == ("test",)  # classification asks for none
