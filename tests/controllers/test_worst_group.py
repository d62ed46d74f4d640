# SPDX-License-Identifier: Apache-2.0
"""Worst-group accuracy from a recipe to the tables of a run, in one process, and the right to forbid what it takes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import Partition, evaluation_batches, open_domain, stand_in
from fdg_plugins.errors import CensusError, SettingsError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.sites import OWN, PUBLISHED, build_sites_table, own_and_published
from fdg_plugins.objectives import build_network, make_objective
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.census import take_census
from fdg_plugins.record.run_files import LAST_FILE, SIMULATOR_FOLDER
from fdg_plugins.record.text import final_table
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import load_tensors
from fdg_plugins.tasks import GROUP_CLASSIFICATION
from fdg_plugins.training.permissions import check_reports_allowed
from tests.analysis.run_stubs import FEDOMG, lines, text_rows
from tests.analysis.test_sites import skewed
from tests.controllers.federation_stubs import census_reply
from tests.controllers.test_one_process import made, record_in

SITES, ALPHA, LEAST, SEED = 3, 0.5, 8, 1
WORST = "worst_group_accuracy"
METHOD = "fedomg+ga+dim"  # a report of features, and a gap on the training split


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a finished run on three skewed sites, on few drawings in a data root beside the run."""
    place = tmp_path_factory.mktemp("faces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stand_in, "PORTRAITS", {"0": (24, 20, 12, 0), "1": (1, 1, 1, 1), "2": (6, 6, 6, 3)})
        patch.setenv("FDG_DATA_ROOT", str(stand_in.write_stand_in(place / "root", "celeba")))
        sizes = {"rounds": 1, "local_epochs": 1, "batch_size": 8, "image_size": 20, "seed": SEED}
        skew = {"sites_per_domain": SITES, "dirichlet_alpha": ALPHA, "least_images": LEAST, "gap_split": "train"}
        make_recipe(METHOD, "celeba", name="job", **sizes, **skew).export(str(place))
        assert made(place / "job").run()
        yield place


@pytest.fixture(scope="module")
def record(folder: Path) -> RunRecord:
    return record_in(folder)


def by_hand(folder: Path, record: RunRecord, domain: str) -> dict[tuple[int, int], list[bool]]:
    """Return whether the last model is right on each image of the groups of a domain, as all its sites judged it."""
    network = build_network(record.protocol, len(record.classes)).eval()
    network.load_state_dict(load_tensors(folder / "workspace" / SIMULATOR_FOLDER / LAST_FILE))
    skew = Partition("dirichlet", ALPHA, LEAST)
    parts = [None] if domain == "test" else [(number, SITES) for number in range(1, SITES + 1)]
    found: dict[tuple[int, int], list[bool]] = {}
    for part in parts:
        data = open_domain(folder / "root", "celeba", domain, seed=SEED, part=part, partition=skew)
        samples = data.test if part is None else data.validation
        for images, targets in evaluation_batches(data, samples, image_size=20, batch_size=1):
            with torch.no_grad():
                right = int(network(images).argmax()) == int(targets[0, 0])
            found.setdefault((int(targets[0, 0]), int(targets[0, 1])), []).append(right)
    return found


@pytest.mark.parametrize(("domain", "groups"), [("test", 4), ("train", 3)])
def test_the_record_has_the_worst_group_of_all_images_of_a_domain(
    folder: Path, record: RunRecord, domain: str, groups: int
) -> None:
    last, found = record.evaluations[-1], by_hand(folder, record, domain)
    assert record.status == "finished"
    assert len(found) == groups
    assert last.derived[WORST][domain] == min(sum(right) / len(right) for right in found.values())
    everything = [right for group in found.values() for right in group]
    assert last.domains[domain] == sum(everything) / len(everything)
    for (label, attribute), right in found.items():
        total, count = record.sums_by_domain(last.sites)[domain][f"accuracy_{label}_{attribute}"]
        assert (total, count) == (sum(right), len(right))


def test_a_record_that_is_read_back_has_the_same_groups(record: RunRecord) -> None:
    assert RunRecord.model_validate_json(record.model_dump_json()) == record


def test_the_method_got_its_report_and_its_gap_without_the_attribute(record: RunRecord) -> None:
    (only,) = record.rounds
    assert (only.failures, only.refused_reports) == ({}, {})
    assert only.aggregation is not None
    assert only.aggregation.gaps is not None
    assert set(only.aggregation.gaps) == set(record.sources)


def test_the_printed_table_and_the_report_have_it_and_name_what_is_left_out(folder: Path, record: RunRecord) -> None:
    text, run = final_table(record), Run(folder, record)
    worst = record.evaluations[-1].derived[WORST]
    row = next(line for line in text.splitlines() if "Worst-group accuracy" in line)
    assert row.split()[-2] == f"{100 * worst['test']:.1f}"
    assert "train, last model: worst group class" in text
    assert "no image of class blond, attribute 1." in text
    found = own_and_published(run)
    names = {OWN: "train", PUBLISHED: "test"}
    assert all(found[f"worst-group accuracy, {place}"] == worst[domain] for place, domain in names.items())
    table = build_sites_table([run])
    own = {line["on"]: line["mean"] for line in lines(table, kind="ours", dataset="celeba")}
    assert [own[f"worst-group accuracy, {place}"] for place in names] == [worst[one] for one in ("train", "test")]
    beside = text_rows(build_sites_table([run, skewed(FEDOMG)]).markdown(paired=False))
    own_rows = [row for row in beside if row[0].startswith("FedOMG + GA")]
    mnist = [row[3] for row in own_rows if row[2] in (OWN, f"worst-group accuracy, {OWN}")]
    assert mnist == ["missing", "-"]  # this method was not run on MNIST, which has no groups
    assert any(f"no image of class blond, attribute 1 among the {OWN}" in note for note in table.notes)


def test_the_printed_table_has_the_worst_group_of_the_sites_own_models_too(record: RunRecord) -> None:
    personalised = record.model_copy(deep=True)
    last = personalised.evaluations[-1]
    own = {site: last.sites[site] for site in record.sources}  # own models that are no better than the global one
    personalised.add_evaluation(last.after_round, last.sites, personal=own)
    lines = [line.split() for line in final_table(personalised).splitlines()]
    of_last, of_own, *_ = (line for line in lines if line[:1] == ["Worst-group"])
    assert lines[lines.index(of_own) - 1][0] == "personal"
    assert of_own == [*of_last[:-2], "missing"]


# --- the right to forbid it -------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["train", "test"])
def test_a_site_that_forbids_the_counts_of_groups_ends_the_run_before_training(site: str) -> None:
    common = {"dataset": "celeba", "classes": ("blond", "not_blond")}
    replies = {name: census_reply(name, **common) for name in ("train", "test")}
    assert take_census(replies, {}, "test", GROUP_CLASSIFICATION).held_out == ("test",)
    replies[site] = census_reply(site, **common, allowed_reports=("gap",))
    with pytest.raises(CensusError, match=f"site {site} forbids the report 'group_scores' .*task 'group_classifi"):
        take_census(replies, {}, "test", GROUP_CLASSIFICATION)
    assert take_census(replies, {}, "test").held_out == ("test",)  # classification asks for none


def test_the_site_itself_refuses_to_train_for_it() -> None:
    protocol = Protocol.model_validate(
        {"dataset": "celeba", "task": "group_classification", "target": "test", "model": "cnn", "image_size": 32}
    )
    with pytest.raises(SettingsError, match=r"the report 'group_scores' .*, which task 'group_classification' needs"):
        check_reports_allowed((), protocol, make_objective("erm"))
    check_reports_allowed(("group_scores",), protocol, make_objective("erm"))
