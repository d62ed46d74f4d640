# SPDX-License-Identifier: Apache-2.0
"""Damaged images: found before a run by decoding all of them, counted by kind, and left out of the split on request."""

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from fdg_plugins.data import PACS, DomainData, check_images, open_domain, without_damaged
from fdg_plugins.data.decoding import MOST_PIXELS, TooLargeError, check_image, open_image, read_image
from fdg_plugins.errors import DataError

IMAGES_PER_CLASS = 5


def picture(mode: str = "RGB", size: tuple[int, int] = (48, 40)) -> Image.Image:
    """Return noise over a ramp, so that every part of a file of it matters."""
    width, height = size
    ramp = np.add.outer(np.arange(height), np.arange(width))[..., None]
    noise = np.random.default_rng(0).integers(0, 60, size=(height, width, 3))
    return Image.fromarray((ramp + noise).clip(0, 255).astype(np.uint8)).convert(mode)


def encoded(form: str, mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture(mode).save(buffer, form, **options)
    return buffer.getvalue()


JPEG = encoded("JPEG", quality=90)
FILES: dict[str, bytes] = {
    "jpeg": JPEG,
    "progressive": encoded("JPEG", progressive=True),
    "cmyk": encoded("JPEG", "CMYK"),
    "grey": encoded("JPEG", "L"),
    "png": encoded("PNG"),
    "palette": encoded("PNG", "P"),
    "webp": encoded("WEBP"),
    "gif": encoded("GIF", "P"),
    "bmp": encoded("BMP"),
}


def deep_png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(1600, dtype=np.uint16).reshape(40, 40) * 40).save(buffer, "PNG")
    return buffer.getvalue()


def animated() -> bytes:
    buffer = io.BytesIO()
    picture("P").save(buffer, "GIF", save_all=True, append_images=[picture("P").rotate(90)])
    return buffer.getvalue()


def large_png(side: int) -> bytes:
    """Return a file of a few kilobytes that decodes to ``side`` x ``side`` pixels."""
    buffer = io.BytesIO()
    Image.new("1", (side, side)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with the domain photo, five sound JPEG files in each class."""
    for name in PACS.classes:
        folder = tmp_path / "root" / "pacs" / "photo" / name
        folder.mkdir(parents=True)
        for number in range(IMAGES_PER_CLASS):
            (folder / f"{number}.jpg").write_bytes(JPEG)
    return tmp_path / "root"


def damage(root: Path, file: str, content: bytes = b"") -> str:
    """Replace an image of the domain; return its name as samples have it."""
    (root / "pacs" / "photo" / file).write_bytes(content)
    return f"photo/{file}"


def opener(root: Path, **options: Any) -> Callable[[frozenset[str]], DomainData]:
    def reopen(left_out: frozenset[str]) -> DomainData:
        return open_domain(root, "pacs", "photo", seed=1, left_out=left_out, **options)

    return reopen


# --- what counts as damaged -------------------------------------------------------------------------


@pytest.mark.parametrize("content", [*FILES.values(), deep_png(), animated()], ids=[*FILES, "16 bits", "animated"])
def test_what_can_be_decoded_is_sound_whatever_its_kind(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image.jpg").write_bytes(content)
    check_image(tmp_path / "image.jpg")
    assert read_image(tmp_path / "image.jpg").mode == "RGB"


@pytest.mark.parametrize(
    "content",
    [b"", b"not an image", b"\xff\xd8\xff", JPEG[: len(JPEG) // 2], JPEG[:-200], FILES["png"][:-40], deep_png()[:150]],
    ids=["empty", "text", "a beginning", "half", "an end less", "a png without its end", "half of a 16-bit png"],
)
def test_what_cannot_be_decoded_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image.jpg").write_bytes(content)
    for look in (check_image, read_image):
        with pytest.raises(DataError, match=r"image\.jpg cannot be read \(\w+\); expected an undamaged") as caught:
            look(tmp_path / "image.jpg")
        assert caught.value.public == "an image of the split cannot be read."


# --- pixels -----------------------------------------------------------------------------------------


def test_an_image_of_too_many_pixels_is_refused_from_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(image: ImageFile.ImageFile) -> None:
        raise AssertionError("a pixel was decoded")

    (tmp_path / "huge.png").write_bytes(large_png(13_000))
    monkeypatch.setattr(ImageFile.ImageFile, "load", decode)
    for look in (check_image, read_image, open_image):
        with pytest.raises(
            TooLargeError, match=r"huge\.png has 169,000,000 pixels; expected at most 50,000,000 \(max_"
        ):
            look(tmp_path / "huge.png")


# --- a whole domain ---------------------------------------------------------------------------------


def test_all_damaged_images_are_counted_by_kind_and_named_to_the_site_alone(root: Path) -> None:
    damage(root, "dog/1.jpg", JPEG[:400])
    damage(root, "horse/3.jpg")
    damage(root, "house/0.jpg", large_png(8000))
    with pytest.raises(DataError) as caught:
        check_images(opener(root)(frozenset()))
    text = str(caught.value)
    assert (
        "2 cannot be read (photo/dog/1.jpg, photo/horse/3.jpg) and 1 with too many pixels (photo/house/0.jpg)" in text
    )
    assert str(root) in text
    assert caught.value.public == "of the images of domain 'photo', 2 cannot be read and 1 with too many pixels."


def test_images_whose_values_do_not_fit_are_named_with_the_reason_to_the_site_and_can_be_left_out(root: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(1600, dtype=np.uint16).reshape(40, 40)).save(buffer, "PNG")
    bad = damage(root, "dog/1.jpg", buffer.getvalue())
    reopen = opener(root)
    with pytest.raises(DataError) as caught:
        check_images(reopen(frozenset()))
    assert "1 that do not fit (photo/dog/1.jpg: values of more than 8 bits that reach only 1,599" in str(caught.value)
    assert caught.value.public == "of the images of domain 'photo', 1 that do not fit."
    assert without_damaged(reopen(frozenset()), reopen)[0].left_out == (bad,)


@pytest.mark.parametrize("left", [0, 1])
def test_a_class_of_which_too_few_are_left_is_said_to_everybody(root: Path, left: int) -> None:
    for number in range(left, IMAGES_PER_CLASS):
        damage(root, f"horse/{number}.jpg")
    reopen = opener(root)
    expected = rf"of the 5 images of class 'horse' in domain 'photo', {left} can be used; expected at least 2"
    with pytest.raises(DataError, match=expected) as caught:
        without_damaged(reopen(frozenset()), reopen)
    assert caught.value.public == str(caught.value)


def test_pillows_own_limit_neither_warns_nor_raises_and_stays_as_it_was(tmp_path: Path) -> None:
    before = Image.MAX_IMAGE_PIXELS
    for side in (10_000, 14_000):  # Pillow warns of the first and refuses the second
        (tmp_path / "image.png").write_bytes(large_png(side))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            open_image(tmp_path / "image.png", 2**31).close()
            with pytest.raises(TooLargeError):
                open_image(tmp_path / "image.png", MOST_PIXELS)
    assert before == Image.MAX_IMAGE_PIXELS
