# SPDX-License-Identifier: Apache-2.0
"""FLARE's own FedAvg over three sites' own scripts, with this package's aggregators and what sites report.

python examples/client_api/job.py                          # client.py: FedOMG with FedDG-GA's weights and FedDIM
python examples/client_api/job.py lightning                # client_lightning.py: FedNova with FedIIR
python examples/client_api/job.py --export --export-dir .  # writes the job instead
"""

import argparse
from contextlib import chdir
from pathlib import Path

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import TransferType
from nvflare.recipe import SimEnv
from torch import nn

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.methods.fednova import FedNovaAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
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
        train_script=script,
        aggregator=aggregator,
        params_transfer_type=TransferType.DIFF,
    )
    # The job names the script as given here, and an absolute path would exist on this machine only. A relative one is
    # looked for from where FLARE is called, now and again when the job is written, so the file is added by its place.
    with chdir(FOLDER):
        for file in (script, "small_domains.py"):
            recipe.add_client_file(str(FOLDER / file))
    return recipe


def main() -> None:
    """Run one of the jobs in FLARE's simulator, and say where its results are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("script", nargs="?", choices=("plain", "lightning"), default="plain", help="default: plain")
    asked = parser.parse_args()
    recipe = lightning() if asked.script == "lightning" else plain()
    run = recipe.execute(SimEnv(num_clients=3, workspace_root="simulator_workspace"))
    print(run.get_result())  # noqa: T201 - what this script is for


if __name__ == "__main__":
    main()
