# SPDX-License-Identifier: Apache-2.0
"""HarmoFL: collected once, averaged by the server, the same for every site from then on; off, it is FedAvg or SAM."""

import copy
from collections.abc import Callable

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch.nn.functional import cross_entropy

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.core.spectrum import centred_band, mean_amplitude
from fdg_plugins.messages import META_SAMPLES, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.methods.harmofl import AmplitudeNormalizedClassifier, HarmoFLObjective
from fdg_plugins.models import ExtractorClassifier, build_model, parameter_kinds
from fdg_plugins.training.global_model import GlobalModel
from fdg_plugins.training.results import make_update
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches

AMPLITUDE = "normalization.amplitude"
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


# --- refusals ---
