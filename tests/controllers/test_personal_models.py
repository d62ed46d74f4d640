# SPDX-License-Identifier: Apache-2.0
"""Models of the sites' own beside the global one: judged, recorded and kept by site, in whole runs."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.messages import TASK_TRAIN
from fdg_plugins.testing.inputs import same_bits
from tests.controllers.test_methods_in_rounds import MethodJob
from tests.controllers.test_resume import ServerKilled, dying

pytestmark = pytest.mark.usefixtures("wire")


def run(folder: Path, objective: Any, **settings: Any) -> MethodJob:
    return MethodJob(folder, objective, settings={"momentum": 0.0, **settings}).finished()


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "weighting"), [("rod", "samples"), ("pac", "samples"), ("as", "as")])
def test_a_run_that_is_resumed_judges_the_models_of_an_unbroken_one(
    tmp_path: Path, objective: str, weighting: str
) -> None:
    said: dict[str, Any] = {
        "aggregator": {"name": "fedavg", "weighting": weighting},
        "settings": {"momentum": 0.0, "rounds": 4, "sites_per_round": 2, "validate_all": True},
    }
    broken = MethodJob(tmp_path / "broken", objective, **said)
    broken.meddle = dying(TASK_TRAIN, 6)  # in the third round, in which a site has trained and another has not
    with pytest.raises(ServerKilled):
        broken.run()
    resumed = MethodJob(tmp_path / "broken", objective, **said, resume="job").finished()
    unbroken = MethodJob(tmp_path / "unbroken", objective, **said).finished()
    assert resumed.record.resumed_after == [2]
    assert same_bits(resumed.model, unbroken.model)
    assert resumed.record.evaluations == unbroken.record.evaluations
