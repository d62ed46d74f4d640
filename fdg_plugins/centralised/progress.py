# SPDX-License-Identifier: Apache-2.0
"""Progress of a centralised run on the console: one line per checkpoint, and in a terminal a bar of the steps."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from fdg_plugins.centralised.plan import Plan
from fdg_plugins.record.run_record import EvaluationRecord, RunRecord
from fdg_plugins.record.text import duration, marks

Say = Callable[[str], None]


class Lines:
    """Reports progress as one plain line per event.

    Args:
        plan: the run to report.
        say: prints one line.
    """

    def __init__(self, plan: Plan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._began = time.monotonic()

    def begun(self, record: RunRecord) -> None:
        """Print the data, the algorithm with its settings, and the network."""
        protocol, schedule = self._plan.protocol, self._plan.schedule
        self._began = time.monotonic()
        mark = f" [{marks(record)}]" if marks(record) else ""
        own = ", ".join(f"{name} {value}" for name, value in self._plan.algorithm.settings().items())
        self._say(f"{record.data}{mark}: pooled {', '.join(record.sources)}; held out {protocol.target}")
        title = f"{self._plan.algorithm.title} ({own})" if own else self._plan.algorithm.title
        self._say(f"{title}, a centralised reference: it sees all source domains at once")
        self._say(
            f"{protocol.model} ({record.initial_weights.label}), {protocol.image_size} px, {schedule.steps} steps of "
            f"{schedule.optimizer}, batch {protocol.batch_size} per domain, learning rate {protocol.learning_rate:g}"
        )
        if protocol.pretrained == "auto" and record.initial_weights.label == "from scratch" and not record.stand_in:
            self._say("no ImageNet weights were found (FDG_PRETRAINED_FILE names them): training starts from scratch")

    def stepped(self, steps_done: int) -> None:
        """Do nothing: a line for each of thousands of steps would be too much."""

    def judged(self, record: RunRecord, evaluation: EvaluationRecord) -> None:
        """Print the checkpoint, the training loss, the scores, and an estimate of the time left."""
        self._say(" | ".join([*self._place(record), *_scores(record, evaluation)]))

    def _place(self, record: RunRecord) -> list[str]:
        if not record.rounds:
            return ["initial model"]
        schedule, last = self._plan.schedule, record.rounds[-1]
        done = min(last.round * schedule.checkpoint_every, schedule.steps)
        losses = [loss for local in last.local.values() for loss in local.epoch_losses or ()]
        parts = [f"step {done}/{schedule.steps}", f"train loss {sum(losses) / len(losses):.4f}"]
        left = (time.monotonic() - self._began) / done * (schedule.steps - done)
        return [*parts, f"about {duration(left)} left"] if left else parts


class Bar(Lines):
    """The same lines, with a progress bar of the steps at the bottom of the terminal."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        super().__init__(plan, lambda line: progress.console.print(Text(line), soft_wrap=True))
        self._progress = progress
        self._task: TaskID = progress.add_task("steps", total=plan.schedule.steps)

    def stepped(self, steps_done: int) -> None:
        """Move the bar to ``steps_done``."""
        self._progress.update(self._task, completed=steps_done)


@contextmanager
def watching(plan: Plan, console: Console) -> Iterator[Lines]:
    """Yield the reporter of a run: with a bar if ``console`` is a terminal, otherwise lines only."""
    if not console.is_terminal:
        yield Lines(plan, lambda line: console.print(Text(line), soft_wrap=True))
        return
    columns = (TextColumn("steps"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(plan, progress)


def _scores(record: RunRecord, evaluation: EvaluationRecord) -> list[str]:
    target, text = record.protocol.target, record.score.text
    return [f"source val {text(evaluation.source_mean)}", f"target {target} {text(evaluation.target)}"]
