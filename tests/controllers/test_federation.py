# SPDX-License-Identifier: Apache-2.0
"""The workflow from end to end in one process: real sites on small images, FLARE's handling of results between."""

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsData
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.app_event_type import AppEventType
from nvflare.fuel.utils.fobs import FOBSContextKey
from nvflare.widgets.info_collector import GroupInfoCollector, InfoCollector

from fdg_plugins import storage
from fdg_plugins.aggregators.base import MAX_IDLE_ROUNDS
from fdg_plugins.controllers import FederationController, RunRecord
from fdg_plugins.data import PACS
from fdg_plugins.data.stand_in import ensure_stand_in
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.messages import HEADER_REASON, HEADER_STOP, TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.run_files import LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.storage import load_tensors
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.values import counted
from fdg_plugins.versions import installed_versions
from tests.controllers.federation_stubs import Engine, Line, context_of
from tests.flare_runner import SiteWorkspace, run_task, site_context

PROTOCOL: dict[str, Any] = {
    "model": "convnet",
    "pretrained": "none",
    "target": "sketch",
    "image_size": 16,
    "rounds": 2,
    "local_epochs": 1,
    "learning_rate": 0.02,
}
Meddle = Callable[[str, str, int], Shareable | None]

pytestmark = pytest.mark.usefixtures("wire")


