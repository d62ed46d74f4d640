# SPDX-License-Identifier: Apache-2.0
"""Federated averaging as a script: one process, one loop over the sites, no FLARE. The reference of ``whole_job``.

    python benchmarks/plain_loop.py PROTOCOL.json CACHE [sites]

It trains as the job does, on the same batches from the same weights, and judges as such a script does: after every
round, on the sources' validation splits and on the target. With ``sites`` it judges as the sites of the job do: the
initial model and the models of the sites too. Prints source and target accuracy of the last model.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from cases.plain_loop import evaluate_plainly, train_plainly

from fdg_plugins.data import DomainData, dataset_spec, find_data_root, open_domain
from fdg_plugins.data.images import evaluation_batches, training_epochs
from fdg_plugins.data.specs import Sample
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.settings.protocol import Protocol

EVALUATION_BATCH = 64  # as at a site
IMAGE_MEMORY = 2**31  # too


def main(arguments: list[str]) -> None:
    """Train and judge."""
    protocol, cache = Protocol.model_validate_json(Path(arguments[0]).read_bytes()), Path(arguments[1])
    as_sites = arguments[2:] == ["sites"]
    domains = {name: open_data(protocol, name, cache) for name in dataset_spec(protocol.dataset).domains}
    sources = {name: data for name, data in domains.items() if name != protocol.target}
    held_out = domains[protocol.target]
    model = build_model(protocol.model, len(held_out.classes), seed=protocol.seed)

    def judge() -> tuple[float, float]:
        validation = [accuracy(model, data, data.validation, protocol) for data in sources.values()]
        return sum(validation) / len(validation), accuracy(model, held_out, held_out.test, protocol)

    if as_sites:
        judge()
    for number in range(protocol.rounds):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        local = []
        for name, data in sources.items():
            model.load_state_dict(state)
            train(model, data, name, number, protocol)
            if as_sites:
                accuracy(model, data, data.validation, protocol)
            local.append({key: value.clone() for key, value in model.state_dict().items()})
        model.load_state_dict(mean(local))
        scores = judge()
    print(*scores)  # noqa: T201


def open_data(protocol: Protocol, domain: str, cache: Path) -> DomainData:
    """Return the images of a domain: real ones where ``FDG_DATA_ROOT`` says so, else the stand-in's."""
    root = find_data_root(protocol.dataset, _data_root(), cache)
    limit = protocol.max_samples_per_domain
    return open_domain(
        root.path, protocol.dataset, domain, seed=protocol.seed, max_samples=limit, image_memory=IMAGE_MEMORY
    )


def train(model: ExtractorClassifier, data: DomainData, site: str, round_number: int, protocol: Protocol) -> None:
    """Train ``model`` in place for a round's local epochs."""
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=protocol.learning_rate_at(round_number),
        momentum=protocol.momentum,
        weight_decay=protocol.weight_decay,
    )
    epochs = training_epochs(
        data,
        image_size=protocol.image_size,
        batch_size=protocol.batch_size,
        seed=protocol.seed,
        scope=(site, round_number),
        epochs=protocol.local_epochs,
    )
    for batches in epochs:
        train_plainly(model, batches, optimizer)


def mean(states: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the mean of states; of counters the largest, as the job's server does."""
    return {
        name: torch.stack([state[name] for state in states]).mean(dim=0)
        if value.is_floating_point()
        else torch.stack([state[name] for state in states]).amax(dim=0)
        for name, value in states[0].items()
    }


def accuracy(model: ExtractorClassifier, data: DomainData, samples: Sequence[Sample], protocol: Protocol) -> float:
    """Return the fraction of ``samples`` that ``model`` gets right."""
    batches = evaluation_batches(data, samples, image_size=protocol.image_size, batch_size=EVALUATION_BATCH)
    return evaluate_plainly(model, batches)


def _data_root() -> Path | None:
    root = os.environ.get("FDG_DATA_ROOT", "").strip()
    return Path(root) if root else None


if __name__ == "__main__":
    main(sys.argv[1:])
