# SPDX-License-Identifier: Apache-2.0
"""The server's halves: SCAFFOLD's and MoFedSAM's by hand, and deaf to whatever is not a report."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import ContributionError
from fdg_plugins.methods.fedas import REPORT_FISHER_TRACE, TraceReports
from fdg_plugins.methods.feddim import InsightExchange
from fdg_plugins.methods.fediir import GradientExchange
from fdg_plugins.methods.mofedsam import MoFedSAMObjective, MomentumExchange
from fdg_plugins.methods.scaffold import ControlExchange, SCAFFOLDObjective
from fdg_plugins.methods.stablefdg import StyleExchange
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Exchange, SiteFacts, SiteRound, Trained
from fdg_plugins.objectives.exchange import PayloadValidator, check_counts
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.testing.objectives import bits
from fdg_plugins.training.results import make_update
from tests.objectives.local_steps import CLASSES, Batch, ReportRound, train_steps
from tests.random_tensors import normal

RATE = 0.1
NAME = "classifier.weight"


def one(value: float) -> dict[str, torch.Tensor]:
    return {NAME: torch.tensor([[value]])}


def trained(
    start: float, optimum: float, sent: dict[str, torch.Tensor], memory: dict[str, torch.Tensor]
) -> tuple[float, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Take one step of a site with the loss ``(x - optimum)^2 / 2``; return its update, its report and its memory."""
    model = ExtractorClassifier(nn.Flatten(), nn.Linear(1, 1, bias=False))
    model.load_state_dict(one(start))
    local = SCAFFOLDObjective().local(sent, model, SiteRound("a", 0, 0, RATE, memory=memory))

    def compute() -> torch.Tensor:
        model.last_layer.weight.grad = model.last_layer.weight.detach() - optimum
        return torch.zeros(())

    local.step(model, compute, torch.optim.SGD(model.parameters(), lr=RATE))
    update = model.last_layer.weight.item() - start
    done = Trained(one(update), 1, 1.0)
    return update, local.report(done), local.memory(done)


def test_two_sites_by_hand() -> None:
    # x = 0, b = (-1, -3), rate 0.1, one step: gradients 1 and 3, updates -0.1 and -0.3, which over 0.1 are c_u = 1, 3;
    # c = 2 and x = -0.2. Then site a: gradient 0.8, corrected by 2 - 1: 1.8; its update is -0.18, so its control
    # becomes 1 - 2 + 1.8 = 0.8, the new gradient. Only it reports: c = 2 + (0.8 - 1) / 2 = 1.9.
    exchange = ControlExchange({NAME: (1, 1)}, num_sites=2)
    first, second = (trained(0.0, optimum, {}, {}) for optimum in (-1.0, -3.0))
    assert [first[0], second[0]] == pytest.approx([-0.1, -0.3])
    torch.testing.assert_close([first[2], second[2]], [one(1.0), one(3.0)])
    exchange.begin_round(one(0.0))
    exchange.finish({site: exchange.read(site, own[1], one(own[0])) for site, own in (("a", first), ("b", second))})
    torch.testing.assert_close(exchange.broadcast(), one(2.0))
    update, report, memory = trained(-0.2, -1.0, exchange.broadcast(), first[2])
    assert update == pytest.approx(-0.18)
    torch.testing.assert_close(memory, one(0.8))
    exchange.begin_round(one(-0.2))
    exchange.finish({"a": exchange.read("a", report, one(update))})
    torch.testing.assert_close(exchange.broadcast(), one(1.9))


def test_a_change_that_does_not_follow_from_the_update_is_refused() -> None:
    exchange = ControlExchange({NAME: (1, 1)}, num_sites=2)
    exchange.begin_round(one(0.0), {"a": SiteFacts(2, 2.0, RATE, 10, (10,))})
    exchange.read("a", one(1.0), one(-0.2))
    exchange.read("a", one(1.005), one(-0.2))  # rounded to bfloat16
    for change in (1.02, -1.0):
        with pytest.raises(ContributionError):
            exchange.read("a", one(change), one(-0.2))


