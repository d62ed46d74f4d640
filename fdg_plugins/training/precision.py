# SPDX-License-Identifier: Apache-2.0
"""The precision in which a site computes: the protocol's, or with ``auto`` the one that suits the site's hardware.

``auto`` means bfloat16 with channels last where the hardware multiplies matrices in bfloat16: on a GPU of compute
capability 8.0 or newer, and on a CPU with AMX. Anywhere else it means float32. Each site decides for itself, so the
sites of a run may differ; the census records what each of them uses.
"""

from typing import NamedTuple

import torch

from fdg_plugins.messages import Precision
from fdg_plugins.settings.protocol import AUTO, Protocol
from fdg_plugins.training.loop import DevicePolicy


class Suited(NamedTuple):
    """The precision that suits a device, and why."""

    precision: Precision
    reason: str


def device_policy(protocol: Protocol, device: torch.device) -> DevicePolicy:
    """Return how a site computes on ``device`` under ``protocol``."""
    if protocol.precision != AUTO:
        return DevicePolicy(device, protocol.precision == "bfloat16", protocol.channels_last)
    narrow = suited_precision(device).precision == "bfloat16"
    return DevicePolicy(device, bfloat16=narrow, channels_last=narrow or protocol.channels_last)


def suited_precision(device: torch.device) -> Suited:
    """Return what ``auto`` means on ``device``, which this machine has."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            has_it = torch.cuda.is_bf16_supported(including_emulation=False)
        return Suited("bfloat16", "its GPU has bfloat16") if has_it else Suited("float32", "its GPU lacks bfloat16")
    if torch.cpu._is_amx_tile_supported():
        return Suited("bfloat16", "its CPU has AMX")
    return Suited("float32", "its CPU has no AMX")
