# SPDX-License-Identifier: Apache-2.0
"""``precision: auto``: each site's hardware decides, the census tells, and no later task computes otherwise."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.executors.work import SiteTask, SiteWork
from fdg_plugins.lab.doctor.setup import check_precision
from fdg_plugins.messages import TASK_CENSUS, CensusRequest
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


def test_a_torch_that_cannot_tell_what_the_cpu_has_gets_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    for feature in CPU_FEATURES:
        monkeypatch.delattr(torch.cpu, f"_is_{feature}_supported", raising=False)
    assert suited_precision(CPU) == ("float32", "its CPU has neither AMX nor AVX512_BF16")


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
    fast: bool, precision: str, channels_last: bool
) -> None:
    policy = device_policy(Protocol(precision=precision, channels_last=channels_last), CPU)
    assert (policy.precision, policy.channels_last) == (precision, channels_last)


def test_channels_last_may_be_asked_for_beside_auto(fast: bool) -> None:
    assert device_policy(Protocol(precision="auto", channels_last=True), CPU).channels_last


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "auto"])
def test_the_sites_own_log_says_if_its_hardware_is_slow_in_the_precision_that_is_named(
    fast: bool, precision: str, data_root: Path, tmp_path: Path
) -> None:
    protocol = Protocol.model_validate({**SMALL, "precision": precision})
    census = CensusRequest(protocol=protocol, stand_in_protocol=protocol, run="run").model_dump(mode="json")
    config = SiteConfig(device="cpu", data_root=data_root, isolate=False)
    said: list[str] = []
    outcome = SiteWork().do_work(SiteTask(TASK_CENSUS, "photo", census), config, tmp_path, lambda: False, said.append)
    assert outcome.kind == "ok"
    slow = [line for line in said if "slow" in line]
    expected = "site photo | precision bfloat16 is slow here, since its CPU has neither AMX nor AVX512_BF16: "
    assert slow == ([] if fast or precision != "bfloat16" else [f"{expected}float32 takes a fraction of the time"])


@pytest.mark.parametrize("precision", ["", "float32", "bfloat16", "auto"])
def test_the_doctor_warns_of_a_precision_that_the_hardware_is_slow_in(fast: bool, precision: str) -> None:
    finding = check_precision({"FDG_DEVICE": "cpu", "FDG_PRECISION": precision})
    assert finding.status == ("warning" if precision == "bfloat16" and not fast else "ok")
    assert ("slow" in finding.text) == (finding.status == "warning")


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
