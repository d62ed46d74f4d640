# SPDX-License-Identifier: Apache-2.0
"""Differential privacy at a site: what leaves, what it costs, and what is refused; nothing passes by accident."""

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.exclude_vars import ExcludeVars

from fdg_plugins.core.accounting import gaussian_epsilon as epsilon
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters import DifferentialPrivacyFilter, GapReportFilter
from fdg_plugins.filters.wire import pack
from fdg_plugins.messages import (
    HEADER_REASON,
    HEADER_RUN,
    HEADER_STOP,
    META_GAP,
    META_REPORT,
    META_SAMPLES,
    META_SITE_REPORT,
)
from fdg_plugins.privacy.ledger import Ledger, Release
from tests.controllers.federation_stubs import census_reply, evaluation, train_report
from tests.flare_runner import site_context as site_context_of

SITE = "photo"
CANARY = 0.123456789  # a value measured on images: must not be found in anything that leaves
GENEROUS = {"clip_norm": 1.0, "noise_multiplier": 2.0, "max_epsilon": 1e6}


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The folder of the site's own configs, in its workspace."""
    folder = tmp_path / "local"
    folder.mkdir()
    return folder


MakeContext = Callable[..., FLContext]


@pytest.fixture
def context(local: Path) -> MakeContext:
    """A maker of a site's contexts, as far as the filter looks into them."""
    return partial(site_context, local)


def site_context(
    local: Path, *job_filters: Filter, task: str = "train", job: str = "job-1", scope: tuple[Filter, ...] = ()
) -> FLContext:
    return site_context_of(SITE, local.parent, job, scope, task, job_filters)


def update() -> dict[str, Any]:
    """Return an update of four trainable values, a BatchNorm's buffers, and its counter of steps."""
    return {
        "conv.weight": torch.tensor([[3.0, 0.0], [0.0, 4.0]]),
        "bn.running_mean": torch.tensor([CANARY, 12.0], dtype=torch.float64),
        "bn.num_batches_tracked": torch.tensor(17),
    }


def report() -> dict[str, Any]:
    score = evaluation(0.5, loss=CANARY)
    measured: dict[str, Any] = {
        "received": score,
        "local": score,
        "training_split": (score, score),
        "epoch_losses": (CANARY,),
    }
    return train_report(**measured).model_dump()


def answer(data: dict[str, Any] | None = None, round_number: int = 0, meta: dict[str, Any] | None = None) -> Shareable:
    """Return a site's answer to ``train``, as the executor makes it; ``meta``: what it has besides, or instead."""
    meta = {META_SAMPLES: 120, MetaKey.INITIAL_METRICS: {"val_accuracy": CANARY}, META_REPORT: report(), **(meta or {})}
    shareable = DXO(DataKind.WEIGHT_DIFF, data=update() if data is None else data, meta=meta).to_shareable()
    shareable.set_header(AppConstants.CURRENT_ROUND, round_number)
    shareable.set_header(HEADER_RUN, "job-1")
    return shareable


def silent(**limits: Any) -> DifferentialPrivacyFilter:
    """Return the filter without noise, to see what it does beside it."""
    made = DifferentialPrivacyFilter(**{**GENEROUS, **limits})
    made._noise = lambda count: torch.zeros(count, dtype=torch.float64)
    return made


def releases(local: Path) -> tuple[Release, ...]:
    return Ledger(local / "fdg_privacy" / "ledger.json", SITE).read().releases


def assert_refused(reply: Shareable, pattern: str) -> None:
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert re.search(pattern, reply.get_header(HEADER_REASON)), reply.get_header(HEADER_REASON)
    assert set(reply) == {"__headers__"}, "an error reply holds nothing but its headers"
    assert reply["__headers__"].keys() <= {"__rc__", HEADER_REASON, HEADER_STOP}


def test_what_was_measured_on_images_is_withheld_and_the_rest_of_the_report_stays(context: MakeContext) -> None:
    dp = silent()
    out = from_shareable(dp.process(answer(), context(dp)))
    assert out.meta.keys() == {META_SAMPLES, META_REPORT}
    withheld = dict.fromkeys(("received", "local", "training_split", "personal", "epoch_losses"))
    assert out.meta[META_REPORT] == {**report(), **withheld}


def test_an_error_reply_passes_with_its_code_and_without_its_reason(context: MakeContext) -> None:
    dp = silent()
    secret = make_reply(ReturnCode.TASK_ABORTED, {HEADER_REASON: f"the loss was {CANARY}", "more": CANARY})
    reply = dp.process(secret, context(dp))
    assert reply.get_return_code() == ReturnCode.TASK_ABORTED
    assert str(CANARY) not in str(dict(reply))
    assert reply.get_header(HEADER_STOP) is None
    forged = dp.process(make_reply(str(CANARY), {HEADER_STOP: CANARY}), context(dp))
    assert (forged.get_header(HEADER_STOP), forged.get_return_code()) == (None, ReturnCode.EXECUTION_EXCEPTION)