Y, D = 3, 4
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
MEANS, COUNTS, GRADIENT = "class_means", "class_counts", f"gradient/{WEIGHT}"
GLOBAL = {WEIGHT: normal(1, Y, D), BIAS: normal(2, Y)}
UPDATE = {WEIGHT: normal(3, Y, D), BIAS: normal(4, Y)}
CLASS_REPORT = {MEANS: normal(5, 2, D), COUNTS: torch.tensor([5, 0, 1])}
GRADIENT_REPORT = {GRADIENT: normal(6, Y, D), f"gradient/{BIAS}": normal(7, Y)}


def of_insights() -> Exchange:
    return InsightExchange(0.3, "insight", Y, D, WEIGHT)


def of_gradients() -> Exchange:
    return GradientExchange(0.9, {WEIGHT: (Y, D), BIAS: (Y,)}, "probe")


def test_references_of_disk_offload_are_loaded() -> None:
    class Reference:
        def __init__(self, value: Any) -> None:
            self.value = value

        def materialize(self) -> Any:
            if self.value is None:
                raise OSError("file is gone")
            return self.value

    plain, exchange = of_insights(), of_insights()
    for one, sent in ((plain, CLASS_REPORT), (exchange, {name: Reference(at) for name, at in CLASS_REPORT.items()})):
        of_round = ReportRound(one, GLOBAL)
        with pytest.raises(ContributionError):
            of_round.accept("site-0", dict.fromkeys(sent, Reference(None)), UPDATE)
        of_round.accept("site-0", sent, UPDATE)
        of_round.finish(["site-0"])
    assert same_bits(exchange.broadcast(), plain.broadcast())


def numbers(*shape: int) -> list[Any]:
    """What stands where float tensors of a shape are expected."""
    arrays = [np.zeros(shape, kind) for kind in ("?", "c8", "U2", "O", "M8[s]", "f4,i4")]
    wrong = [torch.zeros(shape, dtype=kind) for kind in (torch.int64, torch.complex64, torch.float8_e4m3fn)]
    laid_out = [torch.zeros(shape).to_sparse(), torch.zeros(shape, device="meta"), np.zeros(shape).tolist()]
    sizes = [torch.full(shape, size, dtype=torch.float64) for size in (np.nan, np.inf, 1e300, -1e16)]
    return [*arrays, *wrong, *laid_out, *sizes, torch.zeros(*shape, 1), None, True, 7, "0.0", b"\0", {"a": [None]}]


BAD_COUNTS = [
    *([1, 1, 1], torch.tensor([True, True, True]), torch.tensor([1, -1, 1]), torch.tensor([1, 2**60, 1])),
    *(np.array([1, 2**64 - 1, 1], np.uint64), torch.tensor([0, 0, 0]), torch.tensor([1, 0, 1])),
]
NO_REPORTS: list[Any] = [None, [1, 2], {}, {1: torch.zeros(2)}, "text"]
NO_UPDATES: list[Any] = [None, {}, [1]]
CASES: list[tuple[Callable[[], Exchange], Any, Any]] = [
    *((of_insights, {**CLASS_REPORT, MEANS: value}, UPDATE) for value in numbers(2, D)),
    *((of_insights, {MEANS: normal(5, Y, D), COUNTS: value}, UPDATE) for value in BAD_COUNTS),
    *((of_insights, CLASS_REPORT, {**UPDATE, WEIGHT: value}) for value in numbers(Y, D)),
    *((of_gradients, {**GRADIENT_REPORT, GRADIENT: value}, UPDATE) for value in numbers(Y, D)),
    *((make, report, UPDATE) for make in (of_insights, of_gradients) for report in NO_REPORTS),
    *((of_insights, CLASS_REPORT, update) for update in NO_UPDATES),
    (of_insights, {**CLASS_REPORT, MEANS: torch.full((2, D), 1e12)}, {**UPDATE, WEIGHT: torch.full((Y, D), 1e12)}),
    (TraceReports, {REPORT_FISHER_TRACE: torch.tensor([-1.0])}, UPDATE),
    (lambda: StyleExchange(1), {"style_mean": torch.ones(2), "style_deviation": torch.tensor([1.0, -1.0])}, UPDATE),
]


