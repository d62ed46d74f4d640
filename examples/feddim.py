# SPDX-License-Identifier: Apache-2.0
"""FedDIM under FedDG-GA's weights on turned handwritten digits, which need no download.

FDG_THREADS=1 python examples/feddim.py
python examples/feddim.py --export --export-dir .  # writes the job instead
"""

from typing import Any

from fdg_plugins.recipes import FDGRecipe, SimEnv, results_file


def main() -> None:
    """Run the recipe in FLARE's simulator, and say where its record is."""
    settings: dict[str, Any] = {"target": "angle_75", "rounds": 10, "batch_size": 16, "learning_rate": 0.05}
    recipe = FDGRecipe("feddim", "rotateddigits", strength=0.1, weighting="ga", **settings)
    run = recipe.execute(SimEnv(clients=recipe.sites))
    print(results_file(run.get_result()))  # noqa: T201 - what this script is for


if __name__ == "__main__":
    main()
