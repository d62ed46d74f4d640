# SPDX-License-Identifier: Apache-2.0
"""What makes a number of ours not comparable with a printed one, and which sites' updates are missing in a run."""

from dataclasses import replace
from typing import Any

import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.absences import absences, noised, notes_on_absences
from fdg_plugins.lab.analysis.departures import departures
from fdg_plugins.lab.analysis.table import build_table
from fdg_plugins.plugins.own_dataset import read_own_dataset
from fdg_plugins.record.run_record import InitialWeights, LocalRecord, Method, RoundRecord
from fdg_plugins.settings.paper_protocols import PAPER_PROTOCOLS
from tests.analysis.run_stubs import FEDAVG, FEDGA, FEDOMG, census_reply, fedomg, finished, run

EQUAL_WEIGHTS = FEDAVG.model_copy(update={"settings": {**FEDAVG.settings, "weighting": "uniform"}})
SCRATCH: dict[str, Any] = {"initial_weights": InitialWeights(label="from scratch")}


def reasons(
    method: Method, paper: str, protocol: dict[str, Any], per_domain: int = 1, **changes: Any
) -> tuple[str, ...]:
    """Return why a run under a paper's protocol, with changes, is not compared with its numbers."""
    dataset = protocol.get("dataset", "pacs")
    domains = dataset_spec(dataset).domains
    census = {domain: census_reply(domain, dataset=dataset) for domain in domains}
    published = PAPER_PROTOCOLS.get(paper, {}).get(dataset, {})
    made = run(
        "a", method, domains[0], domains=domains, protocol={**published, **protocol}, **{"census": census, **changes}
    )
    made.record.sources = tuple(f"{domain}-{number}" for domain in domains[1:] for number in range(per_domain))
    table = build_table([made], against=paper)
    (rows,) = table.methods
    (printed,) = rows.printed
    return departures(table.facts, printed, rows)


def test_the_protocol_of_a_paper_is_compared_with_its_numbers() -> None:
    assert reasons(FEDOMG, "fedomg", {}) == ()
    assert reasons(EQUAL_WEIGHTS, "fediir", {"dataset": "rotatedmnist"}, **SCRATCH) == ()


def test_weights_by_samples_are_a_departure_where_the_paper_divides_by_the_number_of_sites() -> None:
    for paper, words in (("fediir", ("weighting samples",)), ("feddg-ga", ())):
        assert reasons(FEDAVG, paper, {"dataset": "pacs"}) == words
    assert reasons(EQUAL_WEIGHTS, "fediir", {"dataset": "pacs"}) == ()


def test_a_run_that_is_looked_at_before_its_end_is_a_departure() -> None:
    made = run("a", FEDOMG, "art_painting", protocol=PAPER_PROTOCOLS["fedomg"]["pacs"])
    for planned, words in ((None, ()), (200, ("200 rounds planned",))):
        table = build_table([replace(made, planned=planned)], against="fedomg")
        (rows,) = table.methods
        assert departures(table.facts, rows.printed[0], rows) == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"momentum": 0.0}, "momentum 0.0"),
        ({"travels": "head"}, "travels head"),
        ({"batch_norm": "frozen"}, "batch_norm frozen"),
        ({"normalization": "group"}, "normalization group"),
        ({"clip_to_median": 2.0}, "clip_to_median 2.0"),
        ({"lr_decay_at": 0.1}, "learning rate lowered after 0.1 of the rounds"),
    ],
)
def test_what_all_papers_have_in_common_is_compared(changes: dict[str, Any], words: str) -> None:
    assert reasons(FEDOMG, "fedomg", changes) == (words,)


def test_another_step_of_the_server_than_the_methods_own_is_a_departure_unless_it_was_chosen() -> None:
    assert reasons(fedomg(server_lr=1.0), "fedomg", {}) == ("server learning rate 1",)
    assert reasons(fedomg(kappa=0.1), "fedomg", {}) == ()
    slow = FEDAVG.model_copy(update={"settings": {**FEDAVG.settings, "server_lr": 0.5}})
    assert reasons(slow, "feddg-ga", {}) == ("server learning rate 0.5",)
    runs = [run(f"{rate}", fedomg(server_lr=rate), "photo") for rate in (0.05, 1.0)]
    (rows,) = build_table(runs, against="fedomg", choosing=["server_lr"]).methods
    assert rows.server_lr is None


def test_baselines_with_frozen_batch_norm_are_compared_with_the_paper_that_froze_it() -> None:
    assert reasons(EQUAL_WEIGHTS, "fediir", {}) == ()
    assert reasons(EQUAL_WEIGHTS, "fediir", {"batch_norm": "average"}) == ("batch_norm average",)


def test_our_choice_for_a_method_is_a_departure_where_the_papers_protocol_names_another() -> None:
    assert reasons(FEDGA, "feddg-ga", {}) == ()
    assert reasons(FEDGA, "feddg-ga", {"batch_norm": "reestimate"}) == ("batch_norm reestimate",)


def test_a_setting_of_the_method_that_the_papers_protocol_does_not_name_is_no_departure() -> None:
    assert reasons(FEDGA, "fedomg", {"batch_norm": "reestimate"}) == ()


