# SPDX-License-Identifier: Apache-2.0
"""Damaged images: found before a run by decoding all of them, counted by kind, and left out of the split on request."""

import io
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from fdg_plugins.data import PACS, DomainData, check_images, find_damaged, name_some, open_domain, without_damaged
from fdg_plugins.data.decoding import MOST_PIXELS, TooLargeError, check_image, open_image, read_image
from fdg_plugins.data.soundness import SHOWN
from fdg_plugins.data.specs import IMAGE_SUFFIXES
from fdg_plugins.errors import DataError

IMAGES_PER_CLASS = 5
REPEATABLE = settings(
    derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


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


def files_of(data: DomainData) -> set[str]:
    return {sample.file for sample in (*data.train, *data.validation, *data.test)}


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


def test_the_formats_that_a_message_expects_are_those_whose_suffixes_are_listed(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match="expected an undamaged") as caught:
        read_image(tmp_path / "image.png")
    named = str(caught.value).partition("undamaged ")[2].removesuffix(" file.").split(", ")
    suffixes = Image.registered_extensions()
    assert set(named) == {suffixes[suffix] for suffix in IMAGE_SUFFIXES}


@REPEATABLE
@given(st.sampled_from(sorted(FILES)), st.floats(0, 1), st.binary(max_size=40), st.booleans())
def test_the_quick_look_says_of_a_garbled_file_what_decoding_it_says(
    tmp_path: Path, kind: str, where: float, garbage: bytes, cut: bool
) -> None:
    content, path = FILES[kind], tmp_path / "image"
    start = int(where * len(content))
    path.write_bytes(content[:start] + garbage + (b"" if cut else content[start + len(garbage) :]))

    def verdict(look: Callable[[Path, int], object]) -> type[Exception] | None:
        try:
            look(path, 10_000_000)
        except DataError as error:
            return type(error)
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, on tables of metadata
        assert verdict(check_image) == verdict(read_image)


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


@pytest.mark.parametrize(("side", "opens"), [(100, True), (101, False)])
def test_the_limit_is_the_number_of_pixels_itself(tmp_path: Path, side: int, opens: bool) -> None:
    (tmp_path / "image.png").write_bytes(large_png(side))
    if opens:
        check_image(tmp_path / "image.png", 10_000)
    else:
        with pytest.raises(TooLargeError):
            check_image(tmp_path / "image.png", 10_000)


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


# --- a whole domain ---------------------------------------------------------------------------------


def test_sound_images_are_no_damage(root: Path) -> None:
    data = opener(root)(frozenset())
    assert find_damaged(data).files == frozenset()
    check_images(data)
    assert without_damaged(data, opener(root))[0] is data


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


def test_a_sentence_names_some_files_and_counts_the_rest() -> None:
    assert name_some(["b", "a"]) == "a, b"
    many = name_some(f"{number:03d}" for number in range(SHOWN + 1500))
    assert many.endswith(f"{SHOWN - 1:03d} and 1,500 more")


def test_left_out_images_are_in_no_part_and_the_rest_is_split_as_if_they_had_never_been(root: Path) -> None:
    bad = {damage(root, "dog/1.jpg"), damage(root, "house/0.jpg", large_png(8000))}
    reopen = opener(root)
    data, damaged = without_damaged(reopen(frozenset()), reopen)
    assert damaged.files == bad == set(data.left_out)
    assert files_of(data) == files_of(reopen(frozenset())) - bad
    for file in bad:
        (root / "pacs" / file).unlink()
    never = reopen(frozenset())
    assert (data.train, data.validation, data.test) == (never.train, never.validation, never.test)
    assert data.split_hash == never.split_hash


def test_a_thinned_domain_is_filled_up_with_images_that_were_looked_at_too(root: Path) -> None:
    bad = {damage(root, f"{name}/{number}.jpg") for name in PACS.classes for number in (0, 2, 4)}
    reopen = opener(root, max_samples=14)
    data, damaged = without_damaged(reopen(frozenset()), reopen)
    assert damaged.files <= bad
    assert len(data.test) == 14
    assert not files_of(data) & bad


def test_each_image_is_decoded_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Path] = []

    def look(path: Path, max_pixels: int) -> None:
        looked_at.append(path)
        check_image(path, max_pixels)

    monkeypatch.setattr("fdg_plugins.data.image_files.check_image", look)
    damage(root, "dog/1.jpg")
    reopen = opener(root)
    without_damaged(reopen(frozenset()), reopen)
    assert len(looked_at) == len(set(looked_at)) == len(PACS.classes) * IMAGES_PER_CLASS


