# SPDX-License-Identifier: Apache-2.0
"""``fdg data check``: look into the images of a data set, in numbers and in pictures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import track as track_with_bar

from fdg_plugins.cli.console import say, warn
from fdg_plugins.cli.options import most_pixels
from fdg_plugins.cli.tables import make_table, show
from fdg_plugins.errors import DataError

if TYPE_CHECKING:
    from fdg_plugins.data.own_files import FileRules
    from fdg_plugins.data.specs import AttributeSpec, ImageFolderSpec, KnownSpec, Sample, SegmentationSpec
    from fdg_plugins.data.splits import Split
    from fdg_plugins.lab.preparation.facts import ImageFacts

IN_A_ROW = 8
ON_A_SHEET = 6
TILE = 2.7  # inches
SHOWN = 10
NUMBERS = ("images", "pairs", "training", "validation", "unusable", "grey")

T = TypeVar("T")


class Place(NamedTuple):
    """A data set on this machine: its record, its resolved data root, and what its own file says about the images."""

    spec: "KnownSpec"
    root: Path
    rules: "FileRules"


def track(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """Yield ``items`` with a progress bar on stderr, in a terminal only, that disappears at the end."""
    console = Console(stderr=True)
    return track_with_bar(
        items, description=escape(what), total=total, console=console, transient=True, disable=not console.is_terminal
    )


def check_images(place: Place, spec: "ImageFolderSpec", sheets: Path | None) -> None:
    """Print the facts of every domain below the data root, and draw a sheet of all into ``sheets``.

    Raises DataError, after all domains, if some images cannot be used, or no run could start.
    """
    from fdg_plugins.data.folders import list_domain
    from fdg_plugins.data.splits import split_of
    from fdg_plugins.lab.preparation.facts import image_facts

    base = place.root / spec.folder
    facts: dict[str, ImageFacts] = {}
    unused: dict[str, Sequence[str]] = {}
    splits: dict[str, Split] = {}
    for domain in _present(place, spec.domains):
        listing = list_domain(place.root, spec, domain, place.rules)
        samples, left_out, unused[domain] = listing.images, listing.skipped, listing.unused
        splits[domain] = split_of(listing, spec, domain, seed=0)
        facts[domain] = image_facts(base, track(samples, f"decoding {domain}", len(samples)), most_pixels())
        if left_out:
            say(f"left out    {domain}: {len(left_out):,} files that are known to be bad, or excluded")
    head = ("domain", "images", "training", "validation", "unusable", "fewest in a class", "most in a class")
    rows = (_image_row(spec, domain, found, splits[domain]) for domain, found in facts.items())
    show(make_table((*head, "height x width", "formats", "grey"), rows, NUMBERS))
    for domain, found in facts.items():
        if lacking := [name for name, count in _by_class(spec, found).items() if not count]:
            say(f"absent      {domain} has no image of {', '.join(lacking)}")
        if found.turned:
            count = f"{found.turned:,} of {len(found.samples):,} images"
            say(f"turned      {domain}: {count} have an EXIF orientation, which is ignored")
    _show_unused(unused)
    _show_duplicates((domain, one.file, digest) for domain in facts for one, digest in facts[domain].digests.items())
    _warn(place, facts)
    if sheets is not None:
        _write_image_sheet(sheets / f"{spec.name}.png", place, spec, facts)
    _refuse_damaged(error for found in facts.values() for error in found.damaged.values())
    _refuse_few(splits)


def _refuse_few(splits: "Mapping[str, Split]") -> None:
    few = [name for name, split in splits.items() if not split.train or not split.validation]
    if len(few) > 1:
        raise DataError(f"no image to train or to validate on in {', '.join(few)}: only one domain can be held out.")
    if few:
        warn(f"no image to train or to validate on in {few[0]}, which can only be held out.")


def _image_row(spec: "ImageFolderSpec", domain: str, found: "ImageFacts", split: "Split") -> Sequence[str]:
    counts = _by_class(spec, found)
    ends = (min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__))
    lengths = (len(found.samples), len(split.train), len(split.validation), len(found.damaged))
    sides = [sorted({min(sides), max(sides)}) for sides in zip(*found.sizes, strict=True)]
    return (
        domain,
        *(f"{length:,}" for length in lengths),
        *(f"{counts[name]:,} ({name})" for name in ends),
        " x ".join(" to ".join(map(str, ends)) for ends in sides),
        ", ".join(f"{name} {count:,}" for name, count in sorted(found.formats.items())),
        f"{found.grey:,}",
    )


def _by_class(spec: "ImageFolderSpec", found: "ImageFacts") -> dict[str, int]:
    labels = [sample.label for sample in found.samples]
    return {name: labels.count(label) for label, name in enumerate(spec.classes)}


def check_masks(place: Place, spec: "SegmentationSpec", sheets: Path | None) -> None:
    """Print the facts of every domain below the data root, and write a sheet of each into ``sheets``.

    Raises DataError, after all domains, if some pairs cannot be used, or a domain has too few for any run.
    """
    from fdg_plugins.data.pairs import list_pairs
    from fdg_plugins.data.splits import split_of
    from fdg_plugins.lab.preparation import count_images
    from fdg_plugins.lab.preparation.facts import mask_facts

    facts: dict[str, ImageFacts] = {}
    unused: dict[str, Sequence[str]] = {}
    splits: dict[str, Split] = {}
    for domain in count_images(place.root, spec, place.rules):
        listing = list_pairs(place.root, spec, domain, place.rules)
        splits[domain] = split_of(listing, spec, domain, seed=0)
        pairs, unused[domain] = listing.images, listing.unused
        facts[domain] = mask_facts(place.root, spec, track(pairs, f"decoding {domain}", len(pairs)), most_pixels())
        sound = [pair for pair in pairs if pair not in facts[domain].damaged]
        if sheets is not None and sound:
            _write_mask_sheet(sheets / f"{domain}.png", place, spec, sound)
    shares = [f"fraction of {name}" for name in spec.classes[1:]]
    head = ("domain", "pairs", "unusable", "height x width" if spec.dims == 2 else "size", *shares)
    show(make_table(head, (_mask_row(domain, found) for domain, found in facts.items()), NUMBERS))
    _show_unused(unused)
    _show_duplicates((domain, one.file, digest) for domain in facts for one, digest in facts[domain].digests.items())
    _warn(place, facts)
    _refuse_damaged(error for found in facts.values() for error in found.damaged.values())
    _refuse_few(splits)


def _mask_row(domain: str, found: "ImageFacts") -> Sequence[str]:
    """Return a domain's row: pairs, sizes, and mean, smallest and largest fraction of each class but the first."""
    sizes = sorted(set(found.sizes))
    ends = " to ".join(" x ".join(map(str, size)) for size in dict.fromkeys(sizes[:1] + sizes[-1:]))
    shares = list(zip(*found.shares, strict=True))[1:]
    fractions = [f"{sum(share) / len(share):.3f} ({min(share):.3f} to {max(share):.3f})" for share in shares]
    return domain, f"{len(found.samples):,}", f"{len(found.damaged):,}", ends, *fractions


