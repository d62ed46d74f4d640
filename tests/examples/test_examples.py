# SPDX-License-Identifier: Apache-2.0
"""The examples: their networks, Rect-4 with the steps that the mathematics promises, and a method of one's own."""

import doctest
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import rect4_rounds
import torch

from fdg_plugins.aggregators import AGGREGATORS, make_aggregator
from fdg_plugins.models import build_model
from fdg_plugins.models.registry import check_features, check_pooled, parameter_kinds
from fdg_plugins.plugins.files import bring_factory, load_file
from fdg_plugins.testing import AGGREGATOR_CONTRACT
from tests.aggregators.trained_sites import aggregate, contribution, vector
from tests.finished_runs import record_in
from tests.processes import FDG, printed_by

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
    to = tmp_path / "run"
    printed_by(FDG, "run", method, "--set", f"model={path}", "--to", to, *words, folder=HERE, FDG_THREADS="1")
    record = record_in(to)
    assert (record.status, record.protocol.plugins) == ("finished", (record.protocol.model,))
    assert (to / "job" / "app_site" / "custom" / f"{record.protocol.model}.py").is_file()


def test_the_example_in_the_docstring_is_what_comes_out() -> None:
    assert doctest.testmod(rect4_rounds) == (0, 2)


PROJECT = Path(__file__).parents[2]
CUSTOM = PROJECT / "custom"
TINY = {"FDG_ROUNDS": "1", "FDG_LOCAL_EPOCHS": "1", "FDG_MODEL": "convnet", "FDG_IMAGE_SIZE": "16"}


@pytest.fixture(autouse=True)
def loaded() -> None:
    load_file(CUSTOM / "clipped_fedavg.py")


def test_no_update_counts_for_more_than_the_median_length() -> None:
    aggregator = make_aggregator({"name": "clipped_fedavg", "weighting": "uniform"})
    sent = [contribution(site, vector(*value)) for site, value in (("a", (1, 0)), ("b", (0, 2)), ("c", (300, 0)))]
    # Lengths 1, 2, 300; the median is 2, so the last is shortened to [2, 0].
    assert aggregate(aggregator, sent).params["w"].tolist() == pytest.approx([1.0, 2 / 3])


@pytest.mark.parametrize("promise", AGGREGATOR_CONTRACT, ids=lambda promise: promise.__name__)
def test_it_keeps_what_every_aggregator_promises(promise: Callable[..., None]) -> None:
    promise(AGGREGATORS["clipped_fedavg"])


@pytest.mark.slow
def test_the_commands_of_the_readme_run_the_aggregator(tmp_path: Path) -> None:
    (commands,) = re.findall(r"```bash\n(.*?)```", (CUSTOM / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    commands = commands.replace("/tmp/jobs", str(tmp_path / "jobs"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["bash", "-euc", f"{commands.strip()} -t 4 -w {tmp_path / 'workspace'}"]
    printed_by(*words, folder=PROJECT, **TINY, PATH=path, FDG_THREADS="1")
    record = record_in(tmp_path / "workspace")
    assert (record.status, record.method.aggregator) == ("finished", "ClippedFedAvgAggregator")
