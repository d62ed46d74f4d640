# SPDX-License-Identifier: Apache-2.0
"""Messages survive FLARE's serializer and JSON, and a wrong one is refused by its origin and its field."""

import math
from typing import Any, Literal

import pydantic
import pytest
from nvflare.fuel.utils import fobs

from fdg_plugins import __version__
from fdg_plugins.errors import ContributionError, FDGError
from fdg_plugins.messages import CensusRequest, Checked, TaskRequest, TrainReport
from fdg_plugins.settings.protocol import Protocol
from tests.controllers.federation_stubs import census_reply, evaluation, train_report

EVALUATION = evaluation(0.5, 8, loss=1.25)
REPORT = train_report(local=EVALUATION, received=EVALUATION)
CENSUS = census_reply("photo", skipped=("photo/dog/1.jpg",), role="source")
PROTOCOL = Protocol(rounds=3, max_samples_per_domain=20, learning_rate=1e-5)
REQUEST = CensusRequest(protocol=PROTOCOL, stand_in_protocol=Protocol(model="convnet"), run="job")
TASK = TaskRequest(protocol=PROTOCOL, stand_in=True, run="job")

# Every message in the mode in which the code sends it.
SENT: list[tuple[Checked, Literal["json", "python"]]] = [
    (REQUEST, "json"),
    (CENSUS, "json"),
    (TASK, "json"),
    (EVALUATION, "python"),
    (REPORT, "python"),
]


def test_a_message_of_nothing_but_mistakes_is_refused_by_few_of_them() -> None:
    """Each would be described at hundreds of times its size."""
    with pytest.raises(pydantic.ValidationError) as caught:
        type(EVALUATION).model_validate({**EVALUATION.model_dump(), "counts": {"a": [None] * 10_000}})
    assert caught.value.error_count() == 1
    with pytest.raises(FDGError) as refused:
        TrainReport.read(dict.fromkeys(map(str, range(2_000))), "site photo", FDGError)
    assert "2,0" in str(refused.value)


@pytest.mark.usefixtures("wire")
def test_every_message_round_trips_through_flare_and_json_and_refuses_an_unknown_field() -> None:
    for message, mode in SENT:
        received = fobs.loads(fobs.dumps(message.model_dump(mode=mode)))
        assert type(message).read(received, "site photo", FDGError) == message
        assert type(message).model_validate_json(message.model_dump_json()) == message
        assert "'extra'" in refusal(message, extra=1)


def refusal(message: Checked, **fields: Any) -> str:
    with pytest.raises(ContributionError) as caught:
        type(message).read({**message.model_dump(), **fields}, "site photo: report", ContributionError)
    text = str(caught.value)
    assert text.startswith("site photo: report: ")
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (REPORT, {"steps": 0}),
        (REPORT, {"epoch_losses": ()}),
        (REPORT, {"domain": "two\nlines"}),
        (REPORT, {"learning_rate": -1.0}),
        (EVALUATION, {"loss": -1.0}),
        (EVALUATION, {"sums": {"accuracy": {"sum": math.nan, "count": 8}}}),
        (EVALUATION, {"sums": {"accuracy": {"sum": 4.0, "count": -1}}}),
        (EVALUATION, {"count": 10**400, "sums": None, "accuracy": 0.5}),
        (CENSUS, {"num_train": -1}),
        (CENSUS, {"role": "judge"}),
        (TASK, {"protocol": {**PROTOCOL.model_dump(), "rounds": 0}}),
    ],
)
def test_a_wrong_field_is_refused_by_name(message: Checked, fields: dict[str, Any]) -> None:
    assert next(iter(fields)) in refusal(message, **fields)


def test_a_request_of_another_version_is_refused_by_the_version_whatever_its_other_fields() -> None:
    text = refusal(REQUEST, version="0.0.1", field_of_theirs=1)
    assert text.startswith("site photo: report: version is '0.0.1'")
    assert __version__ in text