@pytest.mark.parametrize(
    ("method", "paper", "protocol", "words"),
    [
        (FEDAVG, "fediir", {"dataset": "rotatedmnist", "model": "convnet"}, ("convnet",)),
        (FEDGA, "feddg-ga", {"dataset": "domainnet"}, ("resnet18", "from scratch")),  # printed with AlexNet
        (FEDAVG, "feddg-ga", {"dataset": "domainnet"}, ("resnet18", "from scratch")),
    ],
)
def test_networks_that_are_no_resnets_are_compared_too(
    method: Method, paper: str, protocol: dict[str, Any], words: tuple[str, ...]
) -> None:
    assert reasons(method, paper, protocol, **SCRATCH) == words


def test_a_tenth_of_the_images_or_ten_times_as_many_are_not_those_of_the_paper() -> None:
    few, all_images = {"dataset": "rotatedmnist_7k"}, {"dataset": "rotatedmnist"}
    paper = PAPER_PROTOCOLS["fediir"]["rotatedmnist"]
    assert reasons(FEDAVG, "feddim", few, **SCRATCH) == ()
    assert reasons(FEDAVG, "fediir", {**paper, **few}, **SCRATCH) == ("7,000 images instead of 70,000",)
    assert reasons(FEDAVG, "feddim", all_images, **SCRATCH) == ("70,000 images instead of 7,000",)


def judged_on(images: int, target: str = "art_painting", **changes: Any) -> dict[str, Any]:
    """Return the census of PACS whose held-out site judges on so many images."""
    replies = {domain: census_reply(domain) for domain in dataset_spec("pacs").domains}
    return {"census": {**replies, target: census_reply(target, num_test=images, **changes)}}


def with_source(domain: str, **counts: Any) -> dict[str, Any]:
    """Return the census of PACS, all of whose images are there but for those of one source."""
    whole = judged_on(2048)
    return {"census": {**whole["census"], domain: census_reply(domain, **counts)}}


def test_a_held_out_domain_without_some_of_its_images_is_not_that_of_the_papers() -> None:
    assert reasons(FEDOMG, "fedomg", {}, **judged_on(2048)) == ()
    assert reasons(FEDOMG, "fedomg", {}, **judged_on(2000, num_skipped=48)) == ()
    assert reasons(FEDOMG, "fedomg", {}, **judged_on(2000)) == ("2,000 of 2,048 images of art_painting",)
    thinned = {"max_samples_per_domain": 300}
    assert reasons(FEDOMG, "fedomg", thinned, **judged_on(300)) == ("at most 300 images per domain",)


def test_a_source_domain_without_some_of_its_images_is_not_that_of_the_papers() -> None:
    few: dict[str, Any] = {"num_train": 2000, "num_validation": 300, "num_test": 2300}
    words = ("2,300 of 2,344 images of cartoon",)
    assert reasons(FEDOMG, "fedomg", {}, **judged_on(2048)) == ()
    assert reasons(FEDOMG, "fedomg", {}, **with_source("cartoon", **few)) == words
    assert reasons(FEDOMG, "fedomg", {}, **with_source("cartoon", **few, num_skipped=44)) == ()
    assert reasons(FEDOMG, "fedomg", {}, **with_source("cartoon", **{**few, "num_test": 2344})) == words
    two = with_source("cartoon", num_train=2000, num_validation=100)["census"]
    two["cartoon-2of2"] = census_reply("cartoon", num_train=200, num_validation=44)
    assert reasons(FEDOMG, "fedomg", {}, census=two) == ()


def test_a_part_of_mnist_is_not_the_papers_rotated_mnist() -> None:
    whole: dict[str, Any] = {"dataset": "rotatedmnist"}
    census = {domain: census_reply(domain, **whole) for domain in dataset_spec("rotatedmnist").domains}
    assert reasons(FEDAVG, "fediir", whole, **SCRATCH, census=census) == ()
    few = {
        domain: census_reply(domain, **whole, num_train=9000, num_validation=1000, num_test=10000) for domain in census
    }
    found = reasons(FEDAVG, "fediir", whole, **SCRATCH, census=few)
    assert "10,000 of 11,667 images of angle_0" in found
    assert "10,000 of 11,666 images of angle_75" in found


def test_every_table_says_that_a_held_out_domain_was_not_judged_on_all_its_images() -> None:
    note = "Not judged on all images of the held-out domain: 2,000 of 2,048 images of art_painting."
    few = run("a", FEDOMG, "art_painting", **judged_on(2000))
    assert note in build_table([few]).notes
    assert build_table([run("a", FEDOMG, "art_painting", **judged_on(2048))]).notes == ()


def test_numbers_of_images_that_were_not_counted_are_no_reason() -> None:
    terra, paper = {"dataset": "terraincognita"}, PAPER_PROTOCOLS["feddg-ga"]["terraincognita"]
    domains = dataset_spec("terraincognita").domains
    few = {domain: census_reply(domain, dataset="terraincognita", num_test=9) for domain in domains}
    assert reasons(FEDGA, "feddg-ga", {**paper, **terra}, census=few) == ()


