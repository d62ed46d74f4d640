# SPDX-License-Identifier: Apache-2.0
"""SCAFFOLD: c is the mean of all sites' control variates, and a step of one site is a step of all."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.core.steps import effective_steps
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.methods.scaffold import ControlExchange, SCAFFOLDObjective
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Exchange, LocalObjective, SiteRound, Trained
from fdg_plugins.training.results import make_update
from tests.objectives.local_steps import copy_of, train_steps
from tests.objectives.objective_batches import CLASSES, Batch
from tests.objectives.report_round import ReportRound
from tests.random_tensors import normal

Tensors = dict[str, torch.Tensor]

RATE = 0.1
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
SHAPES = {WEIGHT: (2, 2), BIAS: (2,)}
SITES = ("art", "cartoon", "photo", "sketch")


def tensors_of(seed: int, scale: float = 1.0) -> Tensors:
    return {name: scale * normal(seed + place, *shape) for place, (name, shape) in enumerate(SHAPES.items())}


def constant(value: float) -> Tensors:
    return {name: torch.full(shape, value) for name, shape in SHAPES.items()}


def tiny_model() -> ExtractorClassifier:
    """Six parameters, all zero."""
    model = ExtractorClassifier(nn.Flatten(), nn.Linear(2, 2))
    model.load_state_dict(constant(0.0))
    return model


# --- quadratic sites: f_u = h_u/2 |x - b_u|^2 ---


@dataclass
class Quadratic:
    """A site's optimum b_u, and its curvature h_u."""

    optimum: Tensors
    curvature: float = 1.0

    def set_gradients(self, model: ExtractorClassifier) -> torch.Tensor:
        for name, parameter in model.named_parameters():
            parameter.grad = self.curvature * (parameter.detach() - self.optimum[name])
        return torch.zeros(())


def quadratics(curvatures: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)) -> dict[str, Quadratic]:
    return {
        site: Quadratic(tensors_of(10 * place), curvature)
        for place, (site, curvature) in enumerate(zip(SITES, curvatures, strict=True))
    }


@dataclass
class Federation:
    """SCAFFOLD on quadratic sites, full batches: global model, the server's half, each site's memory."""

    sites: dict[str, Quadratic] = field(default_factory=quadratics)
    momentum: float = 0.0
    corrects: bool = True  # without, it is FedAvg
    model: ExtractorClassifier = field(default_factory=tiny_model)
    memories: dict[str, Tensors] = field(default_factory=dict)
    number: int = 0
    exchange: Exchange = field(init=False)

    def __post_init__(self) -> None:
        exchange = SCAFFOLDObjective().exchange(self.model, CLASSES, len(self.sites))
        assert exchange is not None
        self.exchange = exchange

    def play(self, steps: Mapping[str, int], refused: tuple[str, ...] = ()) -> dict[str, Tensors]:
        """Run one round in which each site takes its number of steps; return the local models."""
        received = copy_of(self.model)
        of_round = ReportRound(self.exchange, received)
        updates, down = {}, self.exchange.broadcast()
        for site, count in steps.items():
            local, trained = self.train(site, count, down)
            updates[site] = trained.update
            self.model.load_state_dict(received)
            if self.corrects:
                self.memories[site] = local.memory(trained)
                of_round.accept(site, local.report(trained), trained.update)
        of_round.finish(site for site in steps if site not in refused)
        mean = {name: torch.stack([update[name] for update in updates.values()]).mean(dim=0) for name in SHAPES}
        self.model.load_state_dict({name: received[name] + mean[name] for name in received})
        self.number += 1
        return {site: {name: received[name] + update[name] for name in SHAPES} for site, update in updates.items()}

    def train(self, site: str, steps: int, down: Tensors) -> tuple[LocalObjective, Trained]:
        received = copy_of(self.model)
        about = SiteRound(site, self.number, 0, RATE, self.momentum, self.memories.get(site, {}))
        local = SCAFFOLDObjective().local(down, self.model, about)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=self.momentum)
        for _ in range(steps):
            local.step(self.model, lambda: self.sites[site].set_gradients(self.model), optimizer)
        update = make_update(self.model.state_dict(), received)
        return local, Trained(update, steps, effective_steps(steps, self.momentum))

    def mean_of_sites(self) -> Tensors:
        """Return the mean of c_u over all sites, zero for those that never trained."""
        kept = [self.memories.get(site, constant(0.0)) for site in self.sites]
        return {name: torch.stack([one[name] for one in kept]).mean(dim=0) for name in SHAPES}


