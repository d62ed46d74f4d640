# SPDX-License-Identifier: Apache-2.0
"""FedOMG's Tables 1 and 5 from runs: the paper's columns, its numbers, and what may not stand together."""

from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.data.catalogue import known_images
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, build_sites_table, is_of_sites
from fdg_plugins.lab.analysis.sites import OWN, PAPERS_COLUMNS, PERSONAL, PUBLISHED, printed_cells
from fdg_plugins.messages import ScoreSum
from fdg_plugins.models.pretrained import FROM_SCRATCH
from fdg_plugins.record.round_record import Method
from fdg_plugins.record.run_record import PersonalScores
from fdg_plugins.settings.protocols import PAPER_PROTOCOLS
from tests.analysis.run_stubs import FEDAVG, FEDOMG, census_reply, fedomg, lines, run, text_rows

SOURCES = [f"train-{number}of5" for number in range(1, 6)]
STEPPING = fedomg(server_lr=1.0)  # FedOMG's defaults on label-skewed sites; FedAvg's are FEDAVG


def skewed(
    method: Method = FEDAVG,
    seed: int = 0,
    own: float = 0.5,
    *,
    dataset: str = "mnist",
    alpha: float = 0.1,
    drawn: int | None = None,
    sources: Sequence[str] = SOURCES,
    **changes: Any,
) -> Run:
    """Return a run on skewed sites, five by default, with one accuracy at all of them."""
    protocol = {"dataset": dataset, "partition": "dirichlet", "dirichlet_alpha": alpha, "sites_per_round": drawn}
    census = {site: census_reply("train", seed, num_train=8 + seed, num_test=10 + seed) for site in sources}
    census["test"] = census_reply("test", seed)
    return run(
        f"{method.aggregator}-{dataset}-{alpha}-{drawn}-{seed}",
        method,
        "test",
        seed,
        (0.25,),
        domains=["test", *sources],
        sources=[[own] * len(sources)],
        protocol=protocol,
        **{"census": census, "data": dataset, **changes},
    )


