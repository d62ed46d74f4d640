# SPDX-License-Identifier: Apache-2.0
"""What an author's objective raises or returns at a site is told by its name, in one sentence."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from fdg_plugins.errors import FDGError, PartError, SettingsError, Stopped
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import (
    ERMObjective,
    FineTuning,
    LocalObjective,
    Objective,
    PersonalModel,
    SiteRound,
    Trained,
)
from fdg_plugins.privacy.reasons import texts_of
from fdg_plugins.tasks import DEFAULT_TASK
from fdg_plugins.training.loop import DevicePolicy, train_locally
from fdg_plugins.training.parts import local_objective, memory_of, own_model, report_of, reporting
from tests.executors.test_training import CPU, never, small_model, toy_batches

NO_ROUND = SiteRound()
DONE = Trained({}, 1, 1.0)
BACK = [torch.zeros(2)]


class Local(LocalObjective):
    """A loss whose functions return what the test says."""

    def __init__(self, **returned: Callable[..., Any]) -> None:
        self.returned = returned

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        found = DEFAULT_TASK.loss(model(images).float(), targets)
        change = self.returned.get("loss")
        return found if change is None else change(found)

    def step(self, model: ExtractorClassifier, compute_gradients: Any, optimizer: Any) -> torch.Tensor:
        found = super().step(model, compute_gradients, optimizer)
        change = self.returned.get("step")
        return found if change is None else change(found)

    def report(self, trained: Trained) -> dict[str, torch.Tensor]:
        return self.returned["report"](trained)

    def memory(self, trained: Trained) -> dict[str, torch.Tensor]:
        return self.returned["memory"](trained)


@dataclass(frozen=True)
class Own(Objective):
    """An objective of an author's own."""

    name: ClassVar[str] = "own"
    returned: Any = None

    def local(self, received: Any, model: ExtractorClassifier, site: SiteRound = NO_ROUND) -> LocalObjective:
        found: LocalObjective = self.returned()
        return found

    def personal(self, model: ExtractorClassifier, received: Any, site: SiteRound = NO_ROUND) -> PersonalModel:
        found: PersonalModel = self.returned()
        return found


@dataclass(frozen=True)
class Declared(Own):
    """One that names its report."""

    report: ClassVar[str | None] = "prototypes"


def fail(error: Exception) -> Any:
    def raise_it(*_: object) -> Any:
        raise error

    return raise_it


def train(local: LocalObjective) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_locally(model, local, [toy_batches([4])], optimizer, DevicePolicy(CPU), never, lambda epoch, loss: None)


def refused(action: Callable[[], object], message: str, secret: str = "") -> None:
    """Check the error, and what the server learns of it: the same, or without what quotes ``secret``."""
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}") as caught:
        action()
    if secret:
        assert secret in str(caught.value)
        assert secret not in caught.value.public
        assert caught.value.public.startswith(message.partition(":")[0])
    else:
        assert caught.value.public == str(caught.value), "it tells nothing of the site"


@pytest.mark.parametrize(
    ("function", "change", "message"),
    [
        (
            "loss",
            lambda loss: loss.expand(4),
            "loss returned a tensor of shape [4], expected a scalar with a gradient.",
        ),
        ("loss", lambda loss: loss[None], "loss returned a tensor of shape [1], expected a scalar"),
        ("loss", lambda loss: loss.detach(), "loss returned a tensor without a gradient, expected a scalar"),
        ("loss", lambda loss: float(loss.detach()), "loss returned a float, expected a scalar with a gradient."),
        ("loss", lambda loss: None, "loss returned a NoneType, expected"),
        ("loss", lambda loss: (loss, loss), "loss returned a tuple, expected"),
        ("step", lambda loss: None, "step returned a NoneType, expected the batch's loss, a scalar."),
        ("step", float, "step returned a float, expected the batch's loss"),
        ("step", lambda loss: loss.expand(2), "step returned a tensor of shape [2], expected the batch's loss"),
    ],
)
def test_a_loss_that_is_no_scalar_is_refused_by_what_came(
    function: str, change: Callable[[torch.Tensor], Any], message: str
) -> None:
    refused(lambda: train(Local(**{function: change})), f"objective Local: {message}")


