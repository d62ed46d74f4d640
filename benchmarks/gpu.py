# SPDX-License-Identifier: Apache-2.0
"""A site's round on a GPU against a plain PyTorch loop: images per second, seconds per round, peak memory.

    python benchmarks/gpu.py                       # ResNet-50, 224 px, batch 32
    python benchmarks/gpu.py --network resnet18 --to FILE.md
    python benchmarks/gpu.py --compile             # compiled training as well; needs Triton and a C compiler

A round is two evaluations and one pass of training, over random images that wait in pinned memory, as a site's loader
hands them over. The plain loop computes in float32, as torch's defaults are. The first rounds of each way, in which
memory is taken and code compiled, do not count. Without a GPU it says so and measures nothing.
"""

import argparse
import importlib.metadata
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from cases.measure import MIB
from cases.plain_loop import evaluate_plainly, train_plainly
from cases.training import LEARNING_RATE, MOMENTUM, random_batch

from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives.erm import LocalRisk
from fdg_plugins.settings.protocol import AUTO, Protocol
from fdg_plugins.training.loop import BACKEND, DevicePolicy, device_policy, evaluate, suited_precision, train_locally

CLASSES = 7  # PACS
EVALUATED = 4  # one batch in so many is for validation
COLUMNS = ("a round", "images/s", "s per round", "of the plain loop", "peak memory")


class Way(NamedTuple):
    """How a site computes: autocast to bfloat16, convolutions with channels last, one kernel per optimizer step,
    training by a compiled extractor."""

    bfloat16: bool = False
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False

    def __str__(self) -> str:
        chosen = [name.replace("_", " ") for name, value in self._asdict().items() if value]
        return ", ".join(["a site", *chosen] if self.bfloat16 else ["a site", "float32", *chosen])


WAYS = (Way(), Way(fused=True), Way(bfloat16=True), Way(True, True), Way(True, True, True))
COMPILED_WAYS = (Way(compiled=True), Way(True, True, True, True))


class Measured(NamedTuple):
    """Median seconds of a round, images trained on per second of it, and most bytes that the device held."""

    seconds: float
    images_per_second: float
    peak: int


class Size(NamedTuple):
    """What is trained: network, pixels per side, images per batch, batches per pass, rounds that count."""

    network: str
    pixels: int
    batch_size: int
    batches: int
    rounds: int


def our_round(size: Size, way: Way, device: torch.device) -> Callable[[], object]:
    """Return a round as a site computes it."""
    policy = DevicePolicy(device, way.bfloat16, way.channels_last)
    model = policy.place(build_model(size.network, CLASSES, seed=0))
    if way.compiled:
        model.compile_for_training(BACKEND)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, fused=way.fused)
    training, validation = _images(size, device)

    def compute() -> None:
        evaluate(model, validation, policy)
        train_locally(model, LocalRisk(), [training], optimizer, policy)
        evaluate(model, validation, policy)

    return compute


def plain_round(size: Size, device: torch.device) -> Callable[[], object]:
    """Return the same round as a script has it."""
    model: ExtractorClassifier = build_model(size.network, CLASSES, seed=0).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    training, validation = _images(size, device)

    def compute() -> None:
        evaluate_plainly(model, validation)
        train_plainly(model, training, optimizer)
        evaluate_plainly(model, validation)

    return compute


def measure(compute: Callable[[], object], size: Size, device: torch.device, warm_ups: int = 2) -> Measured:
    """Return time and memory of a round."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for turn in range(warm_ups + size.rounds):
        started = time.perf_counter()
        compute()
        if on_gpu:
            torch.cuda.synchronize(device)
        if turn >= warm_ups:
            seconds.append(time.perf_counter() - started)
    median = statistics.median(seconds)
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else 0
    return Measured(median, size.batches * size.batch_size / median, peak)


def table(size: Size, device: torch.device, ways: tuple[Way, ...] = WAYS) -> list[str]:
    """Measure the plain loop and each way, and return the lines of the table in Markdown."""
    plain = measure(plain_round(size, device), size, device)
    measured = {"plain loop, float32": plain}
    for way in ways:
        measured[str(way)] = measure(our_round(size, way, device), size, device)
    lines = [COLUMNS, ("---", *("---:",) * 4)]
    for name, result in measured.items():
        ratio = f"{result.seconds / plain.seconds:.2f}"
        memory = f"{result.peak / MIB:.0f} MiB"
        lines.append((name, f"{result.images_per_second:.0f}", f"{result.seconds:.3g}", ratio, memory))
    return [f"| {' | '.join(cells)} |" for cells in lines]


def about(size: Size, device: torch.device) -> list[str]:
    """Return what was measured, on which card, and which of the ways ``precision: auto`` is there."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    policy = device_policy(Protocol(precision=AUTO), device)
    return [
        f"- {size.network}, {size.pixels} px, {size.batches} batches of {size.batch_size}, from scratch",
        f"- {name}, torch {importlib.metadata.version('torch')}",
        f"- precision auto is: {Way(policy.bfloat16, policy.channels_last)}; {suited_precision(device).reason}",
    ]


def _images(size: Size, device: torch.device) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], ...]:
    images, labels = random_batch(size.batch_size, size.pixels, CLASSES)
    if device.type == "cuda":
        images, labels = images.pin_memory(), labels.pin_memory()
    return [(images, labels)] * size.batches, [(images, labels)] * max(1, size.batches // EVALUATED)


def main(arguments: list[str] | None = None) -> None:
    """Measure on the GPU that torch finds, print the table with the card's name, write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=("resnet18", "resnet50"), default="resnet50")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=64, help="of a pass")
    parser.add_argument("--rounds", type=int, default=5, help="that count")
    parser.add_argument("--compile", action="store_true", help="compiled training too; its first rounds take minutes")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the table to this file as well")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("not measured: torch finds no CUDA device on this machine.")  # noqa: T201
        sys.exit(2)
    device = torch.device("cuda")
    size = Size(options.network, options.pixels, options.batch_size, options.batches, options.rounds)
    ways = (*WAYS, *(COMPILED_WAYS if options.compile else ()))
    text = "\n".join([*table(size, device, ways), "", *about(size, device)]) + "\n"
    print(text, end="")  # noqa: T201
    if options.to:
        options.to.write_text(text)


if __name__ == "__main__":
    main()