class Job:
    """A job of the four sites of PACS in one process; ``meddle(site, task, count)`` may answer in a site's stead."""

    def __init__(self, folder: Path, meddle: Meddle = lambda site, task, count: None, **arguments: Any) -> None:
        self.folder = folder
        self.meddle = meddle
        self.asked: list[tuple[str, str]] = []
        self.sites = {domain: SiteExecutor() for domain in PACS.domains}
        components = {"aggregator": FedOMGAggregator(server_lr=0.5), "other": object()}
        self.engine = Engine(folder, tuple(reversed(PACS.domains)), components)
        self.controller = FederationController(**{"protocol": PROTOCOL, "poll": 0.0001, **arguments})
        self.signal = Signal()
        self.deploy_map = {"app": ["@ALL"]}

    def run(self) -> None:
        self.controller.set_communicator(Line(self._answer))
        context = context_of(self.engine)
        context.set_prop(FLContextKey.JOB_META, {"deploy_map": self.deploy_map}, private=True, sticky=True)
        self.controller.start_controller(context)
        self.controller.control_flow(self.signal, context)

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        self.asked.append((task, site))
        reply = self.meddle(site, task, self.asked.count((task, site)))
        return reply or run_task(self.sites[site], task, request, self._context(site), self.signal)

    def _context(self, site: str) -> FLContext:
        folder = self.folder / "sites" / site
        folder.mkdir(parents=True, exist_ok=True)
        return site_context(site, SiteWorkspace(folder, local=folder))

    @property
    def panics(self) -> list[str]:
        return self.engine.data_of(EventType.FATAL_SYSTEM_ERROR)

    @property
    def tags(self) -> set[str]:
        """The tags of all numbers sent for TensorBoard."""
        events = self.engine.data_of(ANALYTIC_EVENT_TYPE)
        return {AnalyticsData.from_dxo(from_shareable(event)).tag for event in events}

    @property
    def record(self) -> RunRecord:
        return RunRecord.model_validate_json((self.folder / RESULTS_FILE).read_text())


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sites that name no data root, and a stand-in of three pictures per class."""
    cache = tmp_path_factory.getbasetemp() / "stand_in"
    monkeypatch.setenv("FDG_CACHE", str(cache))
    monkeypatch.setenv("FDG_DEVICE", "cpu")
    monkeypatch.setattr(
        "fdg_plugins.data.roots.ensure_stand_in", lambda *place: ensure_stand_in(*place, images_per_class=3)
    )


def away(*sites: str, task: str = TASK_TRAIN, rounds: tuple[int, ...] = (1, 2, 3, 4)) -> Meddle:
    """Return a meddler by whom these sites fail at a task, in these rounds."""

    def meddle(site: str, asked: str, count: int) -> Shareable | None:
        failed = site in sites and asked == task and count in rounds
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: "out of memory."}) if failed else None

    return meddle


# --- a whole run ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("images_at_sites")
def test_a_run_goes_from_the_census_to_a_finished_record_and_two_models(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    job = Job(tmp_path)
    job.run()
    record = job.record
    assert job.panics == []
    assert (record.status, record.stopped_because, record.stand_in) == ("finished", None, False)
    assert (record.sources, record.held_out) == (("art_painting", "cartoon", "photo"), ("sketch",))
    assert [finished.round for finished in record.rounds] == [1, 2]
    assert [evaluation.after_round for evaluation in record.evaluations] == [0, 1, 2]
    assert all(evaluation.sites["sketch"].count == 28 for evaluation in record.evaluations)
    assert all(evaluation.sites["photo"].count == 7 for evaluation in record.evaluations)
    assert record.method.settings["server_lr"] == 0.5
    assert record.initial_weights.label == "from scratch"
    models = [load_tensors(tmp_path / name) for name in (LAST_FILE, SELECTED_FILE)]
    assert models[0].keys() == models[1].keys()
    assert (TASK_TRAIN, "sketch") not in job.asked
    assert job.asked.count((TASK_CENSUS, "sketch")) == 1
    assert "Accuracy of the global model [from scratch]: PACS, convnet, 16 px, seed 0" in caplog.text
    assert [event for event, _ in job.engine.events].count(AppEventType.ROUND_STARTED) == 2
    assert {"accuracy/target", "gamma/photo", "round/seconds", "validation_loss/cartoon"} <= job.tags


@pytest.mark.usefixtures("images_at_sites")
def test_local_models_of_the_last_round_are_kept_on_demand_and_their_mean_is_the_step_of_fedavg(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        aggregator={"name": "fedavg", "weighting": "uniform", "server_lr": 1.0},
        protocol={**PROTOCOL, "keep_local_models": True},
    )
    job.run()
    files = sorted((tmp_path / LOCAL_FOLDER).iterdir())
    assert [file.stem for file in files] == ["art_painting", "cartoon", "photo"]
    local = [load_tensors(file) for file in files]
    for name, value in load_tensors(tmp_path / LAST_FILE).items():
        if value.is_floating_point():
            torch.testing.assert_close(value, torch.stack([model[name] for model in local]).mean(dim=0))


@pytest.mark.usefixtures("images_at_sites")
def test_two_runs_of_one_seed_give_the_same_bits_also_with_a_new_process_for_every_task(tmp_path: Path) -> None:
    models, evaluations = [], []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        job = Job(tmp_path / name)
        if name == "other":
            job.meddle = lambda site, task, count, job=job: job.sites.update({site: SiteExecutor()})  # type: ignore[misc]
        job.run()
        models.append(load_tensors(tmp_path / name / LAST_FILE))
        evaluations.append(job.record.evaluations)
    assert same_bits(models[0], models[1])
    assert evaluations[0] == evaluations[1]


class OffloadedJob(Job):
    """A job to whose server updates come as FLARE's disk offload hands them over."""

    def __init__(self, folder: Path, offload: Callable[[Any], Any], **arguments: Any) -> None:
        super().__init__(folder, **arguments)
        self.offload = offload

    def _answer(self, site: str, task: str, request: Shareable) -> Shareable | None:
        reply = super()._answer(site, task, request)
        if task != TASK_TRAIN or reply is None:
            return reply
        dxo = from_shareable(reply)
        dxo.data = self.offload(dxo.data)
        return dxo.update_shareable(reply)


OFFLOADED = {**PROTOCOL, "enable_tensor_disk_offload": True}


