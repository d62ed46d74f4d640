# SPDX-License-Identifier: Apache-2.0
"""FLARE's own FedAvg over three sites' own scripts, with this package's aggregators and what sites report.

python examples/client_api/job.py            # client.py: FedOMG with FedDG-GA's weights and FedDIM
python examples/client_api/job.py lightning  # client_lightning.py: FedNova with FedIIR
"""

import sys
from pathlib import Path

from nvflare.apis.dxo import DataKind
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import TransferType
from nvflare.recipe import SimEnv
from torch import nn

from fdg_plugins.aggregators import FedNovaAggregator, FedOMGAggregator, UpdateAggregator
from fdg_plugins.recipes import equip

FOLDER = Path(__file__).parent
ROUNDS = 4


def plain() -> FedAvgRecipe:
    """Return the job of ``client.py``."""
    from small_domains import Net

    aggregator = FedOMGAggregator(kappa=0.25, server_lr=1.0, weighting="ga")
    return equip(_recipe("own_script", Net(), "client.py", aggregator), "fedomg+ga+dim", head="fc")


def lightning() -> FedAvgRecipe:
    """Return the job of ``client_lightning.py``."""
    from lit_net import LitNet

    return equip(
        _recipe("own_lightning", LitNet(), "client_lightning.py", FedNovaAggregator()), "fednova+iir", head="model.fc"
    )


def _recipe(name: str, model: nn.Module, script: str, aggregator: UpdateAggregator) -> FedAvgRecipe:
    """Return FLARE's recipe as it is without this package, but for the aggregator, which adds up updates."""
    recipe = FedAvgRecipe(
        name=name,
        model=model,
        min_clients=3,
        num_rounds=ROUNDS,
        train_script=str(FOLDER / script),
        aggregator=aggregator,
        aggregator_data_kind=DataKind.WEIGHT_DIFF,
        params_transfer_type=TransferType.DIFF,
    )
    recipe.add_client_file(str(FOLDER / "small_domains.py"))
    return recipe


def main() -> None:
    """Run one of the jobs in FLARE's simulator, and say where its results are."""
    recipe = lightning() if "lightning" in sys.argv[1:] else plain()
    run = recipe.execute(SimEnv(num_clients=3, workspace_root="simulator_workspace"))
    print(run.get_result())  # noqa: T201 - what this script is for


if __name__ == "__main__":
    main()
