# SPDX-License-Identifier: Apache-2.0
"""What may stand in one table; names of methods, one for one method whoever's class or spelling made it."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.comparable import check_comparable, group_runs, without_repeats
from fdg_plugins.lab.analysis.runs import default_settings, method_name, method_order
from fdg_plugins.lab.centralised import ALGORITHMS, algorithm_settings
from fdg_plugins.models import InitialWeights
from fdg_plugins.objectives import make_objective
from fdg_plugins.record.method_settings import method_settings
from fdg_plugins.record.round_record import Method
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, FEDOMG, census_reply, fedomg, finished, run
from tests.recipes.exported_jobs import workflow


def reference_run(
    folder: str, name: str, *arguments: Any, protocol: dict[str, Any] | None = None, **changes: Any
) -> Run:
    """Return a finished centralised run, of other rounds and rates than the federated ones; see :func:`run`."""
    training = {"rounds": 17, "local_epochs": 1, "batch_size": 32, "learning_rate": 5e-5, "momentum": 0.0}
    schedule = {"optimizer": "adam", "steps": 5001, "checkpoint_every": 300}
    settings = {**schedule, **algorithm_settings(name), **changes.pop("settings", {})}
    method = Method(aggregator=ALGORITHMS[name].__name__, settings=settings)
    return run(folder, method, *arguments, protocol={**training, **(protocol or {})}, **changes)


def census(seed: int = 0, domain: str = "sketch", **changes: Any) -> dict[str, Any]:
    """Return the census with one domain's reply changed."""
    return {name: census_reply(name, seed, **(changes if name == domain else {})) for name in DOMAINS}


def refused(*runs: Run) -> str:
    with pytest.raises(SettingsError) as caught:
        check_comparable(runs)
    return str(caught.value)


def test_method_held_out_domain_and_seed_may_differ() -> None:
    one, other = run("a", FEDAVG, "photo", 0), run("b", FEDOMG, "sketch", 1, versions={"fdg-plugins": "0.2.0"})
    by_setting = [run("c", fedomg(kappa=0.1), "photo", 10), run("d", FEDGA, protocol={"gap_split": "train"})]
    check_comparable([one, other, *by_setting, run("e", protocol={"objective": {"name": "dim"}})])


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"stand_in": True}, "the stand-in is not used in runs/a and used in runs/b"),
        ({"protocol": {"rounds": 20}}, "rounds of the protocol is 100 in runs/a and 20 in runs/b"),
        ({"initial_weights": InitialWeights(label="from scratch")}, "the source of the initial weights is imagenet"),
        ({"versions": {"fdg-plugins": "1.0.0"}}, "the major version of fdg-plugins is 0"),
        ({"domains": DOMAINS[:3]}, "the list of source domains with photo held out is"),
        ({"census": census(split="pacs/kfold")}, "the split of the source domain sketch is pacs/90-10@seed"),
        ({"census": census(num_train=7)}, "images of the source domain sketch is 3927/2/3929 in runs/a and 7/2/3929"),
        ({"census": census(split_hash="others")}, "the hash of the split of the source domain sketch under seed 0 is"),
        ({"census": census(domain="photo", split_hash="others")}, "the hash of the split of the held-out domain photo"),
    ],
)
def test_check_comparable_names_the_first_difference(changes: dict[str, Any], what: str) -> None:
    assert what in refused(run("a"), run("b", FEDOMG, **changes))


def test_splits_follow_the_seed() -> None:
    check_comparable([run("a"), run("b", seed=1, census=census(1))])
    assert "cartoon" in refused(run("a"), run("b", seed=1, census=census(1, "cartoon", num_train=80)))
    others = census(1, split_hash="others")
    assert "under seed 1" in refused(run("a"), run("b", seed=1), run("c", seed=1, census=others))
    named = census(1, split="pacs/90-10@10")
    assert "@seed in runs/a and pacs/90-10@10" in refused(run("a", seed=1), run("b", seed=1, census=named))


