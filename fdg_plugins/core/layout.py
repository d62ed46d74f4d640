# SPDX-License-Identifier: Apache-2.0
"""The three kinds of entries in a model's state dict, and how the server treats each: stated once, here.

============== ============================================ =========================================
kind           examples                                     rule at the server
============== ============================================ =========================================
trainable      convolution weights, BatchNorm's affine pair weighted, matched, moved by server_lr * d
float_buffer   ``running_mean``, HarmoFL's ``amplitude`` averaged with the reference weights
integer_buffer ``num_batches_tracked``                      moved by the largest update; never averaged
============== ============================================ =========================================
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from fdg_plugins.core.stored import Stored, Values

FLOAT_BUFFER_SUFFIXES = ("running_mean", "running_var", "normalization.amplitude")


class ParameterKind(StrEnum):
    """The three kinds of entries of a state dict."""

    TRAINABLE = "trainable"
    FLOAT_BUFFER = "float_buffer"
    INTEGER_BUFFER = "integer_buffer"


@dataclass(frozen=True)
class Entry:
    """Kind, shape and dtype of one entry of the state dict."""

    kind: ParameterKind
    shape: tuple[int, ...]
    dtype: torch.dtype


class ModelLayout(dict[str, Entry]):
    """Every key of a state dict with its :class:`Entry`."""

    @classmethod
    def of(cls, state: Mapping[str, Any], kinds: Mapping[str, str] | None = None) -> "ModelLayout":
        """Return the layout of ``state``, a mapping of names to tensors or arrays.

        ``kinds``: the kind of each entry by name. Without it, kinds are guessed by :func:`guess_kind`.

        >>> layout = ModelLayout.of({"conv.weight": torch.zeros(2, 3), "bn.running_mean": torch.zeros(2)})
        >>> layout.names(ParameterKind.TRAINABLE), layout["bn.running_mean"].kind.value
        (['conv.weight'], 'float_buffer')
        """
        layout = cls()
        for name, value in state.items():
            tensor = value if isinstance(value, Stored) else torch.as_tensor(value)
            kind = ParameterKind(kinds[name]) if kinds else guess_kind(name, tensor)
            layout[name] = Entry(kind, tuple(tensor.shape), tensor.dtype)
        return layout

    def names(self, kind: ParameterKind) -> list[str]:
        """Return the names of one kind, sorted."""
        return sorted(name for name, entry in self.items() if entry.kind is kind)


def guess_kind(name: str, value: Values) -> ParameterKind:
    """Return the kind of an entry from its dtype and from the names that BatchNorm and HarmoFL give their buffers.

    >>> guess_kind("bn.running_mean", torch.zeros(2)).value, guess_kind("bn.weight", torch.zeros(2)).value
    ('float_buffer', 'trainable')
    """
    if not value.dtype.is_floating_point:
        return ParameterKind.INTEGER_BUFFER
    return ParameterKind.FLOAT_BUFFER if name.endswith(FLOAT_BUFFER_SUFFIXES) else ParameterKind.TRAINABLE