def check_attributed(place: Place, spec: "AttributeSpec") -> None:
    """Decode every image of a data set in lists; raise DataError, after naming them, if some cannot be used."""
    from fdg_plugins.data import find_damaged, open_domain

    files: set[str] = set()
    unusable: list[str] = []
    for domain in track(spec.domains, "decoding", len(spec.domains)):
        data = open_domain(place.root, spec.name, domain, seed=0, max_pixels=most_pixels())
        files |= {sample.file for sample in (*data.train, *data.validation, *data.test)}
        unusable += [f"{file} {reason}" for file, reason in find_damaged(data).items()]
    for line in unusable:
        say(f"unusable    {line}")
    if unusable:
        raise DataError(f"of {len(files):,} images of data set {spec.name}, {len(unusable):,} cannot be used.")
    say(f"{spec.name}: all {len(files):,} images can be decoded")


def _present(place: Place, domains: Sequence[str]) -> list[str]:
    base = place.root / place.spec.folder
    if present := [name for name in domains if (base / name).is_dir()]:
        return present
    raise DataError(f"folder {base} holds no domain; expected one of {', '.join(domains)}.")


def _show_unused(unused: Mapping[str, Sequence[str]]) -> None:
    """Print each kind of files and folders in a domain that a run would pass over."""
    for domain, found in unused.items():
        for phrase in found:
            say(f"not used    {domain}: {phrase}")


