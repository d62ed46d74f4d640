# SPDX-License-Identifier: Apache-2.0
"""HarmoFL: collected once, averaged by the server, the same for every site from then on; off, it is FedAvg or SAM."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch.nn.functional import cross_entropy

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.spectrum import centred_band, mean_amplitude, replace_amplitude
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import META_SAMPLES, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.methods.fedsam import FedSAMObjective
from fdg_plugins.methods.harmofl import HarmoFLObjective
from fdg_plugins.models import ExtractorClassifier, build_model, parameter_kinds
from fdg_plugins.models.amplitude import AmplitudeNormalizedClassifier
from fdg_plugins.objectives import ERMObjective
from fdg_plugins.training.global_model import GlobalModel
from fdg_plugins.training.loop import DevicePolicy, evaluate
from fdg_plugins.training.results import make_update
from tests.objectives.local_steps import same
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches

AMPLITUDE = "normalization.amplitude"
SHAPE = (3, 16, 16)
State = dict[str, torch.Tensor]


def adapted(objective: HarmoFLObjective, model: ExtractorClassifier) -> AmplitudeNormalizedClassifier:
    channels = next(model.extractor.parameters()).shape[1]
    made = objective.adapt(model, (channels, 16, 16), 0)
    assert isinstance(made, AmplitudeNormalizedClassifier)
    return made.train()


def network(objective: HarmoFLObjective, state: State | None = None) -> AmplitudeNormalizedClassifier:
    """A new network as every end builds it, with the parameters of ``state``."""
    made = adapted(objective, build_model("convnet", CLASSES, seed=1))
    if state is not None:
        made.load_state_dict(state)
    return made


def brighter(batches: list[Batch], by: float) -> list[Batch]:
    return [(images + by, labels) for images, labels in batches]


# --- off ---


def test_without_normalization_training_is_that_of_fedsam_to_the_bit(
    model: ExtractorClassifier, batches: list[Batch], train: Train
) -> None:
    objective, other = HarmoFLObjective(radius=0.3, normalize=False), copy.deepcopy(model)
    expected = train(other, FedSAMObjective(0.3).local({}, other), batches)
    assert objective.adapt(model, SHAPE, 0) is model
    assert same(train(model, objective.local({}, model), batches), expected)


def test_without_normalization_a_step_is_that_of_sam_written_out(linear_model: ExtractorClassifier) -> None:
    objective, by_hand = HarmoFLObjective(radius=0.3, normalize=False), copy.deepcopy(linear_model)
    images, labels = make_batches(linear_model)[0]

    def gradients() -> list[torch.Tensor]:
        return list(torch.autograd.grad(cross_entropy(by_hand(images), labels), list(by_hand.parameters())))

    first = gradients()
    buffers = [buffer.clone() for buffer in by_hand.buffers()]
    norm = torch.cat([gradient.flatten() for gradient in first]).norm()
    with torch.no_grad():
        for parameter, gradient in zip(by_hand.parameters(), first, strict=True):
            parameter.add_(0.3 * gradient / norm)
    second = gradients()
    with torch.no_grad():
        for parameter, gradient, sharp in zip(by_hand.parameters(), first, second, strict=True):
            parameter.sub_(0.3 * gradient / norm + 0.1 * sharp)
        for buffer, value in zip(by_hand.buffers(), buffers, strict=True):
            buffer.copy_(value)

    optimizer = torch.optim.SGD(linear_model.parameters(), lr=0.1)
    local = objective.local({}, linear_model)
    local.step(linear_model, closure(linear_model, optimizer, images, labels), optimizer)
    for one, other in zip(linear_model.state_dict().values(), by_hand.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def closure(
    model: ExtractorClassifier, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> Callable[[], torch.Tensor]:
    def compute_gradients() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(model(images), labels)
        loss.backward()
        return loss.detach()

    return compute_gradients


# --- the first round ---


@pytest.mark.parametrize("radius", [0.0, 0.05])
def test_a_batch_is_collected_once_whatever_the_number_of_passes(
    radius: float, model: ExtractorClassifier, batches: list[Batch], train: Train
) -> None:
    objective = HarmoFLObjective(radius, amplitude_momentum=0.3, band=0.2)
    made = adapted(objective, model)
    train(made, objective.local({}, made), batches)
    inside = centred_band(16, 16, 0.2)
    means = [mean_amplitude(images) * inside for images, _ in [*batches, *batches]]  # two epochs
    expected = means[0]
    for mean in means[1:]:
        expected = 0.7 * expected + 0.3 * mean
    torch.testing.assert_close(made.normalization.amplitude, expected)


def test_both_passes_of_a_step_see_the_same_images(linear_model: ExtractorClassifier) -> None:
    objective, seen = HarmoFLObjective(radius=0.3, band=0.2), []
    made = adapted(objective, linear_model)
    made.extractor.register_forward_pre_hook(lambda module, given: seen.append(given[0].clone()))
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    local = objective.local({}, made)
    running = torch.zeros(())
    for number, (images, labels) in enumerate(make_batches(linear_model)):
        local.step(made, closure(made, optimizer, images, labels), optimizer)
        mean = mean_amplitude(images)
        running = mean if number == 0 else 0.9 * running + 0.1 * mean
        first, second = seen[2 * number :]
        assert torch.equal(first, second)
        torch.testing.assert_close(first, replace_amplitude(images, running, centred_band(16, 16, 0.2)))


def test_the_model_before_the_first_round_judges_images_as_they_are(model: ExtractorClassifier) -> None:
    images = make_batches(model)[0][0]
    plain = copy.deepcopy(model).eval()
    assert torch.equal(adapted(HarmoFLObjective(), model).eval()(images), plain(images))


# --- the server, and later rounds ---


def train_site(objective: HarmoFLObjective, state: State, batches: list[Batch], train: Train) -> State:
    """One site's round: load, train, return the update."""
    made = network(objective, state)
    return make_update(train(made, objective.local({}, made), batches), state)


