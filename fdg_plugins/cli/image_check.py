# SPDX-License-Identifier: Apache-2.0
"""``fdg data check`` for labelled images: counts, sizes, damaged and duplicate files, and a picture of the domains."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from fdg_plugins.cli.check_lines import duplicate_lines, refuse_damaged, unused_lines
from fdg_plugins.cli.console import say
from fdg_plugins.cli.data_tables import show, track
from fdg_plugins.cli.output import write_output
from fdg_plugins.cli.own_data import most_pixels, warn_of_absent, warn_of_idle
from fdg_plugins.cli.tables import as_text
from fdg_plugins.errors import DataError

if TYPE_CHECKING:
    from fdg_plugins.data.own_files import FileRules
    from fdg_plugins.data.specs import ImageFolderSpec, Sample
    from fdg_plugins.data.splits import Split
    from fdg_plugins.lab.preparation.facts import ImageFacts

IN_A_ROW = 8


def check_images(spec: "ImageFolderSpec", root: Path, rules: "FileRules", sheets: Path | None) -> None:
    """Print the facts of every domain below the resolved data root, and draw a sheet of all into ``sheets``.

    Raises DataError, after all domains, if some images cannot be used, or no run could start.
    """
    from fdg_plugins.data.folders import existing_folders, list_domain
    from fdg_plugins.data.splits import folder_split
    from fdg_plugins.lab.preparation.facts import image_facts

    facts: dict[str, ImageFacts] = {}
    skipped = 0
    unused: dict[str, tuple[str, ...]] = {}
    splits: dict[str, Split] = {}
    for domain in [name for name in spec.domains if (root / spec.folder / name).is_dir()]:
        samples, left_out, unused[domain] = list_domain(existing_folders(root, spec, domain), spec, domain, rules)
        splits[domain] = folder_split(samples, spec, domain, root, rules, seed=0, left_out=left_out)
        facts[domain] = image_facts(
            root / spec.folder, track(samples, f"decoding {domain}", len(samples)), most_pixels()
        )
        skipped += len(left_out)
    if not facts:
        raise DataError(f"folder {root / spec.folder} holds no domain; expected one of {', '.join(spec.domains)}.")
    show(_facts_table(spec, facts, splits))
    if skipped:
        say(f"left out    {skipped:,} files that are known to be bad, or excluded")
    passed_over = unused_lines(unused)
    for line in (*_absent(spec, facts), *passed_over, *_turned(facts), *_duplicates(facts)):
        say(line)
    warn_of_idle(rules, root / spec.folder)
    warn_of_absent(spec.domains, facts, root / spec.folder)
    if sheets is not None:
        _write_sheet(sheets / f"{spec.name}.png", spec, root, facts)
    total = sum(len(found.samples) for found in facts.values())
    damaged = [error for found in facts.values() for error in found.damaged.values()]
    refuse_damaged(damaged, f"{total:,} images of data set {spec.name} in {root}")
    _refuse_few(splits)


def _refuse_few(splits: "dict[str, Split]") -> None:
    """Warn of a domain that can only be held out; raise DataError if there is another, so that no run can start."""
    few = [name for name, split in splits.items() if not split.train or not split.validation]
    if not few:
        return
    problem = f"no image to train or to validate on in {', '.join(few)}"
    hint = "a class of two images or more has one for validation, unless dataset.toml divides the domains"
    if len(few) > 1:
        raise DataError(f"{problem}, expected both in every domain but the held-out one; {hint}.")
    say(f"Warning: {problem}, which can only be held out; {hint}.", "yellow", True)


def _facts_table(spec: "ImageFolderSpec", facts: "dict[str, ImageFacts]", splits: "dict[str, Split]") -> Table:
    """Return a row per domain: images, their split, the unusable, counts by class, sizes, formats and grey images."""
    table = Table(show_edge=False, pad_edge=False)
    for head in ("domain", "images", "training", "validation", "unusable"):
        table.add_column(head, justify="left" if head == "domain" else "right")
    for head in ("fewest in a class", "most in a class", "height x width", "formats", "grey"):
        table.add_column(head, overflow="fold")
    for domain, found in facts.items():
        counts = _counts(spec, found.samples)
        fewest, most = min(counts, key=lambda name: counts[name]), max(counts, key=lambda name: counts[name])
        cells = (
            domain,
            *(
                f"{len(counted):,}"
                for counted in (found.samples, splits[domain].train, splits[domain].validation, found.damaged)
            ),
            *(f"{counts[name]:,} ({name})" for name in (fewest, most)),
            _sizes(found),
            ", ".join(f"{name} {count:,}" for name, count in sorted(found.formats.items())),
            f"{found.grey:,}",
        )
        table.add_row(*map(as_text, cells))
    return table


def _counts(spec: "ImageFolderSpec", samples: "Sequence[Sample]") -> dict[str, int]:
    labels = [sample.label for sample in samples]
    return {name: labels.count(label) for label, name in enumerate(spec.classes)}


def _sizes(found: "ImageFacts") -> str:
    """Return the range of heights and that of widths."""
    if not found.sizes:
        return ""
    ranges = [sorted({min(sides), max(sides)}) for sides in zip(*found.sizes, strict=True)]
    return " x ".join(" to ".join(map(str, sides)) for sides in ranges)


def _absent(spec: "ImageFolderSpec", facts: "dict[str, ImageFacts]") -> Iterator[str]:
    """Yield a line for each domain that lacks classes, which is legal."""
    for domain, found in facts.items():
        lacking = [name for name, count in _counts(spec, found.samples).items() if not count]
        if lacking:
            yield f"absent      {domain} has no image of {', '.join(lacking)}"


def _turned(facts: "dict[str, ImageFacts]") -> Iterator[str]:
    """Yield a line for each domain with images that viewers turn, and training does not."""
    for domain, found in facts.items():
        if found.turned:
            count = f"{found.turned:,} of {len(found.samples):,} images"
            yield f"turned      {domain}: {count} have an EXIF orientation, which is ignored"


def _duplicates(facts: "dict[str, ImageFacts]") -> Iterator[str]:
    """Return lines on files with the same bytes: those that matter, in several domains or classes, first."""
    by_digest: dict[str, list[Sample]] = {}
    for found in facts.values():
        for sample, digest in found.digests.items():
            by_digest.setdefault(digest, []).append(sample)
    groups = [sorted(group, key=lambda one: one.file) for group in by_digest.values() if len(group) > 1]
    in_classes = [len({sample.label for sample in group}) > 1 for group in groups]
    in_domains = [len({sample.file.partition("/")[0] for sample in group}) > 1 for group in groups]
    ranked = sorted(
        zip(in_classes, in_domains, groups, strict=True), key=lambda one: (not one[0], not one[1], one[2][0].file)
    )
    names = [[sample.file for sample in group] for _, _, group in ranked]
    return duplicate_lines(names, sum(in_domains), f", {sum(in_classes):,} under several classes")


def _write_sheet(path: Path, spec: "ImageFolderSpec", root: Path, facts: "dict[str, ImageFacts]") -> None:
    """Draw a row of images for each domain, chosen evenly from its classes."""
    import numpy as np

    from fdg_plugins.data.decoding import read_image
    from fdg_plugins.lab.preparation.sheets import Tile, draw_sheet

    rows = {
        domain: [
            Tile(np.asarray(read_image(root / spec.folder / one.file)), spec.classes[one.label])
            for one in _spread(found.usable, IN_A_ROW)
        ]
        for domain, found in facts.items()
        if found.usable
    }
    if not rows:
        return
    total = sum(len(found.samples) for found in facts.values())
    title = f"{spec.title}: {sum(map(len, rows.values()))} of {total:,} images"
    write_output(path, draw_sheet(rows, title), "--sheets")
    say(f"{path}: a row for each of {len(rows)} domains")


def _spread(samples: "Sequence[Sample]", count: int) -> "list[Sample]":
    """Return ``count`` images, or all if there are fewer, evenly from the classes in their order."""
    ordered = sorted(samples, key=lambda sample: (sample.label, sample.file))
    number = min(count, len(ordered))
    return [ordered[place * len(ordered) // number] for place in range(number)]
