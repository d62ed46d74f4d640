# SPDX-License-Identifier: Apache-2.0
"""An upload that breaks off, or that nobody can decode, costs its site the answer and not the job.

A site's tensors and arrays do not come with its answer: the server's job process downloads them from the site
afterwards. FLARE ends that process, and with it the job, if the download fails, for example because the site lost power
in the middle or because the job has just ended. It does the same for content that is not a tensor. Here such a tensor
becomes a :class:`LostTensor`, which the workflow refuses like any other unusable value.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.app_opt.pt.decomposers import TensorDecomposer
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs.decomposers.via_downloader import ViaDownloaderDecomposer

from fdg_plugins.errors import LONGEST_QUOTE, LONGEST_REASON, one_line
from fdg_plugins.flare.internals import fetch

ENCODED = ("torch.Tensor", "numpy.ndarray")  # by FLARE's names of types

_logger = logging.getLogger(__name__)


class LostTensor:
    """What takes the place of a tensor that did not arrive."""


class LostTensors:
    """What takes the place of the tensors of an upload, each a :class:`LostTensor`."""

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str) -> LostTensor:
        """Return the tensor ``name``, which is lost."""
        return LostTensor()


def are_lost(values: Mapping[Any, Any]) -> bool:
    """Return whether any of ``values`` is a tensor that did not arrive."""
    return any(isinstance(value, LostTensor) for value in values.values())


def register_server_tensors() -> None:
    """Make FLARE's encodings of tensors and arrays survive broken uploads in the server's job process."""
    fobs.register(TensorDecomposer)
    fobs.register(NumpyArrayDecomposer)
    registered = fetch("_decomposers")
    for name in ENCODED:
        make_surviving(registered[name])


def make_surviving(decomposer: ViaDownloaderDecomposer) -> None:
    """Make ``decomposer`` decode what comes to the server without an error; a second call changes nothing.

    Methods are replaced on the instance instead of in a subclass, because the class's name travels with each tensor: a
    receiver that has registered no encoding loads it by that name, if it is one of FLARE's.
    """
    if "process_datum" in vars(decomposer):
        return

    def lose_all(manager: Any) -> None:
        manager.fobs_ctx[decomposer.items_key] = LostTensors()

    decomposer.logger.addFilter(_in_one_line)
    decomposer.process_datum = _surviving(decomposer.process_datum, lose_all)
    decomposer.recompose = _surviving(decomposer.recompose, lambda manager: LostTensor())


def _surviving(decode: Callable[[Any, Any], Any], lose: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return ``decode``, after whose failure at the server ``lose`` says what takes the place of its result."""

    def survive(content: Any, manager: Any = None) -> Any:
        try:
            return decode(content, manager)
        except Exception as error:  # FLARE raises RuntimeError, and anything for malformed content
            if not _is_at_server(manager):
                raise
            reason = f"{type(error).__name__}: {one_line(str(error), LONGEST_QUOTE)}"
            _logger.warning(f"an upload broke off, or is no tensor ({reason}); its site has no part in this round.")
            return lose(manager)

    return survive


def _in_one_line(record: logging.LogRecord) -> bool:
    """Make a record one printable line: FLARE quotes in it whence the site said that its tensors come."""
    record.msg, record.args = one_line(record.getMessage(), LONGEST_REASON), ()
    return True


def _is_at_server(manager: Any) -> bool:
    """Return whether the message being decoded has come to the server; sites decode what the server sends."""
    cell = manager.fobs_ctx.get(fobs.FOBSContextKey.CELL)
    return cell is not None and cell.get_fqcn().split(".")[0] == fetch("FQCN.ROOT_SERVER")
