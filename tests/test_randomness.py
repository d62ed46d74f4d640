# SPDX-License-Identifier: Apache-2.0
"""Seeds are a contract between machines: they depend on seed and scope, on every bit of them, and on nothing else."""

import pytest
import torch

from fdg_plugins.randomness import derive_seed, seeded, torch_generator


def test_seeds_stay_as_they_were_when_results_were_published() -> None:
    assert derive_seed(0) == 3456079177858693020
    assert derive_seed(0, "a", "b") == 5941802273801422478
    assert derive_seed(7, "photo", 3, "shuffle") == 7111308297627247509


def test_seeded_draws_what_its_scope_says_and_restores_the_global_state() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with seeded(3, "crop"):
        first = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(100)
    with seeded(3, "crop"):
        assert torch.equal(torch.rand(4), first)
    assert torch.equal(torch.rand(4, generator=torch_generator(3, "crop")), first)
    state = torch.get_rng_state()
    with seeded(3, "flip"):
        assert not torch.equal(torch.rand(4), first)
    with pytest.raises(InterruptedError), seeded(3, "flip"):
        raise InterruptedError
    assert torch.equal(torch.get_rng_state(), state)


def test_seeded_never_seeds_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an accelerator was seeded")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", refuse)
    monkeypatch.setattr(torch.cuda, "manual_seed", refuse)
    with seeded(3, "a"):
        torch.rand(1)
    with pytest.raises(AssertionError):
        torch.manual_seed(0)