@pytest.mark.usefixtures("images_at_sites")
def test_updates_in_files_give_the_bits_of_those_in_memory_and_leave_no_file(
    tmp_path: Path, offload: Callable[[Any], Any], offload_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for name in ("files", "memory"):
        (tmp_path / name).mkdir()
    offloaded, plain = OffloadedJob(tmp_path / "files", offload, protocol=OFFLOADED), Job(tmp_path / "memory")
    offloaded.run()
    assert "updates are written to " in caplog.text
    assert "has no effect" not in caplog.text
    plain.run()
    models = [load_tensors(tmp_path / name / LAST_FILE) for name in ("files", "memory")]
    assert same_bits(models[0], models[1])
    assert offloaded.record.evaluations == plain.record.evaluations
    assert [finished.bytes_in_files for finished in plain.record.rounds] == [0, 0]
    assert [finished.bytes_in_files for finished in offloaded.record.rounds] == [
        finished.bytes_up for finished in plain.record.rounds
    ]
    assert list(offload_root.iterdir()) == []


@pytest.mark.usefixtures("images_at_sites")
def test_disk_offload_without_effect_is_said_once_and_its_folder_goes_with_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job = Job(tmp_path, protocol=OFFLOADED)
    job.run()
    assert job.record.status == "finished"
    assert caplog.text.count("enable_tensor_disk_offload has no effect: the updates came in memory") == 1
    assert not list(tmp_path.glob("nvflare_tensor_offload_*"))
    assert not job.engine.cell.context[FOBSContextKey.TENSOR_DISK_OFFLOAD]


@pytest.mark.usefixtures("no_data")
def test_without_data_the_run_uses_the_stand_in_its_own_settings_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    job = Job(tmp_path, stand_in_protocol={"rounds": 1, "server_lr": 1.0, "kappa": 0.25})
    job.run()
    record = job.record
    assert (record.status, record.stand_in, record.data) == ("finished", True, "STAND-IN for PACS")
    assert (record.protocol.rounds, record.method.settings["server_lr"], record.method.settings["kappa"]) == (
        1,
        1.0,
        0.25,
    )
    tables = [line for line in caplog.text.splitlines() if line.startswith("Accuracy of the global model")]
    assert len(tables) == 1
    assert tables[0].startswith("Accuracy of the global model [STAND-IN, from scratch]: STAND-IN for PACS")
    lines = [line for line in caplog.messages if "round 1/1" in line and "source val" in line]
    assert len(lines) == 1
    assert "STAND-IN, from scratch | round 1/1" in lines[0]
    assert "STAND-IN/accuracy/target" in job.tags
    assert all(tag.startswith("STAND-IN/") for tag in job.tags)


@pytest.mark.usefixtures("images_at_sites")
def test_the_environment_of_the_server_has_the_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_ROUNDS", "1")
    monkeypatch.setenv("FDG_SERVER_LR", "0.25")
    monkeypatch.setenv("FDG_TARGET", "photo")
    job = Job(tmp_path)
    job.run()
    assert len(job.record.rounds) == 1
    assert job.record.held_out == ("photo",)
    assert job.record.method.settings["server_lr"] == 0.25


@pytest.mark.usefixtures("images_at_sites")
def test_a_site_that_fails_in_one_round_is_recorded_with_its_reason_and_the_run_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path, away("photo", rounds=(1,)))
    job.run()
    first, second = job.record.rounds
    assert first.failures == {"photo": "out of memory."}
    assert (first.sites, second.sites) == (("art_painting", "cartoon"), ("art_painting", "cartoon", "photo"))
    assert job.record.evaluations[0].source_mean is None
    assert job.record.status == "finished"


# --- a run that stops -------------------------------------------------------------------------------


def test_a_site_that_cannot_take_part_stops_the_job_with_its_sentence_and_leaves_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FDG_DATA_ROOT", str(tmp_path / "nowhere"))
    job = Job(tmp_path)
    job.run()
    (told,) = job.panics
    number = re.fullmatch(r"site art_painting cannot take part: .* under ([0-9a-f]{8})\)\.", told)
    assert number is not None, told
    assert "nowhere" not in told
    named = f"data root {tmp_path / 'nowhere'} is not a folder; FDG_DATA_ROOT or fdg_site.json names it."
    assert f"{named} [{number[1]}]" in caplog.text, "the site's own log says all of it"
    assert not (tmp_path / RESULTS_FILE).exists()
    assert {task for task, _ in job.asked} == {TASK_CENSUS}


@pytest.mark.usefixtures("images_at_sites")
def test_sites_that_do_not_fit_stop_the_job(tmp_path: Path) -> None:
    job = Job(tmp_path, protocol={**PROTOCOL, "min_sites": 4})
    job.run()
    assert job.panics == ["min_sites is 4, but only 3 sites hold a source domain: art_painting, cartoon, photo."]


@pytest.mark.usefixtures("images_at_sites")
@pytest.mark.parametrize("named", [["ward_1", *PACS.domains, "ward_2"], [*PACS.domains]])
def test_a_site_that_the_job_names_and_that_is_not_connected_stops_the_job(tmp_path: Path, named: list[str]) -> None:
    """FLARE starts a job without it as soon as min_clients others are there."""
    job = Job(tmp_path)
    job.deploy_map = {"app_server": ["server"], "app_site": named}
    job.run()
    if named == [*PACS.domains]:
        assert job.panics == []
        return
    assert job.asked == []
    (told,) = job.panics
    assert told.startswith("site ward_1 of the job's deploy_map does not take part (2 in all): it was not connected")


