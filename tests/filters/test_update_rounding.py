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
from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.fuel.utils import fobs

from fdg_plugins.filters import RoundedUpdateReceiveFilter, RoundedUpdateSendFilter
from fdg_plugins.filters.wire import PART_MAIN, PART_TENSORS
from fdg_plugins.messages import HEADER_NOT_FINITE, HEADER_REASON, META_SAMPLES, META_UPDATE_BYTES

pytestmark = pytest.mark.usefixtures("wire")

UNIT = 2.0**-8  # largest relative error of rounding to 8 significant bits


def update() -> dict[str, torch.Tensor]:
    """Return an update of the kinds of values that a network has, in sizes from the smallest to the largest."""
    generator = torch.Generator().manual_seed(0)
    scales = 10.0 ** torch.arange(-30, 30, dtype=torch.float32)
    return {
        "conv.weight": torch.randn(60, 50, generator=generator) * scales[:, None],
        "bn.num_batches_tracked": torch.tensor(2**40 + 1),
        "mask": torch.tensor([True, False]),
        "scalar": torch.tensor(1.0 / 3.0),
        "empty": torch.zeros(0, 3),
    }


def sent(data: dict[str, Any], **meta: Any) -> Shareable:
    answer = DXO(DataKind.WEIGHT_DIFF, data=data, meta={META_SAMPLES: 6, **meta}).to_shareable()
    context = FLContext()
    context.set_prop(ReservedKey.IDENTITY_NAME, "photo", private=False, sticky=False)
    return RoundedUpdateSendFilter().process(answer, context)


def received(answer: Shareable) -> DXO:
    """Return what the server makes of it, through FLARE's serializer."""
    return from_shareable(RoundedUpdateReceiveFilter().process(fobs.loads(fobs.dumps(answer)), FLContext()))


def test_an_update_arrives_in_float32_within_one_rounding_and_takes_half_of_the_bytes_of_its_floats() -> None:
    original = update()
    narrow = sum(value.nbytes for value in from_shareable(sent(update())).data.values())
    arrived = received(sent(update(), **{META_UPDATE_BYTES: 1}))  # a forged size
    assert arrived.data_kind == DataKind.WEIGHT_DIFF
    assert list(arrived.data) == list(original)
    for name, value in original.items():
        assert (arrived.data[name].dtype, arrived.data[name].shape) == (value.dtype, value.shape), name
        allowed = UNIT * value.abs() if value.is_floating_point() else 0
        assert bool(((arrived.data[name].double() - value.double()).abs() <= allowed).all()), name
    assert any(not torch.equal(arrived.data[name], value) for name, value in original.items()), "nothing was rounded"
    floats = sum(value.nbytes for value in original.values() if value.is_floating_point())
    assert narrow == sum(value.nbytes for value in original.values()) - floats / 2
    assert arrived.meta.items() >= {META_SAMPLES: 6, META_UPDATE_BYTES: narrow}.items()


def test_arrays_as_privacy_filters_leave_them_are_rounded_like_tensors() -> None:
    fobs.register(NumpyArrayDecomposer)
    values = np.array([[1.0 / 3.0, 2.0], [3.0, 4.0]])
    values.flags.writeable = False
    arrived = received(sent({"weight": values.T, "counter": np.array([3]), "swapped": values.astype(">f4")}))
    np.testing.assert_allclose(arrived.data["weight"].numpy(), values.T, rtol=UNIT)
    np.testing.assert_allclose(arrived.data["swapped"].numpy(), values, rtol=UNIT)
    assert arrived.data["counter"].tolist() == [3]


@pytest.mark.parametrize(
    ("value", "finite"),
    [
        (torch.tensor([1.0, torch.nan]), False),
        (torch.tensor([torch.finfo(torch.float32).max]), True),  # too large for bfloat16
        (torch.ones(2).to_sparse(), True),
        (torch.ones(2, dtype=torch.complex64), True),
        (np.array(["a"]), True),
        (None, True),
    ],
)
def test_what_cannot_be_rounded_does_not_leave_and_the_server_learns_why(value: Any, finite: bool) -> None:
    reply = sent({"fine": torch.ones(2), "weight": value})
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert reply.get_header(HEADER_REASON).startswith("site photo: parameter 'weight' of its update ")
    assert reply.get_header(HEADER_NOT_FINITE) is not finite
    assert "DXO" not in reply, "nothing of the update is in the error"


def test_update_in_files_is_left_there(offload: Callable[[Any], dict[str, Any]]) -> None:
    narrow = from_shareable(sent(update())).data
    kept = offload(narrow)
    arrived = RoundedUpdateReceiveFilter().process(DXO(DataKind.WEIGHT_DIFF, data=kept).to_shareable(), FLContext())
    found = from_shareable(arrived)
    assert all(found.data[name] is value for name, value in kept.items())
    assert found.meta[META_UPDATE_BYTES] == sum(value.nbytes for value in narrow.values())


@pytest.mark.parametrize(
    "other",
    [
        DXO(DataKind.WEIGHTS, data={"weight": torch.ones(2)}).to_shareable(),
        DXO(DataKind.COLLECTION, data={PART_MAIN: 3, PART_TENSORS: None}).to_shareable(),
        Shareable(),
        make_reply(ReturnCode.EXECUTION_EXCEPTION),
    ],
)
def test_what_is_no_update_is_left_as_it_is(other: Shareable) -> None:
    for filter_ in (RoundedUpdateSendFilter(), RoundedUpdateReceiveFilter()):
        assert filter_.process(other, FLContext()) is other
