# SPDX-License-Identifier: Apache-2.0
"""Sites without a training that answer the workflow at once, in its process: for many of them, or many rounds.

``python -m tests.controllers.crowd FOLDER ROUNDS``: runs them, and prints the resident memory of the process, in bytes,
after each round, as a JSON list. What FLARE's own communicator keeps has no part in it.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fdg_plugins.controllers import FederationController
from fdg_plugins.messages import META_REPORT, META_REQUEST, META_SAMPLES, TASK_CENSUS, TASK_EVALUATE, CensusReply
from fdg_plugins.randomness import torch_generator
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.versions import OF_SITE, installed_versions
from tests.controllers.federation_stubs import Engine, Line, census_reply, context_of, evaluation, honest_report

PROTOCOL: dict[str, Any] = {"model": "convnet", "pretrained": "none", "target": "sketch", "image_size": 16}
DOMAINS = ("art_painting", "cartoon", "photo")


class QuietEngine(Engine):
    """FLARE's end of the line, which does not keep the events of a whole run."""

    def fire_event(self, event: str, context: FLContext) -> None:
        """Forget it."""


class Watched(FederationController):
    """The workflow, which tells after every round."""

    on_round: Callable[[], None] | None = None

    def _tell_widgets(self, number: int, rounds: Any) -> None:
        super()._tell_widgets(number, rounds)
        if self.on_round is not None:
            self.on_round()


class Crowd:
    """A run of ``sites`` by name, each with its domain, whose updates are drawn at random; one holds ``sketch``."""

    def __init__(self, folder: Path, sites: dict[str, str], **arguments: Any) -> None:
        self.sites = sites
        self.controller = Watched(
            **{"protocol": PROTOCOL, "aggregator": {"name": "fedomg", "server_lr": 1.0}, "poll": 0.0001, **arguments}
        )
        self.engine = QuietEngine(folder, tuple(sites))

    def run(self) -> None:
        """Run it to its end."""
        self.controller.set_communicator(Line(self.answer))
        context = context_of(self.engine)
        self.controller.start_controller(context)
        self.controller.control_flow(Signal(), context)

    def answer(self, site: str, task: str, request: Shareable) -> Shareable:
        """Return what the site answers."""
        domain = self.sites[site]
        if task == TASK_CENSUS:
            return DXO(DataKind.METRICS, data=counted(domain).model_dump(mode="json")).to_shareable()
        if task == TASK_EVALUATE:
            split = "test" if domain == PROTOCOL["target"] else "validation"
            return DXO(
                DataKind.METRICS, data=evaluation(0.5, 20 if split == "test" else 10, split=split).model_dump()
            ).to_shareable()
        generator = torch_generator(0, site, request.get_header("current_round", 0))
        dxo = from_shareable(request)
        protocol = Protocol.model_validate(dxo.meta[META_REQUEST]["protocol"])
        report = honest_report(protocol, counted(domain), request.get_header("current_round", 0))
        meta = {META_SAMPLES: 8, META_REPORT: report.model_dump()}
        update = {name: drawn(value, generator) for name, value in dxo.data.items()}
        return DXO(DataKind.WEIGHT_DIFF, data=update, meta=meta).to_shareable()


def counted(domain: str) -> CensusReply:
    """Return what a site of the crowd counts."""
    counts = (2, 3, 3, 3, 3, 3, 3)
    own = {"versions": installed_versions(OF_SITE), "num_validation": 12, "num_test": sum(counts)}
    return census_reply(domain, classes=tuple("abcdefg"), class_counts=counts, **own)


def drawn(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a small random update of a parameter, of a counter one."""
    if not value.is_floating_point():
        return torch.ones_like(value)
    return torch.randn(value.shape, generator=generator) * 1e-3


def resident_bytes() -> int:
    """Return the resident memory of this process, as Linux counts it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def memory_by_round(folder: Path, rounds: int, keep: Callable[[], object] | None = None) -> list[int]:
    """Return the resident memory before each round of a small run, and after the last; ``keep`` is called in each."""
    crowd = Crowd(
        folder, {**{name: name for name in DOMAINS}, "sketch": "sketch"}, protocol={**PROTOCOL, "rounds": rounds}
    )
    seen: list[int] = []
    kept: list[object] = []

    def look() -> None:
        seen.append(resident_bytes())
        if keep is not None:
            kept.append(keep())

    crowd.controller.on_round = look
    crowd.run()
    return [*seen, resident_bytes()]


def main(arguments: Iterable[str]) -> None:
    """Run, and print."""
    folder, rounds = arguments
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(memory_by_round(Path(folder), int(rounds))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
