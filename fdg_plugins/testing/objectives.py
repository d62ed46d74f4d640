# SPDX-License-Identifier: Apache-2.0
"""The contract of every local objective. Each function takes a class and raises ``AssertionError`` on a violation."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from safetensors.torch import load, save

from fdg_plugins.core.steps import effective_steps
from fdg_plugins.errors import ContributionError, SettingsError
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import Exchange, LocalObjective, Objective, SiteRound, Trained, make_objective, see
from fdg_plugins.tasks import DEFAULT_TASK
from fdg_plugins.testing.inputs import refusal_of, same_bits, settings_have_names_of_their_own

ObjectiveClass = type[Objective]
Batch = tuple[torch.Tensor, torch.Tensor]
Tensors = dict[str, torch.Tensor]

CLASSES, SIZE, RATE, EPOCHS = 3, 16, 0.05, 2
CLASS_COUNTS = (4, 3, 2)  # of the labels in make_batches
NETWORKS = (("convnet", "linear"), ("groupnorm_convnet", "two_layer"))


def network(objective: Objective, name: str = "convnet", head: str = "linear") -> ExtractorClassifier:
    """Return a small network, adapted by the objective, in training mode."""
    model = build_model(name, CLASSES, seed=1, head=head, image_size=SIZE)
    return objective.adapt(model, (channels_of(model), SIZE, SIZE), 1).train()


def channels_of(model: ExtractorClassifier) -> int:
    """Return the number of channels of a network's images."""
    return int(next(model.extractor.parameters()).shape[1])


def make_batches(channels: int = 3, seed: int = 0, sizes: Sequence[int] = (4, 5)) -> list[Batch]:
    """Return batches of images ``[B, C, 16, 16]`` and labels ``[B]``; the first batch contains every class."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, channels, SIZE, SIZE, generator=generator), torch.arange(size) % CLASSES) for size in sizes
    ]


def begin(objective: Objective, *named: str, seed: int = 0) -> tuple[ExtractorClassifier, list[Batch]]:
    """Return the network of a site, by name and head if ``named``, and the site's batches."""
    model = network(objective, *named)
    return model, make_batches(channels_of(model), seed)


def train(
    model: ExtractorClassifier, local: LocalObjective, batches: Sequence[Batch], momentum: float = 0.0
) -> Trained:
    """Train ``model`` in place as a site does; return its update and numbers of steps."""
    before = bits(model)
    own = [*model.parameters(), *local.parameters()]
    optimizer = torch.optim.SGD(own, lr=RATE, momentum=momentum, weight_decay=5e-4)
    local.observe_received(model, see(model, batches), CLASSES)
    local.begin(model)
    for number in range(EPOCHS * len(batches)):
        if number % len(batches) == 0:  # an epoch begins
            model.train()
            local.prepare(model)
        of_step = batches[number % len(batches)]

        def compute_gradients(batch: Batch = of_step) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = local.loss(model, *batch)
            loss.backward()
            return loss.detach()

        local.step(model, compute_gradients, optimizer)
    local.observe_trained(model, see(model, batches), CLASSES)
    update = {name: value.detach() - before[name] for name, value in model.state_dict().items()}
    steps = EPOCHS * len(batches)
    return Trained(update, steps, effective_steps(steps, momentum))


def bits(model: ExtractorClassifier) -> Tensors:
    """Return a copy of the state dict."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def by_hand(model: ExtractorClassifier, batches: Sequence[Batch]) -> Tensors:
    """Return the state dict after FedAvg's local training, written out."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, weight_decay=5e-4)
    model.train()
    for images, labels in [*batches] * EPOCHS:
        optimizer.zero_grad(set_to_none=True)
        DEFAULT_TASK.loss(model(images).float(), labels).backward()
        optimizer.step()
    return dict(model.state_dict())


def site_round(site: str = "photo", number: int = 0) -> SiteRound:
    """Return the description of a site's round: site, round number, the test's seed and learning rate."""
    return SiteRound(site, number, seed=1, learning_rate=RATE, class_counts=CLASS_COUNTS)