def test_a_malformed_report_or_update_is_refused_by_its_site() -> None:
    for make, report, update in CASES:
        of_round = ReportRound(make(), GLOBAL)
        with pytest.raises(ContributionError) as caught:
            of_round.accept("site-3", report, update)
        assert str(caught.value).startswith("site site-3: "), report
        of_round.exchange.finish({})
        with pytest.raises(ContributionError):  # no round asks for one
            of_round.accept("site-3", CLASS_REPORT, UPDATE)
    facts, validator = SiteFacts(2, 2.0, RATE, 10, (3, 8)), PayloadValidator("site-3", ContributionError)
    check_counts(validator, torch.tensor([3, 7]), facts)
    for counts in ([3, 8], [4, 6]):  # of which not all are told, and more of a class than there are
        with pytest.raises(ContributionError):
            check_counts(validator, torch.tensor(counts), facts)


FAST = 0.25
W, B = "w", "b"
SHAPES = {W: (2, 1), B: (1,)}
RECEIVED = {W: torch.zeros(2, 1), B: torch.zeros(1), "running_mean": torch.zeros(3)}


def update_of(*values: float) -> dict[str, torch.Tensor]:
    """An update of ``SHAPES``, a buffer among it."""
    return {W: torch.tensor([[values[0]], [values[1]]]), B: torch.tensor([values[2]]), "running_mean": torch.ones(3)}


def test_m_of_two_sites_by_hand() -> None:
    """-(Delta/length): a: [2, -4, 0], b: [2, 0, -1/2]; each site counts the same, whatever its length."""
    exchange = MomentumExchange(SHAPES)
    of_round = ReportRound(exchange, RECEIVED)
    of_round.accept("a", {"step_length": torch.tensor([0.5])}, update_of(-1.0, 2.0, 0.0))
    of_round.accept("b", {"step_length": torch.tensor([2.0])}, update_of(-4.0, 0.0, 1.0))
    of_round.finish("ab")
    down = exchange.broadcast()
    assert sorted(down) == sorted(SHAPES)
    assert down[W].tolist() == [[2.0], [-2.0]]
    assert down[B].tolist() == [-0.25]


def test_a_length_that_no_steps_have_is_refused() -> None:
    of_round, update = ReportRound(MomentumExchange(SHAPES), RECEIVED), update_of(1.0, 1.0, 1.0)
    for length in (0.0, -0.5, math.nan, math.inf, 1e16, 1e-30):  # of the last the quotient is too large
        with pytest.raises(ContributionError):
            of_round.accept("a", {"step_length": torch.tensor([length])}, update)
    with pytest.raises(ContributionError):
        of_round.accept("a", {"step_length": torch.tensor([1.0])}, {B: update[B]})
    facts = {"a": SiteFacts(2, 2.0, 0.25, 10, (10,))}
    of_round = ReportRound(MomentumExchange(SHAPES), RECEIVED, facts)
    of_round.accept("a", {"step_length": torch.tensor([0.5])}, update)
    with pytest.raises(ContributionError):
        of_round.accept("a", {"step_length": torch.tensor([0.501])}, update)


@pytest.mark.parametrize("beta", [0.1, 0.6])
def test_direction_is_an_average(beta: float, model: ExtractorClassifier, batches: list[Batch]) -> None:
    """rho = 0, tau = 1, plain SGD: d_r = beta g_r + (1 - beta) d_{r-1}, d before the first round zero."""
    objective = MoFedSAMObjective(radius=0, beta=beta)
    exchange = objective.exchange(model, CLASSES)
    images, labels = batches[0]
    average = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for number in range(4):
        before, probe = bits(model), copy.deepcopy(model)
        probe.zero_grad()
        cross_entropy(probe(images), labels).backward()
        gradients = {name: value.grad for name, value in probe.named_parameters() if value.grad is not None}
        average = {name: beta * gradients[name] + (1 - beta) * old for name, old in average.items()}

        of_round = ReportRound(exchange, before)
        local = objective.local(exchange.broadcast(), model, SiteRound("a", number, learning_rate=FAST))
        training = train_steps(model, local, [[(images, labels)]], lr=FAST, momentum=0.0, weight_decay=0.0)
        update = make_update(model.state_dict(), before)
        of_round.accept("a", local.report(Trained(update, training.steps, training.steps)), update)
        of_round.finish(["a"])
        for name, expected in average.items():
            torch.testing.assert_close(-update[name] / FAST, expected, rtol=1e-3, atol=2e-5)
