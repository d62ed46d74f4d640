# SPDX-License-Identifier: Apache-2.0
"""The precision in which a site computes: the protocol's, or with ``auto`` the one that suits it; and torch's compiler.

``auto`` means bfloat16 with channels last where the hardware multiplies in bfloat16: on a GPU of compute capability 8.0
or newer, and on a CPU with AMX or AVX512_BF16. Anywhere else it means float32. Each site decides for itself, so the
sites of a run may differ; the census records what each of them uses. docs/benchmarks.md has what was measured.
"""

from typing import NamedTuple

import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import Precision
from fdg_plugins.settings.protocol import AUTO, Protocol
from fdg_plugins.training.loop import DevicePolicy

BACKEND = "inductor"
CPU_FEATURES = {"amx_tile": "AMX", "avx512_bf16": "AVX512_BF16"}


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
    for feature, name in CPU_FEATURES.items():
        # torch's own checks have underscored names, and a version without one cannot use what it would find.
        if getattr(torch.cpu, f"_is_{feature}_supported", bool)():
            return Suited("bfloat16", f"its CPU has {name}")
    return Suited("float32", f"its CPU has neither {' nor '.join(CPU_FEATURES.values())}")


def why_slow(policy: DevicePolicy) -> str | None:
    """Return a sentence if ``policy`` has a site compute in bfloat16 on hardware that is slow in it, otherwise None."""
    suited = suited_precision(policy.device) if policy.bfloat16 else None
    if suited is None or suited.precision == "bfloat16":
        return None
    return f"precision bfloat16 is slow here, since {suited.reason}: float32 takes a fraction of the time"


def check_compiler(device: torch.device) -> None:
    """Raise ``SettingsError`` unless :data:`BACKEND` can compile for ``device`` here; the first call takes seconds."""
    try:
        torch.compile(lambda values: values + values, backend=BACKEND)(torch.ones(2, device=device))
    except RuntimeError as error:  # the base of dozens of classes with the same meaning for a user
        text = f"compile is true, but torch cannot compile for {device.type!r}"
        reason = str(error).partition("\n")[0]
        needs = "a C++ compiler such as g++" if device.type == "cpu" else "Triton and a C compiler such as gcc"
        raise SettingsError(
            f"{text} on this machine, for which it needs {needs}: {type(error).__name__}: {reason}",
            public=f"{text} on the site's machine.",
        ) from error
