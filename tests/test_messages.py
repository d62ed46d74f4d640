# SPDX-License-Identifier: Apache-2.0
"""Messages survive FLARE's serializer and JSON, and a wrong one is refused by its origin and its field."""

import math
from typing import Any, Literal

import pytest
from nvflare.fuel.utils import fobs

from fdg_plugins import __version__
from fdg_plugins.errors import ContributionError, FDGError, SettingsError
from fdg_plugins.messages import CensusReply, CensusRequest, Checked, Evaluation, TaskRequest, TrainReport
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.values import shorten

EVALUATION = Evaluation.model_validate({"split": "validation", "loss": 1.25, "accuracy": 0.5, "count": 8})
REPORT = TrainReport(
    domain="photo",
    received=EVALUATION,
    local=EVALUATION,
    epoch_losses=(2.0, 1.5),
    steps=4,
    effective_steps=4.0,
    learning_rate=0.001,
    seconds=1.5,
)
CENSUS = CensusReply(
    domain="photo",
    dataset="pacs",
    stand_in=False,
    classes=("dog", "cat"),
    class_counts=(4, 5),
    num_train=7,
    num_validation=2,
    num_test=9,
    split="pacs/90-10@0",
    split_hash="0123456789abcdef",
    skipped=("photo/dog/1.jpg",),
    role="source",
    device="cpu",
    versions={"torch": "2.0"},
)
PROTOCOL = Protocol(rounds=3, max_samples_per_domain=20, learning_rate=1e-5)

# Every message in the mode in which the code sends it.
SENT: list[tuple[Checked, Literal["json", "python"]]] = [
    (CensusRequest(protocol=PROTOCOL, stand_in_protocol=Protocol(model="convnet"), run="job"), "json"),
    (CENSUS, "json"),
    (CENSUS.model_copy(update={"role": None, "skipped": ()}), "json"),
    (TaskRequest(protocol=PROTOCOL, stand_in=True, run="job"), "json"),
    (EVALUATION, "python"),
    (REPORT, "python"),
]


@pytest.mark.usefixtures("wire")
def test_every_message_round_trips_through_flare() -> None:
    for message, mode in SENT:
        received = fobs.loads(fobs.dumps(message.model_dump(mode=mode)))
        assert type(message).read(received, "site photo", FDGError) == message


def test_every_message_round_trips_through_json() -> None:
    for message, _ in SENT:
        assert type(message).model_validate_json(message.model_dump_json()) == message


# --- refusals ---------------------------------------------------------------------------------------


def refusal(kind: type[Checked], value: Any, error: type[FDGError] = ContributionError) -> str:
    with pytest.raises(error) as caught:
        kind.read(value, "site photo: report", error)
    text = str(caught.value)
    assert text.startswith("site photo: report: ")
    assert text.endswith(".")
    assert "\n" not in text
    return text.removeprefix("site photo: report: ")


def changed(message: Checked, **fields: Any) -> dict[str, Any]:
    return {**message.model_dump(), **fields}


def without(message: Checked, field: str) -> dict[str, Any]:
    return {name: value for name, value in message.model_dump().items() if name != field}


def test_an_unknown_field_is_refused_by_name() -> None:
    for message in [message for message, _ in SENT[1:]]:
        assert refusal(type(message), changed(message, extra=1)) == "unknown field 'extra'."


def test_a_missing_field_of_a_report_is_refused_by_name() -> None:
    for field in ["domain", "steps", "learning_rate", "seconds"]:
        assert refusal(TrainReport, without(REPORT, field)) == f"field '{field}' is missing."


def test_a_wrong_field_of_a_report_is_refused_by_name_and_value() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"steps": 0}, "steps is 0, but input should be greater than or equal to 1"),
        ({"steps": "many"}, "steps is 'many', but input should be a valid integer"),
        ({"epoch_losses": ()}, "epoch_losses is (), but tuple should have at least 1 item"),
        ({"epoch_losses": (1.0, "x")}, "epoch_losses.1 is 'x', but input should be a valid number"),
        ({"received": 3}, "received is 3, but input should be a valid dictionary"),
        ({"received": {**EVALUATION.model_dump(), "sums": {}}}, "received.sums is a mapping of 0 keys, but dictionary"),
        ({"domain": 3}, "domain is 3, but input should be a valid string"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0, but input should be greater than 0"),
    ]
    for fields, start in cases:
        assert refusal(TrainReport, changed(REPORT, **fields)).startswith(start)


def test_something_that_is_no_message_is_refused() -> None:
    cases: list[Any] = [None, 3, "report", [1, 2]]
    for value in cases:
        assert refusal(TrainReport, value).startswith(f"value is {value!r}, but input should be a valid dictionary")