@pytest.mark.parametrize("poll", [-1, 0, 1e-9, 61, 1e9, 1e30, "fast", None])
def test_a_poll_that_is_no_time_to_wait_stops_the_job_before_any_site_is_asked(tmp_path: Path, poll: Any) -> None:
    job = Job(tmp_path, poll=poll)
    assert not hasattr(job.controller.communicator, "_task_check_period"), "FLARE's monitor keeps its own"
    job.run()
    assert job.asked == []
    assert job.panics == [f"poll is {poll!r}, expected a number from 0.0001 to 60."]


@pytest.mark.usefixtures("images_at_sites")
def test_a_census_reply_that_cannot_be_read_stops_the_job_with_site_and_field(tmp_path: Path) -> None:
    def meddle(site: str, task: str, count: int) -> Shareable | None:
        if (site, task) != ("photo", TASK_CENSUS):
            return None
        return run_task(job.sites[site], TASK_EVALUATE, Shareable(), job._context(site), job.signal)

    job = Job(tmp_path, meddle)
    job.run()
    assert len(job.panics) == 1
    assert job.panics[0].startswith("site photo cannot take part: ")


@pytest.mark.usefixtures("images_at_sites")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"aggregator_id": "nobody"}, "aggregator_id 'nobody' names NoneType, expected an UpdateAggregator."),
        ({"aggregator_id": "other"}, "aggregator_id 'other' names object, expected an UpdateAggregator."),
        (
            {"protocol": {"round": 3}},
            "config of the job, protocol: there is no setting 'round'; did you mean 'rounds'?",
        ),
        ({"stand_in_protocol": {"rounds": 0}}, "setting rounds (FDG_ROUNDS) is 0: "),
    ],
)
def test_a_wrong_job_stops_before_any_site_is_asked(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    job = Job(tmp_path, **arguments)
    job.run()
    assert len(job.panics) == 1
    assert job.panics[0].startswith(text)
    assert job.asked == []


@pytest.mark.usefixtures("images_at_sites")
def test_rounds_that_lead_nowhere_stop_the_job_and_the_record_says_why(tmp_path: Path) -> None:
    job = Job(tmp_path, away("photo", "cartoon"), protocol={**PROTOCOL, "rounds": 9})
    job.run()
    reason = (
        "3 rounds in a row left the model as it was; the last because 1 usable updates came, fewer than min_sites 2; "
        "cartoon and 1 more: out of memory."
    )
    assert job.panics == [reason]
    assert len(job.record.rounds) == MAX_IDLE_ROUNDS
    assert (job.record.status, job.record.stopped_because) == ("stopped", reason)


@pytest.mark.usefixtures("images_at_sites")
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_short_run_that_never_changed_the_model_has_not_finished(tmp_path: Path, rounds: int) -> None:
    job = Job(tmp_path, away("photo", "cartoon"), protocol={**PROTOCOL, "rounds": rounds})
    job.run()
    assert job.panics[0].startswith(
        f"{counted(rounds, 'round')} in a row left the model as it was; the last because 1 "
    )
    assert job.record.status == "stopped"
    once = Job(tmp_path / "once", away("photo", "cartoon", rounds=(1,)), protocol={**PROTOCOL, "rounds": rounds + 1})
    once.run()
    assert (once.panics, once.record.status) == ([], "finished")


@pytest.mark.usefixtures("images_at_sites")
def test_idle_rounds_count_only_in_a_row(tmp_path: Path) -> None:
    job = Job(tmp_path, away("photo", "cartoon", rounds=(1, 2, 4)), protocol={**PROTOCOL, "rounds": 4})
    job.run()
    assert job.panics == []
    assert [finished.aggregation is None for finished in job.record.rounds] == [True, True, False, True]


@pytest.mark.usefixtures("images_at_sites")
def test_an_aborted_run_is_recorded_as_stopped_without_a_panic(tmp_path: Path) -> None:
    def meddle(site: str, task: str, count: int) -> Shareable | None:
        if (site, task, count) == ("cartoon", TASK_TRAIN, 2):
            job.signal.trigger(True)
        return None

    job = Job(tmp_path, meddle)
    job.run()
    assert job.panics == []
    assert job.record.status == "stopped"
    assert job.record.stopped_because is not None
    assert job.record.stopped_because.startswith("the job was aborted")
    assert len(job.record.rounds) == 1
    assert job.asked[-1] == (TASK_TRAIN, "cartoon")


@pytest.mark.usefixtures("images_at_sites")
def test_an_error_that_nobody_foresaw_is_recorded_and_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("fdg_plugins.controllers.federation.round_line", fail)
    job = Job(tmp_path)
    job.run()
    assert (job.record.status, job.record.stopped_because) == ("stopped", "RuntimeError: unforeseen")
    assert len(job.panics) == 1
    assert "unforeseen" in job.panics[0]


# --- constructor ------------------------------------------------------------------------------------


def test_the_constructor_only_stores_what_it_is_given() -> None:
    environment, generator = dict(os.environ), torch.get_rng_state()
    protocol, stand_in = {"rounds": 0, "nonsense": True}, {"rounds": 1}
    controller = FederationController("other", protocol, stand_in, poll=0.5)
    # FLARE exports a component's arguments from its attributes of the same names.
    given = {"aggregator_id": "other", "protocol": protocol, "stand_in_protocol": stand_in, "poll": 0.5}
    assert {name: getattr(controller, name) for name in given} == given
    assert dict(os.environ) == environment
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("name", ["protocol", "stand_in_protocol"])
@pytest.mark.parametrize("value", ["rounds=3", ["rounds"], 3])
def test_settings_that_are_no_object_end_the_job_before_any_site_is_asked(
    tmp_path: Path, name: str, value: Any
) -> None:
    job = Job(tmp_path, **{name: value})
    job.run()
    assert job.asked == []
    assert job.panics == [f"config of the job: {name} is {value!r}, expected an object of settings."]


@pytest.mark.parametrize(
    ("aggregator", "reason"),
    [
        ("foo", "aggregator is 'foo', expected one of fedavg, fedcsa, fedga, fednova, fedomg."),
        ({"name": "fedomg", "kappa": -0.5}, "kappa is -0.5, expected a finite number of at least 0."),
        ({"name": "fedomg", "weighting": "foo"}, "weighting is 'foo', expected one of arfl, as, ga, samples, uniform."),
        ({"name": "fedavg", "kappa": 1}, "aggregator 'fedavg' has no setting 'kappa'; it has weighting, server_lr."),
        ({"kappa": 1}, "aggregator is None, expected one of fedavg, fedcsa, fedga, fednova, fedomg."),
        (["fedavg"], "aggregator is ['fedavg'], expected a name or a mapping with a name."),
    ],
)
def test_a_wrong_aggregator_ends_the_job_in_one_sentence_before_any_site_is_asked(
    tmp_path: Path, aggregator: Any, reason: str
) -> None:
    job = Job(tmp_path, aggregator=aggregator)
    job.run()
    assert (job.asked, job.panics) == ([], [reason])


@pytest.mark.parametrize(
    ("objective", "reason"),
    [
        (
            "dom",
            "objective is 'dom', did you mean 'dim'?",
        ),
        ({"name": "dim", "strength": -1}, "strength is -1, expected a finite number of at least 0."),
    ],
)
def test_a_wrong_objective_ends_the_job_in_one_sentence_before_any_site_is_asked(
    tmp_path: Path, objective: Any, reason: str
) -> None:
    job = Job(tmp_path, protocol={**PROTOCOL, "objective": objective})
    job.run()
    assert (job.asked, job.panics) == ([], [reason])


# --- what a site decides ----------------------------------------------------------------------------


@pytest.mark.usefixtures("images_at_sites")
def test_a_site_that_takes_no_further_part_is_asked_no_more_and_the_others_go_on(tmp_path: Path) -> None:
    job = Job(tmp_path, leaving("photo"))
    job.run()
    assert job.panics == []
    assert [finished.drawn for finished in job.record.rounds] == [
        ("art_painting", "cartoon", "photo"),
        ("art_painting", "cartoon"),
    ]
    assert job.record.rounds[0].failures == {"photo": "its privacy budget is spent."}
    assert job.record.left_out == {"photo": "takes no further part: its privacy budget is spent."}
    assert "photo" not in job.record.evaluations[-1].sites
    assert job.record.status == "finished"


@pytest.mark.usefixtures("images_at_sites")
def test_when_the_held_out_site_takes_no_further_part_the_others_go_on_unjudged(tmp_path: Path) -> None:
    job = Job(tmp_path, leaving("sketch", task=TASK_EVALUATE))
    job.run()
    assert job.panics == []
    assert [finished.aggregation is not None for finished in job.record.rounds] == [True, True]
    assert [one.target for one in job.record.evaluations] == [None, None, None]
    assert job.record.status == "finished"


@pytest.mark.usefixtures("images_at_sites")
def test_the_job_ends_when_too_few_sites_take_further_part(tmp_path: Path) -> None:
    job = Job(tmp_path, leaving("photo", "cartoon"))
    job.run()
    assert len(job.panics) == 1
    assert job.panics[0].startswith("1 sites are left to train, fewer than min_sites 2: cartoon takes no further part")
    assert len(job.record.rounds) == 1
    assert job.record.status == "stopped"


def leaving(*sites: str, task: str = TASK_TRAIN) -> Callable[[str, str, int], Shareable | None]:
    """Return the script of sites that answer their first training, or other ``task``, with the wish to leave."""

    def meddle(site: str, asked: str, count: int) -> Shareable | None:
        if site not in sites or asked != task:
            return None
        headers = {HEADER_REASON: f"site {site}: its privacy budget is spent.", HEADER_STOP: True}
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, headers)

    return meddle


