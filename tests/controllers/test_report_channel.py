# SPDX-License-Identifier: Apache-2.0
"""An update and the reports beside it are committed together, or neither of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.aggregators.weightings import Uniform, Weighting
from fdg_plugins.controllers.rounds import Rounds
from fdg_plugins.errors import FDGError
from fdg_plugins.messages import META_CHECKED_REPORTS, META_SAMPLES, TASK_PROBE, TASK_TRAIN
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.objectives import Exchange, SiteReport
from fdg_plugins.objectives.exchange import PayloadValidator
from fdg_plugins.plugins.reports import CheckedReports
from tests.controllers.rounds_stubs import Answer, all_well, make_rounds


class Sum(Exchange):
    """Learns the sum of the numbers that sites report; with ``fails`` it can learn nothing."""

    report = "sum"

    def __init__(self, fails: bool = False, phase: Literal["probe", "train"] = "train") -> None:
        super().__init__(phase)
        self.fails = fails

    def read_report(self, validator: PayloadValidator, report: SiteReport) -> Any:
        return validator.numbers("number", report.content, (1,))

    def sizes(self, report: Any) -> dict[str, float]:
        return {"number": float(report)}

    def learn(self, reports: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if self.fails:
            raise FDGError("nothing can be learned.")
        return {"sum": torch.stack(list(reports.values())).sum(dim=0)}


NUMBERS = {"cartoon": 1.0, "photo-1": 10.0, "photo-2": 100.0}


def reporting(spoil: Callable[[str, FLModel], None] = lambda site, answer: None, phase: str = TASK_TRAIN) -> Any:
    """Return the script of sites whose reports the server's filter has read; ``spoil`` changes an answer."""

    def script(task: str, site: str, number: int, sent: FLModel) -> Answer:
        answer = all_well()(task, site, number, sent)
        assert isinstance(answer, FLModel)
        if task == phase:
            checked = CheckedReports()
            checked.note("sum", torch.tensor([NUMBERS[site]]), num_bytes=4)
            answer.meta[META_CHECKED_REPORTS] = checked
            spoil(site, answer)
        return answer

    return script


def with_exchange(
    folder: Path, script: Any, exchange: Exchange, aggregator: UpdateAggregator | None = None, **protocol: Any
) -> Rounds:
    settings = {"outlier_ratio": 0.0, **protocol}
    rounds, sites = make_rounds(folder, script, aggregator, exchange=exchange, **settings)
    sites.fl_ctx = FLContext()  # type: ignore[attr-defined]
    return rounds


def test_an_update_that_is_refused_takes_its_report_with_it(tmp_path: Path) -> None:
    def spoil(site: str, answer: FLModel) -> None:
        if site == "photo-2":
            answer.meta[META_SAMPLES] = 0

    rounds = with_exchange(tmp_path, reporting(spoil), exchange := Sum())
    finished, _ = rounds.run_round(1)
    assert "photo-2" in finished.failures
    assert exchange.broadcast()["sum"].tolist() == [11.0]


def test_a_report_that_is_refused_leaves_the_update(tmp_path: Path) -> None:
    def spoil(site: str, answer: FLModel) -> None:
        if site == "photo-2":
            answer.meta[META_CHECKED_REPORTS] = checked = CheckedReports()
            checked.note("sum", refused="site photo-2: 'number' is missing.")

    rounds = with_exchange(tmp_path, reporting(spoil), exchange := Sum())
    finished, _ = rounds.run_round(1)
    assert finished.refused_reports == {"photo-2": "'number' is missing."}
    assert "photo-2" in finished.sites
    assert exchange.broadcast()["sum"].tolist() == [11.0]


@pytest.mark.parametrize("few", [True, False])
def test_without_a_step_nothing_is_learned_and_without_learning_no_step_is_taken(tmp_path: Path, few: bool) -> None:
    def spoil(site: str, answer: FLModel) -> None:
        if few and site == "photo-2" and len(rounds.run.record.rounds) == 0:
            answer.meta[META_SAMPLES] = 0

    exchange = Sum(fails=not few)
    rounds = with_exchange(tmp_path, reporting(spoil), exchange, min_sites=3 if few else 1)
    before = dict(rounds.run.model.state)
    finished, _ = rounds.run_round(1)
    assert finished.aggregation is None
    assert finished.reason is not None
    assert all(torch.equal(rounds.run.model.state[name], value) for name, value in before.items())
    assert exchange.broadcast() == {}
    exchange.fails = False
    rounds.run_round(2)
    assert exchange.broadcast()["sum"].tolist() == [111.0]


def test_a_probe_sends_the_model_to_the_sites_that_train_once_more(tmp_path: Path) -> None:
    rounds = with_exchange(tmp_path, reporting(phase=TASK_PROBE), exchange := Sum(phase="probe"))
    rounds.run.save()  # the second request of a run finds a record
    finished, _ = rounds.run_round(1)
    assert exchange.broadcast()["sum"].tolist() == [111.0]
    of_model = sum(value.nbytes for value in rounds.run.model.state.values())
    learned = 3 * 4  # sent with the task to train
    assert finished.bytes_down == of_model * (3 + 3 + 1) + learned


class OfSum(Uniform):
    """A weighting that names the report ``sum``."""

    shares = "sum"


class BySum(FedAvgAggregator):
    """Its weights follow from the report ``sum``."""

    def rule(self) -> Weighting:
        return OfSum()


@pytest.mark.parametrize("aggregator", [FedAvgAggregator, BySum])
def test_report_that_stands_out_is_refused(tmp_path: Path, aggregator: type[FedAvgAggregator]) -> None:
    def spoil(site: str, answer: FLModel) -> None:
        if site == "photo-2":
            answer.meta[META_CHECKED_REPORTS]["sum"] = torch.tensor([1e9])

    rounds = with_exchange(tmp_path, reporting(spoil), exchange := Sum(), aggregator(), outlier_ratio=10.0)
    finished, _ = rounds.run_round(1)
    assert list(finished.refused_reports) == ["photo-2"]
    assert exchange.broadcast()["sum"].tolist() == [11.0]
    takes_update = aggregator is BySum
    assert finished.sites == (("cartoon", "photo-1") if takes_update else ("cartoon", "photo-1", "photo-2"))
    assert list(finished.failures) == (["photo-2"] if takes_update else [])
