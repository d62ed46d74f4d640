# SPDX-License-Identifier: Apache-2.0
"""The census lets a federation start only if its sites fit together, and names the site that does not."""

import re
from itertools import permutations
from typing import Any

import pytest

from fdg_plugins.errors import CensusError
from fdg_plugins.messages import CensusReply
from fdg_plugins.record.census import Federation, check_min_sites, check_versions, take_census
from fdg_plugins.settings.protocol import Protocol
from tests.controllers.federation_stubs import CLASSES, DOMAINS, HELD_OUT, SOURCES, census_reply


def replies(**changes: dict[str, Any]) -> dict[str, CensusReply]:
    """Return the replies of the small federation, with the fields given for some sites (``_`` for ``-``)."""
    by_site = {name.replace("_", "-"): fields for name, fields in changes.items()}
    return {site: census_reply(**{"domain": domain, **by_site.get(site, {})}) for site, domain in DOMAINS.items()}


def refusal(answers: dict[str, CensusReply], failures: dict[str, str] | None = None, target: str = "sketch") -> str:
    with pytest.raises(CensusError) as caught:
        take_census(answers, failures or {}, target)
    return str(caught.value)


def test_sites_that_fit_make_a_federation_of_sources_and_held_out_sites() -> None:
    federation = take_census(replies(), {}, "sketch")
    assert federation == Federation(SOURCES, HELD_OUT, CLASSES, False, replies())
    assert take_census(replies(), {}, "photo").held_out == ("photo-1", "photo-2")


def test_the_order_of_arrival_does_not_matter() -> None:
    answers = replies()
    expected = take_census(answers, {}, "sketch")
    for order in permutations(answers):
        federation = take_census({site: answers[site] for site in order}, {}, "sketch")
        assert federation == expected
        assert list(federation.replies) == sorted(answers)


def test_the_refusal_does_not_depend_on_the_order_of_arrival_either() -> None:
    answers = replies(photo_1={"dataset": "vlcs"}, photo_2={"dataset": "office"})
    texts = {refusal({site: answers[site] for site in order}) for order in permutations(answers)}
    assert texts == {"site photo-1 holds 'vlcs', but site cartoon holds 'pacs'."}


def test_a_federation_may_be_all_stand_in() -> None:
    drawn = {"stand_in": True}
    assert take_census(replies(cartoon=drawn, photo_1=drawn, photo_2=drawn, sketch=drawn), {}, "sketch").stand_in


def test_sites_may_share_a_domain_by_parts_or_each_have_images_of_their_own() -> None:
    parts = {f"photo_{n}": {"split": f"pacs/kfold/part{n}of2", "split_hash": f"of part {n}"} for n in (1, 2)}
    take_census(replies(**parts), {}, "sketch")
    take_census(replies(photo_1={"split": "own/parts"}, photo_2={"split": "own/partly"}), {}, "sketch")


# --- refusals ---------------------------------------------------------------------------------------


def test_a_site_that_did_not_answer_stops_the_run_with_its_reason_and_the_first_by_name_is_told() -> None:
    failures = {"photo-2": "did not answer within 60 s.", "photo-1": "data root /x is not a folder."}
    assert refusal(replies(), failures) == "site photo-1 cannot take part: data root /x is not a folder."


def test_a_federation_without_sites_is_refused() -> None:
    assert refusal({}).startswith("no site answered the census")


@pytest.mark.parametrize("drawn", ["cartoon", "photo-1"])
def test_a_site_on_the_stand_in_among_real_data_is_refused_with_what_to_set(drawn: str) -> None:
    text = refusal(replies(**{drawn.replace("-", "_"): {"stand_in": True}}))
    assert text.startswith(f"site {drawn} would use the STAND-IN while site ")
    assert text.endswith(f"set the data root of site {drawn} (FDG_DATA_ROOT or fdg_site.json).")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"dataset": "vlcs"}, "site photo-2 holds 'vlcs', but site cartoon holds 'pacs'."),
        (
            {"classes": ("cat", "dog")},
            "site photo-2 has other classes than site cartoon: 'cat' is known to only one of them.",
        ),
        (
            {"classes": ("elephant", "dog")},
            "site photo-2 has other classes than site cartoon: the order differs.",
        ),
        (
            {"versions": {"fdg-plugins": "0.2.0", "nvflare": "2.9.0"}},
            "site photo-2 runs fdg-plugins 0.2.0, but site cartoon runs 0.1.0: one job needs one version everywhere.",
        ),
        (
            {"versions": {"fdg-plugins": "0.1.0"}},
            "site photo-2 runs nvflare None, but site cartoon runs 2.9.0: one job needs one version everywhere.",
        ),
        ({"class_counts": (5, 5, 5)}, "site photo-2 counts 3 classes but names 2."),
        (
            {"role": "held_out"},
            "site photo-2 accepts only the role 'held_out', "
            "but holding domain 'photo' its role in this run is 'source'.",
        ),
        (
            {"num_train": 0},
            "site photo-2 has no training image of domain 'photo', expected at least one in the role 'source'.",
        ),
        (
            {"num_validation": 0},
            "site photo-2 has no validation image of domain 'photo', expected at least one in the role 'source'.",
        ),
    ],
)
def test_a_source_that_does_not_fit_is_refused_by_name(changes: dict[str, Any], text: str) -> None:
    assert refusal(replies(photo_2=changes)) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"num_test": 0, "num_train": 0, "num_validation": 0, "class_counts": (0, 0)},
            "site sketch has no test image of domain 'sketch', expected at least one in the role 'held_out'.",
        ),
        ({"num_test": 11}, "site sketch counts 10 images by class, but 11 in all."),
        (
            {"role": "source"},
            "site sketch accepts only the role 'source', "
            "but holding domain 'sketch' its role in this run is 'held_out'.",
        ),
    ],
)
def test_a_held_out_site_that_does_not_fit_is_refused_by_name(changes: dict[str, Any], text: str) -> None:
    assert refusal(replies(sketch=changes)) == text


