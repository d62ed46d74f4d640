# SPDX-License-Identifier: Apache-2.0
"""What may stand in one table: seeds, held-out domains and methods may differ, nothing else."""

from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, build_table, check_comparable, without_repeats
from fdg_plugins.lab.analysis.comparable import notes_on_plugins, settings_key
from fdg_plugins.record.run_record import InitialWeights
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, FEDOMG, census_reply, fedomg, run


def census(seed: int = 0, domain: str = "sketch", **changes: Any) -> dict[str, Any]:
    """Return the census with one domain's reply changed."""
    return {name: census_reply(name, seed, **(changes if name == domain else {})) for name in DOMAINS}


def test_method_held_out_domain_and_seed_may_differ() -> None:
    check_comparable(
        [
            run("a", FEDAVG, "photo", 0),
            run("b", FEDOMG, "sketch", 1),
            run("c", fedomg(kappa=0.1), "photo", 10),
            run("d", FEDGA, "photo", 0, protocol={"gap_split": "train"}),
            run("e", protocol={"objective": {"name": "dim"}}),
        ]
    )


def test_a_later_minor_version_is_no_difference() -> None:
    check_comparable([run("a"), run("b", seed=1, versions={"fdg-plugins": "0.2.0"})])


def test_a_methods_plug_in_is_the_same_in_all_its_runs_and_others_differ_with_a_note() -> None:
    first, other = ({"fdg-plugins": "0.2.0", "my_method.py": digest} for digest in ("0bc24640", "c7f92f77"))
    with pytest.raises(
        SettingsError, match=r"the version of my_method\.py, with fedavg, is 0bc24640 in runs/a and c7f92f77"
    ):
        check_comparable([run("a", FEDAVG, versions=first), run("b", FEDAVG, seed=1, versions=other)])
    mixed = [run("a", FEDAVG, versions=first), run("b", FEDGA, versions=other), run("c", FEDOMG)]
    check_comparable(mixed)
    assert notes_on_plugins(mixed) == [
        "my_method.py was not the same for all: fedavg with 0bc24640; fedga with c7f92f77."
    ]
    assert notes_on_plugins([mixed[0], run("d", FEDGA, versions=first)]) == []
    assert mixed[1].record.versions["my_method.py"] in build_table(mixed).notes[-1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stand_in": True}, "the stand-in is not used in runs/a and used in runs/b"),
        ({"data": "PACS, cleaned"}, "data is PACS in runs/a and PACS, cleaned in runs/b"),
        ({"protocol": {"dataset": "rotatedmnist"}}, "data set is pacs in runs/a and rotatedmnist in runs/b"),
        ({"protocol": {"rounds": 20}}, "rounds of the protocol is 100 in runs/a and 20 in runs/b"),
        (
            {"protocol": {"max_samples_per_domain": 400}},
            "max_samples_per_domain of the protocol is unset in runs/a and",
        ),
        (
            {"initial_weights": InitialWeights(label="from scratch")},
            "the source of the initial weights is imagenet in runs/a and from scratch in runs/b",
        ),
        ({"versions": {"fdg-plugins": "1.0.0"}}, "the major version of fdg-plugins is 0 in runs/a and 1 in runs/b"),
        ({"census": census(split="pacs/kfold")}, "the split of the source domain sketch is pacs/90-10@seed in runs/a"),
        (
            {"census": census(num_train=7)},
            "validation and test images of the source domain sketch is 3927/2/3929 in runs/a and 7/2/3929 in runs/b",
        ),
        (
            {"census": census(split_hash="others")},
            "the hash of the split of the source domain sketch under seed 0 is sketch 0 in runs/a and others in runs/b",
        ),
        (
            {"census": census(domain="photo", split_hash="others")},
            "the hash of the split of the held-out domain photo under seed 0 is photo 0 in runs/a and others",
        ),
    ],
)
def test_the_first_difference_is_named_with_both_values_and_both_runs(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match="these runs cannot stand in one table: ") as refused:
        check_comparable([run("a"), run("b", FEDOMG, **changes)])
    assert sentence in str(refused.value)


def test_another_seed_has_another_split_but_must_have_as_many_images() -> None:
    check_comparable([run("a"), run("b", seed=1, census=census(1))])
    with pytest.raises(SettingsError, match=r"number of training, validation and test images .* cartoon"):
        check_comparable([run("a"), run("b", seed=1, census=census(1, "cartoon", num_train=80))])


def test_sites_that_may_choose_their_precision_must_have_chosen_the_same() -> None:
    auto = {"precision": "auto"}
    narrow, wide = census(precision="bfloat16"), census(precision="float32")
    check_comparable(
        [
            run("a", protocol=auto, census=narrow),
            run("b", seed=1, protocol=auto, census=census(1, precision="bfloat16")),
        ]
    )
    check_comparable([run("a", census=narrow), run("b", FEDGA, census=wide)])  # as the protocol says, whatever it is
    message = "the precision of the source domain sketch is bfloat16 in runs/a and float32 in runs/b"
    with pytest.raises(SettingsError, match=message):
        check_comparable([run("a", protocol=auto, census=narrow), run("b", FEDGA, protocol=auto, census=wide)])