def aggregate(aggregator: UpdateAggregator, model: GlobalModel, updates: dict[str, State]) -> None:
    aggregator.begin_round(model.layout, updates)
    for site, update in updates.items():
        meta = {META_SITE: site, META_SAMPLES: 10}
        aggregator.accept_model(FLModel(params_type=ParamsType.DIFF, params=update, meta=meta))
    step = aggregator.aggregate_model().params
    assert step is not None
    model.apply(step)


@pytest.mark.parametrize("kind", [FedAvgAggregator, FedOMGAggregator])
def test_the_server_averages_what_the_sites_collected_and_freezes_it(
    kind: type[UpdateAggregator], train: Train
) -> None:
    objective = HarmoFLObjective(band=0.5)
    fresh = network(objective)
    model = GlobalModel(fresh.state_dict(), parameter_kinds(fresh))
    batches = make_batches(fresh)
    sites = {"dark": batches, "bright": brighter(batches, 2.0)}
    updates = {site: train_site(objective, model.state, images, train) for site, images in sites.items()}
    aggregate(kind(weighting="uniform"), model, updates)
    mean = (updates["dark"][AMPLITUDE] + updates["bright"][AMPLITUDE]) / 2
    torch.testing.assert_close(model.state[AMPLITUDE], mean)
    # From now on no site changes it, not even one that was not there before.
    kept = model.state[AMPLITUDE]
    sites["late"] = brighter(batches, -1.0)
    updates = {site: train_site(objective, model.state, images, train) for site, images in sites.items()}
    assert all(not bool(update[AMPLITUDE].any()) for update in updates.values())
    assert all(bool(update["classifier.weight"].any()) for update in updates.values())
    aggregate(kind(weighting="uniform"), model, updates)
    assert torch.equal(model.state[AMPLITUDE], kept)