def test_a_score_without_a_sum_is_refused_outside_zero_and_one() -> None:
    cases: list[Any] = [-0.01, 1.01, math.nan, math.inf, "0.5"]
    for accuracy in cases:
        earlier = {"split": "validation", "loss": 1.25, "accuracy": accuracy, "count": 8}
        assert refusal(Evaluation, earlier) == "field 'sums' is missing."


def test_a_sum_that_is_no_finite_number_over_a_count_is_refused() -> None:
    cases: list[tuple[Any, int]] = [(math.nan, 8), (math.inf, 8), (4.0, -1), ("many", 8)]
    for total, count in cases:
        broken = changed(EVALUATION, sums={"accuracy": {"sum": total, "count": count}})
        assert refusal(Evaluation, broken).startswith("sums.accuracy.")


@pytest.mark.parametrize("count", [-1, 2**53 + 1, 10**400])
def test_a_score_without_a_sum_over_no_number_of_images_is_refused(count: int) -> None:
    earlier = {"split": "validation", "loss": 1.25, "accuracy": 0.5, "count": count}
    assert refusal(Evaluation, earlier)


def test_a_score_that_contradicts_its_sum_is_refused() -> None:
    beside = {**EVALUATION.model_dump(), **EVALUATION.values()}
    assert Evaluation.model_validate(beside) == EVALUATION
    assert refusal(Evaluation, {**beside, "accuracy": 0.75}) == "unknown field 'accuracy'."


def test_a_wrong_census_is_refused_by_field() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"num_train": -1}, "num_train is -1, but "),
        ({"role": "judge"}, "role is 'judge', but "),
        ({"class_counts": (1, -1)}, "class_counts.1 is -1, but "),
        ({"stand_in": "perhaps"}, "stand_in is 'perhaps', but "),
    ]
    for fields, start in cases:
        assert refusal(CensusReply, changed(CENSUS, **fields)).startswith(start)


def test_a_site_refuses_a_request_whose_protocol_is_out_of_range_or_from_another_version() -> None:
    request = TaskRequest(protocol=PROTOCOL, stand_in=False, run="job").model_dump(mode="json")
    wrong = {**request, "protocol": {**request["protocol"], "rounds": 0}}
    assert refusal(TaskRequest, wrong, SettingsError).startswith("protocol.rounds is 0, but ")
    newer = {**request, "protocol": {**request["protocol"], "temperature": 1.0}}
    assert refusal(TaskRequest, newer, SettingsError) == "unknown field 'protocol.temperature'."


def test_a_message_of_another_version_that_cannot_be_read_names_the_versions() -> None:
    cases: list[tuple[Any, bool]] = [("0.0.1", True), (__version__, False), (None, False), (3, False)]
    for version, is_named in cases:
        request = CensusRequest(protocol=PROTOCOL, stand_in_protocol=PROTOCOL, run="job").model_dump(mode="json")
        reply = CENSUS.model_dump(mode="json")
        for message in (request, reply):
            message["field of theirs"] = 1
        request["version"], reply["versions"] = version, {"fdg-plugins": version}
        said = f"it comes from fdg-plugins '0.0.1', and is read by {__version__}: one job needs one version everywhere."
        sent: list[tuple[type[Checked], Any]] = [(CensusRequest, request), (CensusReply, reply)]
        for schema, message in sent:
            assert (refusal(schema, message, ContributionError) == said) is is_named


# --- losses that are not finite ---------------------------------------------------------------------


@pytest.mark.usefixtures("wire")
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_crosses_the_wire_and_becomes_null_in_json(loss: float) -> None:
    report = REPORT.model_copy(
        update={"epoch_losses": (1.0, loss), "local": EVALUATION.model_copy(update={"loss": loss})}
    )
    received = fobs.loads(fobs.dumps(report.model_dump(mode="python")))
    read = TrainReport.read(received, "site photo", ContributionError)
    assert read.local is not None
    assert read.epoch_losses is not None
    assert repr(read.local.loss) == repr(read.epoch_losses[1]) == repr(loss)
    text = read.model_dump_json()
    assert '"loss":null' in text
    assert '"epoch_losses":[1.0,null]' in text
    again = TrainReport.model_validate_json(text)
    assert again.local is not None
    assert again.epoch_losses is not None
    assert math.isnan(again.local.loss)
    assert math.isnan(again.epoch_losses[1])
    assert again.epoch_losses[0] == 1.0


def test_long_values_are_cut_and_mappings_counted_in_refusals() -> None:
    assert shorten("x" * 200) == "'" + "x" * 76 + "..."
    assert shorten({"a": 1, "b": 2}) == "a mapping of 2 keys"
    assert len(refusal(TrainReport, changed(REPORT, steps="9" * 10_000))) < 300