def _show_duplicates(files: Iterable[tuple[str, str, str]]) -> None:
    """Print files with the same bytes, given as domain, path and digest; those that are in several domains first."""
    by_digest: dict[str, list[tuple[str, str]]] = {}
    for domain, file, digest in files:
        by_digest.setdefault(digest, []).append((domain, file))
    groups = [group for group in by_digest.values() if len(group) > 1]
    groups.sort(key=lambda group: len({domain for domain, _ in group}) == 1)
    if not groups:
        return
    shared = sum(len({domain for domain, _ in group}) > 1 for group in groups)
    say(f"duplicates  {len(groups):,} images are there more than once (same bytes): {shared:,} in several domains")
    for group in groups[:SHOWN]:
        names = [file if file.startswith(f"{domain}/") else f"{domain}: {file}" for domain, file in group]
        say(f"  {' = '.join(names)}")
    if len(groups) > SHOWN:
        say(f"  ... and {len(groups) - SHOWN:,} more")


def _warn(place: Place, found: "Mapping[str, object]") -> None:
    """Warn of patterns of ``exclude`` that match nothing, and of domains that are not there."""
    for path in (place.root / place.spec.folder).iterdir():
        if path.is_dir():
            place.rules.excludes(f"{path.name}/")
    if place.rules.idle:
        warn(f"exclude names {', '.join(place.rules.idle)}, which no file matches; expected <domain>/<class>/<image>.")
    if absent := [name for name in place.spec.domains if name not in found]:
        warn(f"no folder for {', '.join(absent)}; a run on this machine needs every domain.")


def _refuse_damaged(errors: Iterator[DataError]) -> None:
    """Print why images or pairs cannot be used, and raise ``DataError``, if there are any."""
    damaged = list(errors)
    for error in damaged:
        say(f"unusable    {error}")
    if damaged:
        raise DataError(f"{len(damaged):,} of the images cannot be used.")


def _write_image_sheet(path: Path, place: Place, spec: "ImageFolderSpec", facts: "Mapping[str, ImageFacts]") -> None:
    """Draw a row of images for each domain, chosen evenly from its classes."""
    import numpy as np

    from fdg_plugins.data.decoding import read_image
    from fdg_plugins.lab.preparation.sheets import Tile, draw_sheet

    base = place.root / spec.folder
    rows = {
        domain: [
            Tile(np.asarray(read_image(base / one.file)), spec.classes[one.label])
            for one in _spread(sorted(found.usable, key=lambda sample: (sample.label, sample.file)), IN_A_ROW)
        ]
        for domain, found in facts.items()
        if found.usable
    }
    total = sum(len(found.samples) for found in facts.values())
    if rows:
        _save(path, draw_sheet(rows, f"{spec.title}: {sum(map(len, rows.values()))} of {total:,} images"))


def _write_mask_sheet(path: Path, place: Place, spec: "SegmentationSpec", pairs: "Sequence[Sample]") -> None:
    """Draw up to ``ON_A_SHEET`` pairs, evenly chosen in the order of their names."""
    from fdg_plugins.data.pairs import stem_of
    from fdg_plugins.lab.preparation.facts import class_shares, read_pair
    from fdg_plugins.lab.preparation.sheets import draw_sheet, mask_tiles

    rows = {}
    for pair in _spread(pairs, ON_A_SHEET):
        image, labels = read_pair(place.root, spec, pair, most_pixels())
        shares = class_shares(labels, len(spec.classes))[1:]
        texts = [f"{name} {share:.3f}" for name, share in zip(spec.classes[1:], shares, strict=True)]
        rows[stem_of(Path(pair.file).name)] = mask_tiles(image, labels, ", ".join(texts))
    title = f"{spec.title}, {path.stem}: {len(rows)} of {len(pairs)} pairs"
    _save(path, draw_sheet(rows, title, TILE, spec.classes))


def _spread(items: Sequence[T], count: int) -> list[T]:
    """Return ``count`` of the items, or all if there are fewer, evenly from their order."""
    number = min(count, len(items))
    return [items[place * len(items) // number] for place in range(number)]


def _save(path: Path, sheet: bytes) -> None:
    from fdg_plugins.storage import write_bytes

    write_bytes(path, sheet)
    say(f"{path}: written")
