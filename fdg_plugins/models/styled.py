# SPDX-License-Identifier: Apache-2.0
"""Networks as StableFDG trains them: stages whose styles can be changed, and attention over the last feature map."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import normalize

from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.models.registry import ExtractorClassifier, examined
from fdg_plugins.plugins.registry import plugin_code

MOST_STAGES = 3

ChangeMaps = Callable[[int, torch.Tensor], torch.Tensor]


class Stage(NamedTuple):
    """The last module of the extractor that ends its part with maps of one size: its name and number of channels."""

    name: str
    channels: int


def stages_of(model: ExtractorClassifier, image_shape: tuple[int, ...]) -> tuple[Stage, ...]:
    """Return the last three stages before that of the last feature map, in the order of the extractor.

    A module counts if it runs once in a pass and all that follows is computed from its maps, so that it can append
    images to the batch: no module within a residual block does. One that enlarges its maps, as padding does, does not
    count. In a residual network whose images are not tiny, the stages are its first three layers of blocks. Raises
    SettingsError if there is none.
    """
    ran: list[tuple[str, torch.Tensor]] = []

    def note(name: str, module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        if isinstance(output, torch.Tensor) and not any(_is_smaller(one, output) for one in inputs):
            ran.append((name, output))

    with examined(model), ExitStack() as hooks:
        for name, module in model.extractor.named_modules():
            hooks.enter_context(module.register_forward_hook(partial(note, name)))
        smallest = model.feature_map(torch.zeros(1, *image_shape))
    by_size = (candidates for _, candidates in sorted(_by_size(ran, smallest).items()))
    carrying = (next((one for one in each if _carries(model, one, image_shape)), None) for each in by_size)
    found = list(islice((stage for stage in carrying if stage is not None), MOST_STAGES))
    if not found:
        what = "has no feature map that is larger than its last one, and from which all that follows is computed"
        raise SettingsError(f"the model {what}, expected one whose style can be changed.", public=True)
    return tuple(found[::-1])


def _is_smaller(one: object, maps: torch.Tensor) -> bool:
    return isinstance(one, torch.Tensor) and one.shape[2:].numel() < maps.shape[2:].numel()


def _by_size(ran: Sequence[tuple[str, torch.Tensor]], smallest: torch.Tensor) -> dict[int, list[Stage]]:
    times = Counter(name for name, _ in ran)
    found: dict[int, list[Stage]] = {}
    for name, maps in reversed(ran):
        if times[name] == 1 and maps.ndim == 4 and maps[0, 0].numel() > smallest[0, 0].numel():
            found.setdefault(maps[0, 0].numel(), []).append(Stage(name, maps.shape[1]))
    return found


def _carries(model: ExtractorClassifier, stage: Stage, image_shape: tuple[int, ...]) -> bool:
    module = model.extractor.get_submodule(stage.name)
    doubled = module.register_forward_hook(lambda _, inputs, maps: torch.cat([maps, maps]))
    with doubled, suppress(FDGError), examined(model), plugin_code("the pass"):
        return len(model.feature_map(torch.zeros(2, *image_shape))) == 4
    return False  # such as where a shortcut has two images


class PositionAttention(nn.Module):
    """Weights of the positions of feature maps: how similar they are to those of another image of the class.

    Args:
        channels: D, of the maps.
        queries: the number of channels of queries and keys.
    """

    def __init__(self, channels: int, queries: int) -> None:
        super().__init__()
        self.query = nn.Conv2d(channels, queries, 1)
        self.key = nn.Conv2d(channels, queries, 1)

    def forward(self, maps: torch.Tensor, pairs: torch.Tensor | None = None) -> torch.Tensor:
        """Return the weights ``[B, 1, H, W]`` of ``maps [B, D, H, W]``, which sum to one over the positions.

        ``pairs [B]``: the index of the image whose queries are averaged with an image's own; None: its own alone. A
        position's weight is the softmax of the mean over all queries of their cosine similarity with its key, so the
        mean of the queries is all that is needed of them.
        """
        query = normalize(self.query(maps), dim=1).mean(dim=(2, 3))
        if pairs is not None:
            query = (query + query[pairs]) / 2
        key = normalize(self.key(maps), dim=1)
        scores = (key * query[:, :, None, None]).sum(dim=1)
        return scores.flatten(1).softmax(dim=1).view_as(scores)[:, None]


class StyledClassifier(ExtractorClassifier):
    """A network with unchanged parameter names that knows its stages and, with attention, has 2D features.

    With attention, the features are the mean over positions of the last feature map, and its mean by the weights of the
    attention; the head expects both.
    """

    def __init__(
        self, network: ExtractorClassifier, stages: Sequence[Stage], attention: PositionAttention | None = None
    ) -> None:
        super().__init__(network.extractor, network.classifier)
        self.stages = tuple(stages)
        self.attention = attention

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features of ``images [B, C, H, W]``: ``[B, D]``, with attention ``[B, 2D]``."""
        return super().features(images) if self.attention is None else self.pool(self.feature_map(images))

    def feature_map(self, images: torch.Tensor) -> torch.Tensor:
        """Return the last feature map ``[B, D, H', W']``, by a pass without compiled code."""
        return self._before_pooling(images, self.extractor)

    def pool(self, maps: torch.Tensor, pairs: torch.Tensor | None = None) -> torch.Tensor:
        """Return the features of feature maps ``[B, D, H', W']``; ``pairs``: as :class:`PositionAttention` has them.

        With attention, they are computed in the parameters' precision, even under autocast.
        """
        if self.attention is None:
            return super().pool(maps)
        with torch.autocast(maps.device.type, enabled=False):
            wide = maps.to(self.attention.query.weight.dtype)
            weighted = (self.attention(wide, pairs) * wide).sum(dim=(2, 3))
            return torch.cat([super().pool(wide), weighted], dim=1)

    def first_stage(self, images: torch.Tensor) -> torch.Tensor:
        """Return the feature map ``[B, C, H', W']`` of the first stage."""
        found: list[torch.Tensor] = []
        module = self.extractor.get_submodule(self.stages[0].name)
        with module.register_forward_hook(lambda _, inputs, maps: found.append(maps)), self._uncompiled():
            self.extractor(images)
        return found[0]

    @contextmanager
    def changed(self, change: ChangeMaps) -> Iterator[None]:
        """Replace the feature maps of each stage with ``change(number of the stage, maps)`` within the block.

        Compiled code does not see it: use :meth:`feature_map`.
        """

        def hook(number: int, module: nn.Module, inputs: object, maps: torch.Tensor) -> torch.Tensor:
            return change(number, maps)

        with ExitStack() as hooks:
            for number, stage in enumerate(self.stages):
                module = self.extractor.get_submodule(stage.name)
                hooks.enter_context(module.register_forward_hook(partial(hook, number)))
            yield


def widened(classifier: nn.Linear | nn.Sequential, inputs: int) -> nn.Linear | nn.Sequential:
    """Return the classifier with a first linear layer for ``inputs`` features; its other layers are kept."""
    if isinstance(classifier, nn.Linear):
        return nn.Linear(inputs, classifier.out_features)
    first = next(layer for layer in classifier if isinstance(layer, nn.Linear))
    return nn.Sequential(nn.Linear(inputs, first.out_features), *classifier[1:])