def report_of(objective: Objective, received: Tensors, seed: int) -> tuple[Tensors, Tensors]:
    """Return the report and the update of a site, with its own images, in one round."""
    model, batches = begin(objective, seed=seed)
    report = objective.report_received(model, see(model, batches), CLASSES)
    local = objective.local(received, model, site_round(f"site-{seed}"))
    trained = train(model, local, batches)
    if not objective.probes:
        report |= objective.report_trained(model, see(model, batches), CLASSES) | local.report(trained)
    return report, dict(trained.update)


def begun(objective: Objective) -> Exchange | None:
    """Return the server side in a round that has begun; None if there is none."""
    model = network(objective)
    exchange = objective.exchange(model, CLASSES, num_sites=2)
    if exchange is not None:
        exchange.begin_round(model.state_dict())
    return exchange


def learned(objective: Objective) -> Exchange | None:
    """Return the server side after a round of two sites; None if there is none."""
    exchange = begun(objective)
    if exchange is not None:
        sites = {f"site-{seed}": report_of(objective, {}, seed) for seed in (7, 8)}
        exchange.finish({site: exchange.read(site, *report) for site, report in sites.items()})
    return exchange


def received_by(objective: Objective) -> Tensors:
    """Return what the server sends after a round of two sites; empty for a method without an exchange."""
    exchange = learned(objective)
    return {} if exchange is None else exchange.broadcast()


# --- contract -------------------------------------------------------------------------------------------------------


def its_settings_make_it_again(class_: ObjectiveClass) -> None:
    """Name and settings determine the objective completely."""
    objective = class_()
    assert objective.settings()["name"] == class_.name
    assert class_(**{name: value for name, value in objective.settings().items() if name != "name"}) == objective
    assert make_objective(objective.settings()) == objective


def neutral_settings_are_fedavg_to_the_bit(class_: ObjectiveClass) -> None:
    """With ``neutral`` settings, training is FedAvg's, even for received tensors if ``neutral_when_received``."""
    if class_.neutral is None:
        return
    objective = class_(**class_.neutral)
    sent = received_by(objective) if class_.neutral_when_received else {}
    for named, received in ((NETWORKS[0], {}), (NETWORKS[0], sent), (NETWORKS[1], {})):
        model, batches = begin(objective, *named)
        expected = by_hand(copy.deepcopy(model), batches)
        train(model, objective.local(received, model, site_round()), batches)
        assert same_bits(model.state_dict(), expected)


def what_is_not_neutral_is_not_fedavg(class_: ObjectiveClass) -> None:
    """With its own settings and the tensors from a round of other sites, training differs and stays finite."""
    objective = class_()
    if class_.neutral == {} and objective.exchange(network(objective), CLASSES) is None:
        return
    model, batches = begin(objective)
    expected = by_hand(copy.deepcopy(model), batches)
    train(model, objective.local(received_by(objective), model, site_round()), batches)
    assert not same_bits(model.state_dict(), expected)
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())


def the_loss_is_a_finite_scalar_that_trains(class_: ObjectiveClass) -> None:
    """The loss is a scalar, leaves no gradient behind, and has one for every parameter, even under autocast.

    Of an objective with extra epochs (``more_epochs``), every parameter has a gradient in one of its phases.
    """
    objective = class_()
    sent = received_by(objective)
    for autocast in (False, True):
        model, batches = begin(objective)
        local = objective.local(sent, model, site_round())
        local.observe_received(model, see(model, batches), CLASSES)
        missing = set(dict(model.named_parameters()))
        for _ in range(1 + objective.more_epochs):
            local.prepare(model)
            model.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = local.loss(model, *batches[0])
            assert (loss.shape, loss.dtype) == ((), torch.float32)
            assert all(parameter.grad is None for parameter in model.parameters())
            loss.backward()
            found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
            assert all(bool(gradient.isfinite().all()) for gradient in found.values())
            missing -= set(found)
        assert not missing