@pytest.mark.usefixtures("images_at_sites")
@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ({"aggregator": "fedga"}, "'gap' (allowed_reports), which the weighting needs."),
        (
            {"protocol": {**PROTOCOL, "objective": "dim"}},
            "'class_means' (allowed_reports), which objective 'dim' needs.",
        ),
        (
            {"protocol": {**PROTOCOL, "objective": "iir"}},
            "'classifier_gradient' (allowed_reports), which objective 'iir' needs.",
        ),
        (
            {"protocol": {**PROTOCOL, "keep_local_models": True}},
            "'local_model' (allowed_reports), which keep_local_models needs.",
        ),
        (
            {"protocol": {**PROTOCOL, "gap_split": "train"}},
            "'training_loss' (allowed_reports), which gap_split 'train' needs.",
        ),
    ],
)
def test_a_method_that_needs_a_report_that_a_site_forbids_fails_at_the_census(
    tmp_path: Path, arguments: dict[str, Any], needed: str
) -> None:
    job = Job(tmp_path, **arguments)
    folder = tmp_path / "sites" / "cartoon"
    folder.mkdir(parents=True)
    (folder / "fdg_site.json").write_text('{"cartoon": {"allowed_reports": []}}')
    job.run()
    assert job.panics == [f"site cartoon forbids the report {needed}"]
    assert {task for task, _ in job.asked} == {TASK_CENSUS}


