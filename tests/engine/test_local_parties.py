# SPDX-License-Identifier: Apache-2.0
"""What one end of the one-process engine hands to the other is a copy, whichever end writes to it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from nvflare.apis.shareable import Shareable

from fdg_plugins.lab.engine.local_parties import copied

SOURCES: list[Callable[[], torch.Tensor]] = [
    lambda: torch.arange(6.0),
    lambda: torch.arange(12.0)[3:9],
    lambda: torch.from_numpy(np.arange(6.0, dtype=np.float32)),
    lambda: copied(torch.arange(6.0)),
    lambda: torch.arange(12.0).view(3, 4).t(),
    lambda: torch.tensor(3),
]
WRITES: list[Callable[[torch.Tensor], object]] = [
    lambda value: value.add_(1),
    lambda value: value.numpy().fill(7),
    lambda value: value.view(-1)[:1].zero_().sub_(1) if value.is_contiguous() else value.zero_().sub_(1),
]


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("at_source", [True, False])
def test_a_write_at_one_end_does_not_reach_the_other(
    make: Callable[[], torch.Tensor], write: Callable[[torch.Tensor], object], at_source: bool
) -> None:
    source = make()
    before, other = source.clone(), copied(copied(source))
    assert torch.equal(other, before)
    written, kept = (source, other) if at_source else (other, source)
    write(written)
    assert torch.equal(kept, before)
    assert not torch.equal(written, before)


@pytest.mark.parametrize("make", SOURCES)
def test_a_copy_has_memory_of_its_own_at_once_in_the_order_of_the_source(make: Callable[[], torch.Tensor]) -> None:
    source = make()
    other = copied(source)
    # data_ptr() would make torch copy, if it had put that off until a write.
    assert not any(torch._C._is_cow_tensor(value) for value in (source, other))  # type: ignore[attr-defined]
    assert source.data_ptr() != other.data_ptr()
    assert torch.equal(source, other)


def test_a_copied_message_has_the_same_values_and_no_object_that_changes_in_common() -> None:
    message = Shareable({"DXO": {"data": {"w": torch.ones(2)}, "list": [1, {"a": np.ones(2)}]}})
    other = copied(message)
    assert isinstance(other, Shareable)
    other["DXO"]["data"]["w"] += 1
    other["DXO"]["list"][1]["a"] += 1
    assert message["DXO"]["data"]["w"].tolist() == message["DXO"]["list"][1]["a"].tolist() == [1, 1]
