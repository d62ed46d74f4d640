# SPDX-License-Identifier: Apache-2.0
"""Rounds of a few among many sites in BlazeFL's simulation (threads): the same model, images, batches and judgements.

    python benchmarks/blazefl_rounds.py PROTOCOL.json SITES.json WORKERS

Arguments and work are those of ``many_sites_loop.py``; ``WORKERS`` is the number of threads that train sites, each of
which has its share of the cores. Prints the seconds of each round. It needs ``blazefl``, whose threads run at the same
time only in a Python without the global lock, in an environment of its own (``docs/benchmarks.md``).
"""

import json
import sys
import threading
import time
from pathlib import Path

import torch
from blazefl.core import ThreadPoolClientTrainer
from blazefl.core.utils import deserialize_model, serialize_model
from many_sites_loop import open_sites
from plain_loop import accuracy, train

from fdg_plugins.data import DomainData
from fdg_plugins.objectives.network import plain_network
from fdg_plugins.settings.protocol import Protocol


class Sites(ThreadPoolClientTrainer[torch.Tensor, torch.Tensor]):
    """The sources, which send the values of their networks as one vector."""

    def __init__(self, protocol: Protocol, data: dict[str, DomainData], workers: int) -> None:
        self.num_parallels, self.device, self.device_count = workers, "cpu", 0
        self.cache: list[torch.Tensor] = []
        self.stop_event = threading.Event()
        self.protocol, self.data = protocol, data
        self.names = sorted(name for name, one in data.items() if one.domain != protocol.target)
        self.number = 0  # of the round
        self.threads = max(1, torch.get_num_threads() // workers)
        self.models = [plain_network(protocol, len(data[self.names[0]].classes)) for _ in range(workers)]

    def worker(self, cid: int, device: str, payload: torch.Tensor, stop_event: threading.Event) -> torch.Tensor:
        """Judge the model, train it and judge it again."""
        torch.set_num_threads(self.threads)
        name, protocol, model = self.names[cid], self.protocol, self.models.pop()
        data = self.data[name]
        deserialize_model(model, payload)
        accuracy(model, data, data.validation, protocol)
        train(model, data, name, self.number, protocol)
        accuracy(model, data, data.validation, protocol)
        trained = serialize_model(model)
        self.models.append(model)
        return trained


def main(arguments: list[str]) -> None:
    """Simulate the rounds and print their seconds."""
    protocol = Protocol.model_validate_json(Path(arguments[0]).read_bytes())
    data = open_sites(protocol, json.loads(Path(arguments[1]).read_bytes()))
    target = next(one for one in data.values() if one.domain == protocol.target)
    sites, model = Sites(protocol, data, int(arguments[2])), plain_network(protocol, len(target.classes))
    for sites.number in range(protocol.rounds):
        started = time.perf_counter()
        drawn = protocol.draw_sites(tuple(sites.names), sites.number)
        sites.local_process(serialize_model(model), [sites.names.index(name) for name in drawn])
        deserialize_model(model, torch.stack(sites.cache).mean(dim=0))
        sites.cache = []
        accuracy(model, target, target.test, protocol)
        print(time.perf_counter() - started)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
