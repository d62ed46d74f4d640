# SPDX-License-Identifier: Apache-2.0
"""Rounds of a few among many sites as a script: one process, one loop, no FLARE. The reference of ``one_process``.

    python benchmarks/many_sites_loop.py PROTOCOL.json SITES.json

``SITES.json`` maps every site to its domain and its part of it, as a site's own config does. The sites of a round train
as they do in the job, and are judged on their validation images, as is the target. Prints the seconds of each round.
"""

import json
import sys
import time
from pathlib import Path

from plain_loop import IMAGE_MEMORY, accuracy, mean, train

from fdg_plugins.data import DomainData, SharedDomains, find_data_root, open_domain
from fdg_plugins.objectives.network import plain_network
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig


def main(arguments: list[str]) -> None:
    """Train and judge."""
    protocol = Protocol.model_validate_json(Path(arguments[0]).read_bytes())
    sites = open_sites(protocol, json.loads(Path(arguments[1]).read_bytes()))
    sources = tuple(sorted(name for name, data in sites.items() if data.domain != protocol.target))
    target = next(data for data in sites.values() if data.domain == protocol.target)
    model = plain_network(protocol, len(target.classes))
    for number in range(protocol.rounds):
        started = time.perf_counter()
        drawn = protocol.draw_sites(sources, number)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        local = []
        for name in drawn:
            model.load_state_dict(state)
            accuracy(model, sites[name], sites[name].validation, protocol)
            train(model, sites[name], name, number, protocol)
            accuracy(model, sites[name], sites[name].validation, protocol)
            local.append({key: value.clone() for key, value in model.state_dict().items()})
        model.load_state_dict(mean(local))
        accuracy(model, target, target.test, protocol)
        print(time.perf_counter() - started)  # noqa: T201


def open_sites(protocol: Protocol, entries: dict[str, dict[str, str]]) -> dict[str, DomainData]:
    """Return the data of every site; sites of one domain share its images."""
    root, shared = find_data_root(protocol.dataset, None, None).path, SharedDomains()
    configs = {name: SiteConfig.model_validate(entry) for name, entry in entries.items()}
    return {
        name: open_domain(
            root,
            protocol.dataset,
            str(config.domain),
            seed=protocol.seed,
            part=config.part_of_domain(),
            image_memory=IMAGE_MEMORY,
            shared=shared,
        )
        for name, config in configs.items()
    }


if __name__ == "__main__":
    main(sys.argv[1:])
