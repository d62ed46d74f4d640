# SPDX-License-Identifier: Apache-2.0
"""What the server sends of the global model: all of it at first, then only what may have changed.

A large part of a network that no step changes, such as a fixed pretrained extractor, is sent to each site once. The
site keeps it in the run's folder. A site that gave no usable answer gets the whole model again with its next task, so
one that has lost what it kept is out for one task.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fdg_plugins.messages import META_REQUEST, FixedPart, TaskRequest
from fdg_plugins.state.checked_files import checksum_of_tensors
from fdg_plugins.training.global_model import GlobalModel, count_bytes


class ModelSender:
    """Makes the tasks that carry the global model, and remembers which sites hold its fixed part.

    ``bytes_down``: bytes of the model in all tasks made so far, for each site that a task is for.
    """

    def __init__(self, model: GlobalModel) -> None:
        self.model = model
        self.bytes_down = 0
        self._holders: set[str] = set()

    @cached_property
    def _id(self) -> str:
        """The name of the fixed part, made of its values, which are the same throughout a run."""
        return checksum_of_tensors({name: self.model.state[name] for name in self.model.fixed}, {})

    def tasks(
        self, request: TaskRequest, number: int, sites: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], FLModel]]:
        """Yield the task of round ``number``, counted from 1, for some of the ``sites`` at a time."""
        state, fixed = self.model.state, self.model.fixed
        rest = dict(state)
        for name in fixed:
            del rest[name]
        for is_held, params in ((False, state), (True, rest)):
            group = tuple(site for site in sites if (bool(fixed) and site in self._holders) is is_held)
            if group:
                part = FixedPart(id=self._id, names=() if is_held else fixed) if fixed else None
                self.bytes_down += count_bytes(params) * len(group)
                yield group, task_message(request.model_copy(update={"fixed": part}), number, params)

    def note(self, sites: tuple[str, ...], failures: Mapping[str, str]) -> None:
        """Note that ``sites`` were asked, and which of them gave no usable answer."""
        self._holders = (self._holders | set(sites)) - failures.keys()


def task_message(request: TaskRequest, number: int, params: Mapping[str, Any]) -> FLModel:
    """Return FLARE's message for a task of round ``number``, counted from 1."""
    return FLModel(
        params_type=ParamsType.FULL,
        params=dict(params),
        current_round=number - 1,  # FLARE and the wire count from 0
        total_rounds=request.protocol.rounds,
        meta={META_REQUEST: request.model_dump(mode="json")},
    )
