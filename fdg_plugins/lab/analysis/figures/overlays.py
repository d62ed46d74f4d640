# SPDX-License-Identifier: Apache-2.0
"""Images of the held-out domain with truth and prediction laid over: the best, the median and the worst by Dice.

Every pixel has one outcome. Foreground predicted with its own class is a true positive, foreground predicted as
background a false negative, and any other predicted foreground a false positive: where the truth is background, and, if
there are several foreground classes, where it is another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from fdg_plugins.data import DomainData, Sample, dataset_spec
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis.distances import hausdorff95
from fdg_plugins.lab.analysis.figures.groups import caption_of, origin_of
from fdg_plugins.lab.analysis.figures.material import Chosen, Images, device, empty_model
from fdg_plugins.lab.analysis.figures.picture import Outcome, Overlays, SegmentedImage, ShownImage
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import rule_in_words
from fdg_plugins.tasks import SEGMENTATION
from fdg_plugins.tasks.segmentation import DICE, Segmentation

PIXELS, MILLIMETRES = "pixels", "mm"  # of the image as evaluated
SPREAD = (1.0, 99.0)  # percentiles of intensities that are not in [0, 1], displayed as black and white


def check_has_masks(run: Run) -> None:
    """Raise ``SettingsError`` unless the run learned segmentation."""
    if not isinstance(run.record.task, Segmentation):
        raise SettingsError(
            f"run {run.folder} learned the task {run.record.task.name!r}, expected {SEGMENTATION.name!r}, whose masks "
            "can be laid over images."
        )


class Segmented(NamedTuple):
    """An evaluated image ``[C, *S]``, with truth and prediction ``[*S]``, int64, and its Dice."""

    image: torch.Tensor
    truth: torch.Tensor
    found: torch.Tensor
    dice: float


def overlays(run: Run, chosen: Chosen, images: Images) -> Overlays:
    """Return the scores of all images of the held-out domain, and up to three of the images.

    Raises ``DataError`` if the images are not those of the run, or the model's logits are not finite.
    """
    data = images.open(run.target)
    samples, segmenter = images.unseen(data), Segmenter(run, chosen, images, data)
    spacings = _spacings(run, data, samples)
    scores = tuple(
        _scores(run, sample, segmented, spacing)
        for sample, segmented, spacing in zip(samples, segmenter(samples), spacings, strict=True)
    )
    cases = cases_of([image.dice for image in scores])
    drawn = [samples[place] for place in cases.values()]
    unit = PIXELS if None in spacings else MILLIMETRES
    distances = {case: scores[place].hausdorff95 for case, place in cases.items()}
    return Overlays(
        name="overlays",
        title=f"Segmentation of the held-out domain {run.target}, {method_title(run.method)}",
        caption="; ".join(
            [
                caption_of([run]),
                method_title(run.method),
                f"{len(samples)} images of the held-out domain {run.target}",
                f"global model after round {chosen.after_round}, "
                f"selection: {rule_in_words(chosen.rule, run.record.protocol)}",
                f"HD95 {_listed(distances)} {unit}",
                *_remarks(run),
            ]
        ),
        origin=origin_of([run]),
        shown=tuple(
            _shown(run, data, case, sample, segmented)
            for case, sample, segmented in zip(cases, drawn, segmenter(drawn), strict=True)
        ),
        images=scores,
        unit=unit,
        held_out=run.target,
    )


class Segmenter:
    """Segments images of a domain one by one, with the windows of the run's own evaluation, in float32.

    An image has the same bits in every picture of it; a site that judged it in a batch, or in bfloat16, may have found
    others.
    """

    def __init__(self, run: Run, chosen: Chosen, images: Images, data: DomainData) -> None:
        self._run = run
        self._chosen = chosen
        self._images = images
        self._data = data
        self._model = empty_model(run)
        self._model.load_state_dict(chosen.state)
        self._model.to(device()).eval()

    def __call__(self, samples: Sequence[Sample]) -> Iterator[Segmented]:
        """Yield the images of ``samples``, segmented; raise ``DataError`` for logits that are not finite."""
        batches = self._images.one_by_one(self._data, samples)
        for sample, (images, truths) in zip(samples, batches, strict=True):
            yield self._segmented(sample, images, truths)

    @torch.inference_mode()
    def _segmented(self, sample: Sample, images: torch.Tensor, truths: torch.Tensor) -> Segmented:
        task, size = self._run.record.task, self._run.record.protocol.image_size
        logits = task.logits(self._model, images.to(device()), size).float().cpu()
        if not bool(logits.isfinite().all()):
            raise DataError(
                f"run {self._run.folder}: logits of its model after round {self._chosen.after_round} are not finite "
                f"for {sample.file}."
            )
        dice = float(task.sums(logits, truths)[DICE.name].total)
        return Segmented(images[0], truths[0], logits[0].argmax(dim=-1), dice)


def cases_of(dices: Sequence[float]) -> dict[str, int]:
    """Return the places of the best, the median and the worst image; with fewer than three images, of those there are.

    Of two images in the middle, the median is the worse; among equals, the first comes first.
    """
    order = sorted(range(len(dices)), key=lambda place: -dices[place])
    names = {1: ("only",), 2: ("best", "worst")}.get(len(order), ("best", "median", "worst"))
    return {name: order[min(number * len(order) // 2, len(order) - 1)] for number, name in enumerate(names)}


def outcomes_of(truth: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Return the :class:`Outcome` of each pixel, uint8 ``[*S]``, from class numbers ``[*S]``."""
    outcomes = torch.full_like(truth, Outcome.TRUE_NEGATIVE, dtype=torch.uint8)
    outcomes[(found > 0) & (found != truth)] = Outcome.FALSE_POSITIVE
    outcomes[(truth > 0) & (found == truth)] = Outcome.TRUE_POSITIVE
    outcomes[(truth > 0) & (found == 0)] = Outcome.FALSE_NEGATIVE
    return outcomes


