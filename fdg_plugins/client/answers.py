# SPDX-License-Identifier: Apache-2.0
"""A script's answer to one round: its update, its number of samples, and the report on its training.

The report is that of this package's own executor, so the same filters and aggregators read it: FedDG-GA's gap is made
of its evaluations, FedNova divides by its effective steps, and ARFL weights by its training losses.
"""

import time
from collections.abc import Mapping
from typing import Any, Literal

import torch
from nvflare.apis.dxo import MetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.core.steps import effective_steps as effective_steps_of_sgd
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE_REPORT, Evaluation, TrainReport
from fdg_plugins.objectives.objective import device_of, evaluating
from fdg_plugins.tasks import DEFAULT_TASK, Task
from fdg_plugins.training.loop import Batches, DevicePolicy
from fdg_plugins.training.loop import evaluate as score_of
from fdg_plugins.training.results import evaluation_of, make_update

Split = Literal["validation", "train"]
UNNAMED = "unnamed"


def evaluate(
    model: torch.nn.Module, batches: Batches, split: Split = "validation", task: Task = DEFAULT_TASK
) -> Evaluation:
    """Return loss and score of ``model`` in evaluation mode; its modes are restored.

    Args:
        model: returns the logits of a batch, ``[B, Y]`` for classification.
        batches: pairs of images and targets, at least one; moved to the model's device.
        split: ``"validation"``, or ``"train"`` for the training split without augmentation.
        task: defines loss and score; classification by default.

    Raises ``SettingsError`` without any batch.
    """
    with evaluating(model):
        score = score_of(model, checked_batches(batches, split), DevicePolicy(device_of(model)), lambda: False, task)
    return evaluation_of(split, score)


def checked_batches(batches: Batches, split: Split) -> Batches:
    """Yield ``batches`` of a split; raise ``SettingsError`` if there is none."""
    batch = None
    for batch in batches:
        yield batch
    if batch is None:
        raise SettingsError(f"the {split} split has no batch, expected at least one.")


def evaluation(loss: float, count: int, split: Split = "validation", **scores: float) -> Evaluation:
    """Return an evaluation that the script has made itself: mean loss and mean scores over ``count`` images.

    At least one score is needed, ``accuracy`` for classification. Raises ``SettingsError`` for a value out of range.

    >>> evaluation(0.5, 20, accuracy=0.75).sums["accuracy"].sum
    15.0
    """
    sums = {name: {"sum": value * count, "count": count} for name, value in scores.items()}
    return Evaluation.read({"split": split, "loss": loss, "count": count, "sums": sums}, "evaluation", SettingsError)


class LocalRound:
    """One round at a site, from the model received to the answer; the time between the two is its duration.

    Args:
        received: what ``flare.receive()`` returned.
        domain: name of the site's domain; default: the name of the site.
    """

    def __init__(self, received: FLModel, domain: str | None = None) -> None:
        self.received: Mapping[str, Any] = received.params or {}
        self.number = received.current_round
        self.domain = domain or str((received.meta or {}).get(MetaKey.SITE_NAME, UNNAMED))
        self._started = time.perf_counter()

    def answer(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, num_samples: int, **report: Any
    ) -> FLModel:
        """Return what ``flare.send()`` takes: the update, local - global, with the meta data of :meth:`meta`.

        ``report``: the keyword arguments of :meth:`meta`. The metrics are those of the evaluation ``before``, because
        FLARE takes the metrics of an update for scores of the model that was sent. Raises ``SettingsError`` for a model
        whose parameters are not those received, and as :meth:`meta`.
        """
        meta = self.meta(optimizer, steps, num_samples, **report)
        local = model.state_dict()
        for name, value in self.received.items():
            if name not in local or tuple(local[name].shape) != tuple(value.shape):
                came = list(local[name].shape) if name in local else "missing"
                expected = f"the shape received, {list(value.shape)}"
                raise SettingsError(field=f"parameter {name} of the trained model", value=came, expected=expected)
        before: Evaluation | None = report.get("before")
        return FLModel(
            params_type=ParamsType.DIFF,
            params=make_update(local, {name: torch.as_tensor(value) for name, value in self.received.items()}),
            metrics=None if before is None else {"loss": before.loss, **before.values()},
            current_round=self.number,
            meta=meta,
        )

    def meta(
        self,
        optimizer: torch.optim.Optimizer,
        steps: int,
        num_samples: int,
        *,
        before: Evaluation | None = None,
        after: Evaluation | None = None,
        training_split: tuple[Evaluation, Evaluation] | None = None,
        effective_steps: float | None = None,
        report: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, Any]:
        """Return the meta data of the answer, for scripts that make the ``FLModel`` themselves.

        Args:
            optimizer: the one that took the steps, created in this round; its learning rate and momentum are read.
            steps: number of optimizer steps in this round.
            num_samples: number of training samples, by which updates are weighted.
            before: evaluation of the model received, before training.
            after: evaluation of the trained model on the same images.
            training_split: the same two on the training split, for FedDG-GA as in the paper's text and for ARFL.
            effective_steps: FedNova's ``||a||_1``; default: computed for SGD, and ``steps`` for other optimizers.
            report: the method's tensors, from :meth:`~fdg_plugins.client.SitePart.report`.

        Raises ``SettingsError`` for a value out of range, and without ``effective_steps`` for SGD with Nesterov's
        momentum or dampening, or with groups of parameters that differ in momentum.
        """
        group = optimizer.param_groups[0]
        told = TrainReport.read(
            {
                "domain": self.domain,
                "received": before,
                "local": after,
                "training_split": training_split,
                "steps": steps,
                "effective_steps": _effective_steps(optimizer, steps) if effective_steps is None else effective_steps,
                "learning_rate": group.get("initial_lr", group["lr"]),  # a scheduler may have changed the rate
                "seconds": time.perf_counter() - self._started,
            },
            "report of the training",
            SettingsError,
        )
        meta = {META_SAMPLES: num_samples, META_REPORT: told.model_dump(mode="python")}
        return meta if report is None else {**meta, META_SITE_REPORT: dict(report)}


def _effective_steps(optimizer: torch.optim.Optimizer, steps: int) -> float:
    if not isinstance(optimizer, torch.optim.SGD):
        return float(steps)
    groups, instead = optimizer.param_groups, "or the argument effective_steps"
    if any(group["nesterov"] or group["dampening"] for group in groups):
        expected = f"SGD without Nesterov's momentum and dampening, {instead}"
        raise SettingsError(field="optimizer", value=optimizer, expected=expected)
    momenta = {float(group["momentum"]) for group in groups}
    if len(momenta) > 1:
        raise SettingsError(field="momentum", value=sorted(momenta), expected=f"one for all parameters, {instead}")
    return effective_steps_of_sgd(steps, *momenta)
