# SPDX-License-Identifier: Apache-2.0
"""What a table says of its runs: the caption, what they lacked, and the accuracy of a constant answer."""

from dataclasses import replace
from typing import Any

import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.lab.analysis import Run, build_sites_table, build_table
from fdg_plugins.lab.analysis.facts import absences, commonest_at_sites, commonest_in_domains, noised, notes_on_runs
from fdg_plugins.lab.analysis.papers import departures, printed_rows
from fdg_plugins.models.pretrained import FROM_SCRATCH
from fdg_plugins.record.round_record import LocalRecord
from tests.analysis.run_stubs import FEDAVG, FEDGA, FEDOMG, census_reply, finished, run
from tests.analysis.test_comparable import reference_run
from tests.analysis.test_sites import SOURCES, skewed
from tests.controllers.federation_stubs import round_record

ALL = ("art_painting", "cartoon", "sketch")


def with_rounds(*used: tuple[str, ...], drawn: tuple[str, ...] | None = None, **changes: Any) -> RunRecord:
    record = finished(FEDOMG, "photo", **changes)
    alike: dict[str, Any] = {"drawn": drawn or record.sources, "failures": {}, "local": {}, "aggregation": None}
    record.rounds = [round_record(number, sites=sites, **alike) for number, sites in enumerate(used, 1)]
    return record


def reasons(made: Run) -> list[str]:
    (printed,) = printed_rows("pacs", "fedomg", "fedomg")
    return departures([made], printed)


def test_the_caption_says_how_the_numbers_were_made() -> None:
    caption = build_table([run("a"), run("b", seed=1)]).caption
    for words in ("PACS", "ImageNet weights", "resnet18", "224 px", "100 rounds", "3 source sites", "over seeds 0, 1"):
        assert words in caption
    drawn = run(
        "a",
        seed=7,
        stand_in=True,
        data="STAND-IN for PACS",
        initial_weights=FROM_SCRATCH,
        protocol={"max_samples_per_domain": 400, "trainable": "head"},
    )
    caption = build_table([drawn], ("oracle",)).caption
    for words in ("STAND-IN for PACS, from scratch, resnet18, head alone trained", "at most 400 images per domain"):
        assert words in caption
    assert caption.count("one seed (7)") == 1
    assert "selection: oracle (not a result)" in caption
    caption = build_table([run("a"), reference_run("b", "erm")]).caption
    assert "100 rounds, centralised references of 5,001 steps" in caption
    assert "rounds" not in build_table([reference_run("b", "erm")]).caption


def test_a_site_whose_update_is_missing_is_named_and_the_run_no_longer_comparable() -> None:
    made = Run(run("a").folder, with_rounds(ALL, ALL[:2], ALL[:2]))
    assert absences(made.record) == {"sketch": 2}
    made.record.left_out["sketch"] = "takes no further part: its privacy budget is spent."
    (note,) = notes_on_runs([made])
    assert "sketch in 2 of 3 rounds (it took no further part)" in note
    assert note in build_table([made]).notes
    assert reasons(made) == ["rounds without sketch"]
    drawn = with_rounds(ALL[:2], ALL[:1], drawn=ALL[:2], protocol={"sites_per_round": 2})
    assert absences(drawn) == {"cartoon": 1}  # a site that is not drawn is not absent


def test_rounds_that_left_the_model_unchanged_are_counted_with_the_last_reason() -> None:
    made = Run(run("a").folder, with_rounds(ALL, ALL, ALL))
    assert notes_on_runs([made]) == []
    for finished_round in made.record.rounds[1:]:
        finished_round.reason = f"ArithmeticError: flat {finished_round.round}."
    (note,) = notes_on_runs([made])
    assert "2 of 3 rounds left the model unchanged; the last, round 3, because: ArithmeticError: flat 3." in note
    assert reasons(made) == ["2 rounds that left the model unchanged"]


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
    (note,) = notes_on_runs([made])
    assert "sketch in 2 of 2 rounds, cartoon in 1 of 2 rounds" in note
    assert reasons(made) == ["noise on the updates of cartoon and sketch"]


def test_missing_evaluations_and_shortened_runs_have_notes() -> None:
    (note,) = notes_on_runs([Run(run("a").folder, finished(accuracies=(0.5, None, None)))])
    assert "photo in 2 of 3 evaluations" in note
    short = run("a", protocol={"rounds": 10})
    cut = replace(run("b", FEDOMG, protocol={"rounds": 10}), planned=30)
    assert "10 to 30 rounds" in notes_on_runs([short, cut])[0]


def test_rules_for_batch_norm_have_a_note_where_the_network_has_it() -> None:
    plain, own = (
        run(method.aggregator, method, protocol={"model": model, "batch_norm": rule})
        for method, model, rule in ((FEDAVG, "resnet18", "average"), (FEDGA, "resnet18", "reestimate"))
    )
    (note,) = (note for note in build_table([plain, own]).notes if note.startswith("batch_norm"))
    assert "average for FedAvg; reestimate for FedDG-GA" in note
    without = [run("a", protocol={"model": "cnn"}), run("b", FEDGA, protocol={"model": "cnn", "batch_norm": "frozen"})]
    for runs in ([plain], [own], without):
        assert not any("batch_norm" in note for note in build_table(runs).notes)


# --- a constant answer ---


def judged(target: str, *counts: tuple[int, ...], seed: int = 0) -> Run:
    """Return a run whose held-out sites have these counts of images by class."""
    made = run(f"{target}-{seed}", FEDAVG, target, seed)
    sites = [target, *(f"{target}-{number}" for number in range(2, len(counts) + 1))]
    replies = {site: census_reply(target, seed, class_counts=own) for site, own in zip(sites, counts, strict=True)}
    made.record.held_out = tuple(sites)
    made.record.census = {**made.record.census, **replies}
    return made


def test_commonest_class_of_held_out_domains() -> None:
    assert commonest_in_domains([judged("photo", (30, 10))]) == {"photo": 0.75}
    assert commonest_in_domains([judged("photo", (30, 10), (0, 40))]) == {"photo": 0.625}
    assert commonest_in_domains([judged("photo", ())]) == {}
    runs = [judged("photo", (6, 4)), judged("photo", (6, 4)), judged("photo", (8, 2), seed=1)]
    assert commonest_in_domains(runs) == {"photo": pytest.approx(0.7)}  # seeds count alike
    table = build_table([judged("sketch", (10, 10)), judged("photo", (30, 10))])
    assert any(note.endswith("photo 75.0, sketch 50.0, on average 62.5.") for note in table.notes)
    pixels = judged("photo", (30, 10))
    pixels.record.protocol = pixels.record.protocol.model_copy(update={"task": "segmentation"})
    assert (commonest_in_domains([pixels]), commonest_at_sites(pixels)) == ({}, None)


def test_commonest_class_of_skewed_sites_is_weighed_by_their_test_images() -> None:
    made = skewed()
    for site, images, counts in zip(SOURCES, (1, 3, 0, 0, 0), ((4, 0), (2, 6), (1, 0), (0, 0), (5, 5)), strict=True):
        reply = census_reply("train", num_train=8, num_validation=images, class_counts=counts)
        made.record.census = {**made.record.census, site: reply}
    # One image of a site with one class, three of a site of which three quarters have one.
    assert commonest_at_sites(made) == pytest.approx((1 + 3 * 0.75) / 4)
    notes = build_sites_table([made, skewed(FEDOMG, dataset="cifar10")]).notes
    assert any(note.endswith("MNIST alpha=0.1 81.2, CIFAR-10 alpha=0.1 50.0.") for note in notes)
