# SPDX-License-Identifier: Apache-2.0
"""What server and sites say to each other: task names, keys and messages, declared once for both ends.

Every message crosses the wire as plain numbers, strings, lists and dicts, and is checked against its
model on arrival: the receiver never trusts the sender.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from nvflare.apis.dxo import MetaKey
from pydantic_core import PydanticCustomError

from fdg_plugins.errors import FDGError
from fdg_plugins.plugins.reports import REPORT_LOCAL_MODEL as REPORT_LOCAL_MODEL
from fdg_plugins.settings.protocol import MOST_EPOCHS, Protocol
from fdg_plugins.values import LONGEST_QUOTE as LONGEST_QUOTE
from fdg_plugins.values import LONGEST_REASON as LONGEST_REASON
from fdg_plugins.values import first_problem as first_problem
from fdg_plugins.values import is_number
from fdg_plugins.values import one_line as one_line
from fdg_plugins.values import shorten as shorten

TASK_CENSUS = "census"
TASK_PROBE = "probe"
TASK_TRAIN = "train"
TASK_EVALUATE = "evaluate"

# DXO meta. The number of samples travels where FLARE's own aggregators look for a weight, so that they weigh by it too.
META_SAMPLES = MetaKey.NUM_STEPS_CURRENT_ROUND
META_SITE = "client_name"  # set by the receiving end from the authenticated peer, never read from the sender
META_REQUEST = "fdg_request"
META_REPORT = "fdg_report"
META_GAP = "fdg_gap"
REPORT_GAP = "gap"
REPORT_TRAINING_LOSS = "training_loss"
META_CHECKED_REPORTS = "fdg_checked_reports"  # CheckedReports, by the server's filters, over whatever a site wrote
META_RECEIVED = "fdg_received"  # at a site: tensors that came down beside the model; set by the site's filter
META_SITE_REPORT = (
    "fdg_site_report"  # at a site: tensors that go up beside the update, until the site's filter packs them
)
META_UPDATE_BYTES = "fdg_update_bytes"  # at the server: size of a rounded update as it came; set by the server's filter
HEADER_REASON = "fdg_reason"
HEADER_RUN = "fdg_run"  # on a site's answer, for its own filters: the run whose state they keep
HEADER_NOT_FINITE = "fdg_not_finite"  # on an error reply: training on the model received gave no finite update
HEADER_STOP = "fdg_stop"  # on an error reply: the site takes no further part in the run

Message = TypeVar("Message", bound="Checked")

# Bounds on what a site says of itself. Longer is refused: it would be kept in the record, round after round.
LONGEST_NAME = 200
MOST_CLASSES = 10_000
MOST_NAMES = 1_000
MOST_SAMPLES = 2**53  # beyond it a float64 no longer counts single samples
LONGEST_S = 1e9  # seconds of a training, thirty years

# One line of printable text: no control character, with which it could forge lines of a log.
Name = Annotated[str, pydantic.StringConstraints(max_length=LONGEST_NAME, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$")]
Count = Annotated[int, pydantic.Field(ge=0, le=MOST_SAMPLES)]


def _check_loss(value: float) -> float:
    if value < 0:
        raise PydanticCustomError("loss", "a loss should be at least 0")
    return value


# A loss may be NaN or infinite. JSON has neither: both are written as null, which is read back as NaN.
# A site's training loss is that of its objective, which may be negative.
TrainingLoss = Annotated[float, pydantic.BeforeValidator(lambda value: math.nan if value is None else value)]
Loss = Annotated[TrainingLoss, pydantic.AfterValidator(_check_loss)]


class Checked(pydantic.BaseModel):
    """Base of the messages: immutable, no unknown fields, non-finite numbers written to JSON as null."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    @classmethod
    def read(cls: type[Message], value: Any, origin: str, error: type[FDGError]) -> Message:
        """Return the message in ``value``; raise ``error`` with one sentence that names ``origin`` and the field."""
        try:
            return cls.model_validate(value)
        except pydantic.ValidationError as caught:
            raise error(f"{origin}: {first_problem(caught)}") from caught


class CensusRequest(Checked):
    """What a site needs to know to count what it holds: the protocol on real data and the one on the stand-in."""

    protocol: Protocol
    stand_in_protocol: Protocol
    run: str


