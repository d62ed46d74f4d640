# SPDX-License-Identifier: Apache-2.0
"""The protocol of a data set: that of its families, then what it brings itself; a job of it runs with both."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fdg_plugins.data import DATASETS, PACS, ROTATED_DIGITS, RotatedSpec
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.lab.centralised.plan import make_plan
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.recipes.settings import job_settings
from fdg_plugins.settings.families import FAMILIES, dataset_protocol
from fdg_plugins.settings.method_defaults import method_defaults
from fdg_plugins.settings.named_protocols import protocol_settings


@pytest.fixture
def scans() -> Iterator[RotatedSpec]:
    """A grey data set of a family of its own, with a protocol of its own."""
    spec = replace(
        ROTATED_DIGITS,
        name="scans",
        family="medical",
        protocol={"rounds": 12, "batch_size": 4},
        stand_in_protocol={"rounds": 2},
    )
    DATASETS.add(spec)
    yield spec
    DATASETS.remove(spec.name)


def test_a_data_sets_own_protocol_replaces_that_of_its_family_field_by_field(scans: RotatedSpec) -> None:
    found, base = dataset_protocol(scans.name), FAMILIES["digits"]
    assert scans.families == ("digits", "medical")
    assert found.protocol == {**base.protocol, "rounds": 12, "batch_size": 4}
    assert found.stand_in == {**base.stand_in, "rounds": 2}


def test_images_with_masks_have_the_protocols_of_their_family_also_if_they_name_one_of_their_own() -> None:
    found = []
    for family in ("mri", None):
        spec = SegmentationSpec(
            name="mr", folder="mr", title="MR", reference="us", domains=("a", "b"), classes=("k", "l"), channels=4,
            family=family,
        )  # fmt: skip
        assert spec.families == ("photographs", "segmentation", *(["mri"] if family else []))
        DATASETS.add(spec)
        try:
            of_reference = make_plan("erm", spec.name, "a", 0).protocol
            found.append((dataset_protocol(spec.name), protocol_settings("quick", spec.name), of_reference))
        finally:
            DATASETS.remove(spec.name)
    assert found[0] == found[1]
    assert found[0][0].protocol["model"] == found[0][2].model == FAMILIES["segmentation"].protocol["model"]


def test_a_job_of_such_a_data_set_runs_its_protocol_and_the_methods_settings_for_its_family(scans: RotatedSpec) -> None:
    made = job_settings(parse_method("fedomg"), scans.name, {})
    assert (made.protocol["rounds"], made.protocol["batch_size"], made.stand_in["rounds"]) == (12, 4, 2)
    assert made.aggregator_spec["server_lr"] == 1.0


def test_what_an_objective_says_of_the_server_holds_under_the_plain_mean_alone() -> None:
    weighting = {method: method_defaults(parse_method(method), PACS.name).server["weighting"] for method in _METHODS}
    assert weighting == _METHODS


@pytest.mark.parametrize("method", ["fediir+ga", "fedomg+ga+iir"])
def test_in_a_composition_a_papers_value_wins_over_our_choice_for_another_part(method: str) -> None:
    assert method_defaults(parse_method(method), PACS.name).protocol["batch_norm"] == "frozen"  # FedIIR's code
    assert method_defaults(parse_method(method), "rotatedmnist").protocol["batch_norm"] == "reestimate"


_METHODS = {"fedavg": "samples", "fediir": "uniform", "fednova": "samples", "fednova+iir": "samples"}
