# SPDX-License-Identifier: Apache-2.0
"""One site's images under one protocol: its domain, opened once, and the batches for each purpose."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fdg_plugins.data import DomainData, SharedDomains, dataset_spec, find_data_root, open_domain
from fdg_plugins.data.augmentation import AugmentationRanges
from fdg_plugins.data.domains import check_images, without_damaged
from fdg_plugins.data.images import evaluation_batches, reported_batches, training_epochs
from fdg_plugins.data.specs import Sample
from fdg_plugins.data.splits import EQUAL_PARTS, MIX, Partition
from fdg_plugins.errors import Stopped
from fdg_plugins.settings.defaults import allotted_sites
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.loop import Batches, ShouldStop

EVALUATION_BATCH = 64


class SiteImages:
    """A site's domain, and its batches on the site's device.

    ``device``: where the batches are used. ``cache``: folder for stand-in data. ``left_out``: the images that the
    census found damaged and left out; a new census searches for them again. ``shared``: the domains that other sites of
    this process have opened.
    """

    def __init__(
        self,
        site: str,
        config: SiteConfig,
        protocol: Protocol,
        device: torch.device,
        cache: Path | None,
        left_out: frozenset[str],
        shared: SharedDomains | None,
    ) -> None:
        self.site = site
        self.config = config
        self.protocol = protocol
        self._loading: dict[str, Any] = {"image_size": protocol.image_size, "workers": config.workers, "device": device}
        root = find_data_root(protocol.dataset, config.data_root, cache)
        self.stand_in = root.stand_in
        by_name, part = dataset_spec(protocol.dataset).share_of(site)
        self.domain = config.domain or by_name
        self._part = config.part_of_domain() or (part if config.domain is None else None)
        self._root = root.path
        self.left_out = left_out
        self._shared = shared
        self.data: DomainData = self._open(left_out)

    def look(self, should_stop: ShouldStop) -> None:
        """Decode every image once; damaged ones raise ``DataError`` or are left out from now on, as the site chose.

        Raises :class:`Stopped` within one image once ``should_stop()`` is true.
        """

        def poll() -> None:
            if should_stop():
                raise Stopped

        if self.left_out:
            self.data, self.left_out = self._open(frozenset()), frozenset()
        if self.config.damaged_images == "stop" or self.protocol.partition == MIX:
            known = None if self._shared is None else self._shared.once(id(self.data.images), set[str])
            check_images(self.data, known, poll)
        elif self._part is None:
            self.data, self.left_out = without_damaged(self.data, self._open, poll=poll)
        else:
            # One image less divides the domain anew, so all its sites must leave out the same.
            whole = self._open(frozenset(), whole=True)
            known = None if self._shared is None else self._shared.once(id(whole.images), set[str])
            _, damaged = without_damaged(whole, partial(self._open, whole=True), known, poll)
            self.data, self.left_out = self._open(damaged), damaged

    def unchanged(self, samples: Sequence[Sample]) -> Batches:
        """Return the batches of ``samples`` in their order, not augmented."""
        return evaluation_batches(self.data, samples, batch_size=EVALUATION_BATCH, **self._loading)

    def reported(self, *, shuffled: bool = False) -> Batches:
        """Return the batches of the training split, not augmented, as methods report on them.

        They are in order, or ``shuffled`` alike in all rounds, for statistics that depend on the batches.
        """
        return reported_batches(
            self.data,
            batch_size=EVALUATION_BATCH,
            seed=self.protocol.seed,
            scope=(self.site, "statistics") if shuffled else (self.site,),
            shuffled=shuffled,
            **self._loading,
        )

    def epochs(self, count: int, round_number: int, purpose: str | None = None) -> Iterator[Batches]:
        """Return the augmented training batches of each of ``count`` epochs, drawn for the round and the purpose."""
        return training_epochs(
            self.data,
            batch_size=self.protocol.batch_size,
            seed=self.protocol.seed,
            scope=(self.site, round_number, *([] if purpose is None else [purpose])),
            epochs=count,
            augmentation=AugmentationRanges(self.protocol.crop_scale, self.protocol.color_jitter),
            **self._loading,
        )

    def _open(self, left_out: frozenset[str], *, whole: bool = False) -> DomainData:
        """Return the site's part of its domain, or the ``whole`` domain, without some images."""
        settings = self.protocol
        shares = (settings.dirichlet_alpha, settings.least_images, settings.mix_share)
        mixes = settings.partition == MIX
        mixed = allotted_sites(settings.dataset, settings.target, settings.model_dump()) if mixes else {}
        partition = Partition(settings.partition, *shares, tuple(mixed.items()))
        return open_domain(
            self._root,
            self.protocol.dataset,
            self.domain,
            seed=self.protocol.seed,
            max_samples=self.protocol.max_samples_per_domain,
            part=None if whole else self._part,
            partition=EQUAL_PARTS if whole else partition,
            image_memory=int(self.config.image_memory * 2**30),
            max_pixels=self.config.max_image_pixels,
            left_out=left_out,
            preset=self.protocol.preset,
            shared=self._shared,
            dataset_file=self.config.dataset_file,
        )