class CensusReply(Checked):
    """What a site says of itself before round 0.

    ``num_skipped`` counts files that are known to be mislabelled, ``num_damaged`` images that the site leaves out since
    they cannot be read; ``skipped`` names the former where the site's operator allows it (``report_names``).
    ``num_other_components`` counts entries of the site's ``class_allow_list`` that jobs of this package do not need
    (None: not known).
    """

    domain: Name
    dataset: Name
    stand_in: bool
    classes: tuple[Name, ...] = pydantic.Field(max_length=MOST_CLASSES)
    class_counts: tuple[Count, ...] = pydantic.Field(max_length=MOST_CLASSES)
    num_train: Count
    num_validation: Count
    num_test: Count
    split: Name
    split_hash: Name
    skipped: tuple[Name, ...] = pydantic.Field((), max_length=MOST_NAMES)
    num_skipped: Count = 0
    num_damaged: Count = 0
    num_other_components: Count | None = None
    role: Literal["source", "held_out"] | None = None
    allowed_reports: tuple[Name, ...] | None = pydantic.Field(None, max_length=MOST_NAMES)
    device: Name
    compiled: bool = False  # whether it trains by code that torch compiles there
    versions: dict[Name, Name] = pydantic.Field(max_length=MOST_NAMES)


class TaskRequest(Checked):
    """What goes down beside the model: the protocol that the census fixed, whether tensors come too, and whether the
    run has no task for the site after this one: what it keeps of the run can then go."""

    protocol: Protocol
    stand_in: bool
    run: str
    exchanged: bool = False
    last: bool = False


class ScoreSum(Checked):
    """A score before the division: its sum over ``count`` samples."""

    sum: float = pydantic.Field(allow_inf_nan=False)
    count: Count

    @property
    def mean(self) -> float:
        """The score; NaN over no samples."""
        return self.sum / self.count if self.count else math.nan


class Evaluation(Checked):
    """One model on one split of one domain: mean loss over ``count`` images, and the scores of the run's task by name.

    Scores are sums and counts, which add up. A record has each score itself beside them by its name, such as
    ``accuracy``: a number from 0 to 1.
    """

    split: Literal["train", "validation", "test"]
    loss: Loss
    count: int = pydantic.Field(ge=1, le=MOST_SAMPLES)
    sums: dict[Name, ScoreSum] = pydantic.Field(min_length=1, max_length=MOST_NAMES)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _sums_of_earlier_versions(cls, value: Any) -> Any:
        """Read a score that a record has beside its sum, and alone where its version knew no sums."""
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("sums"), dict):
            return {name: one for name, one in value.items() if not _repeats(name, one, value["sums"])}
        count: Any = value.get("count")
        score: Any = value.get("accuracy")
        if not is_number(score) or not 0 <= score <= 1 or type(count) is not int:
            return value
        rest = {name: one for name, one in value.items() if name != "accuracy"}
        return {**rest, "sums": {"accuracy": {"sum": _sum_of(score, count), "count": count}}}

    def value(self, name: str) -> float:
        """Return the score of that name."""
        return self.sums[name].mean

    def values(self) -> dict[str, float]:
        """Return all scores by name."""
        return {name: one.mean for name, one in self.sums.items()}

    @property
    def accuracy(self) -> float:
        """The score of classification, for whoever reads records by its old name."""
        return self.value("accuracy")


class TrainReport(Checked):
    """What a site reports of one round's local training; ``received`` is the global model before it.

    ``training_split`` holds both models on the site's training images, where the gap is measured on them. What
    follows from single images is None where the site withholds it. ``effective_steps``: how far the steps went under a
    constant unit gradient, over the learning rate (FedNova's ``||a||_1``).
    """

    domain: Name
    received: Evaluation | None = None
    local: Evaluation | None = None
    training_split: tuple[Evaluation, Evaluation] | None = None
    epoch_losses: tuple[TrainingLoss, ...] | None = pydantic.Field(None, min_length=1, max_length=MOST_EPOCHS)
    steps: int = pydantic.Field(ge=1, le=MOST_SAMPLES)
    effective_steps: float = pydantic.Field(ge=1, allow_inf_nan=False)
    learning_rate: float = pydantic.Field(gt=0, allow_inf_nan=False)
    seconds: float = pydantic.Field(ge=0, le=LONGEST_S)


def _repeats(name: str, value: Any, sums: Mapping[str, Any]) -> bool:
    """Return whether a field is the score of that name, as it follows from its sum."""
    try:
        return bool(ScoreSum.model_validate(sums[name]).mean == value)
    except (KeyError, pydantic.ValidationError):
        return False


def _sum_of(score: float, count: int) -> float:
    """Return how many of ``count`` images a fraction of them is: exactly where it is one."""
    whole = float(round(score * count))
    return whole if count and whole / count == score else score * count