def test_a_hash_is_compared_with_every_run_of_its_seed_and_not_only_with_the_first_run() -> None:
    with pytest.raises(SettingsError, match=r"under seed 1 is sketch 1 in runs/b and others in runs/c"):
        check_comparable([run("a"), run("b", seed=1), run("c", seed=1, census=census(1, split_hash="others"))])


def test_a_seed_is_taken_out_of_a_splits_name_only_where_it_is_the_runs_own() -> None:
    with pytest.raises(SettingsError, match="is pacs/90-10@seed in runs/a and pacs/90-10@10 in runs/b"):
        check_comparable([run("a", seed=1), run("b", seed=1, census=census(1, split="pacs/90-10@10"))])


def test_a_domain_may_be_whole_where_it_is_held_out_and_parted_where_it_trains() -> None:
    def parted(target: str) -> dict[str, Any]:
        replies = {target: census_reply(target)}
        for domain in DOMAINS:
            for part in (1, 2) if domain != target else ():
                changes: dict[str, Any] = {
                    "split": f"pacs/90-10@0/part{part}of2",
                    "num_train": 4,
                    "split_hash": f"{domain} {part}",
                }
                replies[f"{domain}-{part}"] = census_reply(domain, **changes)
        return replies

    def parted_run(target: str) -> Run:
        sources = tuple(name for name in parted(target) if name != target)
        return run(target, FEDAVG, target, census=parted(target), sources=sources, accuracies=())

    check_comparable([parted_run("photo"), parted_run("sketch")])
    with pytest.raises(SettingsError, match="the split of the source domain art_painting is pacs/90-10@seed/part1of2"):
        check_comparable([parted_run("photo"), run("whole")])


def test_runs_that_started_from_other_pretrained_files_are_not_comparable() -> None:
    def weights(name: str, digit: str) -> InitialWeights:
        return InitialWeights(label="pretrained file", file=name, sha256=64 * digit)

    one, renamed, other = (run(name, initial_weights=weights(name, digit)) for name, digit in ("aa", "ba", "cb"))
    check_comparable([one, renamed])
    with pytest.raises(SettingsError, match=r"the SHA-256 of the pretrained file of resnet18 is a{64} in runs/a and b"):
        check_comparable([one, other])


def test_each_of_several_networks_may_have_a_pretrained_file_of_its_own() -> None:
    runs = [
        run(
            model,
            protocol={"model": model},
            initial_weights=InitialWeights(label="pretrained file", file=model, sha256=64 * digit),
        )
        for model, digit in (("resnet18", "a"), ("resnet50", "b"))
    ]
    check_comparable(runs, apart_from=("model",))


def test_runs_that_trained_on_other_source_domains_are_not_comparable() -> None:
    fewer = run("b", FEDOMG, domains=("art_painting", "cartoon", "photo"))
    message = "source domains with photo held out is art_painting and cartoon and sketch in runs/a and art_painting and"
    with pytest.raises(SettingsError, match=message):
        check_comparable([run("a"), fewer])


def test_a_copy_is_counted_once_and_named() -> None:
    first, other, copy = run("a"), run("b", seed=1), run("c", started="later", seconds=5.0)
    assert without_repeats([first, other, copy]) == ((first, other), ((copy, first),))


def test_runs_of_other_settings_are_no_copies() -> None:
    runs = (run("a", FEDOMG), run("b", fedomg(kappa=0.1)), run("c", FEDAVG))
    assert without_repeats(runs) == (runs, ())


def test_two_results_of_one_method_domain_and_seed_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"two runs of fedomg, held-out domain photo, seed 0 .* runs/a and runs/b"):
        without_repeats([run("a", FEDOMG, accuracies=(0.5,)), run("b", FEDOMG, accuracies=(0.6,))])


def test_momentum_belongs_to_the_methods_that_are_stated_for_plain_sgd() -> None:
    scaffold = FEDAVG.model_copy(update={"objective": {"name": "scaffold"}})
    plain = run("a", FEDAVG, protocol={"momentum": 0.9})
    check_comparable([plain, run("b", scaffold, protocol={"momentum": 0.0})])
    with pytest.raises(SettingsError, match="momentum of the protocol"):
        check_comparable([plain, run("c", FEDOMG, protocol={"momentum": 0.0})])
    first, second = (run(str(value), scaffold, protocol={"momentum": value}) for value in (0.0, 0.9))
    assert settings_key(first) != settings_key(second)
