# SPDX-License-Identifier: Apache-2.0
"""From job and environment to the plans of a run: whose word counts where, and which words are refused."""

from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest
from nvflare.apis.filter import Filter

from fdg_plugins.aggregators import AGGREGATORS, UpdateAggregator, make_aggregator
from fdg_plugins.controllers.federation import method_in_force
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters import ExchangeCheckFilter, GapCheckFilter, RoundedUpdateReceiveFilter
from fdg_plugins.messages import TASK_PROBE, TASK_TRAIN
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.plans.plans import Plans, check_filters, check_settings, make_plans
from fdg_plugins.record.census import Federation, new_record
from fdg_plugins.record.run_record import InitialWeights
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import CLASSIFICATION, TASKS
from tests.controllers.federation_stubs import CLASSES, DOMAINS, HELD_OUT, SOURCES, census_reply


def plans(
    job: dict[str, Any] | None = None,
    stand_in: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
) -> Plans:
    return make_plans(job or {}, stand_in or {}, environment or {}, FedOMGAggregator.setting_names())


def test_without_any_setting_both_plans_are_the_default_protocol() -> None:
    made = plans()
    assert made.real == made.stand_in == (Protocol(), {})


def test_the_stand_in_replaces_what_the_job_says_only_on_the_stand_in() -> None:
    made = plans({"rounds": 100, "model": "resnet18", "seed": 5}, {"rounds": 4, "model": "convnet", "server_lr": 1.0})
    assert (made.real.protocol.rounds, made.real.protocol.model, made.real.aggregator) == (100, "resnet18", {})
    drawn = made.stand_in
    assert (drawn.protocol.rounds, drawn.protocol.model, drawn.protocol.seed) == (4, "convnet", 5)
    assert drawn.aggregator == {"server_lr": 1.0}


def test_the_environment_wins_over_both_and_on_both() -> None:
    environment = {"FDG_ROUNDS": "2", "FDG_SERVER_LR": "0.5", "FDG_KAPPA": "0.1", "FDG_DATA_ROOT": "/data"}
    made = plans({"rounds": 100}, {"rounds": 4, "server_lr": 1.0}, environment)
    for plan in made:
        assert plan.protocol.rounds == 2
        assert plan.aggregator == {"server_lr": "0.5", "kappa": "0.1"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"job": {"round": 3}}, "config of the job, protocol: there is no setting 'round'; did you mean 'rounds'?"),
        ({"job": {"kappa": 0.5}}, "config of the job, protocol: there is no setting 'kappa'"),
        (
            {"stand_in": {"kapa": 1}},
            "config of the job, stand_in_protocol: there is no setting 'kapa'; did you mean 'k",
        ),
        (
            {"environment": {"FDG_ROUND": "3"}},
            "environment, FDG_*: there is no setting 'round'; did you mean 'rounds'?",
        ),
        ({"job": {"rounds": 0}}, "setting rounds (FDG_ROUNDS) is 0: "),
        ({"stand_in": {"rounds": 0}}, "setting rounds (FDG_ROUNDS) is 0: "),
        ({"environment": {"FDG_ROUNDS": "x"}}, "setting rounds (FDG_ROUNDS) is 'x': "),
        (
            {"environment": {"FDG_TARGET": "clipart"}},
            "target (FDG_TARGET) is 'clipart', expected a domain of pacs: art_painting, cartoon, photo, sketch.",
        ),
        ({"job": {"dataset": "no_such_set"}}, "data set 'no_such_set' is unknown"),
        ({"job": {"model": "vgg"}}, "model 'vgg' is unknown"),
        *(
            (
                {"job": {"dataset": "vessels", "target": "drive", "task": "segmentation", "partition": partition}},
                f"partition (FDG_PARTITION) is {partition!r}, expected 'equal' or 'iid' for the task 'segmentation', ",
            )
            for partition in ("dirichlet", "shards")
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_where_it_stands(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        plans(**arguments)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("name", "setting"), [("FDG_TASK", "segmentation"), ("FDG_TASK", ""), ("FDG_OPTIMIZER", "lbfgs")]
)
def test_a_task_or_optimizer_that_is_not_there_is_refused_by_name(name: str, setting: str) -> None:
    if not setting:  # an empty variable counts as unset
        assert plans(environment={name: setting}).real.protocol.task == "classification"
        return
    with pytest.raises(SettingsError, match=rf"{setting!r}"):
        plans(environment={name: setting})


def test_a_task_other_than_the_data_sets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS, "_brought", {"pixels": replace(CLASSIFICATION, name="pixels")})
    with pytest.raises(SettingsError) as caught:
        plans({"task": "pixels"})
    assert str(caught.value) == (
        "task (FDG_TASK) is 'pixels', but the images of pacs are labelled for 'classification'."
    )


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_another_optimizer_has_no_momentum_and_none_may_be_asked_of_it(optimizer: str) -> None:
    made = plans({"optimizer": optimizer})
    assert made.real.protocol.momentum == 0
    check_settings(FedAvgAggregator(), made)
    refused = plans({"momentum": 0.9}, environment={"FDG_OPTIMIZER": optimizer})
    with pytest.raises(SettingsError) as caught:
        check_settings(FedAvgAggregator(), refused)
    assert str(caught.value) == (
        f"momentum (FDG_MOMENTUM) is 0.9, expected 0: it is a setting of the optimizer 'sgd', not of {optimizer!r}."
    )