def test_a_domain_may_be_whole_where_it_is_held_out_and_parted_where_it_trains() -> None:
    def parted_run(target: str) -> Run:
        replies = {target: census_reply(target)}
        for domain in (domain for domain in DOMAINS if domain != target):
            for part in (1, 2):
                own: dict[str, Any] = {"split": f"pacs/90-10@0/part{part}of2", "split_hash": f"{domain} {part}"}
                replies[f"{domain}-{part}"] = census_reply(domain, num_train=4, **own)
        sources = tuple(name for name in replies if name != target)
        return run(target, FEDAVG, target, census=replies, sources=sources, accuracies=())

    check_comparable([parted_run("photo"), parted_run("sketch")])
    assert "pacs/90-10@seed/part1of2" in refused(parted_run("photo"), run("whole"))


def test_sites_that_choose_their_precision_must_choose_the_same() -> None:
    auto = {"precision": "auto"}
    narrow, wide = census(precision="bfloat16"), census(precision="float32")
    check_comparable([run("a", census=narrow), run("b", FEDGA, census=wide)])  # as the protocol says, whatever it is
    assert "precision of the source domain sketch is bfloat16 in runs/a and float32" in refused(
        run("a", protocol=auto, census=narrow), run("b", FEDGA, protocol=auto, census=wide)
    )


