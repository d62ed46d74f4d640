# SPDX-License-Identifier: Apache-2.0
"""``precision: auto``: each site's hardware decides, the census tells, and no later task computes otherwise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.loop import DevicePolicy
from fdg_plugins.training.precision import CPU_FEATURES, device_policy, suited_precision
from fdg_plugins.training.session import SiteSession

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)
SMALL: dict[str, Any] = {"model": "convnet", "image_size": 16, "batch_size": 4, "local_epochs": 1}


Detect = Callable[[str], None]


@pytest.fixture
def detect(monkeypatch: pytest.MonkeyPatch) -> Detect:
    """Let torch find one feature of a CPU, or none ("")."""

    def find(feature: str) -> None:
        for known in CPU_FEATURES:
            monkeypatch.setattr(torch.cpu, f"_is_{known}_supported", lambda found=known == feature: found)

    return find


@pytest.fixture(params=["", *CPU_FEATURES])
def fast(request: pytest.FixtureRequest, detect: Detect) -> bool:
    """A CPU that is fast in bfloat16, or not; whether it is."""
    detect(request.param)
    return bool(request.param)


def test_a_cpu_that_multiplies_in_bfloat16_uses_it_with_channels_last_and_another_float32(fast: bool) -> None:
    policy = device_policy(Protocol(precision="auto"), CPU)
    assert policy == DevicePolicy(CPU, bfloat16=fast, channels_last=fast)
    assert policy.precision == suited_precision(CPU).precision == ("bfloat16" if fast else "float32")


def test_the_census_tells_what_the_site_uses_and_naming_it_repeats_the_training(fast: bool, data_root: Path) -> None:
    def site(**settings: object) -> SiteSession:
        config = SiteConfig(device="cpu", data_root=data_root)
        return SiteSession("photo", config, Protocol.model_validate({**SMALL, **settings}))

    chosen = site(precision="auto")
    told = chosen.census().precision
    assert told == ("bfloat16" if fast else "float32")
    named = site(precision=told, channels_last=fast)
    state = chosen._build_network(chosen.protocol, len(chosen.data.classes)).state_dict()
    seen: set[torch.dtype] = set()
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, given, output: seen.add(output.dtype) if isinstance(module, nn.Conv2d) else None
    )
    try:
        first, second = (one.train(state, 0, lambda: False, lambda *_: None) for one in (chosen, named))
    finally:
        handle.remove()
    assert seen == {torch.bfloat16 if fast else torch.float32}
    assert all(torch.equal(first.update[name], value) for name, value in second.update.items())
