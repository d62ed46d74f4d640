# SPDX-License-Identifier: Apache-2.0
"""FedDG-GA on PACS, gaps measured in accuracy; without FDG_DATA_ROOT a short run on the stand-in.

FDG_DATA_ROOT=/data python examples/fedga.py
python examples/fedga.py --export --export-dir .  # writes the job instead
"""

from fdg_plugins.recipes import FDGRecipe, SimEnv, results_file


def main() -> None:
    """Run the recipe in FLARE's simulator, and say where its record is."""
    recipe = FDGRecipe("fedga", "pacs", target="sketch", step_size=0.2, metric="accuracy")
    run = recipe.execute(SimEnv(clients=recipe.sites))
    print(results_file(run.get_result()))  # noqa: T201 - what this script is for


if __name__ == "__main__":
    main()
