# SPDX-License-Identifier: Apache-2.0
"""The inputs on which all contracts are tested: small models, updates of every kind, and the sites' reports."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from safetensors.torch import save_file

from fdg_plugins.aggregators import Contribution, RunFacts, UpdateAggregator, take_step
from fdg_plugins.aggregators.contributions import read_contribution
from fdg_plugins.core.layout import ModelLayout, ParameterKind
from fdg_plugins.errors import FDGError
from fdg_plugins.messages import (
    META_CHECKED_REPORTS,
    META_REPORT,
    META_SAMPLES,
    META_SITE,
    REPORT_GAP,
    Evaluation,
    ScoreSum,
    TrainReport,
)
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK

Params = dict[str, torch.Tensor]
Updates = Mapping[str, Params]

SITES = {"art": 60, "photo": 10, "sketch": 30}  # samples by site
GAPS = {"art": 0.5, "photo": -0.25, "sketch": 1.0}
LOSSES = {"art": 0.9, "photo": 1.1, "sketch": 1.0}
STEPS = {"art": 6, "photo": 2, "sketch": 3}
WEIGHT, BIAS = "classifier.weight", "classifier.bias"
COUNTER = "bn.num_batches_tracked"
SHAPES = {"conv.weight": (2, 3), WEIGHT: (3, 4), BIAS: (3,), "bn.weight": (3,), "bn.running_mean": (3,)}
TRAINABLE = ("conv.weight", WEIGHT, BIAS, "bn.weight")
FLOAT_BUFFER = "bn.running_mean"
ROUNDS = 10

UNEQUAL_CLASSES = RunFacts({"art": (60, 0, 0), "photo": (5, 5, 0), "sketch": (10, 20, 0)}, (WEIGHT, BIAS))
EQUAL_CLASSES = RunFacts({site: (count, count, count) for site, count in SITES.items()}, (WEIGHT, BIAS))


def settings_have_names_of_their_own(class_: type[Any]) -> None:
    """A job's settings share one flat space of names: no class has one that the protocol or another part has."""
    package = __name__.partition(".")[0]
    ours = [one for one in class_.__mro__ if one.__module__.partition(".")[0] == package]
    inherited = {name for one in ours for name in parameters_of(one)}
    taken = {"name", "server_lr", "weighting", *Protocol.model_fields} - inherited
    assert not taken.intersection(parameters_of(class_))


def random_update(seed: int, dtype: torch.dtype = torch.float32) -> Params:
    """Return one site's update of the small model, drawn from a seed."""
    generator = torch.Generator().manual_seed(seed)
    update = {name: torch.randn(*shape, generator=generator).to(dtype) for name, shape in SHAPES.items()}
    return {**update, COUNTER: torch.tensor(10 * seed + 3)}


def random_updates(seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Params]:
    """Return one update per site."""
    return {site: random_update(seed + number, dtype) for number, site in enumerate(SITES)}


def scaled(updates: Updates, factors: Sequence[float]) -> dict[str, Params]:
    """Return the updates with the trainable part of each multiplied by its factor."""
    return {
        site: {name: value * factor if name in TRAINABLE else value for name, value in update.items()}
        for (site, update), factor in zip(updates.items(), factors, strict=True)
    }


def families() -> dict[str, dict[str, Params]]:
    """Return updates of every kind that can occur in a round, by a description of the kind."""
    drawn, one = random_updates(), random_update(5)
    equal = {site: dict(one) for site in SITES}
    return {
        "drawn at random": drawn,
        "zero": scaled(drawn, (0.0, 0.0, 0.0)),
        "one of them zero": scaled(drawn, (1.0, 0.0, 1.0)),
        "equal": equal,
        "nearly equal": scaled(equal, (1.0, 1.0 + 1e-7, 1.0 - 1e-7)),
        "opposite": scaled(equal, (1.0, -1.0, 0.5)),
        "tiny": scaled(drawn, (1e-10,) * 3),
        "huge": scaled(drawn, (1e10,) * 3),
        "of scales far apart": scaled(drawn, (1e-10, 1.0, 1e10)),
        "of one site": {"photo": one},
    }


