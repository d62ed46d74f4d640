# SPDX-License-Identifier: Apache-2.0
"""One run of a reference: the census of the domains, training with an evaluation per checkpoint, record and models.

Every domain is opened, split and evaluated by the class that a site of a federated run uses, and the record has the
form of a federated run, with checkpoints in place of rounds on pooled data, where each domain is one site. The model's
state dict has the names and shapes of the federated run's. Sites that train alone also train by that class.
"""

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

import torch
from rich.console import Console
from rich.progress import TimeRemainingColumn

from fdg_plugins.controllers.run_files import FILES
from fdg_plugins.data import SharedDomains, dataset_spec
from fdg_plugins.errors import DataError, FDGError, Stopped, counted, told
from fdg_plugins.lab.centralised.plan import LEAST_BATCH, Plan
from fdg_plugins.lab.centralised.training import PooledTraining, endless_batches
from fdg_plugins.messages import Evaluation, ScoreSum
from fdg_plugins.objectives.exchange import PayloadValidator
from fdg_plugins.plugins.versions import code_of
from fdg_plugins.randomness import seeded
from fdg_plugins.record.census import new_record, take_census
from fdg_plugins.record.display import Display
from fdg_plugins.record.round_record import InitialWeights, LocalRecord, Method, RoundRecord
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import marks
from fdg_plugins.settings.defaults import domains_of_sites
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.settings.uses import names_in
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.storage import save_tensors, write_bytes
from fdg_plugins.training.global_model import GlobalModel, initial_model
from fdg_plugins.training.loop import ShouldStop
from fdg_plugins.training.networks import SharedNetworks
from fdg_plugins.training.optimizers import make_optimizer
from fdg_plugins.training.session import SiteSession, Tensors
from fdg_plugins.training.statistics import read_payload, running_statistics


class Watcher(Interface):
    """Reports the progress of a run to the user."""

    def show(self, record: RunRecord) -> None:
        """Called as training begins, and after each evaluation, when record and models have been written."""

    def stepped(self, steps_done: int) -> None:
        """Called after each step, with the number of steps taken so far."""


def run_centralised(
    plan: Plan, config: SiteConfig, cache: Path | None, folder: Path, watcher: Watcher, should_stop: ShouldStop
) -> RunRecord:
    """Carry out ``plan`` on this machine (``config``); return its record, which is in ``folder`` with the models.

    ``cache`` is the folder of the stand-in data; ``should_stop`` is polled before every step and during evaluation.
    Raises :class:`Stopped` soon after it returns true, and ``FDGError`` for errors that a user can fix. If training had
    begun by then, the record says that the run was stopped, and why.
    """
    config = config.model_copy(update={"compile": False})  # the algorithms train with a network of their own
    protocol, pools = plan.protocol, plan.algorithm.pools
    shared: dict[str, Any] = {} if pools else {"shared": SharedDomains(), "networks": SharedNetworks()}
    sessions = {}
    for name in dataset_spec(protocol.dataset).domains if pools else domains_of_sites(protocol.dataset, dict(protocol)):
        if should_stop():
            raise Stopped
        sessions[name] = SiteSession(name, config, protocol, cache, **shared)
    replies = {name: session.census(should_stop) for name, session in sessions.items()}
    federation = take_census(replies, {}, protocol.target, protocol.learned)
    if pools and (small := [name for name in federation.sources if replies[name].num_train < LEAST_BATCH]):
        raise DataError(field="training images", value=small[0], expected=f"at least {LEAST_BATCH} in each domain")
    start = initial_model(protocol, len(federation.classes), len(federation.sources))
    method = Method(aggregator=type(plan.algorithm).__name__, settings=plan.settings())
    code = code_of(names_in(protocol), ())
    record = new_record(federation, protocol, method, InitialWeights(**vars(start.weights)), code)
    watcher.show(record)
    kind = _Run if pools else _AloneRun
    return kind(plan, sessions, record, folder, watcher, should_stop).carry_out(start.model)