@pytest.mark.parametrize(
    ("aggregator", "objective", "whose"),
    [
        ("fedavg", "scaffold", "objective 'scaffold'"),
        ("fedavg", "mosam", "objective 'mosam'"),
        ("fednova", "erm", "aggregator FedNovaAggregator"),
    ],
)
def test_what_follows_from_the_length_of_steps_is_refused_under_adam(
    aggregator: str, objective: str, whose: str
) -> None:
    wanted = plans({"optimizer": "adam", "objective": objective})
    with pytest.raises(SettingsError) as caught:
        check_settings(make_aggregator(aggregator), wanted)
    assert str(caught.value) == (
        f"optimizer (FDG_OPTIMIZER) is 'adam', expected 'sgd': {whose} follows from the length of "
        "steps, which the learning rate determines only for SGD."
    )


@pytest.mark.parametrize("layer", ["job", "stand_in", "environment"])
def test_an_update_precision_for_which_the_job_was_not_made_is_refused(layer: str) -> None:
    setting = "FDG_UPDATE_PRECISION" if layer == "environment" else "update_precision"
    rounded = plans(**{layer: {setting: "bfloat16"}})
    with pytest.raises(
        SettingsError, match=r"^update_precision \(FDG_UPDATE_PRECISION\) is 'bfloat16', .* have filters"
    ):
        check_filters(rounded, lambda asked: [GapCheckFilter()])
    check_filters(rounded, lambda asked: None)
    if layer != "stand_in":
        check_filters(rounded, lambda asked: [GapCheckFilter(), RoundedUpdateReceiveFilter()])


def test_a_job_that_rounds_updates_is_refused_where_the_protocol_says_float32() -> None:
    with pytest.raises(SettingsError, match=r"is 'float32', but the job's configs have filters for another"):
        check_filters(plans(), lambda asked: [RoundedUpdateReceiveFilter()])
    check_filters(plans(), lambda asked: [])