def test_the_census_passes_without_the_names_of_files(context: MakeContext) -> None:
    dp, reply = silent(), census_reply("photo", skipped=("dog/anna_smith.jpg",)).model_dump(mode="json")
    out = dp.process(DXO(DataKind.METRICS, data=reply).to_shareable(), context(dp, task="census"))
    assert from_shareable(out).data == {**reply, "skipped": []}
    for more in (
        DXO(DataKind.METRICS, data={**reply, "mean_image": [CANARY]}),
        DXO(DataKind.METRICS, data=reply, meta={"mean_image": [CANARY]}),
    ):
        assert_refused(
            dp.process(more.to_shareable(), context(dp, task="census")), "its census is |failed with ValidationError"
        )


def with_header(name: str, value: Any) -> Shareable:
    made = answer()
    made.set_header(name, value)
    return made


REFUSED: list[tuple[Shareable, str]] = [
    (DXO(DataKind.METRICS, data={"loss": CANARY}).to_shareable(), "METRICS.*expected an update"),
    (DXO(DataKind.WEIGHTS, data=update()).to_shareable(), "expected an update"),
    (pack(from_shareable(answer()), {"class_means": torch.ones(2)}, 0, answer()), "COLLECTION"),
    (answer(meta={META_SITE_REPORT: {"m": torch.ones(2)}}), "meta holds 'fdg_site_report'"),
    (answer(meta={META_GAP: CANARY}), "meta holds 'fdg_gap'"),
    (answer(meta={"fdg_new": CANARY}), "meta holds 'fdg_new', which differential"),
    (answer(meta={META_SAMPLES: CANARY}), "number of samples"),
    (answer(meta={META_REPORT: {**report(), "steps": -CANARY}}), "failed with ValidationError"),
    (Shareable(), "it is not a DXO"),
    (answer({}), "no floating-point values"),
    (answer({"w": torch.tensor([CANARY, math.nan])}), "'w' has values that are NaN or beyond"),
    (answer({"w": torch.tensor([1e200], dtype=torch.float64)}), "beyond 1e\\+140"),
    (answer({"w": torch.ones(2), "seen": torch.tensor([4, 2])}), "'seen' is of torch.int64"),
    (answer({"w": torch.ones(2), "num_batches_tracked": torch.tensor([True])}), "of torch.bool"),
    (answer({"w": torch.ones(2, dtype=torch.complex64)}), "of torch.complex64"),
    (answer({"w": torch.ones(2, 2).to_sparse()}), "expected a dense tensor"),
    (answer({"w": np.array([CANARY], dtype=object)}), "ndarray, expected a dense tensor"),
    (answer({"w": [CANARY]}), "'w' is a list"),
    (answer({CANARY: torch.ones(2)}), "name is a float"),  # type: ignore[dict-item]
    (Shareable({**answer(), "notes": CANARY}), "'notes' beside its content"),
    (with_header("fdg_notes", CANARY), "header 'fdg_notes'"),
    (answer(round_number=CANARY), "failed with ValidationError"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("came", "pattern"), REFUSED, ids=[case[1] for case in REFUSED])
def test_unknown_content_is_not_quoted(came: Shareable, pattern: str, context: MakeContext, local: Path) -> None:
    dp = silent()
    reply = dp.process(came, context(dp))
    assert_refused(reply, pattern)
    assert str(CANARY) not in str(dict(reply))
    assert SITE in reply.get_header(HEADER_REASON)
    assert releases(local) == (), "what does not leave costs nothing"


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.just(torch.ones(2))
    | st.just(np.ones(2)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
kinds = st.sampled_from(list(DataKind)) | st.text(max_size=5)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dxo=st.dictionaries(st.sampled_from(["kind", "data", "meta", "x"]), junk | kinds, max_size=4) | junk,
    headers=st.dictionaries(st.sampled_from(["__content_type__", "__rc__", "current_round", "x"]), junk, max_size=2),
    extra=st.dictionaries(st.text(max_size=5), junk, max_size=1),
    is_dxo=st.booleans(),
)
def test_whatever_comes_an_error_or_a_noised_update_leaves_and_nothing_else(
    dxo: Any, headers: dict[str, Any], extra: dict[str, Any], is_dxo: bool, local: Path
) -> None:
    dp = DifferentialPrivacyFilter(**GENEROUS)
    came = Shareable()
    came.update({**extra, "DXO": dxo})
    came["__headers__"] = {"__content_type__": "DXO", **headers} if is_dxo else headers
    reply = dp.process(came, site_context(local, dp))
    assert type(reply) is Shareable
    if reply.get_return_code() == ReturnCode.OK:
        out = from_shareable(reply)
        assert out.data_kind == DataKind.WEIGHT_DIFF
        assert out.meta.keys() <= {META_SAMPLES, META_REPORT}
        assert reply["__headers__"].keys() == {"__content_type__", "current_round"}
        for name, value in out.data.items():
            assert not torch.equal(torch.as_tensor(value), torch.as_tensor(dxo["data"][name]))
    else:
        assert set(reply) == {"__headers__"}


def test_a_filter_behind_it_that_could_add_what_it_does_not_see_is_refused(context: MakeContext) -> None:
    dp = silent()
    reply = dp.process(answer(), context(GapReportFilter(), scope=(dp,)))
    assert_refused(reply, r"fdg_plugins\.filters\.gap\.GapReportFilter comes after it")
    assert_refused(dp.process(answer(), context()), "does not say which filters")
    for fine in (context(dp), context(dp, ExcludeVars("conv")), context(ExcludeVars("conv"), dp)):
        assert dp.process(answer(), fine).get_return_code() == ReturnCode.OK


@pytest.mark.parametrize("name", ["mean_image", "__mean_image"])
def test_public_property_of_the_context_is_refused(context: MakeContext, name: str) -> None:
    dp = silent()
    fl_ctx = context(dp)
    fl_ctx.set_prop("__fqsn__", "photo", private=False, sticky=False)
    assert dp.process(answer(), fl_ctx).get_return_code() == ReturnCode.OK
    fl_ctx.set_prop(name, CANARY, private=False, sticky=False)
    assert_refused(dp.process(answer(), fl_ctx), f"public property '{name}'")


def test_at_the_ceiling_nothing_leaves_and_the_job_is_asked_to_stop(context: MakeContext, local: Path) -> None:
    ceiling = epsilon([2.0] * 3, 1e-5)
    dp = silent(max_epsilon=ceiling)
    for number in range(3):
        assert dp.process(answer(round_number=number), context(dp)).get_return_code() == ReturnCode.OK
    # A new object in a new job: the ledger outlives both.
    other = silent(max_epsilon=ceiling)
    reply = other.process(answer(round_number=3), context(other, job="job-2"))
    assert_refused(
        reply, rf"site photo: its privacy budget is spent: epsilon is {ceiling:.4g} .* ceiling is {ceiling:g}"
    )
    assert reply.get_header(HEADER_STOP) is True
    assert [(one.job, one.round) for one in releases(local)] == [("job-1", n) for n in range(3)]
    assert HEADER_STOP not in other.process(answer(meta={"fdg_new": 1}), context(other))["__headers__"]


def test_crash_costs_budget_and_releases_nothing(context: MakeContext, local: Path) -> None:
    dp = silent()

    def crash(count: int) -> torch.Tensor:
        assert len(releases(local)) == 1, "the entry is on disk before there is any noise"
        raise MemoryError

    dp._noise = crash
    assert_refused(dp.process(answer(), context(dp)), "failed with MemoryError")
    assert len(releases(local)) == 1


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("fdg_privacy", "a file where the folder should be", "privacy ledger .*ledger.json cannot be locked"),
        ("fdg_privacy.json", "{", "privacy policy .*fdg_privacy.json: .*not valid JSON"),
        ("fdg_privacy.json", "[]", "privacy policy .*fdg_privacy.json: .*valid dictionary"),
        ("fdg_privacy.json", '{"max_epsilon": NaN}', "max_epsilon is nan"),
        ("fdg_privacy.json", '{"max_epsilom": 4}', "unknown field 'max_epsilom'"),
    ],
)
def test_a_broken_policy_or_ledger_is_named_in_the_log_and_nothing_leaves(
    file: str, content: str, named: str, context: MakeContext, local: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (local / file).write_text(content)
    dp = silent()
    told = re.escape("details in the site's own log under ") + "([0-9a-f]{8})"
    reply = dp.process(answer(), context(dp))
    assert_refused(reply, told)
    (number,) = re.findall(told, reply.get_header(HEADER_REASON))
    assert "/" not in reply.get_header(HEADER_REASON)
    assert re.search(rf"site photo: .*{named}.*\[{number}\]", caplog.text), caplog.text


def test_of_the_sites_policy_and_the_jobs_arguments_the_stricter_counts(context: MakeContext, local: Path) -> None:
    policy = {"clip_norm": 6.5, "noise_multiplier": 3, "max_epsilon": 5.0, "delta": 1e-6}
    (local / "fdg_privacy.json").write_text(json.dumps(policy))
    loose = silent(clip_norm=100.0, noise_multiplier=0.1, max_epsilon=1e9, delta=0.5)
    out = from_shareable(loose.process(answer(), context(loose)))
    assert out.data["conv.weight"].tolist() == [pytest.approx([1.5, 0], rel=1e-3), pytest.approx([0, 2.0], rel=1e-3)]
    assert releases(local)[0].noise_multiplier == 3
    while (reply := loose.process(answer(), context(loose))).get_return_code() == ReturnCode.OK:
        pass
    assert_refused(reply, "at delta 1e-06.*the ceiling is 5")


@pytest.mark.parametrize("name", ["clip_norm", "noise_multiplier", "max_epsilon", "delta"])
def test_an_argument_out_of_range_is_refused_on_construction(name: str) -> None:
    wrong: list[Any] = [0, math.nan, math.inf, "1", None]
    for value in wrong:
        with pytest.raises(SettingsError) as caught:
            DifferentialPrivacyFilter(**{**GENEROUS, name: value})
        assert str(caught.value).startswith(f"differential privacy: {name} is ")