def as_published(dataset: str, alpha: float, **changes: Any) -> Run:
    """Return a run under the paper's protocol on all its images, with some settings changed."""
    sites = [f"train-{number}of100" for number in range(1, 101)]
    made = skewed(dataset=dataset, alpha=alpha, sources=sites, initial_weights=FROM_SCRATCH)
    reply = census_reply("train", num_train=known_images(dataset, "train", certain=False)[0] // 100 - 2)
    made.record.census = {**dict.fromkeys(sites, reply), "test": census_reply("test", num_test=10_000)}
    protocol = {**PAPER_PROTOCOLS["fedomg-fl"][dataset], **changes}
    made.record.protocol = made.record.protocol.model_copy(update={"keep_momentum": False, **protocol})
    return made


def test_columns_are_the_papers_that_have_runs_and_a_cell_is_the_mean_over_seeds() -> None:
    runs = [skewed(seed=seed, own=value) for seed, value in enumerate((0.5, 0.6, 0.7))]
    assert is_of_sites(runs)
    table = build_sites_table([*runs, skewed(FEDOMG, own=0.9, dataset="cifar10", alpha=0.5)])
    assert list(table.columns) == ["MNIST alpha=0.1", "CIFAR-10 alpha=0.5"]
    assert text_rows(table) == [
        ["FedAvg", "1", OWN, "60.0 ± 10.0 (3)", "missing"],
        ["FedAvg", "1", PUBLISHED, "25.0 ± 0.0 (3)", "missing"],
        ["FedOMG (server_lr 0.05)", "1", OWN, "missing", "90.0 (1)"],
        ["FedOMG (server_lr 0.05)", "1", PUBLISHED, "missing", "25.0 (1)"],
    ]
    assert list(build_sites_table([skewed(alpha=1.0)]).columns) == ["MNIST alpha=1"]


def test_the_papers_numbers_stand_below_ours_for_the_participation() -> None:
    table = build_sites_table([skewed(), skewed(drawn=2), skewed(FEDOMG)], "fedomg")
    printed = {line["participation"]: line for line in lines(table, kind="printed", method="fedavg")}
    assert set(printed) == {1.0, 0.4}
    assert printed[1.0]["mean"] == pytest.approx(0.9377)  # Table 5, participation 1; Table 1 has it too
    assert (printed[1.0]["rounds"], printed[1.0]["sites"], printed[1.0]["model"]) == (800, 100, None)
    assert printed[1.0]["note"].startswith("not comparable: 5 sites, resnet18, 224 px, imagenet, ")
    assert {line["label"] for line in lines(table, kind="printed", method="fedomg")} == {"FedOMG"}
    assert "93.8 ± 0.3" in table.text()
    assert len(printed_cells("fedomg", 0.6)) == len(PAPERS_COLUMNS)
    assert printed_cells("fedomg", 0.2) == {}


def test_departures_from_the_papers_protocol_are_told_of_each_of_its_columns() -> None:
    def notes_of(*runs: Run) -> list[str]:
        return [note for note in build_sites_table(runs, "fedomg").notes if "not comparable" in note]

    assert notes_of(as_published("mnist", 0.1)) == []
    assert notes_of(as_published("mnist", 0.3, rounds=40)) == []  # no column of the paper
    short = notes_of(as_published("mnist", 0.1), as_published("cifar10", 0.5, rounds=40, momentum=0.9))
    assert short == ["CIFAR-10 alpha=0.5 is not comparable with the paper: rounds 40, momentum 0.9."]
    (few,) = notes_of(skewed(dataset="cifar10"))
    assert "5 sites, resnet18, 224 px, imagenet, 10 of 10,000 images of test, 50 of 50,000 images of train" in few
    made = as_published("mnist", 0.1)
    made.record.left_out[made.record.sources[0]] = "it left."
    assert notes_of(made)[0].endswith("with the paper: rounds without some sites.")


def test_methods_are_paired_with_fedavg_in_the_runs_of_one_seed_data_set_skew_and_participation() -> None:
    runs = [
        *(skewed(FEDAVG, seed, own=0.5) for seed in (0, 1)),
        *(skewed(STEPPING, seed, own=own) for seed, own in ((0, 0.6), (1, 0.9), (2, 0.1))),
        skewed(own=0.2, dataset="cifar10"),
        skewed(STEPPING, own=0.1, dataset="cifar10"),
        skewed(STEPPING, own=0.9, dataset="cifar10", drawn=2),
    ]
    table = build_sites_table(runs)
    (paired,) = lines(table, kind="paired_difference", on=OWN)
    # Differences on the sites' own images: 0.1, 0.4, -0.1; mean 0.4 / 3, deviations -1/30, 8/30, -7/30.
    assert (paired["mean"], paired["standard_error"]) == pytest.approx((0.4 / 3, (0.19 / 9) ** 0.5))
    below = table.sheets()[1].frame
    assert list(below["SE over data sets"][:2]) == ["-", "17.5"]  # the means of the two data sets are 0.25 and -0.1
    (rank,) = lines(table, kind="mean_rank", on=OWN, method="fedomg")
    assert rank["mean"] == pytest.approx(4 / 3)
    assert paired["values"].startswith("cifar10/alpha=0.1/1/0:-0.1")
    assert (paired["method"], paired["pairs"], paired["data"]) == ("fedomg", 3, "mnist;cifar10")
    assert build_sites_table([skewed(FEDAVG), skewed(STEPPING, own=0.9)]).below == ()  # one pair
    skews = [skewed(one, seed, alpha=alpha) for one in (FEDAVG, STEPPING) for alpha in (0.1, 0.5) for seed in (0, 1)]
    assert "SE over data sets" not in build_sites_table(skews).text()  # all are of the same images


def test_own_models_have_a_row_once_every_source_has_one() -> None:
    own, other = skewed(), skewed(FEDOMG)
    evaluation = own.record.evaluations[-1]
    counts = dict(zip(SOURCES, ((1, 2), (2, 2), (3, 4), (4, 4), (5, 8)), strict=True))
    sums = {site: {"accuracy": ScoreSum(sum=correct, count=count)} for site, (correct, count) in counts.items()}
    scores = {site: evaluation.sites[site].model_copy(update={"sums": own}) for site, own in sums.items()}
    evaluation.personal = PersonalScores(sites=scores, domains={}, source_mean=None, source_worst=None, pooled=0.75)
    table = build_sites_table([own, other])
    assert [line["mean"] for line in lines(table, on=PERSONAL)] == [0.75]
    assert len(text_rows(table)) == 5
    del scores[SOURCES[0]]
    evaluation.personal = evaluation.personal.model_copy(update={"sites": scores})
    assert len(text_rows(build_sites_table([own]))) == 2


def test_runs_that_differ_in_more_and_other_papers_are_refused() -> None:
    first = skewed()
    changed = first.record.model_copy(deep=True)
    changed.protocol = changed.protocol.model_copy(update={"batch_size": 7})
    with pytest.raises(SettingsError, match="batch_size of the protocol"):
        build_sites_table([first, Run(first.folder / "other", changed)])
    assert len(text_rows(build_sites_table([skewed(drawn=2), skewed(drawn=3)]))) == 4
    for runs, paper in (([skewed(stand_in=True)], "paper"), ([first], "fediir")):
        with pytest.raises(SettingsError):
            build_sites_table(runs, paper)
