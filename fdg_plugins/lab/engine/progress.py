# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a run: a bar of its rounds at a terminal, where output is kept a line for each round."""

from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn

from fdg_plugins.record.display import Display
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.record.text import duration, evaluation_line, round_line, seconds_left

FIELDS = ("sites", "source", "target", "left")  # beside the bar


class RunDisplay(Display):
    """The watcher of a run.

    Args:
        rounds: how many rounds it has.
        console: where to.
    """

    def __init__(self, rounds: int, console: Console) -> None:
        columns = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in FIELDS]
        empty = {**dict.fromkeys(FIELDS, ""), "left": "starting"}
        super().__init__(console, "rounds", rounds, [*columns, SpinnerColumn()], transient=True, fields=empty)
        self._rounds_told = 0
        self._has_told_end = False

    def show(self, record: RunRecord) -> None:
        """Bring the bar up to date, or print a line for each round since the last call; name each report refused."""
        # Each round evaluates the model that it starts from.
        for finished, received in list(zip(record.rounds, record.evaluations, strict=False))[self._rounds_told :]:
            if not self.has_bar:
                self.say(round_line(record, finished, received))
            for site, reason in finished.refused_reports.items():
                self.say(f"round {finished.round}: the report of site {site} was refused: {reason}")
        self._rounds_told = len(record.rounds)
        if self.has_bar:
            self._move(record)
        else:
            self._tell_end(record)

    def _tell_end(self, record: RunRecord) -> None:
        """Print the evaluation of the last model, once."""
        if record.status == "finished" and not self._has_told_end:
            self._has_told_end = True
            last = next(one for one in reversed(record.evaluations) if not one.undone)
            self.say(evaluation_line(record, last))

    def _move(self, record: RunRecord) -> None:
        text, latest = record.score.text, record.evaluations[-1] if record.evaluations else None
        fields = {"left": "starting"}
        if latest is not None:
            fields |= {"source": f"source {text(latest.source_mean)}", "target": f"target {text(latest.target)}"}
        if record.rounds:
            last = record.rounds[-1]
            left = duration(seconds_left(record, last.round))
            fields |= {"sites": f"sites {len(last.sites)}/{len(last.drawn)}", "left": f"ETA {left}"}
        self.move(len(record.rounds), **fields)
