# SPDX-License-Identifier: Apache-2.0
"""``precision: auto``: each site's hardware decides, the census tells, and no later task computes otherwise."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.loop import DevicePolicy
from fdg_plugins.training.precision import device_policy, suited_precision
from fdg_plugins.training.session import SiteSession

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)
SMALL = {"model": "convnet", "image_size": 16, "batch_size": 4, "local_epochs": 1}


@pytest.fixture(params=[False, True], ids=["without AMX", "with AMX"])
def amx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A CPU with or without AMX."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: request.param)
    return bool(request.param)


def test_a_cpu_with_amx_computes_in_bfloat16_with_channels_last_and_another_in_float32(amx: bool) -> None:
    policy = device_policy(Protocol(precision="auto"), CPU)
    assert policy == DevicePolicy(CPU, bfloat16=amx, channels_last=amx)
    assert policy.precision == suited_precision(CPU).precision == ("bfloat16" if amx else "float32")


@pytest.mark.parametrize("has_it", [False, True])
def test_of_several_gpus_the_sites_own_is_asked(monkeypatch: pytest.MonkeyPatch, has_it: bool) -> None:
    asked: list[torch.device] = []

    @contextlib.contextmanager
    def device(one: torch.device) -> Iterator[None]:
        asked.append(one)
        yield

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_it and not including_emulation)
    policy = device_policy(Protocol(precision="auto"), CUDA)
    assert policy == DevicePolicy(CUDA, bfloat16=has_it, channels_last=has_it)
    assert asked == [CUDA]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_precision_that_the_protocol_names_is_used_on_any_hardware(
    amx: bool, precision: str, channels_last: bool
) -> None:
    policy = device_policy(Protocol(precision=precision, channels_last=channels_last), CPU)
    assert (policy.precision, policy.channels_last) == (precision, channels_last)


def test_channels_last_may_be_asked_for_beside_auto(amx: bool) -> None:
    assert device_policy(Protocol(precision="auto", channels_last=True), CPU).channels_last


def test_the_census_tells_what_the_site_uses_and_naming_it_repeats_the_training(amx: bool, data_root: Path) -> None:
    def site(**settings: object) -> SiteSession:
        config = SiteConfig(device="cpu", data_root=data_root)
        return SiteSession("photo", config, Protocol.model_validate({**SMALL, **settings}))

    chosen = site(precision="auto")
    told = chosen.census().precision
    assert told == ("bfloat16" if amx else "float32")
    named = site(precision=told, channels_last=amx)
    state = chosen._build_network(chosen.protocol, len(chosen.data.classes)).state_dict()
    seen: set[torch.dtype] = set()
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, given, output: seen.add(output.dtype) if isinstance(module, nn.Conv2d) else None
    )
    try:
        first, second = (one.train(state, 0, lambda: False, lambda *_: None) for one in (chosen, named))
    finally:
        handle.remove()
    assert seen == {torch.bfloat16 if amx else torch.float32}
    assert all(torch.equal(first.update[name], value) for name, value in second.update.items())
