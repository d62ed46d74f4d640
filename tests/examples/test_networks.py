# SPDX-License-Identifier: Apache-2.0
"""The networks among the examples, named as on a command line; a run with each, which is slow."""

import sys
from pathlib import Path

import pytest
import torch

from fdg_plugins.models import build_model, check_features, check_pooled, parameter_kinds
from fdg_plugins.plugins.factories import bring_factory
from fdg_plugins.record.run_record import RunRecord
from tests.processes import printed_by

HERE = Path(__file__).parents[2] / "examples" / "networks"


@pytest.mark.parametrize("channels", [1, 3])
def test_the_network_without_batchnorm_has_parameters_only(tmp_path: Path, channels: int) -> None:
    _, name = bring_factory("no_batchnorm.py:norm_free", HERE, tmp_path)
    model = build_model(name, 5, seed=0, channels=channels)
    assert set(parameter_kinds(model).values()) == {"trainable"}
    check_features(model, channels, 16)
    check_pooled(model, (channels, 16, 16))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "features"),
    [("timm_networks.py:tiny_vit", 192), ("timm_networks.py:small_mobilenet", 1024), ("timm.models:resnet10t", 512)],
)
def test_networks_of_timm_are_split_at_their_last_linear_layer(tmp_path: Path, path: str, features: int) -> None:
    pytest.importorskip("timm")
    _, name = bring_factory(path, HERE, tmp_path)
    with torch.device("meta"):
        model = build_model(name, 5, seed=0, image_size=32)
        logits = model(torch.empty(2, 3, 32, 32, device="meta"))
    assert (logits.shape, model.feature_size) == ((2, 5), features)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("fediir", "no_batchnorm.py:norm_free"),
        ("feddim", "timm_networks.py:tiny_vit"),
        ("fedavg", "timm.models:resnet10t"),
    ],
)
def test_a_run_with_the_network(method: str, path: str, tmp_path: Path) -> None:
    small = ("rounds=1", "local_epochs=1", "max_samples_per_domain=14")
    words = [word for setting in small for word in ("--set", setting)]
    command = [Path(sys.executable).with_name("fdg"), "run", method, "--set", f"model={path}", "--to", tmp_path / "run"]
    printed_by(*command, *words, folder=HERE, FDG_THREADS="1")
    record = RunRecord.model_validate_json((tmp_path / "run" / "results.json").read_bytes())
    assert (record.status, record.protocol.plugins) == ("finished", (record.protocol.model,))
    assert (tmp_path / "run" / "job" / "app_site" / "custom" / f"{record.protocol.model}.py").is_file()