@dataclass
class _Run:
    """One run from its first evaluation to its end, here on pooled data; owns the model, the record and the files."""

    plan: Plan
    sessions: Mapping[str, SiteSession]
    record: RunRecord
    folder: Path
    watcher: Watcher
    should_stop: ShouldStop
    started: float = field(default_factory=time.perf_counter)
    steps_done = 0

    def carry_out(self, start: GlobalModel) -> RunRecord:
        """Train and evaluate from ``start``, as round 0, up to the last checkpoint; return the record.

        An error is recorded as the reason for stopping and raised again.
        """
        self.begin(start)
        try:
            self._evaluate()
            for checkpoint in range(1, self.plan.schedule.checkpoints + 1):
                began = time.perf_counter()
                local = self.train(checkpoint)
                none = {"failures": {}, "aggregation_seconds": 0.0, "bytes_down": 0, "bytes_up": 0}
                seconds, trained = time.perf_counter() - began, tuple(local)
                self.record.rounds.append(
                    RoundRecord(round=checkpoint, drawn=trained, sites=trained, local=local, seconds=seconds, **none)
                )
                self._evaluate()
        except Exception as error:
            unit = "step" if self.plan.algorithm.pools else "round"
            where = f"it was stopped after {unit} {self.steps_done} of {self.plan.schedule.steps}."
            self.record.status = "stopped"
            self.record.stopped_because = where if isinstance(error, Stopped) else told(error)
            with suppress(DataError):  # if writing is what failed, the raised error says so
                self._save_record()
            raise
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

    def _stepped(self, steps_done: int) -> None:
        self.steps_done = steps_done
        self.watcher.stepped(steps_done)

    def train(self, checkpoint: int) -> dict[str, LocalRecord]:
        """Train up to ``checkpoint`` (counted from 1); return the record of each source."""
        began, steps, sources = time.perf_counter(), self.plan.schedule.steps_of(checkpoint), self.record.sources
        protocol, device = self.plan.protocol, self.sessions[sources[0]].policy.device
        with seeded(protocol.seed, "pooled", checkpoint, "layers", device=device):  # dropout
            risks = self.training.train(steps, self.should_stop, self._stepped)
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

    def _evaluate(self) -> None:
        self.evaluate(len(self.record.rounds))
        self._save_record()
        self.watcher.show(self.record)

    def scores(self, model: torch.nn.Module) -> dict[str, Evaluation]:
        """Return the scores of a model on the images of all sites that evaluate it."""
        held_out, stop = self.record.held_out, self.should_stop
        of = self.sessions.items()
        return {name: one.evaluate(model, "test" if name in held_out else "validation", stop) for name, one in of}

    def save(self, file: str, state: Tensors, after: int, **more: str) -> None:
        """Save a model as it is after a round."""
        record = self.record
        description = {
            "model": record.protocol.model,
            "classes": json.dumps(record.classes),
            "image_size": str(record.protocol.image_size),
            "dataset": record.data,
            "target": record.protocol.target,
            "after_round": str(after),
            "initial_weights": record.initial_weights.label,
        }
        save_tensors(self.folder / file, state, description | more)

    def _save_record(self) -> None:
        self.record.seconds = time.perf_counter() - self.started
        write_bytes(self.folder / RESULTS_FILE, self.record.model_dump_json(indent=1).encode() + b"\n")