def test_sites_collect_again_after_a_round_that_left_the_model_as_it_was(train: Train) -> None:
    objective = HarmoFLObjective()
    state, batches = dict(network(objective).state_dict()), make_batches(network(objective))
    first = train_site(objective, state, batches, train)
    again = train_site(objective, state, batches, train)
    assert bool(first[AMPLITUDE].any())
    assert same(first, again)


@pytest.mark.parametrize("band", [0.0, 0.2, 0.5])
def test_later_rounds_train_as_fedavg_on_images_that_were_normalised_before(
    band: float, model: ExtractorClassifier, batches: list[Batch], train: Train
) -> None:
    objective, other = HarmoFLObjective(radius=0, band=band), copy.deepcopy(model)
    made = adapted(objective, model)
    spectrum = mean_amplitude(2 * batches[0][0] + 1)
    made.normalization.amplitude.copy_(spectrum)
    replaced = [(replace_amplitude(images, spectrum, centred_band(16, 16, band)), labels) for images, labels in batches]
    expected = train(other, ERMObjective().local({}, other), replaced)
    trained = train(made, objective.local({}, made), batches)
    assert torch.equal(trained.pop(AMPLITUDE), spectrum)
    assert same(trained, expected)


def test_an_unseen_domain_is_judged_with_the_spectrum_of_the_others_and_leaves_no_trace(
    linear_model: ExtractorClassifier, train: Train
) -> None:
    objective = HarmoFLObjective()
    made = adapted(objective, linear_model)
    batches = make_batches(made)
    train(made, objective.local({}, made), brighter(batches, 1.0))
    kept = made.normalization.amplitude.clone()
    # Every channel of both has a mean above zero, which the normalization makes one: a shift is not seen.
    shifted = [brighter(batches, by) for by in (2.0, 5.0)]
    scores = [evaluate(made, images, DevicePolicy(torch.device("cpu")), lambda: False) for images in shifted]
    assert scores[0].loss == pytest.approx(scores[1].loss, rel=1e-4)
    assert scores[0].sums == scores[1].sums
    assert torch.equal(made.normalization.amplitude, kept)


def test_under_autocast_a_first_round_stays_finite_and_in_float32(linear_model: ExtractorClassifier) -> None:
    objective = HarmoFLObjective(band=0.5)
    made = adapted(objective, linear_model)
    local, optimizer = objective.local({}, made), torch.optim.SGD(made.parameters(), lr=0.05)
    for images, labels in make_batches(linear_model):

        def compute(images: torch.Tensor = images, labels: torch.Tensor = labels) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16):
                loss = local.loss(made, images, labels)
            loss.backward()
            return loss.detach()

        assert local.step(made, compute, optimizer).dtype == torch.float32
    assert made.normalization.amplitude.dtype == torch.float32
    assert all(bool(value.isfinite().all()) for value in made.state_dict().values())


# --- refusals ---


def test_nothing_is_exchanged_and_nothing_may_be_received() -> None:
    objective = HarmoFLObjective()
    made = network(objective)
    assert objective.exchange(made, CLASSES) is None
    assert objective.report is None
    with pytest.raises(SettingsError, match="sent for objective 'harmo': sent 'amplitude', expected only nothing"):
        objective.local({"amplitude": torch.zeros(1)}, made)


def test_a_network_that_was_not_adapted_is_refused(linear_model: ExtractorClassifier) -> None:
    with pytest.raises(SettingsError, match=r"^objective 'harmo' got a network that does not normalise, expected"):
        HarmoFLObjective().local({}, linear_model)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("radius", value) for value in (-0.1, float("inf"), True, "0.1")],
        *[("amplitude_momentum", value) for value in (-0.1, 1.1, None)],
        *[("band", value) for value in (-0.1, 0.51, "full")],
        *[("normalize", value) for value in (0, 1, None, "true")],
    ],
)
def test_a_value_out_of_range_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        HarmoFLObjective(**{setting: value})
    assert str(caught.value).startswith(f"{setting} is {value!r}, expected ")
