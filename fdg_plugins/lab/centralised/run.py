# SPDX-License-Identifier: Apache-2.0
"""One centralised run: the census of the domains, training with an evaluation per checkpoint, record and models.

Every domain is opened, split and evaluated by the class that a site of a federated run uses, and the record has the
form of a federated run with one site per domain, with checkpoints in place of rounds. The model's state dict has the
names and shapes of the federated run's.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol as Interface

import torch
from rich.console import Console
from rich.progress import TimeRemainingColumn

from fdg_plugins.controllers.run_files import FILES
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError, Stopped, counted, told
from fdg_plugins.lab.centralised.plan import LEAST_BATCH, Plan
from fdg_plugins.lab.centralised.training import PooledTraining, endless_batches
from fdg_plugins.plugins.versions import code_of
from fdg_plugins.randomness import seeded
from fdg_plugins.record.census import new_record, take_census
from fdg_plugins.record.display import Display
from fdg_plugins.record.round_record import InitialWeights, LocalRecord, Method, RoundRecord
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import marks
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.settings.uses import names_in
from fdg_plugins.storage import save_tensors, write_bytes
from fdg_plugins.training.global_model import initial_model
from fdg_plugins.training.loop import ShouldStop
from fdg_plugins.training.optimizers import make_optimizer
from fdg_plugins.training.session import SiteSession


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
    sessions = {}
    for domain in dataset_spec(plan.protocol.dataset).domains:
        if should_stop():
            raise Stopped
        sessions[domain] = SiteSession(domain, config, plan.protocol, cache)
    replies = {name: session.census(should_stop) for name, session in sessions.items()}
    federation = take_census(replies, {}, plan.protocol.target, plan.protocol.learned)
    if small := [name for name in federation.sources if replies[name].num_train < LEAST_BATCH]:
        raise DataError(field="training images", value=small[0], expected=f"at least {LEAST_BATCH} in each domain")
    start = initial_model(plan.protocol, len(federation.classes), len(federation.sources))
    method = Method(aggregator=type(plan.algorithm).__name__, settings=plan.settings())
    code = code_of(names_in(plan.protocol), ())
    record = new_record(federation, plan.protocol, method, InitialWeights(**vars(start.weights)), code)
    watcher.show(record)
    return _Run(plan, sessions, record, folder, watcher, should_stop).carry_out(start.model.state)


@dataclass
class _Run:
    """One run from its first evaluation to its end; owns the model, the record and the files."""

    plan: Plan
    sessions: Mapping[str, SiteSession]
    record: RunRecord
    folder: Path
    watcher: Watcher
    should_stop: ShouldStop
    started: float = field(default_factory=time.perf_counter)

    def carry_out(self, state: dict[str, torch.Tensor]) -> RunRecord:
        """Train and evaluate from ``state``, as round 0, up to the last checkpoint; return the record.

        An error is recorded as the reason for stopping and raised again.
        """
        training = self._begin(state)
        try:
            self._evaluate(training)
            for checkpoint in range(1, self.plan.schedule.checkpoints + 1):
                self.record.rounds.append(self._train(training, checkpoint))
                self._evaluate(training)
        except Exception as error:
            steps = f"it was stopped after step {training.steps_done} of {self.plan.schedule.steps}."
            self.record.status = "stopped"
            self.record.stopped_because = steps if isinstance(error, Stopped) else told(error)
            with suppress(DataError):  # if writing is what failed, the raised error says so
                self._save_record()
            raise
        self.record.status = "finished"
        self._save_record()
        return self.record

    def _begin(self, state: dict[str, torch.Tensor]) -> PooledTraining:
        """Return the training of a model that begins with ``state``."""
        protocol, sources = self.plan.protocol, self.record.sources
        first = self.sessions[sources[0]]
        model = first.load(state)
        workers, device, data = first.config.workers, first.policy.device, [self.sessions[one].data for one in sources]
        domains = [endless_batches(one, protocol, workers=workers, device=device) for one in data]

        def optimizer() -> torch.optim.Optimizer:
            # Not fused: it would round in another order than the runs of earlier versions.
            return make_optimizer(model.parameters(), protocol, protocol.learning_rate, None)

        return PooledTraining(model, self.plan.algorithm, domains, optimizer, first.policy, first.task)

    def _train(self, training: PooledTraining, checkpoint: int) -> RoundRecord:
        """Take the steps up to ``checkpoint`` (counted from 1); return their record, in which all traffic is zero."""
        began, steps, sources = time.perf_counter(), self.plan.schedule.steps_of(checkpoint), self.record.sources
        protocol, device = self.plan.protocol, self.sessions[sources[0]].policy.device
        with seeded(protocol.seed, "pooled", checkpoint, "layers", device=device):  # dropout
            risks = training.train(steps, self.should_stop, self.watcher.stepped)
        seconds = time.perf_counter() - began
        local = {
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
        none = {"failures": {}, "aggregation_seconds": 0.0, "bytes_down": 0, "bytes_up": 0}
        return RoundRecord(round=checkpoint, drawn=sources, sites=sources, local=local, seconds=seconds, **none)

    def _evaluate(self, training: PooledTraining) -> None:
        """Evaluate the model on all domains, save it, and save a copy if it is the best so far in source validation.

        The target's score is recorded and never used for selection.
        """
        record, after = self.record, len(self.record.rounds)
        scores = {
            domain: session.evaluate(
                training.model, "test" if domain == record.protocol.target else "validation", self.should_stop
            )
            for domain, session in self.sessions.items()
        }
        record.add_evaluation(after, scores)
        record.choices = record.choose(FILES)
        description = {
            "model": record.protocol.model,
            "classes": json.dumps(record.classes),
            "image_size": str(record.protocol.image_size),
            "dataset": record.data,
            "target": record.protocol.target,
            "after_round": str(after),
            "initial_weights": record.initial_weights.label,
        }
        chosen = {choice.rule: choice.after_round for choice in record.choices}
        for file in (LAST_FILE, *([SELECTED_FILE] if chosen["source_validation"] == after else [])):
            save_tensors(self.folder / file, training.model.state_dict(), description)
        self._save_record()
        self.watcher.show(record)

    def _save_record(self) -> None:
        self.record.seconds = time.perf_counter() - self.started
        write_bytes(self.folder / RESULTS_FILE, self.record.model_dump_json(indent=1).encode() + b"\n")


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
        yield f"{record.data} [{marks(record)}]: pooled {', '.join(record.sources)}; held out {protocol.target}"
        title = f"{algorithm.title} ({own})" if own else algorithm.title
        yield f"{title}, a centralised reference: it sees all source domains at once"
        yield (
            f"{protocol.model} ({record.initial_weights.label}), {protocol.image_size} px, "
            f"{counted(schedule.steps, 'step')} of {schedule.optimizer}, "
            f"batch {protocol.batch_size} per domain, learning rate {protocol.learning_rate:g}"
        )

    def _evaluated(self, record: RunRecord) -> str:
        schedule, target, text = self._plan.schedule, record.protocol.target, record.score.text
        evaluation, parts = record.evaluations[-1], ["initial model"]
        if record.rounds:
            last = record.rounds[-1]
            done = min(last.round * schedule.checkpoint_every, schedule.steps)
            losses = [loss for local in last.local.values() for loss in local.epoch_losses or ()]
            parts = [f"step {done}/{schedule.steps}", f"train loss {sum(losses) / len(losses):.4f}"]
        scores = (f"source val {text(evaluation.source_mean)}", f"target {target} {text(evaluation.target)}")
        return " | ".join([*parts, *scores])
