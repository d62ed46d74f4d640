# SPDX-License-Identifier: Apache-2.0
"""A plan is checked to the last setting before anything is written, with the real recipes and data."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import PACS, ROTATED_DIGITS, ROTATED_MNIST, ROTATED_MNIST_7K, DatasetSpec
from fdg_plugins.data.catalogue import DATASETS, VESSELS
from fdg_plugins.errors import DataError, FDGError, SettingsError
from fdg_plugins.lab.sweep.jobs import FederatedRuns
from fdg_plugins.lab.sweep.kinds import executing, kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.prepare import Asked, make_request, prepare
from fdg_plugins.lab.sweep.request import DataFound, SweepFile
from fdg_plugins.lab.sweep.run_kind import difference
from fdg_plugins.lab.sweep.store import Store
from fdg_plugins.plugins.own_dataset import OwnDataset
from fdg_plugins.recipes import settings_of
from fdg_plugins.settings.named_protocols import protocol_settings

FOUND = DataFound(stand_in=False, images=dict.fromkeys(ROTATED_DIGITS.domains, 300))
DIGITS = Asked(dataset="rotateddigits", methods=("fedavg", "fedomg+dim+ga"), targets=("angle_0",))


def asked(**changes: Any) -> Asked:
    return Asked(**{**vars(DIGITS), **changes})


def finish(store: Store, run: PlannedRun) -> None:
    """Leave ``run`` as one that has finished."""
    folder = store.runs / run.name
    folder.mkdir(parents=True)
    FederatedRuns().write_job(run, FOUND, folder)
    (folder / "run.json").write_text(json.dumps({"seconds": 60.0}))


def test_every_run_has_the_protocol_that_its_job_says(tmp_path: Path) -> None:
    prepared = prepare(asked(settings={"rounds": (3, 5), "kappa": (0.1,)}), Store(tmp_path), {})
    assert [run.name for run in prepared.plan] == [
        "fedavg-angle_0-seed0-rounds3",
        "fedavg-angle_0-seed0-rounds5",
        "fedomg+ga+dim-angle_0-seed0-rounds3",
        "fedomg+ga+dim-angle_0-seed0-rounds5",
    ]
    assert {name: found.rounds for name, found in prepared.protocols.items()} == {
        run.name: run.settings["rounds"] for run in prepared.plan
    }
    assert prepared.protocols[prepared.plan[2].name].objective["name"] == "dim"
    assert list(prepared.content.data.images) == list(ROTATED_DIGITS.domains)
    assert sum(prepared.content.data.images.values()) == 1797, "all of scikit-learn's digits"
    assert list(tmp_path.iterdir()) == []


def test_an_object_may_be_an_axis_of_one_method(tmp_path: Path) -> None:
    objectives = ({"name": "dim", "target": "feature"}, {"name": "dim", "target": "insight"})
    own = asked(methods=("fedavg", "feddim"), settings={"feddim:objective": objectives})
    fedavg, *feddim = prepare(own, Store(tmp_path), {}).protocols.values()
    assert fedavg.objective == {"name": "erm"}
    assert [found.objective["target"] for found in feddim] == ["feature", "insight"]


def test_without_a_data_root_the_plan_is_of_the_stand_in_and_says_so(tmp_path: Path) -> None:
    prepared = prepare(Asked(methods=("fedavg",)), Store(tmp_path / "sweep"), {"FDG_CACHE": str(tmp_path / "cache")})
    assert prepared.content.data.stand_in
    assert {found.model for found in prepared.protocols.values()} == {"convnet"}


def test_a_sweep_with_too_many_sites_for_the_images_is_refused_before_its_first_run(tmp_path: Path) -> None:
    settings = {"sites_per_domain": (2, 100)}
    with pytest.raises(SettingsError, match=r"^domain 'angle_15' has .*; expected at least 100 of each for 100 parts"):
        prepare(asked(settings=settings), Store(tmp_path), {})
    assert list(tmp_path.iterdir()) == []


def test_a_data_root_is_looked_into(tmp_path: Path, data_root: Path) -> None:
    prepared = prepare(Asked(methods=("fedavg",)), Store(tmp_path), {"FDG_DATA_ROOT": str(data_root)})
    assert prepared.content.data.images == dict.fromkeys(PACS.domains, 28)
    assert not prepared.content.data.stand_in
    with pytest.raises(DataError, match="is not a folder"):
        prepare(Asked(methods=("fedavg",)), Store(tmp_path), {"FDG_DATA_ROOT": "/nowhere"})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": None}, "--methods is missing"),
        ({"methods": ("fedomh",)}, "method is 'fedomh', which is neither .*; did you mean 'fedomg'?"),
        ({"methods": ("fedomg+ga", "fedomg+ga")}, "methods names fedomg.ga twice"),
        ({"dataset": "packs"}, "data set 'packs' is unknown"),
        ({"dataset": ""}, "data set '' is unknown"),
        ({"targets": ("photo",)}, "--targets names 'photo', expected all, or domains of rotateddigits: angle_0"),
        ({"protocol": "short"}, "protocol is 'short', expected one of paper, quick"),
        ({"settings": {"round": (1,)}}, "did you mean 'rounds'"),
        (
            {"settings": {"fedomg+ga+dim:kappa": (0.1,), "ga+fedomg+dim:kappa": (0.5,)}},
            "--set names '.*:kappa' twice, expected once",
        ),
        ({"settings": {"rounds": (10, 0)}}, "run fedavg-angle_0-seed0-rounds0: setting rounds .* is 0"),
        ({"settings": {"kappa": (-1,)}}, "run fedomg.ga.dim-angle_0-seed0: kappa is -1"),
        ({"settings": {"model": ("resnet18",)}}, "model .* is 'resnet18', which takes 3 channels"),
        ({"settings": {"weighting": ("ga",)}}, "run fedavg-angle_0-seed0: method is 'fedavg', but"),
        ({"seeds": (2**31,)}, "setting seed .* is 2147483648"),
    ],
)
def test_whatever_is_wrong_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FDGError, match=sentence):
        prepare(asked(**changes), Store(tmp_path / "sweep"), {})
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("dataset", "targets"), [("pacs", PACS.domains), ("mnist", ("test",)), ("cifar100", ("test",))]
)
def test_all_targets_are_the_domains_that_a_study_holds_out(dataset: str, targets: tuple[str, ...]) -> None:
    assert make_request(Asked(methods=("fedavg",), dataset=dataset), None).targets == targets
    assert make_request(Asked(methods=("fedavg",), dataset=dataset, targets=("all",)), None).targets == targets


def test_what_is_not_said_is_as_in_the_folder() -> None:
    before = make_request(asked(seeds=(0, 1), protocol="quick", settings={"kappa": (0.1, 0.3)}), None)
    assert make_request(Asked(), before) == before
    grown = make_request(Asked(seeds=(0, 1, 2), settings={"kappa": (0.1, 0.3, 0.5)}), before)
    assert (grown.seeds, grown.settings["kappa"], grown.methods) == ((0, 1, 2), (0.1, 0.3, 0.5), before.methods)


def test_a_method_has_one_name_however_it_is_spelt() -> None:
    spelt = make_request(asked(methods=("fedavg+ga",), settings={"fedavg+ga:step_size": (0.1,)}), None)
    assert spelt.methods == ("fedga",)
    assert list(spelt.settings) == ["fedga:step_size"]


def test_a_finished_run_of_other_settings_is_refused_with_the_difference(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = prepare(asked(settings={"kappa": (0.1, 0.3)}), store, {})
    finish(store, first.plan[1]._replace(settings={**first.plan[1].settings, "kappa": 0.2}))
    with pytest.raises(SettingsError, match=re.escape(f"run {first.plan[1].name} in {store.runs} was made with other")):
        prepare(asked(settings={"kappa": (0.1, 0.3)}), store, {})
    with pytest.raises(SettingsError, match=r"kappa 0\.2 there, 0\.1 now"):
        prepare(asked(settings={"kappa": (0.1, 0.3)}), store, {})


def test_a_finished_run_of_the_plan_is_accepted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = prepare(DIGITS, store, {})
    for run in first.plan:
        finish(store, run)
    assert prepare(DIGITS, store, {}) == first


def test_in_one_process_runs_have_the_same_jobs_and_each_counts_as_one_process(tmp_path: Path) -> None:
    store = Store(tmp_path)
    apart, together = (prepare(DIGITS, store, {}, in_one_process=one) for one in (False, True))
    assert (apart.processes, together.processes) == (6, 1)
    assert (apart.plan, apart.protocols) == (together.plan, together.protocols)
    for run in apart.plan:
        finish(store, run)
    assert prepare(DIGITS, store, {}, in_one_process=True) == together, "runs of the simulator are those of this plan"


def test_the_simulator_is_told_of_more_than_a_hundred_sites() -> None:
    many, few = (PlannedRun("run", name, "paper", "fedavg", "test", 0, {}) for name in ("mnist", "pacs"))
    assert tuple(kind_of("fedavg").command(many, 2, 101))[-2:] == ("-m", "101")
    assert "-m" not in kind_of("fedavg").command(few, 2, 100)


def test_only_federated_runs_have_a_program_of_their_own_in_one_process() -> None:
    federated, reference = (executing(method, in_one_process=True) for method in ("fedomg+ga", "erm"))
    assert federated.command(PlannedRun("run", "pacs", "paper", "fedomg+ga", "photo", 0, {}), 4, 4)[-3:] == (
        "job",
        "workspace",
        "4",
    )
    assert (
        find_spec(federated.command(PlannedRun("run", "pacs", "paper", "fedomg", "photo", 0, {}), 1, 4)[3]) is not None
    )
    assert reference is kind_of("erm")
    assert executing("fedavg", in_one_process=False) is kind_of("fedavg")


def test_another_version_of_a_package_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = prepare(DIGITS, store, {})
    assert first.warnings == ()
    store.write(SweepFile(**{**dict(first.content), "versions": {**first.content.versions, "torch": "1.0"}}))
    (warning,) = prepare(DIGITS, store, {}).warnings
    assert warning.startswith("the sweep was begun with torch 1.0 and goes on with ")


def test_a_sweep_does_not_go_on_with_another_pretrained_file(tmp_path: Path) -> None:
    one, copy, other = (tmp_path / name for name in ("one.pth", "copy.pth", "other.pth"))
    for file, content in ((one, b"weights"), (copy, b"weights"), (other, b"others")):
        file.write_bytes(content)
    store = Store(tmp_path / "sweep")
    store.write(prepare(DIGITS, store, {"FDG_PRETRAINED_FILE": str(one)}).content)
    assert prepare(DIGITS, store, {"FDG_PRETRAINED_FILE": str(copy)}).content == store.read()
    message = r"another pretrained file \(FDG_PRETRAINED_FILE\): expected a file of SHA-256 [0-9a-f]{16}, found "
    for environment, found in (
        ({"FDG_PRETRAINED_FILE": str(other)}, "a file of SHA-256 "),
        ({}, "none; name the same"),
    ):
        with pytest.raises(DataError, match=message + found):
            prepare(DIGITS, store, environment)
    with pytest.raises(DataError, match=r"lost.pth \(FDG_PRETRAINED_FILE\) cannot be read: No such file"):
        prepare(DIGITS, store, {"FDG_PRETRAINED_FILE": str(tmp_path / "lost.pth")})


def test_a_sweep_from_before_the_pretrained_file_was_kept_goes_on(tmp_path: Path) -> None:
    store, file = Store(tmp_path / "sweep"), tmp_path / "one.pth"
    file.write_bytes(b"weights")
    store.write(prepare(DIGITS, store, {}).content.model_copy(update={"pretrained": None}))
    assert prepare(DIGITS, store, {"FDG_PRETRAINED_FILE": str(file)}).content.pretrained


def test_the_first_difference_of_two_configs_is_named() -> None:
    one = {"a": 1, "workflows": [{"args": {"kappa": 0.5, "rounds": 3}}]}
    assert difference(one, json.loads(json.dumps(one))) == ""
    assert difference(one, {**one, "workflows": [{"args": {"kappa": 0.5, "rounds": 4}}]}) == "rounds 3 there, 4 now"
    assert difference(one, {"a": 1}) == "workflows [{'args': {'kappa': 0.5, 'rounds': 3}}] there, None now"
    assert difference([1], [1, 2]) == "config [1] there, [1, 2] now"


@pytest.mark.parametrize("spec", [PACS, ROTATED_DIGITS, ROTATED_MNIST, ROTATED_MNIST_7K], ids=lambda spec: spec.name)
@pytest.mark.parametrize("method", ["fedavg", "fedomg+ga+dim", "fediir"])
def test_quick_is_a_protocol_that_the_recipes_of_every_data_set_take(
    tmp_path: Path, spec: DatasetSpec, method: str
) -> None:
    quick = {k: v for k, v in protocol_settings("quick", spec.name).items() if k in settings_of(method)}
    run = PlannedRun("run", spec.name, "quick", method, spec.domains[0], 0, quick)
    FederatedRuns().write_job(run, DataFound(stand_in=False, images=dict.fromkeys(spec.domains, 300)), tmp_path)
    text = (tmp_path / "job" / "app_server" / "config" / "config_fed_server.json").read_text()
    protocol = json.loads(text)["workflows"][0]["args"]["protocol"]
    assert protocol["rounds"] * protocol["local_epochs"] <= 20
    assert protocol["max_samples_per_domain"] <= 600


@pytest.mark.parametrize(("channels", "dims", "size"), [(3, 2, 64), (1, 2, 64), (1, 3, 32)])
def test_quick_on_masks_is_small_and_keeps_optimizer_rate_and_batch(
    tmp_path: Path, channels: Any, dims: Any, size: int
) -> None:
    scans = OwnDataset(
        name="scans", domains=("a", "b", "c"), classes=("background", "lesion"), task="segmentation",
        channels=channels, dims=dims, preset="mri_patches",
    )  # fmt: skip
    quick = {k: v for k, v in protocol_settings("quick", scans).items() if k in settings_of("fedavg")}
    run = PlannedRun("run", scans, "quick", "fedavg", "a", 0, quick)
    protocol = (
        FederatedRuns()
        .write_job(run, DataFound(stand_in=False, images=dict.fromkeys(scans.domains, 300)), tmp_path)
        .protocol
    )
    assert (protocol.image_size, protocol.rounds * protocol.local_epochs) == (size, 10)
    assert (protocol.optimizer, protocol.learning_rate, protocol.batch_size) == ("adam", 1e-3, 4)


@pytest.mark.parametrize(("own", "quick"), [(48, 48), (192, 64)])
def test_quick_never_enlarges_images_with_masks(own: int, quick: int) -> None:
    DATASETS.add(replace(VESSELS, name="small_vessels", protocol={"image_size": own, "batch_size": 2}))
    assert protocol_settings("quick", "small_vessels")["image_size"] == quick
    assert "batch_size" not in protocol_settings("quick", "small_vessels")
    DATASETS.remove("small_vessels")


def test_paper_changes_nothing() -> None:
    assert protocol_settings("paper", "pacs") == {}
