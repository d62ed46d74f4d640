# SPDX-License-Identifier: Apache-2.0
"""One centralised run: the census of the domains, training with an evaluation per checkpoint, record and models.

Every domain is opened, split and evaluated by the class that a site of a federated run uses, and the record has the
form of a federated run with one site per domain, with checkpoints in place of rounds. The model's state dict has the
names and shapes of the federated run's.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol as Interface

import torch

from fdg_plugins.controllers.run_files import FILES
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import DataError, FDGError, Stopped
from fdg_plugins.lab.centralised.plan import LEAST_BATCH, Plan
from fdg_plugins.lab.centralised.training import PooledTraining, endless_batches
from fdg_plugins.messages import Evaluation
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.plans.uses import names_in
from fdg_plugins.plugins.code import code_of
from fdg_plugins.randomness import seeded
from fdg_plugins.record.census import Federation, take_census
from fdg_plugins.record.first import new_record
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.record.run_record import (
    EvaluationRecord,
    InitialWeights,
    LocalRecord,
    Method,
    RoundRecord,
    RunRecord,
)
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.storage import lock_folder, save_tensors, write_bytes, writing
from fdg_plugins.tasks import TASKS
from fdg_plugins.training.global_model import Start, initial_model
from fdg_plugins.training.loop import ShouldStop
from fdg_plugins.training.optimizers import make_optimizer
from fdg_plugins.training.session import SiteSession

Sessions = Mapping[str, SiteSession]


class Watcher(Interface):
    """Reports the progress of a run to the user. Calls arrive in order: begun, then stepped and judged in turn."""

    def begun(self, record: RunRecord) -> None:
        """Called once, when the census is complete and training begins."""

    def stepped(self, steps_done: int) -> None:
        """Called after each step, with the number of steps taken so far."""

    def judged(self, record: RunRecord, evaluation: EvaluationRecord) -> None:
        """Called after each evaluation, when record and models have been written."""


def run_centralised(
    plan: Plan, config: SiteConfig, cache: Path | None, folder: Path, watcher: Watcher, should_stop: ShouldStop
) -> RunRecord:
    """Carry out ``plan``; return its record, which is also written to ``folder``.

    Args:
        plan: the run.
        config: data folders, device and workers of this machine.
        cache: folder of the stand-in data, which are generated if missing.
        folder: receives record and models. It must be new or empty.
        watcher: receives the progress.
        should_stop: polled before every step and during evaluation.

    Raises :class:`Stopped` soon after ``should_stop()`` returns true, and ``FDGError`` for errors that a user can fix.
    If training had begun by then, the record says that the run was stopped, and why.
    """
    with _held(folder):
        return _carry_out(plan, config, cache, folder, watcher, should_stop)


def _carry_out(
    plan: Plan, config: SiteConfig, cache: Path | None, folder: Path, watcher: Watcher, should_stop: ShouldStop
) -> RunRecord:
    config = config.model_copy(update={"compile": False})  # the algorithms train with a network of their own
    sessions = _open_domains(plan, config, cache, should_stop)
    replies = {name: session.census(should_stop) for name, session in sessions.items()}
    federation = take_census(replies, {}, plan.protocol.target, TASKS.get(plan.protocol.task))
    _check_sizes(federation)
    start = initial_model(plan.protocol, len(federation.classes), len(federation.sources))
    method = Method(aggregator=type(plan.algorithm).__name__, settings=plan.settings())
    code = code_of(names_in(plan.protocol), ())
    record = new_record(federation, plan.protocol, method, InitialWeights(**vars(start.weights)), code)
    run = _Run(plan, sessions, start, record, folder, watcher, should_stop)
    run.check()
    watcher.begun(record)
    return run.carry_out()


def check_new(folder: Path) -> None:
    """Raise ``DataError`` unless ``folder`` is missing or an empty directory."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already and not an empty folder, expected a new one for the run.")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a new or empty folder for a run of this process; one that was made and has stayed empty is removed again.

    Raises ``DataError`` if the folder is not new, cannot be made, or is held by another run, which has written nothing
    there while it opens its data.
    """
    check_new(folder)
    with ExitStack() as stack:
        with writing(folder):
            if not folder.exists():
                folder.mkdir(parents=True)
                stack.callback(_remove_empty, folder)
            handle = lock_folder(folder)
        if handle is None:
            raise DataError(f"{folder} is in use by another run, expected a new folder for this one.")
        stack.callback(os.close, handle)
        check_new(folder)  # the other run may just have ended
        yield


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _open_domains(plan: Plan, config: SiteConfig, cache: Path | None, should_stop: ShouldStop) -> Sessions:
    sessions = {}
    for domain in dataset_spec(plan.protocol.dataset).domains:
        if should_stop():
            raise Stopped
        sessions[domain] = SiteSession(domain, config, plan.protocol, cache)
    return sessions


def _check_sizes(federation: Federation) -> None:
    for name in federation.sources:
        if (count := federation.replies[name].num_train) < LEAST_BATCH:
            raise DataError(f"domain {name} has {count} training image, expected at least {LEAST_BATCH}.")


class _Run:
    """One run from its first evaluation to its end; owns the model, the record and the files."""

    def __init__(
        self,
        plan: Plan,
        sessions: Sessions,
        start: Start,
        record: RunRecord,
        folder: Path,
        watcher: Watcher,
        should_stop: ShouldStop,
    ) -> None:
        self._plan = plan
        self._sessions = sessions
        self._record = record
        self._folder = folder
        self._watcher = watcher
        self._should_stop = should_stop
        self._started = time.perf_counter()
        first = sessions[record.sources[0]]
        self._model: ExtractorClassifier = first.load(start.model.state)
        workers, self._device = first.config.workers, first.policy.device
        self._training = PooledTraining(
            self._model,
            plan.algorithm,
            [
                endless_batches(sessions[name].data, plan.protocol, workers=workers, device=self._device)
                for name in record.sources
            ],
            self._make_optimizer,
            first.policy,
            first.task,
        )

    def check(self) -> None:
        """Raise ``SettingsError`` if the algorithm cannot train the network; nothing is written or evaluated yet."""
        if not self._plan.algorithm.differentiates_twice:
            return
        protocol = self._plan.protocol.model_copy(update={"batch_size": LEAST_BATCH})
        data = self._sessions[self._record.sources[0]].data
        batch = next(endless_batches(data, protocol, device=self._device))
        self._training.check(batch, protocol.model, protocol.seed)

    def carry_out(self) -> RunRecord:
        """Train and evaluate up to the last checkpoint; return the record, which says how the run ended.

        The initial model is evaluated too, as round 0. An error is recorded as the reason for stopping and raised
        again.
        """
        try:
            self._train_and_judge()
        except Stopped:
            self._stop(f"it was stopped after step {self._training.steps_done} of {self._plan.schedule.steps}.")
            raise
        except FDGError as error:
            self._stop(str(error))
            raise
        except Exception as error:
            self._stop(f"{type(error).__name__}: {error}")
            raise
        self._record.status = "finished"
        self._save_record()
        return self._record

    def _train_and_judge(self) -> None:
        self._judge()
        for checkpoint in range(1, self._plan.schedule.checkpoints + 1):
            self._record.rounds.append(self._train(checkpoint))
            self._judge()

    def _make_optimizer(self) -> torch.optim.Optimizer:
        # Not fused: it would round in another order than the runs of earlier versions.
        return make_optimizer(self._model.parameters(), self._plan.protocol, self._plan.protocol.learning_rate, None)

    def _train(self, checkpoint: int) -> RoundRecord:
        """Take the steps up to ``checkpoint`` (counted from 1); return their record, in which all traffic is zero."""
        began, steps = time.perf_counter(), self._plan.schedule.steps_of(checkpoint)
        with seeded(self._plan.protocol.seed, "pooled", checkpoint, "layers", device=self._device):  # dropout
            risks = self._training.train(steps, self._should_stop, self._watcher.stepped)
        seconds = time.perf_counter() - began
        local = {
            name: LocalRecord(
                epoch_losses=(risk,),
                local=None,
                steps=steps,
                learning_rate=self._plan.protocol.learning_rate,
                num_samples=len(self._sessions[name].data.train),
                seconds=seconds,
            )
            for name, risk in zip(self._record.sources, risks, strict=True)
        }
        return RoundRecord(
            round=checkpoint,
            drawn=self._record.sources,
            sites=self._record.sources,
            failures={},
            local=local,
            seconds=seconds,
            aggregation_seconds=0.0,
            bytes_down=0,
            bytes_up=0,
        )

    def _judge(self) -> None:
        """Evaluate the model on all domains, save it, and save a copy if it is the best so far in source validation.

        The target's score is recorded and never used for selection.
        """
        after = len(self._record.rounds)
        evaluation = self._record.add_evaluation(after, {name: self._score(name) for name in self._sessions})
        self._record.choices = self._record.choose(FILES)
        chosen = {choice.rule: choice.after_round for choice in self._record.choices}
        for file in (LAST_FILE, *([SELECTED_FILE] if chosen["source_validation"] == after else [])):
            save_tensors(self._folder / file, self._model.state_dict(), self._description(after))
        self._save_record()
        self._watcher.judged(self._record, evaluation)

    def _score(self, domain: str) -> Evaluation:
        is_held_out = domain == self._record.protocol.target
        return self._sessions[domain].evaluate(self._model, "test" if is_held_out else "validation", self._should_stop)

    def _description(self, after_round: int) -> dict[str, str]:
        """Return the metadata of a model file, with the same keys as in a federated run."""
        record = self._record
        return {
            "model": record.protocol.model,
            "classes": json.dumps(record.classes),
            "image_size": str(record.protocol.image_size),
            "dataset": record.data,
            "target": record.protocol.target,
            "after_round": str(after_round),
            "initial_weights": record.initial_weights.label,
        }

    def _stop(self, reason: str) -> None:
        self._record.status, self._record.stopped_because = "stopped", reason
        with suppress(DataError):  # if writing is what failed, the raised error says so
            self._save_record()

    def _save_record(self) -> None:
        self._record.seconds = time.perf_counter() - self._started
        write_bytes(self._folder / RESULTS_FILE, self._record.model_dump_json(indent=1).encode() + b"\n")