class _AloneRun(_Run):
    """A model of each source site, which goes on from its own in each round in which a federation would draw it."""

    def begin(self, start: GlobalModel) -> None:
        self.models = {site: copy(start) for site in self.record.sources}  # which replace their tensors
        self.kept = dict.fromkeys(self.record.sources, Kept())
        for site in self.record.sources:
            self._measure(site)

    def _measure(self, site: str) -> None:
        """Measure a model's normalization statistics anew, where the protocol says so."""
        session, model = self.sessions[site], self.models[site]
        if model.reestimated:
            payload = session.statistics(model.state, self.should_stop, self.kept[site].personal)
            reader, count = PayloadValidator(site, FDGError), len(session.data.train)
            model.replace(running_statistics(read_payload(reader, payload, model.reestimated, count)))

    def train(self, checkpoint: int) -> dict[str, LocalRecord]:
        stop, local = self.should_stop, dict[str, LocalRecord]()
        for site in self.plan.protocol.draw_sites(self.record.sources, checkpoint):
            session, model = self.sessions[site], self.models[site]
            done = session.train(model.state, checkpoint - 1, stop, lambda *_: None, kept=self.kept[site])
            model.apply(done.update)
            self.kept[site] = done.kept
            self._measure(site)
            own = done.report.model_dump(include={"epoch_losses", "local", "steps", "learning_rate", "seconds"})
            local[site] = LocalRecord(**own, num_samples=len(session.data.train))
        self.steps_done = checkpoint
        self.watcher.stepped(checkpoint)
        return local

    def evaluate(self, after: int) -> None:
        own, record = dict[str, dict[str, Evaluation]](), self.record
        for site, model in self.models.items():
            own[site] = self.scores(self.sessions[site].load(model.state, self.kept[site].personal))
        scores = {site: found[site] for site, found in own.items()}
        scores |= {site: _together([found[site] for found in own.values()]) for site in record.held_out}
        record.add_evaluation(after, scores, own=own)
        record.choices = [one for one in record.choose({}) if one.rule == "last"]  # every site chooses its own
        for site, model in self.models.items():
            if any(one.after_round == after for one in record.of_site(site).choices if one.rule == "source_validation"):
                state = {**model.state, **self.kept[site].personal}
                self.save(f"{LOCAL_FOLDER}/{site}.safetensors", state, after, site=site)


def _together(scores: Sequence[Evaluation]) -> Evaluation:
    """Return the scores of several models on the same images as one, whose scores are their means."""
    sums: dict[str, ScoreSum] = {}
    for name, one in ((name, one) for found in scores for name, one in found.sums.items()):
        before = sums.get(name, ScoreSum(sum=0.0, count=0))
        sums[name] = ScoreSum(sum=before.sum + one.sum, count=before.count + one.count)
    loss = statistics.fmean(found.loss for found in scores)
    return Evaluation(split="test", loss=loss, count=sum(found.count for found in scores), sums=sums)


class RunDisplay(Display):
    """The watcher of the run of ``plan``: what is trained, and each evaluation; the bar moves with every step."""

    def __init__(self, plan: Plan, console: Console) -> None:
        super().__init__(console, "steps", plan.schedule.steps, [TimeRemainingColumn()])
        self._plan = plan

    def stepped(self, steps_done: int) -> None:
        """Move the bar, which alone tells single steps: there are thousands."""
        self.move(steps_done)

    def show(self, record: RunRecord) -> None:
        """Print what is trained, as training begins; then the scores of each model."""
        for line in [self._evaluated(record)] if record.evaluations else self._begun(record):
            self.say(line)

    def _begun(self, record: RunRecord) -> Iterator[str]:
        protocol, schedule, algorithm = self._plan.protocol, self._plan.schedule, self._plan.algorithm
        own = ", ".join(f"{name} {value}" for name, value in algorithm.settings().items())
        how, unit, what = "each alone", "round", "a reference: no site learns from another"
        if algorithm.pools:
            how, unit, what = "pooled", "step", "a centralised reference: it sees all source domains at once"
        sources = ", ".join(record.sources)
        yield f"{record.data} [{marks(record)}]: {how} {sources}; held out {protocol.target}"
        yield f"{algorithm.title} ({own}), {what}" if own else f"{algorithm.title}, {what}"
        yield (
            f"{protocol.model} ({record.initial_weights.label}), {protocol.image_size} px, "
            f"{counted(schedule.steps, unit)} of {schedule.optimizer}, "
            f"batch {protocol.batch_size} per domain, learning rate {protocol.learning_rate:g}"
        )

    def _evaluated(self, record: RunRecord) -> str:
        schedule, target, text = self._plan.schedule, record.protocol.target, record.score.text
        evaluation, parts = record.evaluations[-1], ["initial model"]
        if record.rounds:
            last = record.rounds[-1]
            done = min(last.round * schedule.checkpoint_every, schedule.steps)
            losses = [loss for local in last.local.values() for loss in local.epoch_losses or ()]
            unit = "step" if self._plan.algorithm.pools else "round"
            parts = [f"{unit} {done}/{schedule.steps}", f"train loss {sum(losses) / len(losses):.4f}"]
        scores = (f"source val {text(evaluation.source_mean)}", f"target {target} {text(evaluation.target)}")
        return " | ".join([*parts, *scores])
