# SPDX-License-Identifier: Apache-2.0
"""The names of files that hold images and masks."""

from fdg_plugins.errors import DataError

NIFTI_SUFFIXES = (".nii", ".nii.gz")
PAIR_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", *NIFTI_SUFFIXES)


def stem_of(name: str) -> str:
    """Return the name without its suffix: ``a`` of ``a.nii.gz``, ``a.b`` of ``a.b.png``."""
    suffix = max((suffix for suffix in PAIR_SUFFIXES if name.lower().endswith(suffix)), key=len, default="")
    return name[: len(name) - len(suffix)]


def is_nifti(name: str) -> bool:
    """Return whether the file is NIfTI by its suffix."""
    return name.lower().endswith(NIFTI_SUFFIXES)


def refuse_mixed(image: str, mask: str, own: str, public: str) -> None:
    """Raise DataError if only one of image and mask is NIfTI, whose axes have another order."""
    if is_nifti(image) != is_nifti(mask):
        raise DataError(
            f"{own} has the image {image} with the mask {mask}; expected both or neither to be NIfTI.",
            public=f"{public} has an image and a mask of which only one is NIfTI.",
        )
