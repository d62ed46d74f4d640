# SPDX-License-Identifier: Apache-2.0
"""The census lets a federation start only if its sites fit together, and names the site that does not."""

from itertools import permutations
from typing import Any

import pytest

from fdg_plugins.errors import CensusError
from fdg_plugins.messages import CensusReply
from fdg_plugins.record.census import Federation, check_min_sites, check_versions, take_census
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import GROUP_CLASSIFICATION
from tests.controllers.federation_stubs import CLASSES, DOMAINS, HELD_OUT, SOURCES, census_reply


def replies(**changes: dict[str, Any]) -> dict[str, CensusReply]:
    """Return the replies of the small federation, with the fields given for some sites (``_`` for ``-``)."""
    by_site = {name.replace("_", "-"): fields for name, fields in changes.items()}
    return {site: census_reply(**{"domain": domain, **by_site.get(site, {})}) for site, domain in DOMAINS.items()}


def test_sites_that_fit_make_a_federation_of_sources_and_held_out_sites_in_any_order() -> None:
    for order in (replies(), dict(reversed(replies().items()))):
        federation = take_census(order, {}, "sketch")
        assert federation == Federation(SOURCES, HELD_OUT, CLASSES, False, replies())
        assert list(federation.replies) == sorted(order)
    assert take_census(replies(), {}, "photo").held_out == ("photo-1", "photo-2")


def test_sites_may_share_a_domain_by_parts_or_each_have_images_of_their_own() -> None:
    parts = {f"photo_{n}": {"split": f"pacs/kfold/part{n}of2", "split_hash": f"of part {n}"} for n in (1, 2)}
    take_census(replies(**parts), {}, "sketch")
    take_census(replies(photo_1={"split": "own/parts"}, photo_2={"split": "own/partly"}), {}, "sketch")


PART = {"split": "pacs/kfold/part1of2", "split_hash": "of part 1"}
OTHER_PART = {"split": "pacs/kfold/part2of3", "split_hash": "of part 2"}


@pytest.mark.parametrize(
    ("site", "changes"),
    [
        ("cartoon", {"cartoon": {"stand_in": True}}),
        ("photo-2", {"photo_2": {"dataset": "vlcs"}}),
        ("photo-2", {"photo_2": {"classes": ("cat", "dog")}}),
        ("photo-2", {"photo_2": {"classes": ("elephant", "dog")}}),
        ("photo-2", {"photo_2": {"versions": {"fdg-plugins": "0.2.0", "nvflare": "2.9.0"}}}),
        ("photo-2", {"photo_2": {"class_counts": (5, 5, 5)}}),
        ("photo-2", {"photo_2": {"role": "held_out"}}),
        ("photo-2", {"photo_2": {"num_train": 0}}),
        ("photo-2", {"photo_2": {"num_validation": 0}}),
        ("photo-2", {"photo_1": PART, "photo_2": PART}),
        ("photo-2", {"photo_1": PART, "photo_2": OTHER_PART}),
        ("sketch", {"sketch": {"num_test": 0, "num_train": 0, "num_validation": 0, "class_counts": (0, 0)}}),
        ("sketch", {"sketch": {"num_test": 11}}),
        ("sketch", {"sketch": {"role": "source"}}),
    ],
)
def test_a_site_that_does_not_fit_is_refused_by_name(site: str, changes: dict[str, Any]) -> None:
    answers, texts = replies(**changes), set()
    for order in permutations(answers):
        with pytest.raises(CensusError) as caught:
            take_census({name: answers[name] for name in order}, {}, "sketch")
        texts.add(str(caught.value))
    (text,) = texts
    assert text.startswith((f"site {site} ", f"site {site}: "))


def test_a_federation_that_cannot_train_or_be_judged_is_refused() -> None:
    for answers, failures, target in (
        (replies(), {"photo-2": "did not answer.", "photo-1": "has no data."}, "sketch"),
        (replies(), {}, "art_painting"),
        ({"a": census_reply("sketch"), "b": census_reply("sketch")}, {}, "sketch"),
        ({}, {}, "sketch"),
    ):
        with pytest.raises(CensusError):
            take_census(answers, failures, target)
    federation, own = take_census(replies(), {}, "sketch"), {"fdg-plugins": "0.1.0", "nvflare": "2.9.0"}
    check_versions(federation, {**own, "torch": "1.0"})
    check_min_sites(Protocol(min_sites=3), federation)
    with pytest.raises(CensusError):
        check_versions(federation, {**own, "nvflare": "0.1.1"})
    with pytest.raises(CensusError):
        check_min_sites(Protocol(min_sites=4), federation)


def test_a_site_that_forbids_the_counts_of_groups_ends_the_run_before_training() -> None:
    common = {"dataset": "celeba", "classes": ("blond", "not_blond")}
    for site in ("train", "test"):
        answers = {name: census_reply(name, **common) for name in ("train", "test")}
        assert take_census(answers, {}, "test", GROUP_CLASSIFICATION).held_out == ("test",)
        answers[site] = census_reply(site, **common, allowed_reports=("gap",))
        with pytest.raises(CensusError, match=f"site {site} forbids the report 'group_scores'"):
            take_census(answers, {}, "test", GROUP_CLASSIFICATION)
        assert take_census(answers, {}, "test").held_out == ("test",)  # classification asks for none
