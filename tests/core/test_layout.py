# SPDX-License-Identifier: Apache-2.0
"""The layout of a state dict: kind, shape and dtype of every entry, by rule or as declared."""

import torch

from fdg_plugins.core.layout import ParameterKind, guess_kind

TRAINABLE, FLOAT_BUFFER, INTEGER_BUFFER = (
    ParameterKind.TRAINABLE,
    ParameterKind.FLOAT_BUFFER,
    ParameterKind.INTEGER_BUFFER,
)


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
