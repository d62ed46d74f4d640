# SPDX-License-Identifier: Apache-2.0
"""SCAFFOLD: c is the mean of all sites' control variates, and a step of one site is a step of all."""

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.core.steps import effective_steps
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.methods.scaffold import ControlExchange, SCAFFOLDObjective, control_change
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import Exchange, LocalObjective, SiteRound, Trained, make_objective
from fdg_plugins.state.site_memory import Kept, read_memory, write_kept
from fdg_plugins.training.results import make_update
from tests.objectives.local_steps import copy_of, same, train_steps
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


ROUNDS: list[dict[str, int]] = [
    {"photo": 3},
    {"art": 1, "sketch": 7},
    {"photo": 2, "sketch": 2},
    dict(zip(SITES, (1, 2, 3, 4), strict=True)),
    {"cartoon": 5},
    {"art": 4, "photo": 1, "cartoon": 2},
]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_after_every_round_c_is_the_mean_over_all_sites_whoever_took_however_many_steps(momentum: float) -> None:
    federation = Federation(momentum=momentum)
    for steps in ROUNDS:
        federation.play(steps)
        torch.testing.assert_close(federation.exchange.broadcast(), federation.mean_of_sites(), rtol=1e-5, atol=1e-6)


def test_with_one_full_batch_step_all_sites_coincide_from_the_second_round_on() -> None:
    federation = Federation()
    everybody = dict.fromkeys(SITES, 1)
    first = federation.play(everybody)
    assert not torch.allclose(first["art"][WEIGHT], first["photo"][WEIGHT], atol=1e-2)
    for _ in range(4):
        local = federation.play(everybody)
        for site in SITES:
            torch.testing.assert_close(local[site], local["art"], rtol=1e-5, atol=1e-6)


CURVATURES, STEPS = (0.2, 1.0, 2.0, 3.0), dict(zip(SITES, (2, 7, 3, 5), strict=True))


def optimum_of_the_mean_loss() -> Tensors:
    optima = [site.optimum for site in quadratics(CURVATURES).values()]
    return {
        name: torch.stack([h * optimum[name] for h, optimum in zip(CURVATURES, optima, strict=True)]).sum(dim=0)
        / sum(CURVATURES)
        for name in SHAPES
    }


@pytest.mark.parametrize("participation", [4, 2])
def test_the_fixed_point_is_the_optimum_of_the_mean_loss(participation: int) -> None:
    federation = Federation(quadratics(CURVATURES))
    draws = itertools.cycle(itertools.combinations(SITES, participation))
    for drawn, _ in zip(draws, range(90), strict=False):
        federation.play({site: STEPS[site] for site in drawn})
    torch.testing.assert_close(copy_of(federation.model), optimum_of_the_mean_loss(), rtol=1e-3, atol=1e-3)


def test_the_fixed_point_of_fedavg_is_another() -> None:
    federation = Federation(quadratics(CURVATURES), corrects=False)
    for _ in range(30):
        federation.play(STEPS)
    assert federation.exchange.broadcast() == {}
    assert not torch.allclose(federation.model.state_dict()[WEIGHT], optimum_of_the_mean_loss()[WEIGHT], atol=0.1)


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


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 13])
def test_under_a_constant_gradient_the_control_is_that_gradient_whatever_the_momentum(
    momentum: float, steps: int
) -> None:
    model, gradient = tiny_model(), tensors_of(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
    for _ in range(steps):
        for name, parameter in model.named_parameters():
            parameter.grad = gradient[name].clone()
        optimizer.step()
    trained = Trained(copy_of(model), steps, effective_steps(steps, momentum))
    local = SCAFFOLDObjective().local({}, model, SiteRound(learning_rate=RATE, momentum=momentum))
    torch.testing.assert_close(local.memory(trained), gradient, rtol=1e-5, atol=1e-6)


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


def test_a_parameter_without_a_gradient_follows_the_correction_and_ends_with_the_control_zero() -> None:
    model = tiny_model()
    server, own = constant(2.0), constant(0.5)
    about = SiteRound(learning_rate=RATE, memory=own)
    local = SCAFFOLDObjective().local(server, model, about)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def only_the_weight() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        model.classifier.weight.grad = torch.ones(2, 2)
        return torch.zeros(())

    for _ in range(3):
        local.step(model, only_the_weight, optimizer)
    torch.testing.assert_close(model.state_dict()[BIAS], torch.full((2,), -3 * RATE * 1.5))
    torch.testing.assert_close(local.memory(Trained(copy_of(model), 3, 3.0))[BIAS], torch.zeros(2))


def test_steps_leave_what_was_received_and_the_memory_as_they_were() -> None:
    model, server, own = tiny_model(), tensors_of(1), tensors_of(5)
    kept = copy.deepcopy((server, own))
    local = SCAFFOLDObjective().local(server, model, SiteRound(learning_rate=RATE, memory=own))
    site, optimizer = Quadratic(tensors_of(9)), torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for _ in range(4):
        local.step(model, lambda: site.set_gradients(model), optimizer)
    local.memory(Trained(copy_of(model), 4, 4.0))
    assert all(same(one, other) for one, other in zip((server, own), kept, strict=True))


# --- what is reported and kept ---


def test_report_and_memory_are_float32_of_the_trainable_parameters_alone(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    received = copy_of(model)
    local = SCAFFOLDObjective().local({}, model, SiteRound(learning_rate=0.05))
    train_steps(model, local, [batches], momentum=0.0)
    trained = Trained(make_update(model.state_dict(), received), len(batches), float(len(batches)))
    names = {name for name, _ in model.named_parameters()}
    for tensors in (local.report(trained), local.memory(trained)):
        assert tensors.keys() == names
        assert all(value.dtype == torch.float32 and value.is_contiguous() for value in tensors.values())
    assert same(local.report(trained), local.memory(trained))  # the first control is its own change


def test_a_site_that_was_away_finds_its_control_and_a_repeated_round_begins_as_it_began(tmp_path: Path) -> None:
    federation = Federation()
    federation.play({"photo": 3, "art": 2})
    write_kept(tmp_path, 0, Kept(federation.memories["photo"]))
    federation.play({"art": 2})
    federation.memories["photo"] = read_memory(tmp_path, 2)
    down, received = federation.exchange.broadcast(), copy_of(federation.model)
    local, trained = federation.train("photo", 4, down)
    write_kept(tmp_path, 2, Kept(local.memory(trained)))
    federation.model.load_state_dict(received)
    federation.memories["photo"] = read_memory(tmp_path, 2)  # the round again, from what was known before it
    again, same_training = federation.train("photo", 4, down)
    assert same(again.report(same_training), local.report(trained))
    assert same(again.memory(same_training), read_memory(tmp_path, 3))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e16])