def fullest_slice(truth: torch.Tensor, found: torch.Tensor) -> int:
    """Return the slice along the last axis of a volume with most foreground of ``truth``, or of ``found`` if it has
    none."""
    marked = truth if bool(truth.any()) else found
    return int((marked > 0).sum(dim=(0, 1)).argmax())


def displayed(image: torch.Tensor) -> np.ndarray:
    """Return an image ``[C, H, W]`` as uint8 ``[H, W, 3]``: three channels as colours, else the first one in grey.

    Intensities in [0, 1] stay as they are. Others are stretched between two percentiles, since they have no black.
    """
    values = (image if len(image) == 3 else image[:1].expand(3, *image.shape[1:])).double().movedim(0, -1).numpy()
    if values.min() < 0.0 or values.max() > 1.0:
        low, high = np.percentile(values, SPREAD)
        values = (values - low) / max(high - low, np.finfo(float).tiny)
    return np.rint(255 * values.clip(0.0, 1.0)).astype(np.uint8)


def _spacings(run: Run, data: DomainData, samples: Sequence[Sample]) -> list[tuple[float, ...] | None]:
    """Return the spacing of each image in mm; None for all unless it is known for all, so that all have one unit."""
    size = run.record.protocol.image_size
    spacings = [data.images.spacing(sample, size) for sample in samples]
    return [None] * len(samples) if None in spacings else spacings


def _scores(run: Run, sample: Sample, segmented: Segmented, spacing: tuple[float, ...] | None) -> SegmentedImage:
    truth, found = segmented.truth, segmented.found
    outcomes = outcomes_of(truth, found)
    classes = range(1, len(run.record.classes))
    distances = [hausdorff95(found == number, truth == number, spacing) for number in classes]
    return SegmentedImage(
        file=sample.file,
        dice=segmented.dice,
        true_positives=int((outcomes == Outcome.TRUE_POSITIVE).sum()),
        false_positives=int((outcomes == Outcome.FALSE_POSITIVE).sum()),
        false_negatives=int((outcomes == Outcome.FALSE_NEGATIVE).sum()),
        hausdorff95=sum(distances) / len(distances),
    )


def _shown(run: Run, data: DomainData, case: str, sample: Sample, segmented: Segmented) -> ShownImage:
    image, truth, found, dice = segmented
    height, width = data.images.pixel_sides(sample, run.record.protocol.image_size)[:2]
    outcomes = outcomes_of(truth, found)
    if truth.ndim == 3:
        number = fullest_slice(truth, found)
        # Volumes are indexed by x, y, z: upright, y is up.
        image, outcomes = (part[..., number].rot90(dims=(-2, -1)) for part in (image, outcomes))
        height, width = width, height
    label = f"{case}: {run.record.score.title} {run.record.score.text(dice)}"
    return ShownImage(case, label, sample.file, displayed(image), outcomes.numpy(), height / width)


def _listed(distances: Mapping[str, float]) -> str:
    return ", ".join(f"{distance:.1f} ({case})" for case, distance in distances.items())


def _remarks(run: Run) -> Iterator[str]:
    """Yield what a reader must know of images with several foreground classes, and of volumes."""
    if len(run.record.classes) > 2:
        yield "Dice and HD95 are means over the foreground classes; a wrong foreground class is a false positive"
    if dataset_spec(run.dataset).dims == 3:
        yield "of each volume, the slice with most true foreground"
