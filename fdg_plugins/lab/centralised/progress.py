# SPDX-License-Identifier: Apache-2.0
"""Progress of a centralised run on the console: one line per checkpoint, and in a terminal a bar of the steps.

Everything shown is a number of the record; no tensor of any shape is read here.
"""

import time

from rich.console import Console
from rich.progress import TimeRemainingColumn

from fdg_plugins.errors import counted
from fdg_plugins.lab.centralised.plan import Plan
from fdg_plugins.record.display import Display
from fdg_plugins.record.run_record import EvaluationRecord, RunRecord
from fdg_plugins.record.text import duration, marks


class RunDisplay(Display):
    """The watcher of a run: what is trained, and each evaluation; the bar moves with every step.

    Args:
        plan: the run.
        console: where to.
    """

    def __init__(self, plan: Plan, console: Console) -> None:
        super().__init__(console, "steps", plan.schedule.steps, [TimeRemainingColumn()], transient=True)
        self._plan = plan
        self._began = time.monotonic()

    def begun(self, record: RunRecord) -> None:
        """Print the data, the algorithm with its settings, and the network."""
        protocol, schedule = self._plan.protocol, self._plan.schedule
        self._began = time.monotonic()
        mark = f" [{marks(record)}]" if marks(record) else ""
        own = ", ".join(f"{name} {value}" for name, value in self._plan.algorithm.settings().items())
        self.say(f"{record.data}{mark}: pooled {', '.join(record.sources)}; held out {protocol.target}")
        title = f"{self._plan.algorithm.title} ({own})" if own else self._plan.algorithm.title
        self.say(f"{title}, a centralised reference: it sees all source domains at once")
        self.say(
            f"{protocol.model} ({record.initial_weights.label}), {protocol.image_size} px, "
            f"{counted(schedule.steps, 'step')} of {schedule.optimizer}, "
            f"batch {protocol.batch_size} per domain, learning rate {protocol.learning_rate:g}"
        )
        if protocol.pretrained == "auto" and record.initial_weights.label == "from scratch" and not record.stand_in:
            self.say("no ImageNet weights were found (FDG_PRETRAINED_FILE names them): training starts from scratch")

    def stepped(self, steps_done: int) -> None:
        """Move the bar, which alone tells single steps: there are thousands."""
        self.move(steps_done)

    def judged(self, record: RunRecord, evaluation: EvaluationRecord) -> None:
        """Print the scores of the model."""
        schedule, target, text = self._plan.schedule, record.protocol.target, record.score.text
        parts = ["initial model"]
        if record.rounds:
            last = record.rounds[-1]
            done = min(last.round * schedule.checkpoint_every, schedule.steps)
            losses = [loss for local in last.local.values() for loss in local.epoch_losses or ()]
            parts = [f"step {done}/{schedule.steps}", f"train loss {sum(losses) / len(losses):.4f}"]
            if left := (time.monotonic() - self._began) / done * (schedule.steps - done):
                parts.append(f"about {duration(left)} left")
        scores = (f"source val {text(evaluation.source_mean)}", f"target {target} {text(evaluation.target)}")
        self.say(" | ".join([*parts, *scores]))