def reports_change_nothing_and_are_plain_tensors(class_: ObjectiveClass) -> None:
    """A report or a look at the features changes no parameter, buffer, mode or gradient; reports are dense tensors.

    They are the same under autocast.
    """
    objective = class_()
    model, batches = begin(objective)
    model.extractor.eval()
    before, modes, reports = bits(model), [module.training for module in model.modules()], []
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            report = objective.report_received(model, see(model, batches), CLASSES)
            reports.append(report | objective.report_trained(model, see(model, batches), CLASSES))
            local = objective.local({}, model, site_round())
            local.observe_received(model, see(model, batches), CLASSES)
            local.observe_trained(model, see(model, batches), CLASSES)
    assert same_bits(*reports)
    assert same_bits(model.state_dict(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    for value in reports[0].values():
        assert type(value) is torch.Tensor
        assert value.is_contiguous()
        assert not value.requires_grad


def what_leaves_is_declared(class_: ObjectiveClass) -> None:
    """A site reports something exactly if the class names it (``report``) and a server side reads it."""
    objective = class_()
    report, _ = report_of(objective, {}, 7)
    exchange = begun(objective)
    assert bool(report) == (class_.report is not None) == (exchange is not None), (
        f"report_trained() gives {sorted(report)}, the class names the report {class_.report!r}, and its exchange is "
        f"{type(exchange).__name__}: expected all three, or none"
    )


def what_was_not_asked_for_is_refused_by_the_site(class_: ObjectiveClass) -> None:
    """Tensors that are not as the server sends them raise an error of one sentence, even with neutral settings."""
    for settings in ({}, class_.neutral or {}):
        objective = class_(**settings)
        model, sent = network(objective), received_by(objective)
        for what, tensors in damaged(sent).items() if sent else ():
            refused = refusal_of(partial(objective.local, tensors, model, site_round()), SettingsError)
            expected = f"sent for objective {class_.name!r}: "
            assert refused[: len(expected)] + refused[-1:] == expected + ".", (
                f"local() got other tensors than were sent ({what}), expected a SettingsError of one sentence that "
                f"begins with {expected!r}, it said {refused!r}"
            )


def damaged(sent: Tensors) -> dict[str, dict[str, Any]]:
    """Return damaged variants of valid tensors, by the kind of damage."""
    name = min(name for name in sent if sent[name].is_floating_point())
    value = sent[name]
    return {
        "more": {**sent, "more": torch.zeros(2)},
        "missing": {key: other for key, other in sent.items() if key != name},
        "another shape": {**sent, name: value[:-1]},
        "another dtype": {**sent, name: value.int()},
        "NaN": {**sent, name: torch.full_like(value, float("nan"))},
        "too large": {**sent, name: torch.full_like(value, 1e16)},
        "text": {**sent, name: "0.0"},
    }


def a_broken_report_is_refused_by_its_site(class_: ObjectiveClass) -> None:
    """An invalid report raises an error with the site's name, and none of it is kept."""
    objective = class_()
    exchange = begun(objective)
    if exchange is None:
        return
    report, update = report_of(objective, {}, 7)
    for what, tensors in damaged(report).items():
        refused = refusal_of(partial(exchange.read, "site-7", tensors, update), ContributionError)
        assert refused.startswith("site site-7: "), what
    exchange.finish({})
    assert exchange.learned == {}


def the_order_of_reports_changes_no_bit(class_: ObjectiveClass) -> None:
    """The server learns the same for any order of reports; a report that was read but not used leaves no trace.

    It learns nothing exactly if the reports serve a weighting alone (no ``learn``).
    """
    objective = class_()
    found = []
    reports = {f"site-{seed}": report_of(objective, {}, seed) for seed in (7, 8, 9)}
    for order in (("site-7", "site-8"), ("site-8", "site-9", "site-7")):
        exchange = begun(objective)
        if exchange is None:
            return
        read = {site: exchange.read(site, *reports[site]) for site in order}
        exchange.finish({site: report for site, report in read.items() if site != "site-9"})
        found.append((exchange.broadcast(), exchange.state()))
    assert exchange is not None
    assert bool(found[0][0]) is (type(exchange).learn is not Exchange.learn)
    assert same_bits(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def a_state_that_was_saved_goes_on_as_if_unbroken(class_: ObjectiveClass) -> None:
    """A new server side, restored from a saved state, sends and learns the same as the original."""
    objective = class_()
    unbroken, other = learned(objective), begun(objective)
    if unbroken is None or other is None:
        return
    other.learned = dict(unbroken.learned)
    assert same_bits(other.broadcast(), unbroken.broadcast())
    report, update = report_of(objective, unbroken.broadcast(), 9)
    for exchange in (unbroken, other):
        exchange.begin_round(network(objective).state_dict())
        exchange.finish({"site-9": exchange.read("site-9", report, update)})
    assert same_bits(other.broadcast(), unbroken.broadcast())
    assert other.state() == unbroken.state()


def a_repeated_round_has_the_same_bits(class_: ObjectiveClass) -> None:
    """The same site in the same round draws the same random numbers and keeps the same state."""
    objective = class_()
    sent = received_by(objective)
    assert same_bits(*(_round(objective, sent, site_round(number=3)) for _ in range(2)))


def the_next_round_goes_on_with_what_was_kept(class_: ObjectiveClass) -> None:
    """What a site has kept survives a file, and makes a difference in the site's next round."""
    objective = class_()
    sent = received_by(objective)
    memory = _memory_of(_round(objective, sent, site_round()))
    if not memory:
        return
    later = site_round(number=1)
    kept, without = (_round(objective, sent, replace(later, memory=one)) for one in (load(save(memory)), {}))
    assert all(bool(value.isfinite().all()) for value in kept.values())
    assert not same_bits(kept, without)


def _round(objective: Objective, sent: Tensors, site: SiteRound) -> Tensors:
    model, batches = begin(objective, seed=site.number)
    local = objective.local(sent, model, site)
    trained = train(model, local, batches)
    found = {"model": model.state_dict(), "report": local.report(trained), "kept": local.memory(trained)}
    return {f"{what} {name}": value.clone() for what, values in found.items() for name, value in values.items()}


def _memory_of(found: Tensors) -> Tensors:
    return {name.removeprefix("kept "): value for name, value in found.items() if name.startswith("kept ")}


def a_site_has_a_model_of_its_own_if_it_says_so(class_: ObjectiveClass) -> None:
    """The personal model gives logits of every image before and after the site has trained."""
    objective = class_()
    if not class_.personalises:
        return
    sent, (model, batches) = received_by(objective), begin(objective)
    images, names = batches[0][0], {name for name, _ in model.named_parameters()}
    memory = _memory_of(_round(objective, {}, site_round()))
    for site in (site_round(), replace(site_round(number=1), memory=memory)):
        for received in ({}, sent):
            own = objective.personal(network(objective), received, site)
            logits = own.network.eval()(images)
            assert logits.shape == (len(images), CLASSES)
            assert bool(logits.isfinite().all())
            assert own.tuning is None or set() < set(own.tuning.parameters) <= names


OBJECTIVE_CONTRACT: tuple[Callable[[ObjectiveClass], None], ...] = (
    settings_have_names_of_their_own,
    its_settings_make_it_again,
    neutral_settings_are_fedavg_to_the_bit,
    what_is_not_neutral_is_not_fedavg,
    the_loss_is_a_finite_scalar_that_trains,
    reports_change_nothing_and_are_plain_tensors,
    what_leaves_is_declared,
    what_was_not_asked_for_is_refused_by_the_site,
    a_broken_report_is_refused_by_its_site,
    the_order_of_reports_changes_no_bit,
    a_state_that_was_saved_goes_on_as_if_unbroken,
    a_repeated_round_has_the_same_bits,
    the_next_round_goes_on_with_what_was_kept,
    a_site_has_a_model_of_its_own_if_it_says_so,
)
"""The complete contract of a local objective."""
