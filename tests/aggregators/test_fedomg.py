# SPDX-License-Identifier: Apache-2.0
"""FedOMG at the server: the direction of the matching problem, what it matches, and what it reports."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.aggregators import RunFacts, UpdateAggregator, base, take_step
from fdg_plugins.core import gram_matrix
from fdg_plugins.errors import SettingsError
from fdg_plugins.messages import META_REPORT, META_SAMPLES, META_SITE
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.methods.fedomg import FedOMGAggregator
from fdg_plugins.record.run_record import AggregationRecord

Params = dict[str, Any]
SAMPLES = {"art": 3, "photo": 4, "sketch": 5, "cartoon": 6}


def contribution(site: str, params: Params) -> FLModel:
    return FLModel(params_type=ParamsType.DIFF, params=params, meta={META_SITE: site, META_SAMPLES: SAMPLES[site]})


def step(aggregator: UpdateAggregator, updates: Sequence[Params]) -> FLModel:
    for site, update in zip(SAMPLES, updates, strict=False):
        aggregator.accept_model(contribution(site, update))
    return take_step(aggregator)


def vectors(*values: Sequence[float]) -> list[Params]:
    return [{"w": np.asarray(value, np.float64)} for value in values]


def best_of_a_grid(first: np.ndarray, second: np.ndarray, p: np.ndarray, kappa: float) -> np.ndarray:
    """Eq. 15 and 16 for two sites in plain numpy: gamma from a million points of the segment."""
    mean = p[0] * first + p[1] * second
    share = np.linspace(0, 1, 1_000_001)
    products = [[a @ b for b in (first, second, mean)] for a in (first, second)]
    lengths = np.sqrt(
        share**2 * products[0][0] + 2 * share * (1 - share) * products[0][1] + (1 - share) ** 2 * products[1][1]
    )
    values = share * products[0][2] + (1 - share) * products[1][2] + kappa * np.linalg.norm(mean) * lengths
    best = share[values.argmin()]
    matched = best * first + (1 - best) * second
    return mean + kappa * np.linalg.norm(mean) / np.linalg.norm(matched) * matched


def test_two_sites_by_hand() -> None:
    # See tests/core/test_matching.py: (7, 0) and (0, 7) with p = (3, 4) / 7 and kappa = 1 have gamma = (4, 3) / 7,
    # d = p + gamma = (1, 1) times the updates = (7, 7) of length 7 sqrt(2), and F = 49. The mean (3, 4) has length 5.
    result = step(FedOMGAggregator(kappa=1.0, server_lr=1.0, weighting="samples"), vectors([7, 0], [0, 7]))
    np.testing.assert_allclose(result.params["w"], [7.0, 7.0], atol=1e-5)
    report = result.meta[META_REPORT]
    assert report["sites"] == ["art", "photo"]
    assert report["weights"] == pytest.approx([3 / 7, 4 / 7])
    assert report["gamma"] == pytest.approx([4 / 7, 3 / 7], abs=1e-6)
    assert report["coefficients"] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert report["objective"] == pytest.approx(49.0)
    assert 0 <= report["duality_gap"] <= 1e-9
    assert report["update_norms"] == pytest.approx([7.0, 7.0])
    assert report["mean_norm"] == pytest.approx(5.0)
    assert report["direction_norm"] == pytest.approx(7 * 2**0.5, rel=1e-5)
    assert report["cosines_with_mean"] == pytest.approx([3 / 5, 4 / 5])
    assert report["cosines_with_direction"] == pytest.approx([0.5**0.5, 0.5**0.5], rel=1e-5)


def test_the_step_of_two_sites_is_that_of_a_search_in_numpy() -> None:
    for weighting in ["uniform", "samples"]:
        for kappa in [0.1, 0.5, 1.0, 2.0]:
            for seed in [0, 1, 2]:
                first, second = np.random.default_rng(seed).normal(size=(2, 20)) + 0.5
                result = step(FedOMGAggregator(kappa=kappa, server_lr=0.3, weighting=weighting), vectors(first, second))
                p = np.array([3, 4]) / 7 if weighting == "samples" else np.array([0.5, 0.5])
                np.testing.assert_allclose(result.params["w"], 0.3 * best_of_a_grid(first, second, p, kappa), atol=1e-4)


@pytest.mark.parametrize(("idle_below", "jumps"), [(0.0, False), (1e-3, True)])
def test_damping_makes_the_step_continuous_where_every_update_is_matched(idle_below: float, jumps: bool) -> None:
    steps = [
        step(
            FedOMGAggregator(server_lr=1.0, damping="released", idle_below=idle_below),
            vectors([1, 0, 0], [0.8, 0.6, 0], [0, 0, length]),
        ).params["w"]
        for length in (0.999e-3, 1.001e-3)
    ]
    assert bool(np.abs(steps[1] - steps[0]).max() > 0.01) is jumps


def test_with_damping_updates_cancel_only_where_the_mean_opposes_nobody() -> None:
    one_sided, even = ([2, 0, 0], [-1, 0, 0], [0.5, 1, 0]), ([1, 0, 0], [-1, 0, 0], [0, 1, 0])
    for updates, cancels in ((one_sided, False), (even, True)):
        steps = [
            step(FedOMGAggregator(server_lr=1.0, kappa=2.0, damping=0.01, cancelled=rule), vectors(*updates))
            for rule in ("mean", "least_conflict")
        ]
        assert [one.meta[META_REPORT]["cancelled"] for one in steps] == [cancels, cancels]
        np.testing.assert_allclose(steps[0].params["w"], steps[1].params["w"], rtol=0, atol=1e-6)


def test_rescaling_divides_the_step_by_one_plus_kappa_squared() -> None:
    updates = vectors([1.0, 2.0], [3.0, -1.0], [0.5, 0.5])
    plain, rescaled = (step(FedOMGAggregator(kappa=0.5, rescale=rescale), updates) for rescale in (False, True))
    np.testing.assert_allclose(rescaled.params["w"] * 1.25, plain.params["w"], rtol=1e-12)


def test_buffers_take_no_part_in_the_matching(make_update: Callable[..., Params]) -> None:
    updates = [make_update(seed) for seed in range(3)]
    shifted = [
        {name: value + 100 * seed if "running" in name or "num" in name else value for name, value in update.items()}
        for seed, update in enumerate(updates)
    ]
    plain, other = step(FedOMGAggregator(), updates), step(FedOMGAggregator(), shifted)
    assert plain.meta[META_REPORT] == other.meta[META_REPORT]
    assert np.array_equal(plain.params["conv.weight"], other.params["conv.weight"])
    assert not np.array_equal(plain.params["bn.running_mean"], other.params["bn.running_mean"])


def test_inner_products_are_computed_once_when_all_updates_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def counting(rows: Sequence[Params]) -> torch.Tensor:
        counted.append(len(rows))
        return gram_matrix(rows)

    monkeypatch.setattr(base, "gram_matrix", counting)
    aggregator = FedOMGAggregator()
    for site, update in zip(SAMPLES, vectors([1.0, 2.0], [3.0, -1.0], [0.5, 0.5]), strict=False):
        aggregator.accept_model(contribution(site, update))
    assert counted == []
    aggregator.aggregate_model()
    assert counted == [3]


def test_four_sites_report_a_gamma_on_the_simplex_and_a_certificate(make_update: Callable[..., Params]) -> None:
    report = step(FedOMGAggregator(), [make_update(seed) for seed in range(4)]).meta[META_REPORT]
    assert report["sites"] == sorted(SAMPLES)
    assert len(report["gamma"]) == 4
    assert min(report["gamma"]) >= 0
    assert sum(report["gamma"]) == pytest.approx(1.0)
    assert 0 <= report["duality_gap"] <= 1e-6
    assert all(abs(cosine) <= 1 for key in report if key.startswith("cosines") for cosine in report[key])


# --- settings ---


def test_settings_that_cannot_be_are_refused_by_name() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kappa": "-1"}, r"kappa is -1\.0, expected a finite number of at least 0\.0"),
        ({"kappa": "half"}, "kappa is 'half', expected a number"),
        ({"rescale": "maybe"}, "rescale is 'maybe', expected true or false"),
        ({"rescale": 2}, "rescale is 2, expected true or false"),
        ({"radius": "1"}, r"FedOMGAggregator has no setting 'radius'; it has kappa, "),
    ]
    for settings, message in cases:
        with pytest.raises(SettingsError, match=message):
            FedOMGAggregator().configure(settings)


def test_a_site_that_hardly_moves_is_named_and_not_matched(caplog: pytest.LogCaptureFixture) -> None:
    updates = vectors([3, 1], [1, 3], [1e-4, -1e-4])
    with caplog.at_level("INFO"):
        found = step(FedOMGAggregator(server_lr=1.0), updates)
    report = found.meta[META_REPORT]
    assert (report["idle"], report["gamma"][report["sites"].index("sketch")]) == (("sketch",), 0)
    assert AggregationRecord.from_report(report).idle == ("sketch",)
    assert "not matched, since their updates are below idle_below 0.001: sketch" in caplog.text
    matched = step(FedOMGAggregator(server_lr=1.0, idle_below=0.0), updates)
    assert matched.meta[META_REPORT]["gamma"] == pytest.approx([0, 0, 1], abs=1e-6)
    assert np.linalg.norm(found.params["w"]) > np.linalg.norm(matched.params["w"])


@pytest.mark.parametrize("named", ["released", 1e-4, "0.0001"])
def test_the_damping_of_the_authors_code_has_a_name(named: str | float) -> None:
    aggregator = FedOMGAggregator(server_lr=1.0)
    aggregator.configure({"damping": named})
    found = step(aggregator, vectors([3, 1], [1, 3], [-1, 1])).params["w"]
    np.testing.assert_array_equal(
        found, step(FedOMGAggregator(server_lr=1.0, damping=1e-4), vectors([3, 1], [1, 3], [-1, 1])).params["w"]
    )
    assert not np.array_equal(
        found, step(FedOMGAggregator(server_lr=1.0), vectors([3, 1], [1, 3], [-1, 1])).params["w"]
    )


def test_updates_that_cancel_step_along_the_mean_or_against_nobody() -> None:
    updates = vectors([2, 0, 0], [-1, 0, 0], [0.5, 1, 0])
    mean = step(FedOMGAggregator(server_lr=1.0, kappa=2.0), updates)
    assert mean.meta[META_REPORT]["cancelled"] is True
    np.testing.assert_allclose(mean.params["w"], [0.5, 1 / 3, 0], atol=1e-6)
    nobody = step(FedOMGAggregator(server_lr=1.0, kappa=2.0, cancelled="least_conflict"), updates)
    np.testing.assert_allclose(nobody.params["w"], [0, 1 / 3, 0], atol=1e-6)
    for aggregator in (FedOMGAggregator(server_lr=1.0, kappa=0.0, cancelled="least_conflict"), FedAvgAggregator()):
        aggregator.configure({"weighting": "uniform"})
        np.testing.assert_allclose(step(aggregator, updates).params["w"], [0.5, 1 / 3, 0], atol=1e-6)


def test_rescaling_divides_the_step_of_updates_that_cancel_too() -> None:
    for cancelled in ["mean", "least_conflict"]:
        for grouping in ["none", "domain"]:
            updates = vectors([2, 0, 0], [-1, 0, 0], [0.5, 1, 0], [0.5, 1, 0])
            plain, rescaled = (
                FedOMGAggregator(server_lr=1.0, kappa=2.0, cancelled=cancelled, grouping=grouping, rescale=rescale)
                for rescale in (False, True)
            )
            steps = []
            for aggregator in (plain, rescaled):
                aggregator.begin_run(RunFacts(domains=dict(zip(SAMPLES, "abcc", strict=True))))
                result = step(aggregator, updates)
                assert result.meta[META_REPORT]["cancelled"]
                steps.append(result.params["w"])
            assert np.linalg.norm(steps[0]) > 0.1
            np.testing.assert_allclose(steps[1] * 5, steps[0], rtol=1e-9, atol=1e-12)


DOMAINS = dict(zip(SAMPLES, ("a", "a", "b", "b"), strict=True))


def grouped(domains: dict[str, str], **chosen: Any) -> FedOMGAggregator:
    aggregator = FedOMGAggregator(grouping="domain", server_lr=1.0, **chosen)
    aggregator.begin_run(RunFacts(domains=domains))
    return aggregator


@pytest.mark.parametrize("cancelled", ["mean", "least_conflict"])
def test_with_one_site_per_domain_grouping_by_domain_is_no_grouping(
    make_update: Callable[..., Params], cancelled: str
) -> None:
    updates = [make_update(seed) for seed in range(4)]
    by_domain = step(grouped({site: site for site in SAMPLES}, cancelled=cancelled), updates)
    flat = step(FedOMGAggregator(server_lr=1.0, cancelled=cancelled), updates)
    assert all(np.array_equal(by_domain.params[name], flat.params[name]) for name in updates[0])
    assert by_domain.meta[META_REPORT].pop("grouping_loss") == 0.0
    assert by_domain.meta[META_REPORT] == flat.meta[META_REPORT]


def test_grouped_by_domain_the_means_are_matched_and_the_report_says_what_that_loses() -> None:
    # Domain a has (2, 0) and (0, 0), of mean (1, 0); domain b twice (0, 1). Their match is halfway, of which each site
    # has half; p is uniform. d = mean (0.5, 0.5), plus kappa times it. All four sites would give gamma to the zero.
    result = step(grouped(DOMAINS, kappa=1.0, idle_below=0.0), vectors([2, 0], [0, 0], [0, 1], [0, 1]))
    np.testing.assert_allclose(result.params["w"], [1.0, 1.0], rtol=1e-9)
    report = result.meta[META_REPORT]
    assert report["gamma"] == pytest.approx([0.25] * 4)
    assert report["grouping_loss"] > 0.1
    assert AggregationRecord.from_report(report).grouping_loss == report["grouping_loss"]


def test_groups_that_cancel_take_the_closest_direction_that_opposes_no_group() -> None:
    updates = vectors([3, 0], [1, 0], [-1, 0.5], [-1, -0.5])
    plain = step(grouped(DOMAINS, cancelled="least_conflict", kappa=2.0), updates)
    assert plain.meta[META_REPORT]["cancelled"]
    np.testing.assert_allclose(plain.params["w"], [0.0, 0.0], atol=1e-12)


def test_grouping_by_domain_needs_to_know_the_domains() -> None:
    with pytest.raises(SettingsError, match=r"site art: its domain is not known, .* needs the workflow"):
        step(FedOMGAggregator(grouping="domain"), vectors([1.0]))
    with pytest.raises(SettingsError, match="grouping is 'site', expected"):
        FedOMGAggregator(grouping="site")
