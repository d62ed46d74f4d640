# SPDX-License-Identifier: Apache-2.0
"""Two hundred sites in one process: the workflow, its aggregator and the sites' own work are real, between them FLARE's
communicator is not, whose simulator would start hundreds of processes a round.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from PIL import Image

from fdg_plugins.controllers import RunRecord
from fdg_plugins.data import PACS
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE
from fdg_plugins.storage import load_tensors, write_json
from tests.controllers.crowd import PROTOCOL, Crowd
from tests.flare_runner import SiteWorkspace, run_task, site_context

SITES, ROUNDS = 200, 3
SOURCES = ("art_painting", "cartoon", "photo")
PER_CLASS = 100  # images of a source; a tenth validates, so that each of 67 parts has one
PIXELS = 16

pytestmark = pytest.mark.usefixtures("wire")


@pytest.fixture(scope="module")
def many_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root in PACS' layout: noise around a colour of its class, enough images for 67 sites a domain."""
    root = tmp_path_factory.mktemp("many")
    generator = np.random.default_rng(0)
    colours = generator.integers(40, 216, size=(len(PACS.classes), 3))
    for domain in (*SOURCES, "sketch"):
        for label, name in enumerate(PACS.classes):
            folder = root / "pacs" / domain / name
            folder.mkdir(parents=True)
            for number in range(PER_CLASS if domain in SOURCES else 4):
                noise = generator.integers(-30, 31, size=(PIXELS, PIXELS, 3))
                pixels = (colours[label] + noise).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    return root


def sites_of_domains() -> dict[str, tuple[str, str]]:
    """Return the domain of each of 199 sources and the part of it that it holds, and those of the held-out site."""
    counts = {domain: len(range(at, SITES - 1, len(SOURCES))) for at, domain in enumerate(SOURCES)}
    sites = {
        f"{domain}-{number:02}": (domain, f"{number}/{count}")
        for domain, count in counts.items()
        for number in range(1, count + 1)
    }
    return {**sites, "sketch": ("sketch", "1/1")}


class RealSites(Crowd):
    """A run whose sites are this package's executors, with folders and data of their own."""

    def __init__(self, folder: Path, data_root: Path, sites: dict[str, tuple[str, str]]) -> None:
        super().__init__(folder, {site: domain for site, (domain, _) in sites.items()}, protocol=self.protocol())
        self.folder = folder
        self.executors = {site: SiteExecutor() for site in sites}
        for site, (domain, part) in sites.items():
            entry = {"data_root": str(data_root), "domain": domain, "part": part, "device": "cpu", "isolate": False}
            write_json(folder / site / "fdg_site.json", {site: entry})

    @staticmethod
    def protocol() -> dict[str, object]:
        """Return a protocol of few small steps."""
        return {**PROTOCOL, "rounds": ROUNDS, "local_epochs": 1, "learning_rate": 0.01}

    def answer(self, site: str, task: str, request: Shareable) -> Shareable:
        """Return what the site's executor answers."""
        return run_task(self.executors[site], task, request, self._context(site))

    def _context(self, site: str) -> FLContext:
        folder = self.folder / site
        return site_context(site, SiteWorkspace(folder, local=folder))


def finished(folder: Path, run: Callable[[], None]) -> RunRecord:
    run()
    record = RunRecord.model_validate_json((folder / RESULTS_FILE).read_bytes())
    assert record.status == "finished", record.stopped_because
    return record


@pytest.mark.slow
@pytest.mark.nightly
def test_two_hundred_real_sites_take_part_in_every_round(tmp_path: Path, many_images: Path) -> None:
    sites = sites_of_domains()
    assert len(sites) == SITES
    crowd = RealSites(tmp_path, many_images, sites)
    record = finished(tmp_path, crowd.run)
    assert len(record.sources) == SITES - 1
    assert sum(record.census[site].num_train for site in record.sources) == len(SOURCES) * len(PACS.classes) * 90
    for one in record.rounds:
        assert (one.sites, one.failures) == (record.sources, {})
        assert one.aggregation is not None
        assert one.aggregation.gamma is not None
        assert sum(one.aggregation.gamma.values()) == pytest.approx(1)
    assert all(len(one.sites) == SITES for one in record.evaluations)
    losses = [sum(one.sites[site].loss for site in record.sources) for one in record.evaluations]
    assert losses == sorted(losses, reverse=True), "each round lowers the sources' loss"
    assert all(bool(value.isfinite().all()) for value in load_tensors(tmp_path / LAST_FILE).values())


def test_with_two_hundred_sites_a_round_draws_as_many_as_it_is_told(tmp_path: Path) -> None:
    sites = {site: domain for site, (domain, _) in sites_of_domains().items()}
    crowd = Crowd(tmp_path, sites, protocol={**PROTOCOL, "rounds": ROUNDS, "sites_per_round": 20})
    record = finished(tmp_path, crowd.run)
    drawn = [set(one.drawn) for one in record.rounds]
    assert [len(one) for one in drawn] == [20] * ROUNDS
    assert len(set.union(*drawn)) > 20, "another draw each round"
    assert all(set(one.sites) == set(one.drawn) for one in record.rounds)
    assert torch.isfinite(next(iter(load_tensors(tmp_path / LAST_FILE).values()))).all()
