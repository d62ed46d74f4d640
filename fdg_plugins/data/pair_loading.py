# SPDX-License-Identifier: Apache-2.0
"""The loading part of every preset: MONAI's LoadImaged and EnsureChannelFirstd, with readers of this package.

LoadImaged offers a file that its reader refuses to all of MONAI's readers in turn. These readers never refuse a file;
they decode it afterwards, so that only Pillow and nibabel, with a limit on pixels, ever open one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fdg_plugins.data.pair_reading import PairForm
from fdg_plugins.data.presets import BOTH, IMAGE, MASK, Transforms
from fdg_plugins.errors import DataError
from fdg_plugins.extras import load_extra

PURPOSE = "segmentation"


def loading(form: PairForm) -> Transforms:
    """Return the transforms from ``{"image": path, "mask": path}`` to tensors float32 ``[C, *S]``, int16 ``[1, *S]``.

    The errors of reading are those of :meth:`PairForm.read`, as the causes of MONAI's; see :func:`errors_of_reading`.
    """
    transforms = load_extra("monai.transforms", PURPOSE)

    def matched(pair: dict[str, Any]) -> dict[str, Any]:
        image, mask = pair[IMAGE], pair[MASK]
        files = [Path(tensor.meta["filename_or_obj"]) for tensor in (image, mask)]
        form.check_match(files[0], files[1], image.shape, mask.shape)
        return pair

    return [
        transforms.LoadImaged(IMAGE, _reader(form.image, 0), dtype=np.float32, expanduser=False),
        transforms.LoadImaged(MASK, _reader(form.mask, "no_channel"), dtype=np.int16, expanduser=False),
        transforms.EnsureChannelFirstd(BOTH),
        matched,
    ]


@contextmanager
def errors_of_reading() -> Iterator[None]:
    """Raise the DataError that MONAI has wrapped, in place of MONAI's error."""
    try:
        yield
    except RuntimeError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, DataError):
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause from None


def _reader(decode: Callable[[Path], np.ndarray], channel_dim: int | str) -> Any:
    """Return a reader for LoadImaged that decodes by ``decode``; ``channel_dim``: the axis of the channels in it."""

    class Reader(load_extra("monai.data", PURPOSE).ImageReader):  # type: ignore[misc]
        def verify_suffix(self, filename: Any) -> bool:
            return True

        def read(self, data: Any, **_: Any) -> Any:
            return data

        def get_data(self, img: Any) -> tuple[np.ndarray, dict[str, Any]]:
            (name,) = img
            return decode(Path(name)), {"original_channel_dim": channel_dim}

    return Reader()
