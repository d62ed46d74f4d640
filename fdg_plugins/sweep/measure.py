# SPDX-License-Identifier: Apache-2.0
"""What a sweep finds before its first run: the images of each domain, and how long an image takes on this machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from fdg_plugins.data import dataset_spec, find_data_root, open_domain
from fdg_plugins.executors import read_site_config
from fdg_plugins.objectives import build_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import user_path
from fdg_plugins.sweep.request import DataFound
from fdg_plugins.training.session import SiteSession

WARM_UP_BATCHES = 1
TIMED_BATCHES = 3
FEWEST = 14  # two images of each class, the least that a domain may be thinned to


class Measured(NamedTuple):
    """Seconds of one site, alone and with one thread of arithmetic, per image that it trains on; and on what."""

    seconds_per_image: float
    device: str


def look_at_data(dataset: str, environment: Mapping[str, str]) -> DataFound:
    """Return how many images each domain has where the runs will look for them.

    A data set without a data root is the stand-in's, which is drawn if it is not there yet. Raises ``DataError`` for a
    data root that is not there or does not hold the data set.
    """
    root, cache = (_path(name, environment) for name in ("FDG_DATA_ROOT", "FDG_CACHE"))
    found = find_data_root(dataset, root, cache)
    images: dict[str, int] = {}
    for domain in dataset_spec(dataset).domains:
        data = open_domain(found.path, dataset, domain, seed=0)
        images[domain] = len({sample.file for sample in (*data.train, *data.validation, *data.test)})
    return DataFound(stand_in=found.stand_in, images=images)


def time_an_image(protocol: Protocol, environment: Mapping[str, str]) -> Measured:
    """Return how long a site takes per image, by letting it read and train on a few batches of its own."""
    domain = next(name for name in dataset_spec(protocol.dataset).domains if name != protocol.target)
    cache = _path("FDG_CACHE", environment)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for batches in (WARM_UP_BATCHES, TIMED_BATCHES):
            wanted = max(FEWEST, batches * protocol.batch_size, len(dataset_spec(protocol.dataset).classes))
            few = protocol.model_copy(update={"max_samples_per_domain": wanted, "local_epochs": 1})
            session = SiteSession(domain, read_site_config(domain, None, environment), few, cache)
            session.census()  # which leaves damaged images out, or refuses them, as the site's config says
            state = build_network(few, len(session.data.classes)).state_dict()
            report = session.train(state, 0, lambda: False, lambda *_: None).report
    finally:
        torch.set_num_threads(threads)
    return Measured(report.seconds / len(session.data.train), session.arithmetic.device.type)


def _path(name: str, environment: Mapping[str, str]) -> Path | None:
    text = environment.get(name, "").strip()
    return user_path(text, environment) if text else None
