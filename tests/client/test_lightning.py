# SPDX-License-Identifier: Apache-2.0
"""The callback of PyTorch Lightning reports what a plain script would; without Lightning, one sentence says so."""

import importlib
from typing import Any

import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from fdg_plugins.client import ClassInsight, evaluate
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE_REPORT
from fdg_plugins.testing.inputs import same_bits


@pytest.fixture
def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    return DataLoader(TensorDataset(torch.randn(10, 4, generator=generator), torch.arange(10) % 3), batch_size=4)


def lit_model() -> Any:
    """Return a module that trains a linear layer with momentum, and hinders a later callback from sending."""
    pl = importlib.import_module("pytorch_lightning")

    class Lit(pl.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 3)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.fc(images)
            return logits

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            return cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.25, momentum=0.5)

    return Lit()


def trainer(epochs: int, *callbacks: Any) -> Any:
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    pl = importlib.import_module("pytorch_lightning")
    return pl.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=list(callbacks), **quiet)


@pytest.mark.slow  # importing Lightning takes seconds
def test_every_round_reports_its_own(monkeypatch: pytest.MonkeyPatch, loader: DataLoader[Any]) -> None:
    lightning = importlib.import_module("fdg_plugins.client.lightning")
    monkeypatch.setattr(lightning.flare, "receive", lambda: FLModel(params={}, meta={"site_name": "ward"}))
    module = lit_model()
    part = ClassInsight(module, "fc")
    callback = lightning.ReportCallback(10, loader, part, loader)
    for _ in range(2):
        before = evaluate(module, loader)
        trainer(2, callback).fit(module, loader)
        meta = getattr(module, lightning.FL_META)
        report = meta[META_REPORT]
        assert meta[META_SAMPLES] == 10
        assert (report["domain"], report["steps"], report["learning_rate"]) == ("ward", 6, 0.25)
        assert report["received"] == before.model_dump(mode="python")
        assert report["local"] == evaluate(module, loader).model_dump(mode="python")
        assert report["local"]["loss"] < report["received"]["loss"]
        expected = part.report(loader)
        assert same_bits(meta[META_SITE_REPORT], expected)


@pytest.mark.slow
def test_behind_flares_callback_it_refuses_to_train(loader: DataLoader[Any]) -> None:
    pl = importlib.import_module("pytorch_lightning")
    lightning = importlib.import_module("fdg_plugins.client.lightning")
    flares = type("FLCallback", (pl.Callback,), {})()
    with pytest.raises(SettingsError):
        trainer(1, flares, lightning.ReportCallback(10)).fit(lit_model(), loader)