def test_a_list_may_set_apart_fewer_images_to_test_than_there_are_to_train() -> None:
    taken = take_census(replies(sketch={"num_train": 70, "num_validation": 20}), {}, "sketch")
    assert taken.held_out == ("sketch",)


def test_what_a_role_does_not_need_may_be_missing() -> None:
    answers = replies(sketch={"num_train": 0, "num_validation": 0, "role": "held_out"}, cartoon={"role": "source"})
    assert take_census(answers, {}, "sketch").held_out == HELD_OUT


def test_other_packages_may_differ_between_sites() -> None:
    versions = {"fdg-plugins": "0.1.0", "nvflare": "2.9.0", "torch": "1.0"}
    assert take_census(replies(photo_2={"versions": versions}), {}, "sketch").sources == SOURCES


def test_sites_that_agree_but_run_another_version_than_the_server_are_refused() -> None:
    federation = take_census(replies(), {}, "sketch")
    own = {"fdg-plugins": "0.1.0", "nvflare": "2.9.0", "torch": "1.0"}
    check_versions(federation, own)
    for package, text in (
        ("fdg-plugins", "site cartoon runs fdg-plugins 0.1.0, but the server runs 0.1.1: one job"),
        ("nvflare", "site cartoon runs nvflare 2.9.0, but the server runs 0.1.1: one job"),
    ):
        with pytest.raises(CensusError, match=re.escape(text)):
            check_versions(federation, {**own, package: "0.1.1"})


def test_without_a_site_of_the_held_out_domain_there_is_no_run() -> None:
    text = refusal(replies(), target="art_painting")
    assert text.startswith(
        "no site holds the held-out domain 'art_painting'; the sites are cartoon (cartoon), photo-1 ("
    )


def test_without_a_source_there_is_no_run() -> None:
    text = refusal({"a": census_reply("sketch"), "b": census_reply("sketch")})
    assert text.startswith(
        "every site holds the held-out domain 'sketch', so none can train; the sites are a (sketch), b"
    )


def test_rounds_that_could_never_have_enough_updates_are_refused() -> None:
    federation = take_census(replies(), {}, "sketch")
    check_min_sites(Protocol(min_sites=3), federation)
    with pytest.raises(
        CensusError, match=r"min_sites is 4, but only 3 sites hold a source .*: cartoon, photo-1, photo-2\."
    ):
        check_min_sites(Protocol(min_sites=4), federation)


def test_sites_that_divide_a_domain_differently_are_refused() -> None:
    text = refusal(
        replies(
            photo_1={"split": "pacs/75-25/iid-least10@0-aaaa/part1of2", "split_hash": "1"},
            photo_2={"split": "pacs/75-25/iid-least10@0-bbbb/part2of2", "split_hash": "2"},
        )
    )
    assert text == (
        "site photo-2 divides domain 'photo' as pacs/75-25/iid-least10@0-bbbb in 2 parts, but site photo-1 as "
        "pacs/75-25/iid-least10@0-aaaa in 2 parts: expected the same images at all sites that share a domain."
    )


def test_sites_that_divide_a_domain_into_other_numbers_of_parts_are_refused() -> None:
    text = refusal(
        replies(
            photo_1={"split": "pacs/kfold/part1of2", "split_hash": "1"},
            photo_2={"split": "pacs/kfold/part2of3", "split_hash": "2"},
        )
    )
    assert "as pacs/kfold in 3 parts, but site photo-1 as pacs/kfold in 2 parts: " in text


def test_two_sites_with_the_same_part_of_a_domain_are_refused() -> None:
    part = {"split": "pacs/kfold/part1of2", "split_hash": "of part 1"}
    text = refusal(replies(photo_1=part, photo_2=part))
    assert text == "site photo-2 holds the same part of domain 'photo' as site photo-1, expected another."
