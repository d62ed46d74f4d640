# SPDX-License-Identifier: Apache-2.0
"""The extractor's features of images of all domains, embedded in a plane by t-SNE (FedDIM paper, Fig. 4).

Reference: van der Maaten, Hinton, "Visualizing Data using t-SNE", JMLR 2008. Near neighbours stay near; distances
between clusters, their sizes and the axes have no meaning.
"""

import numpy as np
import torch
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.figures.groups import caption_of, origin_of
from fdg_plugins.lab.analysis.figures.material import Batches, Chosen, Images, device, empty_model
from fdg_plugins.lab.analysis.figures.picture import FeaturePoint, Scatter
from fdg_plugins.lab.analysis.figures.style import domain_looks, numbered_look
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import rule_in_words
from fdg_plugins.models import ExtractorClassifier

PERPLEXITY = 30.0


def features(run: Run, chosen: Chosen, images: Images, samples: int) -> Scatter:
    """Return the embedded images: at most ``samples`` unseen images per domain, evenly over its classes.

    Raises ``DataError`` if the images are not those of the run, or the features are not finite, and ``SettingsError``
    if the run's features are of pixels.
    """
    if not run.record.task.one_class_per_image:
        raise SettingsError(
            f"run {run.folder} learned the task {run.record.task.name!r}, whose features are of pixels; expected one "
            "vector per image."
        )
    model = empty_model(run)
    model.load_state_dict(chosen.state)
    domains = domain_looks(run.dataset, (reply.domain for reply in run.record.census.values()))
    found: list[tuple[str, int, str]] = []
    vectors: list[np.ndarray] = []
    for domain in domains:
        data = images.open(domain)
        drawn = images.draw(data, samples)
        found += [(domain, sample.label, sample.file) for sample in drawn]
        vectors.append(extract(model, images.batches(data, drawn)))
    together = np.concatenate(vectors)
    if not np.isfinite(together).all():
        raise DataError(f"run {run.folder}: features of its model after round {chosen.after_round} are not finite.")
    layout = lay_out(together, run.seed)
    names = run.record.classes
    return Scatter(
        name="features",
        title=f"Features of the global model after round {chosen.after_round}, {method_title(run.method)}",
        caption=f"{caption_of([run])}; t-SNE, perplexity {perplexity_of(len(together)):g}; images that took "
        f"no part in training; selection: {rule_in_words(chosen.rule, run.record.protocol)}",
        origin=origin_of([run]),
        points=tuple(
            FeaturePoint(domain, names[label], file, float(x), float(y))
            for (domain, label, file), (x, y) in zip(found, layout, strict=True)
        ),
        domain_looks=domains,
        class_looks={name: numbered_look(number) for number, name in enumerate(names)},
        held_out=run.target,
    )


@torch.inference_mode()
def extract(model: ExtractorClassifier, batches: Batches) -> np.ndarray:
    """Return the features ``[n, D]`` of the images of all batches, float32, from the model in evaluation mode."""
    model.to(where := device()).eval()
    return np.concatenate([model.features(images.to(where)).cpu().numpy() for images, _ in batches])


def perplexity_of(count: int) -> float:
    """Return the perplexity for ``count`` images: 30, the usual value, or less for few images."""
    return min(PERPLEXITY, max(1.0, (count - 1) / 3))


def lay_out(vectors: np.ndarray, seed: int) -> np.ndarray:
    """Return the embedding ``[n, 2]`` of ``vectors: [n, D]``; the same for the same seed.

    Raises ``DataError`` for fewer than four vectors, which t-SNE cannot embed.
    """
    if len(vectors) < 4:
        raise DataError(f"there are {len(vectors)} images that took no part in training; expected at least 4.")
    method = TSNE(n_components=2, init="pca", perplexity=perplexity_of(len(vectors)), random_state=seed)
    with threadpool_limits(limits=1):  # more threads change the order of sums, and t-SNE amplifies a last bit
        return method.fit_transform(vectors)
