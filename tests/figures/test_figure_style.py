# SPDX-License-Identifier: Apache-2.0
"""Colours and markers: one look for one thing in every figure, and no two things with the same."""

import itertools

from fdg_plugins.data import DATASETS, dataset_spec
from fdg_plugins.lab.analysis.figures.style import domain_looks, domain_order, method_looks, numbered_look

METHODS = ("fedavg", "fedomg", "fedga", "feddim", "fediir", "fedomg+ga", "fedomg+dim", "fedomg+iir", "fedomg+ga+dim")


def test_all_methods_side_by_side_differ_and_so_do_the_settings_of_one() -> None:
    (alone,) = method_looks(["feddim"])
    assert all(method_looks([other, "feddim"])[1] == alone for other in METHODS[:3])
    for entries in (METHODS, ["fedomg"] * 9, [*METHODS, *METHODS], ["mine", "yours", "fedavg"]):
        looks = method_looks(entries)
        assert len(set(looks)) == len(entries)


def test_the_domains_of_a_data_set_have_different_colours_and_markers() -> None:
    for dataset in DATASETS.names():
        looks = domain_looks(dataset, dataset_spec(dataset).domains).values()
        assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(looks)


def test_numbered_looks_repeat_late_and_neighbours_never_share_a_colour() -> None:
    looks = [numbered_look(number) for number in range(63)]
    assert len(set(looks)) == 63
    assert all(one.colour != other.colour for one, other in itertools.pairwise(looks))


def test_domains_keep_the_order_of_their_data_set_and_unknown_ones_come_last() -> None:
    assert domain_order("pacs", ["sketch", "mars", "art_painting", "sketch"]) == ("art_painting", "sketch", "mars")
    assert domain_order("nowhere", ["b", "a"]) == ("a", "b")
