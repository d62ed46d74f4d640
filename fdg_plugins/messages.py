# SPDX-License-Identifier: Apache-2.0
"""The messages between server and sites: task names, keys and schemas, declared once for both ends.

Every message crosses the wire as plain numbers, strings, lists and dicts, and is validated against its schema on
arrival, because the receiver never trusts the sender.
"""

import math
import re
from typing import Annotated, Any, Literal, Self

import pydantic
from nvflare.apis.dxo import MetaKey
from pydantic_core import PydanticCustomError

from fdg_plugins import __version__
from fdg_plugins.core.bootstrap import GAINS
from fdg_plugins.errors import FDGError, first_problem, is_number
from fdg_plugins.settings.protocol import MOST_EPOCHS, Protocol

TASK_CENSUS = "census"
TASK_STATISTICS = "statistics"
TASK_PROBE = "probe"
TASK_TRAIN = "train"
TASK_EVALUATE = "evaluate"
TASK_SCORE = "score"  # of a finished model, at sites that do not train

# DXO meta. The number of samples uses FLARE's key for aggregation weights, so FLARE's own aggregators also use it.
META_SAMPLES = MetaKey.NUM_STEPS_CURRENT_ROUND
META_SITE = "client_name"  # set by the receiver from the authenticated peer, never read from the sender
META_REQUEST = "fdg_request"
META_REPORT = "fdg_report"
META_GAP = "fdg_gap"
PART_OF_SPLIT = re.compile(r"/part\d+of(?P<parts>\d+)$")  # in the name of a split
REPORT_GAP = "gap"
REPORT_TRAINING_LOSS = "training_loss"
META_CHECKED_REPORTS = "fdg_checked_reports"  # CheckedReports; the server's filters always overwrite it
META_RECEIVED = "fdg_received"  # at a site: tensors sent with the model; set by the site's filter
META_SITE_REPORT = "fdg_site_report"  # at a site: tensors to send with the update, until the site's filter packs them
META_UPDATE_BYTES = "fdg_update_bytes"  # at the server: bytes of a rounded update on the wire; set by its filter
HEADER_REASON = "fdg_reason"
HEADER_RUN = "fdg_run"  # on a site's answer, for its own filters: the run whose state they keep
HEADER_NOT_FINITE = "fdg_not_finite"  # on an error reply: training on the received model gave no finite update
HEADER_STOP = "fdg_stop"  # on an error reply: the site takes no further part in the run

# Bounds on a site's values. Anything larger is refused, because the record would keep it for every round.
# Sequences fail fast: an error for each of millions of wrong items takes a thousand times the memory of the message.
LONGEST_NAME = 200
MOST_CLASSES = 10_000
MOST_NAMES = 1_000
MOST_SAMPLES = 2**53  # a float64 represents every integer up to this
MOST_COUNTS = 2**24  # of one name, packed
MOST_MODELS = 100  # of one evaluation
LONGEST_S = 1e9  # duration of a training in seconds, about thirty years