@pytest.mark.usefixtures("images_at_sites")
def test_sites_of_another_version_than_the_server_fail_at_the_census(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_server(packages: Iterable[str]) -> dict[str, str]:
        return {**installed_versions(packages), "fdg-plugins": "0.0.1"}

    monkeypatch.setattr("fdg_plugins.controllers.federation.installed_versions", of_server)
    job = Job(tmp_path)
    job.run()
    (panic,) = job.panics
    assert panic.endswith(", but the server runs 0.0.1: one job needs one version everywhere.")
    assert {task for task, _ in job.asked} == {TASK_CENSUS}


@pytest.mark.usefixtures("images_at_sites")
def test_a_full_disk_at_the_server_ends_the_job_in_one_sentence_and_the_last_files_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path)
    make, made = storage._make_folder, 0

    def full(path: Path, private: bool) -> None:
        nonlocal made
        at_server = "sites" not in path.parts
        made += at_server
        if at_server and made > 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        make(path, private)

    monkeypatch.setattr(storage, "_make_folder", full)
    job.run()
    assert len(job.panics) == 1
    assert job.panics[0].endswith("cannot be written: No space left on device.")
    assert load_tensors(tmp_path / LAST_FILE)
    assert job.record.status == "running"


@pytest.mark.usefixtures("images_at_sites")
def test_flares_stats_tell_where_the_run_stands(tmp_path: Path) -> None:
    job, seen = Job(tmp_path), []

    def look(site: str, task: str, count: int) -> None:
        context, collector = context_of(job.engine), GroupInfoCollector()
        context.set_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR, collector, private=True, sticky=False)
        job.controller.handle_event(InfoCollector.EVENT_TYPE_GET_STATS, context)
        seen.append((task, collector.info["FederationController"]))

    job.meddle = look
    job.run()
    assert seen[0] == (TASK_CENSUS, {"phase": "census"})
    task, stats = seen[-1]
    assert task == TASK_EVALUATE
    assert (stats["phase"], stats["current_round"], stats["num_rounds"]) == ("running", 2, 2)
    assert 0 <= stats["source_validation_accuracy"] <= 1