@pytest.mark.parametrize("layer", ["job", "stand_in", "environment"])
@pytest.mark.parametrize(
    ("objective", "probe", "task"),
    [("dim", None, TASK_TRAIN), ("iir", "previous_round", TASK_TRAIN), ("iir", "extra_task", TASK_PROBE)],
)
def test_an_objective_for_whose_reports_the_job_was_not_made_is_refused(
    layer: str, objective: str, probe: str | None, task: str
) -> None:
    settings = {"name": objective, **({} if probe is None else {"probe": probe})}
    flat = {"FDG_OBJECTIVE": objective, **({} if probe is None else {"FDG_PROBE": probe})}
    given: dict[str, Any] = {layer: flat if layer == "environment" else {"objective": settings}}
    wanted = plans(**given)
    other = TASK_PROBE if task == TASK_TRAIN else TASK_TRAIN
    expected = f"objective (FDG_OBJECTIVE) is {objective!r}, but the job's configs have no ExchangeCheckFilter"
    lacking: list[dict[str, list[Filter]]] = [
        {task: []},
        {task: [GapCheckFilter()]},
        {task: [], other: [ExchangeCheckFilter()]},
    ]
    for there in lacking:
        with pytest.raises(SettingsError) as caught:
            check_filters(wanted, there.get)
        assert str(caught.value).startswith(expected)
    check_filters(wanted, lambda asked: [ExchangeCheckFilter()] if asked == task else [])
    check_filters(wanted, lambda asked: None)
    check_filters(plans(), lambda asked: [])


@pytest.mark.parametrize("layer", ["job", "stand_in", "environment"])
@pytest.mark.parametrize("name", ["scaffold", "mosam"])
def test_disk_offload_is_refused_where_reports_would_be_in_memory_as_a_whole(layer: str, name: str) -> None:
    setting = "FDG_ENABLE_TENSOR_DISK_OFFLOAD" if layer == "environment" else "enable_tensor_disk_offload"
    layers: dict[str, dict[str, Any]] = {"job": {"objective": name, "momentum": 0}}
    refused = plans(**{**layers, layer: {**layers.get(layer, {}), setting: "true"}})
    with pytest.raises(SettingsError) as caught:
        check_settings(FedAvgAggregator(), refused)
    assert caught.value.field == "enable_tensor_disk_offload"


def test_disk_offload_is_refused_under_an_aggregator_that_reads_updates_in_memory_only() -> None:
    class OwnAggregator(UpdateAggregator):
        """One that has not declared to read updates in parts."""

        def direction(self, weights: Any, contributions: Any) -> Any:
            raise NotImplementedError

    wanted = plans(job={"enable_tensor_disk_offload": True})
    with pytest.raises(
        SettingsError, match=r"expected false: aggregator OwnAggregator reads updates in memory only\.$"
    ):
        check_settings(OwnAggregator(), wanted)
    check_settings(OwnAggregator(), plans())
    for name in AGGREGATORS:
        check_settings(make_aggregator(name), wanted)


@pytest.mark.parametrize(("stand_in", "data"), [(False, "PACS"), (True, "STAND-IN for PACS")])
def test_the_first_record_says_what_is_about_to_run(stand_in: bool, data: str) -> None:
    replies = {site: census_reply(domain) for site, domain in DOMAINS.items()}
    federation = Federation(SOURCES, HELD_OUT, CLASSES, stand_in, replies)
    aggregator = FedOMGAggregator(kappa=0.25, server_lr=0.05)
    protocol = Protocol(target="sketch")
    weights = InitialWeights(label="from scratch")
    record = new_record(federation, protocol, method_in_force(protocol, aggregator), weights, {"mine": "1.0"})
    assert (record.stand_in, record.data, record.status) == (stand_in, data, "running")
    assert (record.sources, record.held_out, record.census) == (SOURCES, HELD_OUT, replies)
    assert record.method.aggregator == "FedOMGAggregator"
    printed = {"kappa": 0.25, "server_lr": 0.05, "rescale": False, "weighting": "uniform"}
    assert record.method.settings == printed | {
        "damping": 0.0,
        "grouping": "none",
    }
    assert record.versions["torch"] == version("torch")
    assert record.versions["mine"] == "1.0"
    assert record.started.endswith("+00:00")
    assert (record.rounds, record.evaluations, record.choices) == ([], [], [])