def training_report(site: str, steps: int) -> TrainReport:
    """Return a site's report on its training: plain SGD with ``steps`` steps."""
    score = DEFAULT_TASK.score.name
    half, most = ({score: ScoreSum(sum=total, count=8)} for total in (4.0, 6.0))
    received = Evaluation(split="train", loss=LOSSES.get(site, 1.0), count=8, sums=half)
    own = Evaluation(split="train", loss=0.5, count=8, sums=most)
    return TrainReport(
        domain=site,
        training_split=(received, own),
        epoch_losses=(1.0,),
        steps=steps,
        effective_steps=steps,
        learning_rate=0.1,
        seconds=1,
    )


def message(site: str, params: Mapping[str, Any], *, steps: int | None = None, number: int = 0) -> FLModel:
    """Return a contribution as a workflow passes it on, with all metadata that a weighting or direction may need."""
    told = training_report(site, STEPS.get(site, 1) if steps is None else steps)
    meta = {
        META_SITE: site,
        META_SAMPLES: SITES.get(site, 1),
        META_REPORT: told.model_dump(mode="json"),
        # Gaps of rounds differ by more than a shift and a scale, which a rule may ignore.
        META_CHECKED_REPORTS: {REPORT_GAP: (-1) ** number * GAPS.get(site, 0.0) + 0.1 * number},
    }
    return FLModel(params_type=ParamsType.DIFF, params=dict(params), meta=meta)


def contributions(sites: Iterable[str] = SITES, number: int = 0) -> list[Contribution]:
    """Return the checked contributions of sites, sorted by name, with equal updates."""
    update = random_update(0)
    return [read_contribution(message(site, update, number=number), None) for site in sorted(sites)]


def in_files(update: Params, folder: Path) -> dict[str, Any]:
    """Return an update whose parameters are in files below ``folder``, as FLARE's tensor disk offload keeps them."""
    folder.mkdir(parents=True)
    references = {}
    for name, value in update.items():
        file = folder / f"{name}.safetensors"
        save_file({name: value}, file)
        references[name] = SimpleNamespace(file_path=str(file), key=name, materialize=value.clone)
    return references


def layout_of(updates: Updates) -> ModelLayout:
    """Return the layout of the model to which the updates belong."""
    return ModelLayout.of(next(iter(updates.values())))


def run_round(
    aggregator: UpdateAggregator,
    updates: Updates,
    *,
    number: int = 0,
    steps: int | None = None,
    order: Sequence[str] | None = None,
    layout: ModelLayout | None = None,
) -> FLModel:
    """Run one round of an aggregator whose run has begun; return its step with its report.

    ``steps``: the same for every site. ``order``: the order in which the updates arrive. ``layout``: that of the model,
    if the updates do not show it.
    """
    aggregator.begin_round(layout or layout_of(updates), updates, number, ROUNDS)
    for site in order if order is not None else updates:
        aggregator.accept_model(message(site, updates[site], steps=steps, number=number))
    return take_step(aggregator)


def refusal_of(act: Callable[[], object], kind: type[FDGError]) -> str:
    """Return the message of the ``kind`` error that ``act`` raises; empty if it raises none."""
    try:
        act()
    except kind as error:
        return str(error)
    return ""


def flat(params: Mapping[str, Any]) -> torch.Tensor:
    """Return the trainable part of a step or update as one vector ``[P]``, float64."""
    kinds = ModelLayout.of(params)
    return torch.cat(
        [torch.as_tensor(params[name]).double().reshape(-1) for name in kinds.names(ParameterKind.TRAINABLE)]
    )


def same_bits(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two mappings have the same names, dtypes and bits."""
    tensors = [{name: torch.as_tensor(value) for name, value in params.items()} for params in (first, second)]
    return tensors[0].keys() == tensors[1].keys() and all(
        value.dtype == tensors[1][name].dtype and torch.equal(value, tensors[1][name])
        for name, value in tensors[0].items()
    )