def test_training_is_compared_on_a_part_of_a_papers_images_too() -> None:
    few = {**PAPER_PROTOCOLS["fediir"]["rotatedmnist"], "dataset": "rotatedmnist_7k", "rounds": 20}
    assert reasons(FEDAVG, "fediir", few, **SCRATCH) == ("7,000 images instead of 70,000", "rounds 20")


def test_one_site_per_domain_is_a_fact_of_the_federation() -> None:
    assert reasons(FEDOMG, "fedomg", {}, per_domain=10) == ("30 source sites",)


def test_data_of_one_s_own_with_a_known_name_stand_beside_no_paper() -> None:
    own = read_own_dataset({"name": "pacs", "domains": ["art_painting", "cartoon"], "classes": ["a", "b"]})
    made = finished(FEDOMG, "art_painting")
    made.protocol = made.protocol.model_copy(update={"dataset": own})
    with pytest.raises(SettingsError, match="data of their own"):
        build_table([Run(run("a").folder, made)], against="fedomg")


# --- sites that are absent ---


def with_rounds(*used: tuple[str, ...], drawn: tuple[str, ...] | None = None, **changes: Any) -> RunRecord:
    record = finished(FEDOMG, "photo", **changes)
    record.rounds = [
        RoundRecord(
            round=number,
            drawn=drawn or record.sources,
            sites=sites,
            failures={},
            local={},
            seconds=1.0,
            aggregation_seconds=0.0,
            bytes_down=0,
            bytes_up=0,
        )
        for number, sites in enumerate(used, 1)
    ]
    return record


ALL = ("art_painting", "cartoon", "sketch")


def test_the_lengths_of_runs_that_are_cut_off_are_named_beside_a_shorter_one() -> None:
    short, cut = run("a", protocol={"rounds": 10}), replace(run("b", FEDOMG, protocol={"rounds": 10}), planned=30)
    expected = "Later rounds are left out: the runs are of 10 to 30 rounds."
    assert expected in build_table([short, cut]).notes
    assert not any("Later rounds" in note for note in build_table([short]).notes)


def test_a_site_whose_update_is_missing_is_named_with_its_rounds() -> None:
    made = Run(run("a").folder, with_rounds(ALL, ALL[:2], ALL[:2]))
    assert absences(made.record) == {"sketch": 2}
    made.record.left_out["sketch"] = "takes no further part: its privacy budget is spent."
    text = "runs/a went on without the updates of sketch in 2 of 3 rounds (it took no further part)."
    assert notes_on_absences([made]) == [text]
    table = build_table([made], against="fedomg")
    assert text in table.notes
    assert departures(table.facts, table.methods[0].printed[0], table.methods[0]) == ("rounds without sketch",)


def test_a_run_with_rounds_that_left_the_model_is_named_with_their_number_and_the_last_reason() -> None:
    made = Run(run("a").folder, with_rounds(ALL, ALL, ALL))
    assert notes_on_absences([made]) == []
    for finished_round in made.record.rounds[1:]:
        finished_round.reason = f"ArithmeticError: flat {finished_round.round}."
    text = "runs/a: 2 of 3 rounds left the model unchanged; the last, round 3, because: ArithmeticError: flat 3."
    assert notes_on_absences([made]) == [text]
    assert text in build_table([made]).notes
    table = build_table([made], against="fedomg")
    words = ("2 rounds that left the model unchanged",)
    assert departures(table.facts, table.methods[0].printed[0], table.methods[0]) == words


def test_a_site_under_differential_privacy_is_named_with_its_rounds() -> None:
    made = Run(run("a").folder, with_rounds(ALL, ALL))
    open_, withheld = (
        LocalRecord(epoch_losses=losses, local=None, steps=1, learning_rate=0.1, num_samples=1, seconds=1.0)
        for losses in ((1.0,), None)
    )
    first, second = made.record.rounds
    first.local.update({"cartoon": open_, "sketch": withheld})
    second.local.update({"cartoon": withheld, "sketch": withheld})
    assert noised(made.record) == {"cartoon": 1, "sketch": 2}
    named = "sketch in 2 of 2 rounds, cartoon in 1 of 2 rounds"
    text = f"runs/a has updates with the noise of differential privacy: {named}."
    assert notes_on_absences([made]) == [text]
    table = build_table([made], against="fedomg")
    assert text in table.notes
    words = "noise on the updates of cartoon and sketch"
    assert departures(table.facts, table.methods[0].printed[0], table.methods[0]) == (words,)


def test_a_held_out_site_without_scores_is_named_with_its_evaluations() -> None:
    made = Run(run("a").folder, finished(accuracies=(0.5, None, None)))
    text = "runs/a lacks the scores of the held-out site photo in 2 of 3 evaluations."
    assert notes_on_absences([made]) == [text]
    assert text in build_table([made]).notes


def test_a_site_that_is_not_drawn_is_not_absent() -> None:
    drawn = with_rounds(ALL[:2], ALL[:1], drawn=ALL[:2], protocol={"sites_per_round": 2})
    assert absences(drawn) == {"cartoon": 1}
    assert absences(with_rounds(ALL, ALL)) == {}
