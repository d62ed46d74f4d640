# SPDX-License-Identifier: Apache-2.0
"""A script with PyTorch Lightning that takes part in FedNova and FedIIR; started by ``job.py lightning``."""

from typing import Any

import nvflare.client.lightning as flare
import pytorch_lightning as pl
from lit_net import LitNet
from small_domains import SAMPLES, load

from fdg_plugins.client.lightning import ReportCallback

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def main() -> None:
    """Train on every model that the server sends."""
    flare.init()
    site = flare.get_site_name()
    training, training_in_order, validation = load(site)
    module = LitNet()
    report = ReportCallback(SAMPLES[site], validation, module.alignment, training_in_order)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", callbacks=[report], **QUIET)
    flare.patch(trainer, restore_state=False)  # after ReportCallback; FedNova needs a new optimizer in every round
    while flare.is_running():
        trainer.validate(module, validation, verbose=False)
        trainer.fit(module, training)


if __name__ == "__main__":
    main()
