# SPDX-License-Identifier: Apache-2.0
"""A recipe of FLARE's own with the server's half of a method: what the job then names, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import TransferType

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.recipes import equip
from tests.recipes.exported_jobs import config, filters

SERVER, SITE = (f"app/config/config_fed_{end}.json" for end in ("server", "client"))


@pytest.fixture
def recipe(tmp_path: Path) -> FedAvgRecipe:
    """FLARE's recipe over a script of a user's own."""
    script = tmp_path / "client.py"
    script.write_text("")
    return FedAvgRecipe(
        name="own",
        model={"class_path": "torch.nn.Linear", "args": {"in_features": 2, "out_features": 2}},
        min_clients=2,
        train_script=str(script),
        aggregator=FedOMGAggregator(),
        params_transfer_type=TransferType.DIFF,
    )


def exported(recipe: FedAvgRecipe, folder: Path) -> Path:
    recipe.export(str(folder / "jobs"))
    return folder / "jobs" / "own"


def names(job: Path, file: str) -> dict[str, list[str]]:
    """Return the names of the filters in a config file by their kind."""
    return {kind: [name for name, _ in chain] for (kind, _), chain in filters(job, file).items()}


def test_equip_fedomg_needs_no_filters(recipe: FedAvgRecipe, tmp_path: Path) -> None:
    job = exported(equip(recipe, "fedomg"), tmp_path)
    assert [path.name for path in (job / "app" / "custom").rglob("*.py")] == ["client.py"]
    assert names(job, SERVER) == names(job, SITE) == {}


def test_equip_adds_filters_in_order_and_the_host(recipe: FedAvgRecipe, tmp_path: Path) -> None:
    job = exported(equip(recipe, "fedomg+ga+dim", head="fc", insight_momentum=0.25, metric="accuracy"), tmp_path)
    assert names(job, SERVER) == {
        "task_data_filters": ["ExchangeSendFilter"],
        "task_result_filters": ["ExchangeCheckFilter", "GapCheckFilter"],
    }
    assert names(job, SITE) == {
        "task_data_filters": ["ExchangeReceiveFilter"],
        "task_result_filters": ["GapReportFilter", "ExchangeReportFilter"],
    }
    host = next(one for one in config(job, SERVER)["components"] if "ExchangeHost" in one["path"])
    assert host["args"] == {"objective": {"name": "dim", "insight_momentum": 0.25}, "head": "fc"}


@pytest.mark.parametrize(
    ("method", "settings", "field"),
    [
        ("scaffold", {}, "objective"),
        ("fedcsa", {}, "aggregator"),
        ("feddim", {}, "head"),
        ("feddim", {"head": "fc", "momentum": 0.5}, "momentum"),
        ("feddim", {"head": "fc", "insight_momentum": 2}, "insight_momentum"),
        ("fediir", {"head": "fc", "probe": "extra_task"}, "probe"),
        ("fedga", {"step_size": 0.1}, "step_size"),
    ],
)
def test_equip_refuses_what_does_not(recipe: FedAvgRecipe, method: str, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsError) as refused:
        equip(recipe, method, **settings)
    assert refused.value.field == field


@pytest.mark.parametrize("aggregator", [FedOMGAggregator(grouping="domain"), FedAvgAggregator(weighting="as")])
def test_equip_refuses_a_useless_aggregator(recipe: FedAvgRecipe, aggregator: UpdateAggregator) -> None:
    recipe.aggregator = aggregator
    with pytest.raises(SettingsError) as refused:
        equip(recipe, "fedavg")
    assert refused.value.field == "aggregator"


def test_weights_by_gaps_go_with_scripts_that_send_updates(recipe: FedAvgRecipe) -> None:
    recipe.aggregator = FedOMGAggregator(weighting="ga")
    assert equip(recipe, "fedomg+ga") is recipe
    recipe.params_transfer_type = TransferType.FULL
    with pytest.raises(SettingsError):
        equip(recipe, "fedomg")