def test_runs_of_several_numbers_of_sites_divide_their_domains_differently() -> None:
    few, many = (run("a", protocol={"sites": n}, census=census(num_train=1000 // n)) for n in (5, 10))
    check_comparable([few, many], apart_from=("sites",))
    assert "sites of the protocol" in refused(few, many)


def test_pretrained_files_are_compared_by_network_and_hash() -> None:
    def weights(name: str, digit: str, model: str = "resnet18") -> Run:
        own = InitialWeights(label="pretrained file", file=name, sha256=64 * digit)
        return run(name, initial_weights=own, protocol={"model": model})

    check_comparable([weights("a", "a"), weights("b", "a")])
    check_comparable([weights("a", "a"), weights("b", "b", "resnet50")], apart_from=("model",))
    assert "pretrained file of resnet18" in refused(weights("a", "a"), weights("b", "b"))


def test_plug_ins_are_the_same_in_all_runs_of_a_method() -> None:
    first, other = ({"fdg-plugins": "0.2.0", "my_method.py": digest} for digest in ("0bc24640", "c7f92f77"))
    assert "my_method.py" in refused(run("a", FEDAVG, versions=first), run("b", FEDAVG, seed=1, versions=other))
    check_comparable([run("a", FEDAVG, versions=first), run("b", FEDGA, versions=other), run("c", FEDOMG)])


def test_without_repeats() -> None:
    first, other, copy = run("a"), run("b", seed=1), run("c", started="later", seconds=5.0)
    assert without_repeats([first, other, copy]) == (first, other)
    runs = (run("a", FEDOMG), run("b", fedomg(kappa=0.1)), run("c", FEDAVG))
    assert without_repeats(runs) == runs
    with pytest.raises(SettingsError, match="runs/a and runs/b"):
        without_repeats([run("a", FEDOMG, accuracies=(0.5,)), run("b", FEDOMG, accuracies=(0.6,))])


def test_momentum_belongs_to_the_methods_that_are_stated_for_plain_sgd() -> None:
    scaffold = FEDAVG.model_copy(update={"objective": {"name": "scaffold"}})
    plain = run("a", FEDAVG, protocol={"momentum": 0.9})
    check_comparable([plain, run("b", scaffold, protocol={"momentum": 0.0})])
    assert "momentum of the protocol" in refused(plain, run("c", FEDOMG, protocol={"momentum": 0.0}))
    runs = [run(str(value), scaffold, protocol={"momentum": value}) for value in (0.0, 0.9)]
    assert len(group_runs(runs)) == 2


def test_references_share_images_and_network_with_the_methods_and_training_among_themselves() -> None:
    check_comparable([run("a"), reference_run("b", "erm"), reference_run("c", "irm")])
    for changes, what in (
        ({"protocol": {"image_size": 64}}, "image_size of the protocol"),
        ({"protocol": {"model": "resnet50"}}, "model of the protocol"),
        ({"stand_in": True}, "the stand-in"),
        ({"census": census(num_train=7)}, "images of the source domain sketch"),
    ):
        assert what in refused(run("a"), reference_run("b", "erm", **changes))
    for changes, what in (
        ({"settings": {"steps": 300}}, "steps of the centralised runs is 5001 in runs/a and 300"),
        ({"settings": {"optimizer": "sgd"}}, "optimizer of the centralised runs"),
        ({"protocol": {"learning_rate": 0.1}}, "learning_rate of the centralised runs"),
    ):
        assert what in refused(reference_run("a", "erm"), run("between"), reference_run("b", "irm", **changes))


def test_groups_name_what_differs_and_what_is_no_default() -> None:
    def titles(*runs: Run, beside_defaults: bool = True) -> list[str]:
        return [group.title for group in group_runs(runs, beside_defaults=beside_defaults)]

    uniform = FEDAVG.model_copy(update={"settings": {"weighting": "uniform"}})
    assert titles(run("a"), run("b", fedomg(server_lr=1.0))) == ["FedAvg", "FedOMG (server_lr 1.0)"]
    assert titles(run("b", fedomg(server_lr=1.0)), beside_defaults=False) == ["FedOMG"]
    assert titles(run("a", uniform)) == ["FedAvg (weighting uniform)"]
    assert titles(run("a", FEDOMG), run("b", fedomg(extra=1))) == ["FedOMG (extra 1)", "FedOMG (extra unset)"]
    expected = ["FedAvg", "FedOMG (kappa 0.1, server_lr 1.0)", "FedOMG (kappa 0.5, server_lr 0.05)"]
    assert titles(run("a", FEDOMG), run("b", fedomg(kappa=0.1, server_lr=1.0)), run("c", FEDAVG)) == expected
    (group,) = group_runs([run("a", FEDOMG), run("b", fedomg(kappa=0.1))], ("kappa",))
    assert (group.title, group.label) == ("FedOMG", "FedOMG (kappa chosen)")


def test_a_choice_of_the_learning_rate_admits_methods_that_have_one_each() -> None:
    runs = [run("a", FEDAVG, protocol={"learning_rate": 0.003}), run("b", FEDOMG, protocol={"learning_rate": 0.01})]
    assert "learning_rate of the protocol" in refused(*runs)
    table = build_table(runs, choosing=("learning_rate",))
    assert [row.words["method"] for row in table.rows] == [
        "FedAvg (learning_rate 0.003)",
        "FedOMG (learning_rate 0.01)",
    ]
    for fixed in ("batch_size", "seed"):
        with pytest.raises(SettingsError):
            build_table([*runs, run("c", seed=1)], choosing=("learning_rate", fixed))


JOBS = Path(__file__).parents[2] / "jobs"
GA = {"name": "ga", "step_size": 0.05}


def with_dim(made: Method, **settings: Any) -> Method:
    """The method with FedDIM's objective, of which some settings are not the default ones."""
    return made.model_copy(update={"objective": {"name": "dim", "strength": 0.1, "target": "feature", **settings}})


def method(aggregator: str, objective: str = "erm", **settings: Any) -> Method:
    return Method(aggregator=aggregator, settings=settings, objective={"name": objective})


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (method("FedAvgAggregator", weighting={"name": "uniform"}), "fedavg"),
        (method("FedAvgAggregator", weighting="ga"), "fedga"),
        (method("FedAvgAggregator", "dim", weighting="uniform"), "feddim"),
        (method("FedGAAggregator", "dim"), "feddim+ga"),
        (method("FedOMGAggregator", weighting=GA), "fedomg+ga"),
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
        (with_dim(FEDOMG), {}, {"strength": 0.01, "objective target": "insight"}),
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
        return method_settings(finished(with_dim(method("FedOMGAggregator", **settings), **objective)))

    older = {"kappa": 0.5, "server_lr": 1.0, "rescale": False, "weighting": "uniform"}
    newer = {**older, "damping": 0.0, "idle_below": 1e-3, "cancelled": "mean"}
    assert settings(older) == settings(newer) == settings(older, insight_momentum=0.5)
    assert settings(older) not in (settings({**newer, "damping": 0.1}), settings(older, insight_momentum=0.9))
    assert settings(older) == settings(older, variant="paper") != settings(older, variant="released")
