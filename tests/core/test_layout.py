# SPDX-License-Identifier: Apache-2.0
"""The layout of a state dict: kind, shape and dtype of every entry, by rule or as declared."""

import numpy as np
import torch

from fdg_plugins.core.layout import Entry, ModelLayout, ParameterKind, guess_kind

TRAINABLE, FLOAT_BUFFER, INTEGER_BUFFER = (
    ParameterKind.TRAINABLE,
    ParameterKind.FLOAT_BUFFER,
    ParameterKind.INTEGER_BUFFER,
)


def test_arrays_and_tensors_have_the_same_layout() -> None:
    arrays = {
        "w": np.zeros((2, 3), np.float16),
        "bn.running_var": np.ones(3),
        "n": np.array(4, np.int32),
        "scalar": np.float64(1),
    }
    tensors = {name: torch.as_tensor(value) for name, value in arrays.items()}
    assert ModelLayout.of(arrays) == ModelLayout.of(tensors)
    assert ModelLayout.of(arrays)["n"] == Entry(INTEGER_BUFFER, (), torch.int32)


def test_a_guessed_kind_depends_on_dtype_first_and_the_end_of_the_name_second() -> None:
    cases: list[tuple[str, torch.Tensor, ParameterKind]] = [
        ("conv.weight", torch.zeros(1), TRAINABLE),
        ("bn.running_mean", torch.zeros(1), FLOAT_BUFFER),
        ("bn.running_var", torch.zeros(1, dtype=torch.bfloat16), FLOAT_BUFFER),
        ("running_mean.weight", torch.zeros(1), TRAINABLE),
        ("bn.running_mean", torch.zeros(1, dtype=torch.int64), INTEGER_BUFFER),
        ("mask", torch.zeros(1, dtype=torch.bool), INTEGER_BUFFER),
        ("num_batches_tracked", torch.tensor(0), INTEGER_BUFFER),
    ]
    for name, value, kind in cases:
        assert guess_kind(name, value) is kind