@pytest.mark.parametrize("function", ["loss", "step"])
def test_what_training_raises_names_the_objective_and_the_server_learns_the_kind_alone(function: str) -> None:
    error = NameError("name 'imgs' is not defined")
    with pytest.raises(PartError, match=r"^objective Local raised NameError: name 'imgs' is not defined") as caught:
        train(Local(**{function: fail(error)}))
    assert caught.value.__cause__ is error
    assert texts_of(caught.value) == (str(caught.value), "objective Local raised NameError.")


@pytest.mark.parametrize("error", [Stopped(), FDGError("no."), ZeroDivisionError("division by zero")])
def test_an_abort_and_errors_that_a_site_can_tell_are_left_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        train(Local(loss=fail(error)))
    assert caught.value is error


def test_a_local_objective_is_one() -> None:
    model = small_model()
    local = Local()
    assert local_objective(Own(lambda: local), {}, model, SiteRound()) is local
    for wrong, came in ((None, "nothing"), (Local, "a ABCMeta")):
        refused(
            lambda wrong=wrong: local_objective(Own(lambda: wrong), {}, model, SiteRound()),  # type: ignore[misc]
            f"objective Own: local returned {came}, expected a LocalObjective.",
        )


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (None, "personal returned nothing, expected a PersonalModel."),
        (torch.nn.Linear(2, 2), "personal returned a Linear, expected a PersonalModel."),
        (
            PersonalModel(torch.nn.Linear(2, 2), FineTuning(("classifier.bias", "head.bias"))),
            "personal tunes 'head.bias'",
        ),
        (
            PersonalModel(torch.nn.Linear(2, 2), FineTuning("classifier")),  # type: ignore[arg-type]
            "personal: parameters returned a str, expected",
        ),
    ],
)
def test_a_model_of_the_sites_own_is_one_and_tunes_what_there_is(own: Any, message: str) -> None:
    secret = "head.bias" if "head.bias" in message else ""
    refused(lambda: own_model(Own(lambda: own), small_model(), {}, SiteRound()), f"objective Own: {message}", secret)


def test_a_model_of_the_sites_own_that_tunes_its_head_is_taken() -> None:
    model = small_model()
    own = PersonalModel(model, FineTuning(("classifier.weight", "classifier.bias")))
    assert own_model(Own(lambda: own), model, {}, SiteRound()) is own


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned nothing, expected tensors by name."),
        (BACK, "returned a list, expected tensors by name."),
        ({"means": BACK}, "returned a list, expected a tensor for 'means'."),
        ({"means": 3}, "returned a int, expected a tensor for 'means'."),
    ],
)
def test_reports_and_memory_are_tensors_by_name(returned: Any, message: str) -> None:
    local, objective = Local(report=lambda _: returned, memory=lambda _: returned), Declared()
    secret = "means" if "means" in message else ""
    refused(lambda: report_of(objective, local, DONE), f"objective Declared: report {message}", secret)
    refused(lambda: memory_of(objective, local, DONE), f"objective Declared: memory {message}", secret)

    def report_trained(*_: object) -> Any:
        return returned

    checked = reporting(objective, report_trained)
    refused(lambda: checked(small_model(), (), 3), f"objective Declared: report_trained {message}", secret)


def test_a_report_that_no_administrator_could_forbid_does_not_leave_the_site() -> None:
    secret = {"images": torch.zeros(3)}
    local = Local(report=lambda _: secret, memory=lambda _: secret)
    message = "objective Own: report returned 'images', but the objective names no report"
    refused(lambda: report_of(Own(), local, DONE), message, "images")
    assert report_of(Declared(), local, DONE) == memory_of(Own(), local, DONE) == secret
    assert report_of(Own(), Local(report=lambda _: {}), DONE) == {}


def test_the_packages_own_objective_passes_unchanged() -> None:
    model, objective = small_model(), ERMObjective()
    local = local_objective(objective, {}, model, SiteRound())
    assert report_of(objective, local, DONE) == memory_of(objective, local, DONE) == {}
    assert own_model(objective, model, {}, SiteRound()).network is model
