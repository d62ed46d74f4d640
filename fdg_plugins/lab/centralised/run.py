# SPDX-License-Identifier: Apache-2.0
"""One run of a reference: the census of the domains, training with an evaluation per checkpoint, record and models.

Every domain is opened, split and evaluated by the class that a site of a federated run uses, and the record has the
form of a federated run, with checkpoints in place of rounds on pooled data, where each domain is one site. The model's
state dict has the names and shapes of the federated run's. Sites that train alone also train by that class.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.controllers.run_files import FILES
from fdg_plugins.data import DomainData, SharedDomains, dataset_spec
from fdg_plugins.data.augmentation import AugmentationRanges
from fdg_plugins.data.images import training_epochs
from fdg_plugins.errors import DataError, FDGError
from fdg_plugins.lab.centralised.algorithm import MOST_STEPS, Algorithm, Batch
from fdg_plugins.lab.centralised.plan import LEAST_BATCH, Plan
from fdg_plugins.messages import Evaluation, ScoreSum
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.exchange import PayloadValidator
from fdg_plugins.plugins.versions import code_of
from fdg_plugins.randomness import seeded
from fdg_plugins.record.census import new_record, take_census
from fdg_plugins.record.round_record import LocalRecord, Method, RoundRecord
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import Choice, RunRecord, pooled_sums
from fdg_plugins.settings.defaults import domains_of_sites
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.storage import save_tensors, write_bytes
from fdg_plugins.tasks import DEFAULT_TASK, Task
from fdg_plugins.training.global_model import GlobalModel, initial_model
from fdg_plugins.training.loop import DevicePolicy
from fdg_plugins.training.networks import SharedNetworks
from fdg_plugins.training.optimizers import make_optimizer
from fdg_plugins.training.session import SiteSession, Tensors
from fdg_plugins.training.statistics import read_payload, running_statistics

CPU = torch.device("cpu")


def run_centralised(plan: Plan, config: SiteConfig, cache: Path | None, folder: Path) -> RunRecord:
    """Carry out ``plan`` on this machine (``config``); return its record, which is in ``folder`` with the models.

    ``cache`` is the folder of the stand-in data. Raises ``FDGError`` for errors that a user can fix; the record of a
    run that had begun by then says ``running``.
    """
    config = config.model_copy(update={"compile": False})  # the algorithms train with a network of their own
    protocol, pools = plan.protocol, plan.algorithm.pools
    shared: dict[str, Any] = {} if pools else {"shared": SharedDomains(), "networks": SharedNetworks()}
    names = dataset_spec(protocol.dataset).domains if pools else domains_of_sites(protocol.dataset, dict(protocol))
    sessions = {name: SiteSession(name, config, protocol, cache, **shared) for name in names}
    replies = {name: session.census() for name, session in sessions.items()}
    federation = take_census(replies, {}, protocol.target, protocol.learned)
    if pools and (small := [name for name in federation.sources if replies[name].num_train < LEAST_BATCH]):
        raise DataError(field="training images", value=small[0], expected=f"at least {LEAST_BATCH} in each domain")
    start = initial_model(protocol, len(federation.classes), len(federation.sources))
    method = Method(aggregator=type(plan.algorithm).__name__, settings=plan.settings())
    code = code_of(protocol.uses, ())
    record = new_record(federation, protocol, method, start.weights, code)
    kind = _Run if pools else _AloneRun
    return kind(plan, sessions, record, folder).carry_out(start.model)


def endless_batches(
    data: DomainData, protocol: Protocol, *, workers: int = 0, device: torch.device = CPU
) -> Iterator[Batch]:
    """Yield augmented batches of a domain's training images without end, reshuffled in each pass.

    Each batch holds images ``[B, C, S, S]`` and labels ``[B]``, S the protocol's image size. B is its batch size, or
    the number of images in a smaller domain. The incomplete batch at the end of a pass is dropped, so all batches have
    one size. Order and augmentation depend only on the protocol's seed, the domain and the number of the pass.
    """
    size = min(protocol.batch_size, len(data.train))
    passes = training_epochs(
        data,
        image_size=protocol.image_size,
        batch_size=protocol.batch_size,
        seed=protocol.seed,
        scope=("pooled", data.domain),
        epochs=MOST_STEPS,
        augmentation=AugmentationRanges(protocol.crop_scale, protocol.color_jitter),
        workers=workers,
        device=device,
    )
    for batches in passes:
        for images, labels in batches:
            if len(labels) >= size:
                yield images[:size], labels[:size]


@dataclass
class PooledTraining:
    """A model in training, changed in place, each step on one batch of every source domain.

    ``domains`` are endless batches of each, in the order of the risks. ``make_optimizer`` returns a new optimizer of
    the model's parameters; it is called again if the algorithm restarts it.
    """

    model: ExtractorClassifier
    algorithm: Algorithm
    domains: Sequence[Iterator[Batch]]
    make_optimizer: Callable[[], torch.optim.Optimizer]
    policy: DevicePolicy
    task: Task = DEFAULT_TASK
    steps_done: int = 0

    def __post_init__(self) -> None:
        self.state = self.algorithm.begin(self.model, len(self.domains))
        self._optimizer = self.make_optimizer()

    def train(self, steps: int) -> list[float]:
        """Take ``steps`` >= 1 steps; return the mean risk of each of the m domains over them, ``[m]``.

        Raises ``FDGError`` if a parameter is not finite at the end.
        """
        self.model.train()
        device, images_of = self.policy.device, self.policy.images
        total = torch.zeros(len(self.domains), dtype=torch.float64, device=device)
        for _ in range(steps):
            if self.steps_done == self.algorithm.restarts_at:
                self._optimizer = self.make_optimizer()
            drawn = [next(domain) for domain in self.domains]
            batches = [(images_of(images), labels.to(device, non_blocking=True)) for images, labels in drawn]
            # Summed on the device: reading the loss after every step would synchronise with an accelerator.
            total += self.algorithm.update(self.model, batches, self._compute_gradients, self._optimizer)
            self.steps_done += 1
        for name, value in self.model.named_parameters():
            if not bool(torch.isfinite(value).all()):
                expected = f"finite ones: a smaller learning_rate, or other settings of {self.algorithm.title}"
                raise FDGError(field=f"parameter {name}", value=f"after step {self.steps_done}", expected=expected)
        return [float(value) / steps for value in total]

    def _compute_gradients(self, batches: Sequence[Batch]) -> torch.Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        with self.policy.autocast():
            loss = self.algorithm.loss(self.model, batches, self.steps_done, self.state, self.task)
        loss.value.backward()
        self.state = loss.state
        return loss.risks


@dataclass
class _Run:
    """One run from its first evaluation to its end, here on pooled data; owns the model, the record and the files."""

    plan: Plan
    sessions: Mapping[str, SiteSession]
    record: RunRecord
    folder: Path
    started: float = field(default_factory=time.perf_counter)

    def carry_out(self, start: GlobalModel) -> RunRecord:
        """Train and evaluate from ``start``, as round 0, up to the last checkpoint; return the record."""
        self.begin(start)
        none: dict[str, Any] = {"failures": {}, "aggregation_seconds": 0.0, "bytes_down": 0, "bytes_up": 0}
        for checkpoint in range(self.plan.schedule.checkpoints + 1):
            if checkpoint:
                began = time.perf_counter()
                local = self.train(checkpoint)
                seconds, trained = time.perf_counter() - began, tuple(local)
                of_all: dict[str, Any] = {"drawn": trained, "sites": trained, "local": local, "seconds": seconds}
                self.record.rounds.append(RoundRecord(round=checkpoint, **of_all, **none))
            self.evaluate(checkpoint)
            self._save_record()
        self.record.status = "finished"
        self._save_record()
        return self.record

    def begin(self, start: GlobalModel) -> None:
        """Prepare the training of a model that begins with ``start``."""
        protocol, sources = self.plan.protocol, self.record.sources
        first = self.sessions[sources[0]]
        model = first.load(start.state)
        workers, device, data = first.config.workers, first.policy.device, [self.sessions[one].data for one in sources]
        domains = [endless_batches(one, protocol, workers=workers, device=device) for one in data]

        def optimizer() -> torch.optim.Optimizer:
            # Not fused: it would round in another order than the runs of earlier versions.
            return make_optimizer(model.parameters(), protocol, protocol.learning_rate, None)

        self.training = PooledTraining(model, self.plan.algorithm, domains, optimizer, first.policy, first.task)

    def train(self, checkpoint: int) -> dict[str, LocalRecord]:
        """Train up to ``checkpoint`` (counted from 1); return the record of each source."""
        began, steps, sources = time.perf_counter(), self.plan.schedule.steps_of(checkpoint), self.record.sources
        protocol, device = self.plan.protocol, self.sessions[sources[0]].policy.device
        with seeded(protocol.seed, "pooled", checkpoint, "layers", device=device):  # dropout
            risks = self.training.train(steps)
        seconds = time.perf_counter() - began
        return {
            name: LocalRecord(
                epoch_losses=(risk,),
                local=None,
                steps=steps,
                learning_rate=protocol.learning_rate,
                num_samples=len(self.sessions[name].data.train),
                seconds=seconds,
            )
            for name, risk in zip(sources, risks, strict=True)
        }

    def evaluate(self, after: int) -> None:
        """Evaluate after a round on all domains, and save the model, also as the selected one if it is the best so far.

        The target's score is recorded and never used for selection.
        """
        model, record = self.training.model, self.record
        record.add_evaluation(after, self.scores(model))
        record.choices = record.choose(FILES)
        chosen = {choice.rule: choice.after_round for choice in record.choices}
        for file in (LAST_FILE, *([SELECTED_FILE] if chosen["source_validation"] == after else [])):
            self.save(file, model.state_dict(), after)

    def scores(self, model: torch.nn.Module) -> dict[str, Evaluation]:
        """Return the scores of a model on the images of all sites that evaluate it."""
        held_out, of = self.record.held_out, self.sessions.items()
        return {name: one.evaluate(model, "test" if name in held_out else "validation") for name, one in of}

    def save(self, file: str, state: Tensors, after: int, **more: str) -> None:
        """Save a model as it is after a round."""
        save_tensors(self.folder / file, state, self.record.description_of_model(after) | more)

    def _save_record(self) -> None:
        self.record.seconds = time.perf_counter() - self.started
        write_bytes(self.folder / RESULTS_FILE, self.record.model_dump_json(indent=1).encode() + b"\n")


class _AloneRun(_Run):
    """A model of each source site, which goes on from its own in each round in which a federation would draw it."""

    def begin(self, start: GlobalModel) -> None:
        self.models = {site: copy(start) for site in self.record.sources}  # which replace their tensors
        self.kept = dict.fromkeys(self.record.sources, Kept())
        self.best: dict[str, float] = {}  # the central score of each site's selected model
        for site in self.record.sources:
            self._measure(site)

    def _measure(self, site: str) -> None:
        """Measure a model's normalization statistics anew, where the protocol says so."""
        session, model = self.sessions[site], self.models[site]
        if model.reestimated:
            payload = session.statistics(model.state, self.kept[site].personal)
            reader, count = PayloadValidator(site, FDGError), len(session.data.train)
            model.replace(running_statistics(read_payload(reader, payload, model.reestimated, count)))

    def train(self, checkpoint: int) -> dict[str, LocalRecord]:
        local = dict[str, LocalRecord]()
        for site in self.plan.protocol.draw_sites(self.record.sources, checkpoint):
            session, model = self.sessions[site], self.models[site]
            done = session.train(model.state, checkpoint - 1, kept=self.kept[site])
            model.apply(done.update)
            self.kept[site] = done.kept
            self._measure(site)
            own = done.report.model_dump(include={"epoch_losses", "local", "steps", "learning_rate", "seconds"})
            local[site] = LocalRecord(**own, num_samples=len(session.data.train))
        return local

    def evaluate(self, after: int) -> None:
        own, record = dict[str, dict[str, Evaluation]](), self.record
        for site, model in self.models.items():
            own[site] = self.scores(self.sessions[site].load(model.state, self.kept[site].personal))
        scores = {site: found[site] for site, found in own.items()}
        scores |= {site: _together([found[site] for found in own.values()]) for site in record.held_out}
        record.add_evaluation(after, scores, own=own)
        record.choices = [Choice(rule="last", after_round=after)]  # of other rules, every site chooses its own
        for site, model in self.models.items():
            score = record.selecting.goodness(record.central_score({site: own[site][site]}))
            if site not in self.best or score > self.best[site]:  # as RunRecord.of_site will choose it
                self.best[site] = score
                state = {**model.state, **self.kept[site].personal}
                self.save(f"{LOCAL_FOLDER}/{site}.safetensors", state, after, site=site)


def _together(scores: Sequence[Evaluation]) -> Evaluation:
    """Return the scores of several models on the same images as one, whose scores are their means."""
    sums = {name: ScoreSum(sum=total, count=count) for name, (total, count) in pooled_sums(scores).items()}
    loss = statistics.fmean(found.loss for found in scores)
    return Evaluation(split="test", loss=loss, count=sum(found.count for found in scores), sums=sums)
