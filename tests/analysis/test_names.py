# SPDX-License-Identifier: Apache-2.0
"""Names of methods: one for one method, whoever's class or spelling made it."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.lab.analysis.runs import default_settings, method_name, method_order, method_title
from fdg_plugins.lab.centralised import ALGORITHMS
from fdg_plugins.objectives import make_objective
from fdg_plugins.plugins.composition import published
from fdg_plugins.record.method_settings import method_settings
from fdg_plugins.record.round_record import Method
from tests.analysis.run_stubs import FEDGA, FEDOMG, fedomg, finished
from tests.recipes.exported_jobs import workflow

JOBS = Path(__file__).parents[2] / "jobs"
GA = {"name": "ga", "step_size": 0.05}
DIM = {"name": "dim", "strength": 0.1, "target": "feature"}


def method(aggregator: str, objective: str = "erm", **settings: Any) -> Method:
    return Method(aggregator=aggregator, settings=settings, objective={"name": objective})


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (method("FedAvgAggregator", weighting="samples"), "fedavg"),
        (method("FedAvgAggregator", weighting={"name": "uniform"}), "fedavg"),
        (method("FedAvgAggregator", weighting="ga"), "fedga"),
        (method("FedGAAggregator"), "fedga"),
        (method("FedAvgAggregator", "dim", weighting="uniform"), "feddim"),
        (method("FedGAAggregator", "dim"), "feddim+ga"),
        (method("FedOMGAggregator", weighting=GA), "fedomg+ga"),
        (method("FedOMGAggregator", "dim", weighting="ga"), "fedomg+ga+dim"),
        (method("MyAggregator", "mine", weighting="ga"), "MyAggregator+ga+mine"),
    ],
)
def test_a_method_is_its_aggregator_its_weighting_and_its_objective(made: Method, name: str) -> None:
    assert method_name(made) == name


def test_every_job_of_the_project_is_called_by_its_method_which_has_its_defaults() -> None:
    for job in sorted(path.name for path in JOBS.glob("*_*")):
        arguments = workflow(JOBS / job)
        aggregator = make_aggregator(arguments["aggregator"])
        objective = make_objective(arguments["protocol"].get("objective", "erm")).settings()
        made = Method(aggregator=type(aggregator).__name__, settings=aggregator.settings(), objective=objective)
        assert method_name(made) == "+".join(job.split("_")[1:])
        protocol = {name: arguments["protocol"].get(name) for name in ("dataset", "target", "gap_split")}
        record = finished(made, protocol={name: value for name, value in protocol.items() if value is not None})
        assert default_settings(record) == method_settings(record), job


@pytest.mark.parametrize(
    ("made", "protocol", "departures"),
    [
        (fedomg(server_lr=1), {}, {"server_lr": 0.05}),
        (fedomg(server_lr=1), {"dataset": "rotateddigits"}, {}),
        (method("FedAvgAggregator", weighting={**GA, "step_size": 0.5}), {}, {"step_size": 0.05}),
        (method("FedGAAggregator"), {"gap_split": "train"}, {"gap_split": "validation"}),
        (
            fedomg(weighting="samples").model_copy(update={"objective": DIM}),
            {},
            {"strength": 0.01, "objective target": "insight", "weighting": "uniform"},
        ),
        (method("CentralisedIRM", strength=10.0, steps=5), {}, {"strength": 100.0}),
    ],
)
def test_the_defaults_of_a_methods_settings_are_those_of_jobs_on_the_data_set(
    made: Method, protocol: dict[str, Any], departures: dict[str, Any]
) -> None:
    record = finished(made, protocol=protocol)
    own, default = method_settings(record), default_settings(record)
    assert default is not None
    assert default.keys() == own.keys()
    assert {name: value for name, value in default.items() if value != own[name]} == departures


def test_the_defaults_of_a_method_or_data_set_that_is_not_at_hand_are_not_known() -> None:
    assert default_settings(finished(method("MyAggregator"))) is None
    assert default_settings(finished(FEDOMG, protocol={"dataset": "my_scanners"})) is None


def test_compositions_stand_behind_what_they_extend_and_the_unknown_at_the_end() -> None:
    names = ["Mine", "fedomg+ga", "fedomg", "fediir", "feddim+ga", "fedga", "fedomg+ga+dim", "fedavg"]
    expected = ["fedavg", "fedga", "feddim+ga", "fediir", "fedomg", "fedomg+ga", "fedomg+ga+dim", "Mine"]
    assert sorted(names, key=method_order) == expected


def test_saying_a_default_of_the_weighting_makes_no_other_method() -> None:
    spelt = [
        FEDGA,
        method("FedAvgAggregator", weighting="ga", server_lr=1.0),
        method("FedAvgAggregator", weighting={**GA, "normalizer": "max"}, server_lr=1),
    ]
    first, *others = [method_settings(finished(one)) for one in spelt]
    assert {"gap_split", "normalizer", "server_lr", "step_size"} < {*first}
    assert others == [first, first]


def test_settings_that_an_older_record_lacks_count_as_their_defaults() -> None:
    def settings(settings: dict[str, Any], **objective: Any) -> dict[str, Any]:
        spec = {"name": "dim", "strength": 0.1, "target": "insight", **objective}
        return method_settings(finished(Method(aggregator="FedOMGAggregator", settings=settings, objective=spec)))

    older = {"kappa": 0.5, "server_lr": 1.0, "rescale": False, "weighting": "uniform"}
    newer = {**older, "damping": 0.0, "idle_below": 1e-3, "cancelled": "mean"}
    assert settings(older) == settings(newer) == settings(older, insight_momentum=0.5)
    assert settings(older) not in (settings({**newer, "damping": 0.1}), settings(older, insight_momentum=0.9))
    assert settings(older) == settings(older, variant="paper") != settings(older, variant="released")


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_reference_is_called_by_its_algorithm_and_stands_behind_the_methods(name: str) -> None:
    assert method_name(method(ALGORITHMS[name].__name__)) == name
    assert method_title(name) == ALGORITHMS[name].title
    assert name not in published()
    assert max(("fishr", "Mine", "erm", "fedomg+ga", "vrex", "fedavg"), key=method_order) == "fishr"
