# SPDX-License-Identifier: Apache-2.0
"""FedIIR on turned handwritten digits, which need no download; three of five sources train in a round.

FDG_THREADS=1 python examples/fediir.py
python examples/fediir.py --export --export-dir .  # writes the job instead
"""

from typing import Any

from fdg_plugins.recipes import FDGRecipe, SimEnv, results_file


def main() -> None:
    """Run the recipe in FLARE's simulator, and say where its record is."""
    settings: dict[str, Any] = {"target": "angle_75", "rounds": 10, "batch_size": 16, "learning_rate": 0.05}
    recipe = FDGRecipe("fediir", "rotateddigits", strength=0.01, sites_per_round=3, **settings)
    run = recipe.execute(SimEnv(clients=recipe.sites))
    print(results_file(run.get_result()))  # noqa: T201 - what this script is for


if __name__ == "__main__":
    main()
