# SPDX-License-Identifier: Apache-2.0
"""FedIIR's probe and its penalty under each rule of BatchNorm's statistics: do they see the same gradient?

    python benchmarks/batch_norm_modes.py --data-root /data

In each round, at the model that sites receive, the classifier's gradient over a site's training images is computed as
the probe computes it (in evaluation mode) and as the penalty does (in the mode of training, in batches of training).
Prints the ratio of their lengths, penalty over probe, and their cosine, as means over the sites, and the model's mean
validation loss. PACS at 64 pixels from scratch; sites train without the penalty, so that all rules see FedAvg's models.
"""

import argparse
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.controllers.reception import SiteStatistics
from fdg_plugins.data import SharedDomains
from fdg_plugins.data.images import reported_batches
from fdg_plugins.errors import FDGError
from fdg_plugins.methods.fediir import classifier_parameters, gradient_report
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import FeatureBatch
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.training.global_model import GlobalModel, initial_model
from fdg_plugins.training.session import SiteSession

SOURCES = ("art_painting", "photo", "sketch")
# Rule of the statistics, and whether BatchNorm trains in evaluation mode (frozen_batchnorm).
CASES = (("average", False), ("reestimate", False), ("reestimate", True), ("frozen", False))
CLASSES = 7


def main() -> None:
    """Measure every case and print its rounds."""
    parser = argparse.ArgumentParser(description="FedIIR's probe and penalty under each rule of BatchNorm's statistics")
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=150, help="per domain")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    asked = parser.parse_args()
    shared = SharedDomains()
    for rule, held in CASES:
        protocol = Protocol(
            target="cartoon",
            model="resnet18",
            pretrained="none",
            image_size=64,
            local_epochs=1,
            learning_rate=asked.learning_rate,
            rounds=10,
            max_samples_per_domain=asked.images,
            batch_norm=rule,
            objective={"name": "iir", "strength": 0.0, "frozen_batchnorm": held},
        )
        config = SiteConfig(device="cpu", data_root=asked.data_root)
        sites = {name: SiteSession(name, config, protocol, shared=shared) for name in SOURCES}
        print(f"batch_norm {rule}, frozen_batchnorm {str(held).lower()}")  # noqa: T201
        run(sites, initial_model(protocol, CLASSES, len(sites)).model, asked.rounds)


def run(sites: Mapping[str, SiteSession], model: GlobalModel, rounds: int) -> None:
    """Run the rounds of one case and print a line for each."""
    for number in range(rounds):
        reestimate(sites, model)
        ratios, cosines, losses = [], [], []
        for site in sites.values():
            probed, penalised = gradients(site, model.state)
            ratios.append(float(penalised.norm() / probed.norm()))
            cosines.append(float(torch.nn.functional.cosine_similarity(penalised, probed, dim=0)))
            losses.append(site.evaluate(site.load(model.state), "validation").loss)
        found = [statistics.mean(values) for values in (ratios, cosines, losses)]
        line = "  round {}: length {:.3g}, cosine {:.3f}, validation loss {:.3g}"
        print(line.format(number + 1, *found), flush=True)  # noqa: T201
        if number + 1 < rounds and not step(sites, model, number):
            print(f"  round {number + 1}: training diverged", flush=True)  # noqa: T201
            return


def reestimate(sites: Mapping[str, SiteSession], model: GlobalModel) -> None:
    """Measure the model's statistics anew where the protocol says so, as the server does."""
    if not model.reestimated:
        return
    found = SiteStatistics(model.reestimated, {name: len(site.data.train) for name, site in sites.items()})
    for name, site in sites.items():
        found.take(name, FLModel(metrics=site.statistics(model.state)))
    model.replace(found.pooled())


def gradients(site: SiteSession, state: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the classifier's gradient at a site as the probe and as the penalty see it, each as one vector."""
    model = site.load(state)
    site.objective.local({}, model)
    model.train()
    penalised = gradient_report(model.classifier, classifier_parameters(model), seen_in_training(site, model))
    return vector(site.probe(state)), vector(penalised)


def seen_in_training(site: SiteSession, model: ExtractorClassifier) -> Iterator[FeatureBatch]:
    """Yield the features of the training images in batches of training, in the model's present mode."""
    protocol = site.protocol
    batches = reported_batches(
        site.data,
        image_size=protocol.image_size,
        batch_size=protocol.batch_size,
        seed=0,
        scope=(site.site,),
        shuffled=True,
    )
    for images, targets in batches:
        with torch.no_grad():
            features = model.features(images)
        yield FeatureBatch(images, features, targets)


def vector(report: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the report's tensors as one vector."""
    return torch.cat([report[name].double().flatten() for name in sorted(report)])


def step(sites: Mapping[str, SiteSession], model: GlobalModel, number: int) -> bool:
    """Train at every site and move the model by the mean update; return whether it is finite."""
    trained = [site.train(model.state, number) for site in sites.values()]
    updates = [one.update for one in trained]
    try:
        model.apply({name: torch.stack([one[name].double() for one in updates]).mean(dim=0) for name in updates[0]})
    except FDGError:
        return False
    return True


if __name__ == "__main__":
    main()
