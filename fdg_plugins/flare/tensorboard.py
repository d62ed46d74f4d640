# SPDX-License-Identifier: Apache-2.0
"""The run in TensorBoard: under its own name, with its settings as text and as hyperparameters.

FLARE's receiver writes the events of a participant to a folder with the participant's name, so every run would be
called ``simulator_server``. It keeps a table of writers by participant; the writer of the run is put there first.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.app_opt.tracking.tb.tb_event_writer import TensorBoardEventWriter
from nvflare.app_opt.tracking.tb.tb_receiver import TBAnalyticsReceiver

from fdg_plugins.flare.internals import TENSORBOARD, problems_of
from fdg_plugins.flare.local_parties import LocalServer

Plain = bool | int | float | str


def name_run(name: str, settings: Mapping[str, Plain], fl_ctx: FLContext) -> bool:
    """Have the TensorBoard receivers of the job call the run ``name``; return whether there is one.

    ``settings`` become a text, and the hyperparameters of the run. Without the internals of FLARE that this needs, the
    run keeps the name that FLARE gives it.
    """
    if problems_of(TENSORBOARD):
        return False
    receivers = [one for one in _components(fl_ctx) if isinstance(one, TBAnalyticsReceiver) and one.root_log_dir]
    for receiver in receivers:
        receiver.writers_table[fl_ctx.get_identity_name()] = _new_writer(Path(receiver.root_log_dir), name, settings)
    return bool(receivers)


def _components(fl_ctx: FLContext) -> Iterable[Any]:
    engine = fl_ctx.get_engine()
    if isinstance(engine, LocalServer):
        return engine.get_all_components().values()
    manager = getattr(engine, "run_manager", None)
    return list(getattr(manager, "components", {}).values())


def _new_writer(folder: Path, name: str, settings: Mapping[str, Plain]) -> TensorBoardEventWriter:
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    writer = TensorBoardEventWriter(str(folder / name))
    writer.add_text("settings", as_table(settings), 0)
    writer._add_summary(writer.writer, hparams_pb(dict(settings), trial_id=name))
    return writer


def as_table(settings: Mapping[str, Plain]) -> str:
    """Return settings as a table in Markdown, which TensorBoard renders."""
    rows = [f"| {key} | {str(value).replace('|', chr(92) + '|')} |" for key, value in settings.items()]
    return "\n".join(["| setting | value |", "| --- | --- |", *rows])