def test_two_sites_by_hand() -> None:
    # x = 0, b = (-1, -3), rate 0.1, one step: gradients 1 and 3, updates -0.1 and -0.3, which over 0.1 are c_u = 1, 3;
    # c = 2 and x = -0.2. Then site a: gradient 0.8, corrected by 2 - 1: 1.8; its update is -0.18, so its control
    # becomes 1 - 2 + 1.8 = 0.8, the new gradient. Only it reports: c = 2 + (0.8 - 1) / 2 = 1.9.
    federation = Federation({"a": Quadratic(constant(-1.0)), "b": Quadratic(constant(-3.0))})
    federation.play({"a": 1, "b": 1})
    torch.testing.assert_close(federation.memories, {"a": constant(1.0), "b": constant(3.0)})
    torch.testing.assert_close(federation.exchange.broadcast(), constant(2.0))
    local = federation.play({"a": 1})
    torch.testing.assert_close(local["a"], constant(-0.38))
    torch.testing.assert_close(federation.memories["a"], constant(0.8))
    torch.testing.assert_close(federation.exchange.broadcast(), constant(1.9))


# --- the step ---


@pytest.mark.parametrize("has_memory", [False, True])
@pytest.mark.parametrize("was_sent", [False, True])
def test_a_step_follows_the_gradient_plus_c_minus_its_own_control(
    model: ExtractorClassifier, batches: list[Batch], was_sent: bool, has_memory: bool
) -> None:
    shapes = {name: value.shape for name, value in model.named_parameters()}
    server, own = ({name: 0.1 * normal(seed, *shape) for name, shape in shapes.items()} for seed in (1, 2))
    server, own = server if was_sent else {}, own if has_memory else {}
    before, gradients = copy_of(model), copy.deepcopy(model)
    images, labels = batches[0]
    loss = nn.functional.cross_entropy(gradients(images), labels)
    loss.backward()
    local = SCAFFOLDObjective().local(server, model, SiteRound(memory=own))
    training = train_steps(model, local, [batches[:1]], lr=0.5, momentum=0.0, weight_decay=0.0)
    assert training.epoch_losses[0] == pytest.approx(loss.item())
    for name, parameter in gradients.named_parameters():
        assert parameter.grad is not None
        corrected = parameter.grad + (server[name] if server else 0) - (own[name] if own else 0)
        torch.testing.assert_close(model.state_dict()[name], before[name] - 0.5 * corrected)


# --- what is reported and kept ---


# --- the server ---


def play(exchange: Exchange, *rounds: tuple[int, ...]) -> Tensors:
    """Rounds of sites named by the seeds of their reports."""
    for seeds in rounds:
        of_round = ReportRound(exchange, {})
        for seed in seeds:
            of_round.accept(f"site-{seed}", tensors_of(seed), None)
        of_round.finish(f"site-{seed}" for seed in seeds)
    return exchange.broadcast()


# --- what is refused ---

DAMAGES: list[tuple[Callable[[Tensors], Any], str]] = [
    (lambda tensors: {WEIGHT: tensors[WEIGHT]}, f"'{BIAS}' is missing"),
    (lambda tensors: {**tensors, "more": torch.zeros(1)}, "sent 'more', expected only"),
    (lambda tensors: {**tensors, BIAS: torch.zeros(3)}, rf"'{BIAS}' has shape \[3\], expected \[2\]"),
    (lambda tensors: {**tensors, BIAS: torch.zeros(2, dtype=torch.int64)}, f"'{BIAS}' has dtype torch.int64"),
    (lambda tensors: {**tensors, BIAS: torch.full((2,), float("nan"))}, f"'{BIAS}' has 2 values that are NaN"),
    (lambda tensors: {**tensors, BIAS: "0"}, f"'{BIAS}' is a str"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_does_not_fit_is_refused_in_one_sentence_that_says_where_it_came_from(
    damage: Callable[[Tensors], Any], message: str
) -> None:
    broken, model, objective = damage(tensors_of(0)), tiny_model(), SCAFFOLDObjective()
    with pytest.raises(SettingsError, match=rf"^sent for objective 'scaffold': {message}.*\.$"):
        objective.local(broken, model)
    with pytest.raises(SettingsError, match=rf"^site photo: its memory of objective 'scaffold': {message}.*\.$"):
        objective.local({}, model, SiteRound("photo", memory=broken))
    exchange = ControlExchange(SHAPES, 2)
    of_round = ReportRound(exchange, {})
    with pytest.raises(ContributionError, match=rf"^site photo: {message}.*\.$"):
        of_round.accept("photo", broken, None)
