# SPDX-License-Identifier: Apache-2.0
"""A weighting that a plug-in brings, under FLARE's own workflows, which ask no operator: the aggregator does."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from nvflare.apis.event_type import EventType
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.plugins.methods import METHODS
from tests.flare_runner import SiteWorkspace, site_context


class Entry:
    """An entry point of another distribution, which must not be loaded."""

    name = "theirs"
    dist = SimpleNamespace(name="their-package", metadata={"Name": "their-package"})
    loaded = 0

    def load(self) -> None:
        self.loaded += 1
        raise ImportError("it was loaded")


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Entry:
    found = Entry()
    monkeypatch.setitem(METHODS.entries(), found.name, found)
    return found


def begun(folder: Path, allowed: list[str]) -> FedAvgAggregator:
    """Return the aggregator of a job that begins at a server whose operator allows ``allowed``."""
    (folder / "local").mkdir()
    (folder / "local" / "fdg_site.json").write_text(json.dumps({"server": {"allowed_plugins": allowed}}))
    aggregator = FedAvgAggregator(weighting="theirs")
    aggregator.handle_event(EventType.START_RUN, site_context("server", SiteWorkspace(folder)))
    return aggregator


def update() -> FLModel:
    return FLModel(params_type=ParamsType.DIFF, params={"w": torch.ones(2)}, meta={META_SITE: "photo"})


def test_it_is_not_loaded_where_the_operator_does_not_allow_it(tmp_path: Path, entry: Entry) -> None:
    aggregator = begun(tmp_path, [])
    with pytest.raises(SettingsError, match=r"weighting 'theirs' comes from .*their-package.* does not allow here"):
        aggregator.accept_model(update())
    assert entry.loaded == 0


def test_it_is_loaded_where_the_operator_allows_it(tmp_path: Path, entry: Entry) -> None:
    aggregator = begun(tmp_path, ["their-package"])
    with pytest.raises(SettingsError, match="it was loaded"):
        aggregator.accept_model(update())
    assert entry.loaded == 1
