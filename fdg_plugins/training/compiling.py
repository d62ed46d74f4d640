# SPDX-License-Identifier: Apache-2.0
"""torch's compiler at a site: the backend, and a check that it works on this machine."""

import torch

from fdg_plugins.errors import SettingsError

BACKEND = "inductor"
NEEDS = {"cpu": "a C++ compiler such as g++", "cuda": "Triton and a C compiler such as gcc"}


def check_compiler(device: torch.device) -> None:
    """Raise ``SettingsError`` unless :data:`BACKEND` can compile for ``device`` here; the first call takes seconds."""
    try:
        torch.compile(_twice, backend=BACKEND)(torch.ones(2, device=device))
    except Exception as error:  # dozens of classes with the same meaning for a user
        reason = str(error).splitlines()[0] if str(error) else "no message"
        raise SettingsError(
            f"compile is true, but torch cannot compile for {device.type!r} on this machine, for which it needs "
            f"{NEEDS.get(device.type, 'a compiler')}: {type(error).__name__}: {reason}",
            public=f"compile is true, but torch cannot compile for {device.type!r} on the site's machine.",
        ) from error


def _twice(values: torch.Tensor) -> torch.Tensor:
    return values + values