# One line of printable text, without control characters, which could forge log lines.
Name = Annotated[str, pydantic.StringConstraints(max_length=LONGEST_NAME, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$")]
Count = Annotated[int, pydantic.Field(ge=0, le=MOST_SAMPLES)]
Precision = Literal["float32", "bfloat16"]
PackedCount = Annotated[int, pydantic.Field(ge=-MOST_SAMPLES, le=MOST_SAMPLES, strict=True)]
PackedCounts = Annotated[tuple[PackedCount, ...], pydantic.Field(max_length=MOST_COUNTS, fail_fast=True)]
ModelNumber = Annotated[str, pydantic.StringConstraints(pattern=r"^(0|[1-9]\d?)$")]


def _check_loss(value: float) -> float:
    if value < 0:
        raise PydanticCustomError("loss", "a loss should be at least 0")
    return value


def _check_version(value: str) -> str:
    if value != __version__:
        raise PydanticCustomError(
            "version", f"the site has fdg-plugins {__version__}: one job needs one version everywhere"
        )
    return value


# A loss may be NaN or infinite. JSON supports neither, so both are written as null, which is read back as NaN.
# A site's training loss is the value of its objective, which may be negative.
TrainingLoss = Annotated[float, pydantic.BeforeValidator(lambda value: math.nan if value is None else value)]
Loss = Annotated[TrainingLoss, pydantic.AfterValidator(_check_loss)]


class Checked(pydantic.BaseModel):
    """Base of all messages: immutable, no unknown fields, non-finite numbers are written to JSON as null."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    @classmethod
    def read(cls, value: Any, origin: str, error: type[FDGError]) -> Self:
        """Return ``value`` as a validated message; raise ``error`` in one sentence naming ``origin`` and the field."""
        try:
            return cls.model_validate(value)
        except pydantic.ValidationError as caught:
            raise error(f"{origin}: {first_problem(caught, cls.model_fields)}") from caught


class CensusRequest(Checked):
    """The census task: the protocols for real data and for the stand-in, by which the site counts its data.

    ``version``: of this package, at the server. It comes first, since other versions may have other fields.
    ``goes_on``: whether the run has a checkpoint at the server. If not, the site forgets what it kept under that name,
    which is that of any simulation.
    """

    version: Annotated[str, pydantic.AfterValidator(_check_version)] = __version__
    protocol: Protocol
    stand_in_protocol: Protocol
    run: str
    goes_on: bool = True


class CensusReply(Checked):
    """A site's description of its data and configuration, sent before the first round.

    ``class_counts [Y]`` counts the images of each class that the site uses: those for training and validation, or those
    on which a held-out domain is evaluated. ``num_skipped`` counts files known to be mislabelled; ``skipped`` names
    them if the site's operator allows it (``report_names``). ``num_damaged`` counts images that the site leaves out as
    they cannot be read or are too large. ``num_other_components`` counts entries of the site's ``class_allow_list``
    that this package's jobs do not need (None: unknown). ``precision``: in which the site computes, by its own hardware
    if the protocol says ``auto``; ``threads``: with how many threads. ``keeps_state``: whether it has kept anything of
    earlier rounds of the run.
    """

    domain: Name
    dataset: Name
    stand_in: bool
    classes: tuple[Name, ...] = pydantic.Field(max_length=MOST_CLASSES, fail_fast=True)
    class_counts: tuple[Count, ...] = pydantic.Field(max_length=MOST_CLASSES, fail_fast=True)
    num_train: Count
    num_validation: Count
    num_test: Count
    split: Name
    split_hash: Name
    skipped: tuple[Name, ...] = pydantic.Field((), max_length=MOST_NAMES, fail_fast=True)
    num_skipped: Count = 0
    num_damaged: Count = 0
    num_other_components: Count | None = None
    role: Literal["source", "held_out"] | None = None
    allowed_reports: tuple[Name, ...] | None = pydantic.Field(None, max_length=MOST_NAMES, fail_fast=True)
    device: Name
    precision: Precision | None = None  # None: in records of earlier versions
    threads: Count | None = None  # None: in records of earlier versions
    compiled: bool = False  # whether the site trains with a network compiled by torch
    keeps_state: bool = False  # whether the site has kept anything of earlier rounds of this run
    versions: dict[Name, Name] = pydantic.Field(max_length=MOST_NAMES)

    @property
    def division(self) -> str | None:
        """How several sites divide the domain: the name of the whole split and the number of parts; else None."""
        found = PART_OF_SPLIT.search(self.split)
        return found and f"{self.split[: found.start()]} in {found['parts']} parts"


class FixedPart(Checked):
    """The part of the model that no step changes, under an ``id`` that depends on its values.

    ``names``: its entries if they are in this message, and the site keeps them; empty if the site has them already.
    """

    id: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")
    names: tuple[str, ...] = pydantic.Field((), fail_fast=True)


class TaskRequest(Checked):
    """The request sent with the model: the protocol fixed by the census and the id of the run.

    ``exchanged``: whether the method's tensors are sent too. ``fixed``: the part of the model that is sent once; None
    if there is none, and the model is whole.
    """

    protocol: Protocol
    stand_in: bool
    run: str
    exchanged: bool = False
    fixed: FixedPart | None = None


class ScoreSum(Checked):
    """A score as a sum over ``count`` samples, before the division."""

    sum: float = pydantic.Field(allow_inf_nan=False)
    count: Count

    @property
    def mean(self) -> float:
        """The score, ``sum / count``; NaN if ``count`` is 0."""
        return self.sum / self.count if self.count else math.nan


class Evaluation(Checked):
    """One model on one split of one domain: mean loss over ``count`` images, and the scores of the run's task by name.

    Scores are stored as sums and counts, which can be added across sites. A record also has the value of each score
    under its name, such as ``accuracy``, in [0, 1]. ``counts``: what the protocol's ``scores`` are computed from, not
    written if there are none; -k stands for k zeros.
    """

    split: Literal["train", "validation", "test"]
    loss: Loss
    count: int = pydantic.Field(ge=1, le=MOST_SAMPLES)
    sums: dict[Name, ScoreSum] = pydantic.Field(min_length=1, max_length=MOST_NAMES)
    counts: dict[Name, PackedCounts] = pydantic.Field(default_factory=dict, max_length=MOST_NAMES)

    # A lambda, which has no return type, so that the schema stays that of the fields.
    _if_any = pydantic.model_serializer(mode="wrap")(
        lambda self, write: {name: value for name, value in write(self).items() if value or name != "counts"}
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _sums_of_earlier_versions(cls, value: Any) -> Any:
        """Accept a record's scores: drop those that repeat their sums, convert the accuracy of 0.1.0."""
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("sums"), dict):
            return {name: one for name, one in value.items() if name in cls.model_fields or name not in value["sums"]}
        score: Any = value.get("accuracy")
        count: Any = value.get("count")
        if not is_number(score) or type(count) is not int or not 0 < count <= MOST_SAMPLES:
            return value
        right = round(score * count)
        total = right if right / count == score else score * count  # exact if it is a fraction of the images
        rest = {name: one for name, one in value.items() if name != "accuracy"}
        return {**rest, "sums": {"accuracy": {"sum": total, "count": count}}}

    def value(self, name: str) -> float:
        """Return the score called ``name``; raise ``KeyError`` if there is none."""
        return self.sums[name].mean

    def values(self) -> dict[str, float]:
        """Return all scores by name."""
        return {name: one.mean for name, one in self.sums.items()}


class SiteEvaluation(Evaluation):
    """A site's answer to ``evaluate``: the score of the global model and, under some methods, of the site's own model.

    ``personal`` is None under a method without personal models, and from a held-out site, which has none.
    """

    personal: Evaluation | None = None

    @property
    def of_global(self) -> Evaluation:
        """The score of the global model alone."""
        return Evaluation.model_validate(self.model_dump(exclude={"personal"}))


class ModelScores(Checked):
    """A site's answer to ``score``: one finished model on all ``count`` images that evaluate its domain, as counts.

    ``pairs``: beside each earlier model that the site has scored, by its number, how many images both classify
    correctly, only the earlier one, only this one, and neither; without one class per image, how many by what this one
    gains. ``counts``: as in :class:`Evaluation`. ``withheld``:
    the numbers of the classes of which there are fewer images than the site lets leave, whose counts are zero.
    """

    count: int = pydantic.Field(ge=1, le=MOST_SAMPLES)
    sums: dict[Name, ScoreSum] = pydantic.Field(min_length=1, max_length=MOST_NAMES)
    counts: dict[Name, PackedCounts] = pydantic.Field(default_factory=dict, max_length=MOST_NAMES)
    pairs: dict[
        ModelNumber, Annotated[tuple[Count, ...], pydantic.Field(min_length=4, max_length=len(GAINS), fail_fast=True)]
    ] = pydantic.Field(max_length=MOST_MODELS)
    withheld: tuple[Annotated[int, pydantic.Field(ge=0, lt=MOST_CLASSES)], ...] = pydantic.Field(
        (), max_length=MOST_CLASSES, fail_fast=True
    )


class TrainReport(Checked):
    """A site's report on one round of local training.

    ``received`` and ``local`` evaluate the global model before training and the local model after it, on the
    validation split. ``training_split`` evaluates both on the training split if the gap is measured there.
    ``personal`` evaluates the site's own model as of the start of the round, on the validation split, under a method
    that has such models. Values computed from images are None if the site withholds them. ``effective_steps``: distance
    travelled under a constant unit gradient, divided by the learning rate (FedNova's ``||a||_1``). ``seconds``:
    duration of the training. ``keeps_state``: whether the site now keeps anything from which its next training goes on.
    """

    domain: Name
    received: Evaluation | None = None
    local: Evaluation | None = None
    training_split: tuple[Evaluation, Evaluation] | None = None
    personal: Evaluation | None = None
    epoch_losses: tuple[TrainingLoss, ...] | None = pydantic.Field(
        None, min_length=1, max_length=MOST_EPOCHS, fail_fast=True
    )
    steps: int = pydantic.Field(ge=1, le=MOST_SAMPLES)
    effective_steps: float = pydantic.Field(ge=1, allow_inf_nan=False)
    learning_rate: float = pydantic.Field(gt=0, allow_inf_nan=False)
    seconds: float = pydantic.Field(ge=0, le=LONGEST_S)
    keeps_state: bool = False
