# SPDX-License-Identifier: Apache-2.0
"""Versions against what the package requires, and GPUs as torch reports them, which stand-ins play here."""

import warnings
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from fdg_plugins.lab.doctor import software
from fdg_plugins.lab.doctor.finding import Status
from fdg_plugins.lab.doctor.software import Gpu, check_gpus, check_requirements, check_versions, gpu_ids

GIB = 2**30


def test_the_versions_that_are_installed_here_are_supported() -> None:
    findings = {finding.check: finding for finding in check_versions()}
    assert {finding.status for finding in findings.values()} == {Status.OK}
    for name in ("nvflare", "torch", "torchvision"):
        assert findings[name].text.startswith(version(name))
    assert "<2.10" in findings["nvflare"].text


def test_what_is_too_old_too_new_or_missing_is_a_problem_and_the_rest_is_counted() -> None:
    texts = ["nvflare>=3", "numpy<1", "no-such-package>=1", "rich>=13", "torch>=2.6"]
    findings = {finding.check: finding for finding in check_requirements([Requirement(text) for text in texts])}
    assert findings["nvflare"].text == f"{version('nvflare')}, expected >=3"
    assert findings["no-such-package"].text == "not installed, expected >=1"
    problems = {name for name, finding in findings.items() if finding.status is Status.PROBLEM}
    assert problems == {"nvflare", "numpy", "no-such-package"}
    assert findings["torch"].status is Status.OK
    assert findings["other packages"].text.startswith("1 installed")


def test_a_package_that_was_not_installed_cannot_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "PACKAGE", "no-such-package")
    *_, last = check_versions()
    assert last.status is Status.WARNING
    assert "not installed" in last.text


@pytest.mark.parametrize(
    ("visible", "count", "ids"),
    [
        (None, 2, ["0", "1"]),
        ("2,3", 2, ["2", "3"]),
        (" 3 , 1,0", 2, ["3", "1"]),
        ("GPU-8932f937-d72c", 1, ["0"]),
        ("5", 2, ["0", "1"]),
        ("", 0, []),
    ],
)
def test_a_gpu_has_the_id_that_the_machine_gives_it(visible: str | None, count: int, ids: list[str]) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_ids(count, environment) == ids


def test_gpus_are_read_with_name_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: ((number + 1) * GIB, 8 * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU number {number}")
    gpus = software.read_gpus({"CUDA_VISIBLE_DEVICES": "4,6"})
    assert gpus == [Gpu("4", "GPU number 0", 8 * GIB, GIB), Gpu("6", "GPU number 1", 8 * GIB, 2 * GIB)]
    first, second = check_gpus(gpus)
    assert (first.check, first.status) == ("gpu 4", Status.OK)
    assert second.text.startswith("GPU number 1, 2.0 GiB free of 8.0 GiB, torch is built")


def test_no_gpu_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(software, "DRIVER", tmp_path / "gone")
    assert software.read_gpus({}) == []
    (found,) = check_gpus([])
    assert (found.status, found.text.split(",")[0]) == (Status.OK, "none")


def test_a_gpu_that_torch_cannot_use_is_named_with_torchs_own_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def is_available() -> bool:
        warnings.warn("The NVIDIA driver on your system is too old", UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(software, "DRIVER", tmp_path)
    (found,) = check_gpus([])
    assert found.status is Status.WARNING
    assert "torch can use none: The NVIDIA driver on your system is too old" in found.text
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    (found,) = check_gpus([])
    assert "torch is built without CUDA" in found.text