def test_a_round_that_the_server_refuses_for_its_numbers_leaves_the_sites_control(value: float) -> None:
    federation = Federation()
    federation.play({"photo": 3, "art": 2})
    own = federation.memories["photo"]
    local = SCAFFOLDObjective().local(federation.exchange.broadcast(), tiny_model(), SiteRound(memory=own))
    trained = Trained({**constant(0.0), BIAS: torch.tensor([0.0, value])}, 1, 1.0)
    assert same(local.memory(trained), own)
    of_round = ReportRound(federation.exchange, {})
    with pytest.raises(ContributionError, match=rf"^site photo: '{BIAS}' has .*\.$"):
        of_round.accept("photo", local.report(trained), trained.update)


def test_a_report_that_does_not_count_has_moved_the_sites_control_and_not_c() -> None:
    federation = Federation()
    federation.play(dict.fromkeys(SITES, 2))
    before = copy.deepcopy((federation.exchange.broadcast(), federation.memories["photo"]))
    federation.play({"photo": 3}, refused=("photo",))
    c, mean, moved = federation.exchange.broadcast(), federation.mean_of_sites(), federation.memories["photo"]
    assert same(c, before[0])
    for name in SHAPES:
        torch.testing.assert_close(mean[name] - c[name], (moved[name] - before[1][name]) / 4, rtol=1e-4, atol=1e-6)
        assert bool((moved[name] != before[1][name]).any())


# --- the server ---


def play(exchange: Exchange, *rounds: tuple[int, ...]) -> Tensors:
    """Rounds of sites named by the seeds of their reports."""
    for seeds in rounds:
        of_round = ReportRound(exchange, {})
        for seed in seeds:
            of_round.accept(f"site-{seed}", tensors_of(seed), None)
        of_round.finish(f"site-{seed}" for seed in seeds)
    return exchange.broadcast()


def test_changes_add_up_over_all_sites_and_not_over_those_of_the_round() -> None:
    exchange = ControlExchange(SHAPES, 4)
    assert exchange.broadcast() == {}
    for name, value in play(exchange, (0, 30), (60,)).items():
        expected = sum(tensors_of(seed)[name] for seed in (0, 30, 60)) / 4
        torch.testing.assert_close(value, expected)
        assert value.dtype == torch.float32


def test_a_state_for_another_number_of_sites_is_refused() -> None:
    exchange = ControlExchange(SHAPES, 3)
    play(exchange, (0,))
    with pytest.raises(SettingsError, match=r"^state of the exchange: 'num_sites' is 3, expected 4\.$"):
        ControlExchange(SHAPES, 4).restore(exchange.state(), exchange.tensors())


def test_the_exchange_knows_all_sites_of_the_run(model: ExtractorClassifier) -> None:
    exchange = make_objective("scaffold").exchange(model, CLASSES, 7)
    assert isinstance(exchange, ControlExchange)
    assert exchange.phase == "train"
    assert exchange.identity() == {"exchange": "scaffold", "num_sites": 7}
    assert exchange.shapes == {name: tuple(value.shape) for name, value in model.named_parameters()}


def test_the_change_does_not_depend_on_the_sites_own_control() -> None:
    update, server = tensors_of(1), tensors_of(4)
    change = control_change({**update, "buffer": torch.ones(1)}, server, 0.5)
    torch.testing.assert_close(change, {name: -server[name] - 2 * update[name] for name in SHAPES})


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
    with pytest.raises(SettingsError, match=r"^state of the exchange: "):
        exchange.restore({**exchange.state(), "tensors": sorted(broken)}, broken)


def test_it_has_no_settings_and_names_what_a_site_shares() -> None:
    objective = make_objective("scaffold")
    assert objective.settings() == {"name": "scaffold"}
    assert (objective.report, objective.plain_sgd, objective.probes) == ("control_variate", False, False)
