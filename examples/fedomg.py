# SPDX-License-Identifier: Apache-2.0
"""FedOMG on PACS with the paper's protocol; without FDG_DATA_ROOT a short run on the stand-in.

FDG_DATA_ROOT=/data python examples/fedomg.py
python examples/fedomg.py --export --export-dir .  # writes the job instead
"""

from fdg_plugins.recipes import FDGRecipe, SimEnv, results_file


def main() -> None:
    """Run the recipe in FLARE's simulator, and say where its record is."""
    recipe = FDGRecipe("fedomg", "pacs", target="sketch", kappa=0.5)
    run = recipe.execute(SimEnv(clients=recipe.sites))
    print(results_file(run.get_result()))  # noqa: T201 - what this script is for


if __name__ == "__main__":
    main()
