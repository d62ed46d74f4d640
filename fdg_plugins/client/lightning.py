# SPDX-License-Identifier: Apache-2.0
"""A callback of PyTorch Lightning that adds a site's report to what FLARE's own callback sends.

It needs the extra ``lightning``, and the package ``pytorch_lightning``, which FLARE's callback is made for.
"""

from typing import Any

import nvflare.client as flare
import torch

from fdg_plugins.client.answers import LocalRound, evaluate
from fdg_plugins.client.parts import SitePart
from fdg_plugins.errors import SettingsError, load_extra
from fdg_plugins.messages import Evaluation
from fdg_plugins.training.loop import Batches

pl = load_extra("pytorch_lightning", "fdg_plugins.client.lightning", "lightning")

FL_META = "__fl_meta__"  # the attribute in which FLARE's callback looks for meta data of the answer
FLARE_CALLBACK = "FLCallback"


class ReportCallback(pl.Callback):  # type: ignore[name-defined]
    """Reports on each round of training: evaluations before and after, steps, and a method's tensors.

    It must come before FLARE's callback, which sends the answer: name it in ``Trainer(callbacks=[...])``, and then call
    ``flare.patch(trainer)``. The job's transfer type is ``DIFF``. One optimizer, in one process. FedNova takes the
    optimizer for a new one in every round: ``flare.patch(trainer, restore_state=False)`` if it has momentum.

    Args:
        num_samples: number of training samples, by which updates are weighted.
        validation: the validation split, on which the model is evaluated before and after training; None: not at all.
        part: the site's half of FedDIM or FedIIR, the same object whose ``penalty`` the module's ``training_step``
            adds to its loss.
        training: the training split without augmentation, on which ``part`` reports; needed with it.
        domain: name of the site's domain; default: the name of the site.
    """

    def __init__(
        self,
        num_samples: int,
        validation: Batches | None = None,
        part: SitePart | None = None,
        training: Batches = (),
        domain: str | None = None,
    ) -> None:
        super().__init__()
        self.num_samples = num_samples
        self.validation = validation
        self.part = part
        self.training = training
        self.domain = domain
        self._round: LocalRound | None = None
        self._before: Evaluation | None = None
        self._first_step = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget the previous round; raise ``SettingsError`` if FLARE's callback would send before this one reports."""
        names = [type(one).__name__ for one in trainer.callbacks]
        if FLARE_CALLBACK in names and names.index(FLARE_CALLBACK) < trainer.callbacks.index(self):
            raise SettingsError(
                "ReportCallback comes after FLARE's callback, which would send the answer without the report; "
                "expected Trainer(callbacks=[ReportCallback(...)]) before flare.patch(trainer)."
            )
        self._round = None

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Before the first epoch of a round, evaluate the model that FLARE's callback has just loaded."""
        if self._round is not None:
            return
        received = flare.receive()
        self._round, self._first_step = LocalRound(received, self.domain), trainer.global_step
        self._before = self._evaluation(pl_module)
        if self.part is not None:
            self.part.begin(received, self.training)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Evaluate the trained model, and put the report where FLARE's callback takes it from."""
        if self._round is None:
            return
        steps, after = trainer.global_step - self._first_step, self._evaluation(pl_module)
        report = None if self.part is None else self.part.report(self.training)
        meta = self._round.meta(
            trainer.optimizers[0], steps, self.num_samples, before=self._before, after=after, report=report
        )
        setattr(pl_module, FL_META, {**getattr(pl_module, FL_META, {}), **meta})

    def _evaluation(self, module: torch.nn.Module) -> Evaluation | None:
        return None if self.validation is None else evaluate(module, self.validation)
