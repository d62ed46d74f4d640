# SPDX-License-Identifier: Apache-2.0
"""Sites that share a domain by its classes: each image at one site, its own test images, names, hashes, refusals."""

import pytest

from fdg_plugins.data import DomainData, Partition, SharedDomains, dataset_spec, open_domain
from fdg_plugins.data.skew import KINDS
from fdg_plugins.errors import SettingsError

SITES, LEAST = 20, 10
SKEWED = [kind for kind in KINDS if kind != "equal"]
# Of mnist's stand-in: the draw of a site's own test images does not depend on the hash of a later version.
RECORDED = {"iid": "a3ce817df01c0b19", "dirichlet": "0fe2b6530ef87987", "shards": "7820029e82f1a39f"}


def opened(
    kind: str, number: int, seed: int = 0, count: int = SITES, shared: SharedDomains | None = None
) -> DomainData:
    partition = Partition(kind, 0.1, LEAST)
    return open_domain(None, "mnist", "train", seed=seed, part=(number, count), partition=partition, shared=shared)


@pytest.mark.parametrize("kind", SKEWED)
def test_every_image_is_at_one_site_to_train_or_to_judge(kind: str) -> None:
    shared = SharedDomains()
    sites = [opened(kind, number, shared=shared) for number in range(1, SITES + 1)]
    whole = open_domain(None, "mnist", "train", seed=0)
    held = [sample.file for site in sites for sample in (*site.train, *site.validation)]
    assert sorted(held) == sorted(sample.file for sample in (*whole.train, *whole.validation))
    for site in sites:
        assert set(site.test) == {*site.train, *site.validation}
        assert len(site.test) >= LEAST
        assert site.train
        assert site.validation
    assert 0.2 < sum(len(site.validation) for site in sites) / len(held) < 0.3
    assert sites[2].split_hash == opened(kind, 3).split_hash == RECORDED[kind]


def test_all_sites_name_one_partition_by_its_hash_which_the_seed_and_the_kind_change() -> None:
    first, second = opened("dirichlet", 1), opened("dirichlet", 2)
    name = first.split.removesuffix("/part1of20")
    assert second.split == f"{name}/part2of20"
    assert name.startswith("mnist/75-25/dirichlet0.1-least10@0-")
    hashes = {name[-16:], *(opened(kind, 1, seed).split.split("/")[-2][-16:] for kind in SKEWED for seed in (0, 1))}
    assert len(hashes) == 2 * len(SKEWED)


def test_too_few_images_are_refused_and_a_sites_name_says_which_part_it_holds() -> None:
    with pytest.raises(SettingsError):
        opened("iid", 1, count=200)
    spec = dataset_spec("mnist")
    assert spec.share_of("train-3of100") == ("train", (3, 100))
    for name in ("train", "train-101of100", "elsewhere-1of2"):
        assert spec.share_of(name) == (name, None)