class Enough(Exception):  # noqa: N818 - an order, not an error
    """Who asked for the images wants no more."""


@pytest.mark.parametrize("search", ["find", "check", "leave out"])
def test_a_search_ends_within_one_image(root: Path, monkeypatch: pytest.MonkeyPatch, search: str) -> None:
    looked_at: list[Path] = []
    monkeypatch.setattr("fdg_plugins.data.image_files.check_image", lambda path, max_pixels: looked_at.append(path))

    def poll() -> None:
        if len(looked_at) == 3:
            raise Enough

    reopen = opener(root)
    searches: dict[str, Any] = {
        "find": find_damaged,
        "check": check_images,
        "leave out": partial(without_damaged, reopen=reopen),
    }
    with pytest.raises(Enough):
        searches[search](reopen(frozenset()), poll=poll)
    assert len(looked_at) == 3


@pytest.mark.parametrize("left", [0, 1])
def test_a_class_of_which_too_few_are_left_is_said_to_everybody(root: Path, left: int) -> None:
    for number in range(left, IMAGES_PER_CLASS):
        damage(root, f"horse/{number}.jpg")
    reopen = opener(root)
    expected = rf"of the 5 images of class 'horse' in domain 'photo', {left} can be used; expected at least 2"
    with pytest.raises(DataError, match=expected) as caught:
        without_damaged(reopen(frozenset()), reopen)
    assert caught.value.public == str(caught.value)


def test_a_class_that_never_had_two_images_needs_no_more(root: Path) -> None:
    for number in range(1, IMAGES_PER_CLASS):
        (root / "pacs" / "photo" / "horse" / f"{number}.jpg").unlink()
    bad = damage(root, "dog/1.jpg")
    reopen = opener(root)
    assert without_damaged(reopen(frozenset()), reopen)[0].left_out == (bad,)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_official_lists_may_name_what_is_left_out(root: Path, suffix: str) -> None:
    lists = {"train": ("dog/1", "dog/2", "house/0"), "crossval": ("dog/3", "house/4"), "test": ("dog/1", "dog/2")}
    for part, names in lists.items():
        lines = [f"photo/{name}{suffix} {PACS.classes.index(name.split('/')[0]) + 1}\n" for name in names]
        (root / "pacs" / f"photo_{part}_kfold.txt").write_text("".join(lines))
    bad = damage(root, "dog/1.jpg")
    reopen = opener(root)
    data, _ = without_damaged(reopen(frozenset()), reopen)
    assert data.split == "pacs/kfold"
    assert [sample.file for sample in data.train] == ["photo/dog/2.jpg", "photo/house/0.jpg"]
    assert data.left_out == (bad,)
    shutil.copy(root / "pacs" / "photo" / "dog" / "2.jpg", root / "pacs" / "photo" / "dog" / "1.jpg")
    assert len(open_domain(root, "pacs", "photo", seed=1).train) == 3


def test_images_of_an_array_are_never_damaged() -> None:
    opened = partial(open_domain, None, "rotateddigits", "angle_0", seed=0, max_samples=20)
    data = opened()
    assert without_damaged(data, lambda left_out: opened(left_out=left_out))[0] is data
