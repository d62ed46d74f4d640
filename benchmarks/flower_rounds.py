# SPDX-License-Identifier: Apache-2.0
"""Rounds of a few among many sites in Flower's simulation (Ray): the same model, images, batches and judgements.

    python benchmarks/flower_rounds.py PROTOCOL.json SITES.json WORKERS

Arguments and work are those of ``many_sites_loop.py``, except that Flower draws the sites of a round. ``WORKERS`` is
the number of Ray's actors; the cores are divided between them. Prints the seconds of each round. It needs
``flwr[simulation]``, in an environment of its own (``docs/benchmarks.md``).
"""

import logging
import os
import sys
import time
from itertools import pairwise
from typing import Any

import torch
from flower_site import Arrays, Site, arrays, opened, set_arrays
from flwr.client import Client, ClientApp
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from plain_loop import accuracy

logging.getLogger("flwr").setLevel(logging.WARNING)


def server_of(protocol_file: str, sites: str, ends: list[float]) -> ServerAppComponents:
    """Return strategy and rounds; ``ends`` receives the time at which each round has been judged."""
    protocol, data, model = opened(protocol_file, sites)
    target = next(one for one in data.values() if one.domain == protocol.target)

    def judge(number: int, parameters: Arrays, _: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        set_arrays(model, parameters)
        score = accuracy(model, target, target.test, protocol)
        ends.append(time.perf_counter())
        return 1 - score, {}

    count = len(data) - 1
    drawn = protocol.sites_per_round or count
    strategy = FedAvg(
        fraction_fit=drawn / count,
        fraction_evaluate=0.0,
        min_fit_clients=drawn,
        min_available_clients=count,
        evaluate_fn=judge,
        on_fit_config_fn=lambda number: {"round": number - 1},
        initial_parameters=ndarrays_to_parameters(arrays(model)),
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=protocol.rounds))


def main(arguments: list[str]) -> None:
    """Simulate the rounds and print their seconds."""
    protocol, sites, workers = arguments[0], arguments[1], int(arguments[2])
    threads, ends = max(1, torch.get_num_threads() // workers), list[float]()

    def client(context: Context) -> Client:
        torch.set_num_threads(threads)
        return Site(protocol, sites, int(context.node_config["partition-id"])).to_client()

    count = len(opened(protocol, sites)[1]) - 1
    # Ray counts its own cores: as many as there are workers, and one for each client.
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": workers}}
    server = ServerApp(server_fn=lambda _: server_of(protocol, sites, ends))
    run_simulation(server, ClientApp(client_fn=client), count, backend_config=resources)
    for earlier, later in pairwise(ends):
        print(later - earlier)  # noqa: T201


if __name__ == "__main__":
    os.environ["RAY_DEDUP_LOGS"] = "0"
    main(sys.argv[1:])
