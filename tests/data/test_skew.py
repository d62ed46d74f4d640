# SPDX-License-Identifier: Apache-2.0
"""Sites that share a domain by its classes: each image at one site, its own test images, names, hashes, refusals."""

from collections import Counter
from functools import partial

import pytest

from fdg_plugins.data import DomainData, SharedDomains, dataset_spec, open_domain
from fdg_plugins.data.splits import KINDS, Partition
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
    assert sites[2].digest == opened(kind, 3).digest == RECORDED[kind]


def test_all_sites_name_one_partition_by_its_hash_which_the_seed_and_the_kind_change() -> None:
    first, second = opened("dirichlet", 1), opened("dirichlet", 2)
    name = first.name.removesuffix("/part1of20")
    assert second.name == f"{name}/part2of20"
    assert name.startswith("mnist/75-25/dirichlet0.1-least10@0-")
    hashes = {name[-16:], *(opened(kind, 1, seed).name.split("/")[-2][-16:] for kind in SKEWED for seed in (0, 1))}
    assert len(hashes) == 2 * len(SKEWED)


def test_too_few_images_are_refused_and_a_sites_name_says_which_part_it_holds() -> None:
    with pytest.raises(SettingsError):
        opened("iid", 1, count=200)
    spec = dataset_spec("mnist")
    assert spec.share_of("train-3of100") == ("train", (3, 100))
    for name in ("train", "train-101of100", "elsewhere-1of2"):
        assert spec.share_of(name) == (name, None)


COUNTS = {"angle_15": 2, "angle_30": 1, "angle_45": 3, "angle_60": 1, "angle_75": 1}


digits = partial(open_domain, None, "rotateddigits", seed=0)


def mixed(share: float) -> dict[tuple[str, int], DomainData]:
    shared, partition = SharedDomains(), Partition("mix", share=share, counts=tuple(COUNTS.items()))
    return {
        (domain, number): digits(domain, part=(number, count), partition=partition, shared=shared)
        for domain, count in COUNTS.items()
        for number in range(1, count + 1)
    }


def domain_of(file: str) -> str:
    return dataset_spec("rotateddigits").domains[int(file) % 6]  # images are dealt in turn


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_all_sites_divide_a_share_of_each_domain_and_its_own_sites_the_rest(share: float) -> None:
    sites = mixed(share)
    for split in ("train", "validation"):
        held = [sample.file for site in sites.values() for sample in getattr(site, split)]
        whole = [digits(domain) for domain in COUNTS]
        assert sorted(held) == sorted(sample.file for one in whole for sample in getattr(one, split))
    for (domain, _), site in sites.items():
        found = Counter(domain_of(sample.file) for sample in site.train)
        for other, count in COUNTS.items():
            size = len(digits(other).train)
            expected = share * size / len(sites) + ((1 - share) * size / count if other == domain else 0)
            assert found[other] == pytest.approx(expected, abs=2)
    assert len({site.name.rpartition("/mix")[2].partition("/")[0] for site in sites.values()}) == 1
    one = sites["angle_15", 2]
    dataset = one.images.dataset(one.train, 28, "evaluation")
    found_labels = [int(dataset[row][1]) for row in range(len(dataset))]
    assert found_labels == [sample.label for sample in one.train]


def test_a_mix_never_holds_images_of_the_held_out_domain_and_knows_its_sites() -> None:
    held = [one.file for site in mixed(1.0).values() for one in (*site.train, *site.validation)]
    assert "angle_0" not in set(map(domain_of, held))
    partition = Partition("mix", share=0.5, counts=tuple(COUNTS.items()))
    whole = digits("angle_0", partition=partition)
    assert whole.name == digits("angle_0").name, "the held-out site is as ever"
    with pytest.raises(SettingsError):
        digits("angle_15", part=(1, 3), partition=partition)
