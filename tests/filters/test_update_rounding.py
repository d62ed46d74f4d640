# SPDX-License-Identifier: Apache-2.0
"""Updates in half of their bytes: what rounding changes, what it leaves as it is, and what it refuses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.fuel.utils import fobs

from fdg_plugins.filters import RoundedUpdateReceiveFilter, RoundedUpdateSendFilter
from fdg_plugins.filters.wire import PART_MAIN, PART_TENSORS, read_message
from fdg_plugins.messages import HEADER_REASON, META_CHECKED_REPORTS, META_SAMPLES, META_UPDATE_BYTES

pytestmark = pytest.mark.usefixtures("wire")

UNIT = 2.0**-8  # largest relative error of rounding to 8 significant bits


def update() -> dict[str, torch.Tensor]:
    """Return an update of the kinds of values that a network has, in sizes from the smallest to the largest."""
    generator = torch.Generator().manual_seed(0)
    scales = 10.0 ** torch.arange(-30, 30, dtype=torch.float32)
    return {
        "conv.weight": torch.randn(60, 50, generator=generator) * scales[:, None],
        "bn.running_mean": torch.randn(7, generator=generator),
        "bn.num_batches_tracked": torch.tensor(2**40 + 1),
        "mask": torch.tensor([True, False]),
        "scalar": torch.tensor(1.0 / 3.0),
        "empty": torch.zeros(0, 3),
    }


def answer(data: dict[str, Any], **meta: Any) -> Shareable:
    """Return a site's answer to ``train`` before the filter."""
    made = DXO(DataKind.WEIGHT_DIFF, data=data, meta={META_SAMPLES: 6, **meta}).to_shareable()
    made.set_header(AppConstants.CURRENT_ROUND, 3)
    return made


def site() -> FLContext:
    context = FLContext()
    context.set_prop(ReservedKey.IDENTITY_NAME, "photo", private=False, sticky=False)
    return context


def sent(shareable: Shareable) -> Shareable:
    """Return what arrives at the server, through FLARE's serializer."""
    arrived: Shareable = fobs.loads(fobs.dumps(RoundedUpdateSendFilter().process(shareable, site())))
    return arrived


def received(shareable: Shareable) -> DXO:
    return from_shareable(RoundedUpdateReceiveFilter().process(sent(shareable), FLContext()))


def test_an_update_arrives_in_float32_with_every_value_within_one_rounding_of_what_was_sent() -> None:
    original = update()
    arrived = received(answer(update()))
    assert arrived.data_kind == DataKind.WEIGHT_DIFF
    assert list(arrived.data) == list(original)
    for name, value in original.items():
        assert (arrived.data[name].dtype, arrived.data[name].shape) == (value.dtype, value.shape), name
        if value.is_floating_point():
            assert bool(((arrived.data[name] - value).abs() <= UNIT * value.abs()).all()), name
        else:
            assert torch.equal(arrived.data[name], value), "integers are counted and not rounded"
    assert any(not torch.equal(arrived.data[name], value) for name, value in original.items()), "nothing was rounded"


def test_floats_take_half_of_their_bytes_on_the_wire_and_the_server_says_what_came() -> None:
    original = update()
    wide = sum(value.nbytes for value in original.values())
    integers = sum(value.nbytes for value in original.values() if not value.is_floating_point())
    message = read_message(sent(answer(original)))
    assert message is not None
    narrow = sum(value.nbytes for value in message.main.data.values())
    assert narrow == (wide - integers) / 2 + integers
    forged = answer(original, **{META_UPDATE_BYTES: 1, META_CHECKED_REPORTS: "another filter's to overwrite"})
    assert received(forged).meta.items() >= {META_SAMPLES: 6, META_UPDATE_BYTES: narrow}.items()


def test_arrays_as_privacy_filters_leave_them_are_rounded_like_tensors() -> None:
    fobs.register(NumpyArrayDecomposer)
    values = np.array([[1.0 / 3.0, 2.0], [3.0, 4.0]])
    values.flags.writeable = False
    arrays = {"weight": values.T, "counter": np.array([3]), "swapped": values.astype(">f4")}
    arrived = received(answer(arrays))
    np.testing.assert_allclose(arrived.data["weight"].numpy(), values.T, rtol=UNIT)
    np.testing.assert_allclose(arrived.data["swapped"].numpy(), values, rtol=UNIT)
    assert arrived.data["counter"].tolist() == [3]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.tensor([1.0, torch.nan]), "has values that are NaN, infinite or too large for bfloat16"),
        (torch.tensor([torch.finfo(torch.float32).max]), "too large for bfloat16, expected finite ones."),
        (torch.ones(2).to_sparse(), "is a Tensor of torch.float32, expected a dense tensor"),
        (torch.ones(2, dtype=torch.complex64), "is a Tensor of torch.complex64, expected a dense"),
        (np.array(["a"]), "is a ndarray of <U1, expected a dense tensor"),
        (None, "expected a dense tensor"),
    ],
)
def test_what_cannot_be_rounded_does_not_leave_and_the_server_learns_why(value: Any, reason: str) -> None:
    reply = RoundedUpdateSendFilter().process(answer({"fine": torch.ones(2), "weight": value}), site())
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    sentence = reply.get_header(HEADER_REASON)
    assert sentence.startswith("site photo: parameter 'weight' of its update ")
    assert reason in sentence
    assert "DXO" not in reply, "nothing of the update is in the error"


def test_an_update_in_files_is_left_there_and_its_bytes_are_those_with_which_it_came(
    offload: Callable[[Any], dict[str, Any]],
) -> None:
    rounded = RoundedUpdateSendFilter().process(answer(update()), site())
    narrow = from_shareable(rounded)
    kept = offload(narrow.data)
    arrived = RoundedUpdateReceiveFilter().process(DXO(DataKind.WEIGHT_DIFF, data=kept).to_shareable(), FLContext())
    found = from_shareable(arrived)
    assert all(found.data[name] is value for name, value in kept.items())
    assert found.meta[META_UPDATE_BYTES] == sum(value.nbytes for value in narrow.data.values())


@pytest.mark.parametrize(
    "other",
    [
        DXO(DataKind.METRICS, data={"accuracy": 0.5}).to_shareable(),
        DXO(DataKind.WEIGHTS, data={"weight": torch.ones(2)}).to_shareable(),
        DXO(DataKind.COLLECTION, data={PART_MAIN: 3, PART_TENSORS: None}).to_shareable(),
        Shareable(),
        make_reply(ReturnCode.EXECUTION_EXCEPTION),
    ],
)
def test_what_is_no_update_is_left_as_it_is(other: Shareable) -> None:
    assert RoundedUpdateSendFilter().process(other, site()) is other
    assert RoundedUpdateReceiveFilter().process(other, FLContext()) is other
