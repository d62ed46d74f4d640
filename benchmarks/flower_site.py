# SPDX-License-Identifier: Apache-2.0
"""A site of ``flower_rounds.py``, in a module that the processes of Ray import."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.client import NumPyClient
from many_sites_loop import open_sites
from plain_loop import accuracy, train

from fdg_plugins.data import DomainData
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives.network import plain_network
from fdg_plugins.settings.protocol import Protocol

Arrays = list[np.ndarray]


@cache
def opened(protocol: str, sites: str) -> tuple[Protocol, dict[str, DomainData], ExtractorClassifier]:
    """Return the protocol, the data of all sites and a model, once in each process."""
    read = Protocol.model_validate_json(Path(protocol).read_bytes())
    data = open_sites(read, json.loads(Path(sites).read_bytes()))
    classes = len(next(iter(data.values())).classes)
    return read, data, plain_network(read, classes)


class Site(NumPyClient):
    """A site of the files ``protocol`` and ``sites``."""

    def __init__(self, protocol: str, sites: str, number: int) -> None:
        self.protocol, data, self.model = opened(protocol, sites)
        sources = sorted(name for name, one in data.items() if one.domain != self.protocol.target)
        self.name = sources[number]
        self.data = data[self.name]

    def fit(self, parameters: Arrays, config: dict[str, Any]) -> tuple[Arrays, int, dict[str, Any]]:
        """Judge the model, train it and judge it again."""
        set_arrays(self.model, parameters)
        accuracy(self.model, self.data, self.data.validation, self.protocol)
        train(self.model, self.data, self.name, int(config["round"]), self.protocol)
        accuracy(self.model, self.data, self.data.validation, self.protocol)
        return arrays(self.model), len(self.data.train), {}


def arrays(model: ExtractorClassifier) -> Arrays:
    """Return the state of ``model`` as arrays of its own."""
    return [value.numpy().copy() for value in model.state_dict().values()]


def set_arrays(model: ExtractorClassifier, values: Arrays) -> None:
    """Put arrays into ``model``, as :func:`arrays` returns them."""
    model.load_state_dict(dict(zip(model.state_dict(), map(torch.from_numpy, map(np.copy, values)), strict=True)))
