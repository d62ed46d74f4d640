# SPDX-License-Identifier: Apache-2.0
"""Sites that share a data set by its classes, from a recipe to the table and the figure of the run, in one process."""

from pathlib import Path

import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.figures.partition import partition
from fdg_plugins.lab.analysis.sites import (
    OWN,
    PUBLISHED,
    build_sites_table,
    is_of_sites,
    own_and_published,
    participation_of,
)
from fdg_plugins.recipes import make_recipe
from tests.controllers.test_one_process import made, record_in

SITES, DRAWN = 5, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of FedOMG on five skewed sites of the stand-in of MNIST."""
    place = tmp_path_factory.mktemp("skewed")
    sizes = {"rounds": 1, "local_epochs": 1, "max_samples_per_domain": 150, "batch_size": 32}
    skew = {"sites_per_domain": SITES, "sites_per_round": DRAWN, "partition": "dirichlet", "dirichlet_alpha": 0.3}
    recipe = make_recipe("fedomg", "mnist", name="job", grouping="domain", **sizes, **skew)
    assert recipe.sites == ["test", *(f"train-{number}of{SITES}" for number in range(1, SITES + 1))]
    recipe.export(str(place))
    assert made(place / "job").run()
    return place


@pytest.fixture(scope="module")
def record(folder: Path) -> RunRecord:
    return record_in(folder)


def test_each_site_holds_its_own_part_under_one_hash_and_the_test_part_never_trains(record: RunRecord) -> None:
    assert record.status == "finished"
    assert record.held_out == ("test",)
    assert len(record.sources) == SITES
    assert len({record.census[site].split_hash for site in record.sources}) == SITES
    assert len({record.census[site].split.rpartition("/")[0] for site in record.sources}) == 1
    assert sum(sum(record.census[site].class_counts) for site in record.sources) == 150
    assert [len(one.drawn) for one in record.rounds] == [DRAWN]
    assert not {"test"} & {site for one in record.rounds for site in one.drawn}


def test_the_accuracy_is_that_over_all_sites_own_test_images(record: RunRecord, folder: Path) -> None:
    run, last = Run(folder, record), record.evaluations[-1]
    counts = [last.sites[site].count for site in record.sources]
    assert counts == [record.census[site].num_validation for site in record.sources]
    correct = sum(last.sites[site].value("accuracy") * last.sites[site].count for site in record.sources)
    found = own_and_published(run)
    assert found[OWN] == pytest.approx(correct / sum(counts))
    assert found[OWN] == pytest.approx(last.domains["train"])
    assert found[PUBLISHED] == last.target
    assert (is_of_sites([run]), participation_of(run)) == (True, 0.6)
    assert [row.fields["on"] for row in build_sites_table([run]).rows] == [OWN, PUBLISHED]


def test_the_sites_have_one_domain_in_which_grouping_loses_what_the_record_says(record: RunRecord) -> None:
    aggregation = record.rounds[0].aggregation
    assert aggregation is not None
    assert aggregation.gamma is not None
    assert list(aggregation.gamma.values()) == pytest.approx(list(aggregation.weights.values()))
    assert aggregation.grouping_loss is not None
    assert aggregation.grouping_loss > 0


def test_the_figure_has_the_images_of_every_site_and_class(record: RunRecord, folder: Path) -> None:
    (picture,) = partition([Run(folder, record)])
    assert picture.sites == record.sources
    assert [row["images"] for row in picture.rows()] == [
        count for site in record.sources for count in record.census[site].class_counts
    ]


def test_the_median_of_an_even_number_of_sites_is_between_the_two_in_the_middle(
    record: RunRecord, folder: Path
) -> None:
    counts = zip(record.sources, ((1, 9), (3, 18), (2, 22), (40, 0)), strict=False)
    census = {site: record.census[site].model_copy(update={"class_counts": own}) for site, own in counts}
    four = record.model_copy(update={"census": {**record.census, **census}, "sources": record.sources[:4]})
    (picture,) = partition([Run(folder, four)])
    assert "4 source sites of 10 to 40 images, median 22.5" in picture.caption


def test_a_run_whose_sites_have_a_domain_each_has_no_such_figure(record: RunRecord, folder: Path) -> None:
    split = {
        "split": record.census[record.sources[0]].split.rpartition("/")[0]
    }  # of no part, though the protocol, from variables, says that there are
    census = {site: reply.model_copy(update=split) for site, reply in record.census.items()}
    whole = record.model_copy(update={"census": census})
    with pytest.raises(SettingsError, match="no run divides a domain by its classes"):
        partition([Run(folder, whole)])
    (picture,) = partition([Run(folder, whole), Run(folder, record)])
    assert picture.sites == record.sources
