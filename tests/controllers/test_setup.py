# SPDX-License-Identifier: Apache-2.0
"""From job and environment to the plans of a run: whose word counts where, and which words are refused."""

from typing import Any

import pytest
from nvflare.apis.filter import Filter

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters import ExchangeCheckFilter, GapCheckFilter, RoundedUpdateReceiveFilter
from fdg_plugins.messages import TASK_PROBE, TASK_TRAIN
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.plans import Plans, check_filters, make_plans


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


@pytest.mark.parametrize(
    ("objective", "probe", "task"),
    [("dim", None, TASK_TRAIN), ("iir", "previous_round", TASK_TRAIN), ("iir", "extra_task", TASK_PROBE)],
)
def test_objective_whose_reports_the_job_lacks_is_refused(objective: str, probe: str | None, task: str) -> None:
    wanted = plans({"objective": {"name": objective, **({} if probe is None else {"probe": probe})}})
    other = TASK_PROBE if task == TASK_TRAIN else TASK_TRAIN
    lacking: list[dict[str, list[Filter]]] = [{task: [GapCheckFilter()]}, {task: [], other: [ExchangeCheckFilter()]}]
    for there in lacking:
        with pytest.raises(SettingsError) as caught:
            check_filters(wanted, there.get)
        assert (caught.value.field, caught.value.value) == ("objective (FDG_OBJECTIVE)", objective)
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
