# SPDX-License-Identifier: Apache-2.0
"""``fdg data check``: look into the images of a data set with masks, in numbers and in pictures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from fdg_plugins.cli.check_lines import duplicate_lines, refuse_damaged, unused_lines
from fdg_plugins.cli.console import say
from fdg_plugins.cli.data_tables import show, track
from fdg_plugins.cli.output import write_output
from fdg_plugins.cli.own_data import most_pixels, warn_of_absent, warn_of_idle
from fdg_plugins.cli.tables import as_text

if TYPE_CHECKING:
    from fdg_plugins.data.own_files import FileRules
    from fdg_plugins.data.pairs import Pairs
    from fdg_plugins.data.specs import PairSample, SegmentationSpec
    from fdg_plugins.lab.preparation.facts import ImageFacts

ON_A_SHEET = 6
TILE = 2.7  # inches


def check_masks(spec: "SegmentationSpec", root: Path, rules: "FileRules", sheets: Path | None) -> None:
    """Print the facts of every domain below the resolved data root, and write a sheet of each into ``sheets``.

    Raises DataError, after all domains, if some pairs cannot be used, or a domain has too few for any run.
    """
    from fdg_plugins.data.pairs import list_pairs, split_pairs
    from fdg_plugins.lab.preparation import count_images
    from fdg_plugins.lab.preparation.facts import mask_facts

    facts: dict[str, ImageFacts] = {}
    listed: dict[str, Pairs] = {}
    unused: dict[str, tuple[str, ...]] = {}
    for domain in count_images(root, spec, rules):
        listed[domain], _, unused[domain] = list_pairs(root, spec, domain, rules)
        pairs = listed[domain].all
        facts[domain] = mask_facts(root, spec, track(pairs, f"decoding {domain}", len(pairs)), most_pixels())
        if sheets is not None:
            sound = [pair for pair in pairs if pair not in facts[domain].damaged]
            _write_sheet(sheets / f"{domain}.png", spec, root, sound)
    show(_facts_table(spec, facts))
    for line in (*unused_lines(unused), *_duplicates(facts)):
        say(line)
    warn_of_idle(rules, root / spec.folder)
    warn_of_absent(spec.domains, facts, root / spec.folder)
    total = sum(len(found.samples) for found in facts.values())
    damaged = [error for found in facts.values() for error in found.damaged.values()]
    refuse_damaged(damaged, f"{total:,} pairs of data set {spec.name} in {root}")
    for domain, pairs_of_domain in listed.items():
        split_pairs(pairs_of_domain, (), spec, domain, seed=0, max_samples=None)


def _duplicates(facts: "Mapping[str, ImageFacts]") -> Iterator[str]:
    """Return lines on images with the same bytes, those in several domains first; a data list may name another's."""
    by_digest: dict[str, list[tuple[str, str]]] = {}
    for domain, found in facts.items():
        for pair, digest in found.digests.items():
            by_digest.setdefault(digest, []).append((domain, pair.file))
    groups = [places for places in by_digest.values() if len(places) > 1]
    groups.sort(key=lambda places: not _in_several(places))
    names = [[f"{domain}: {file}" for domain, file in places] for places in groups]
    return duplicate_lines(names, sum(map(_in_several, groups)))


def _in_several(places: Sequence[tuple[str, str]]) -> bool:
    """Return whether an image, given as domains and files, is in several domains."""
    return len({domain for domain, _ in places}) > 1


def _facts_table(spec: "SegmentationSpec", facts: "dict[str, ImageFacts]") -> Table:
    """Return a row per domain: pairs, sizes, and mean, smallest and largest fraction of each class but the first."""
    table = Table(show_edge=False, pad_edge=False)
    for head in ("domain", "pairs", "unusable"):
        table.add_column(head, justify="left" if head == "domain" else "right")
    for head in ("height x width" if spec.dims == 2 else "size", *(f"fraction of {name}" for name in spec.classes[1:])):
        table.add_column(as_text(head))
    for domain, found in facts.items():
        cells = (domain, f"{len(found.samples):,}", f"{len(found.damaged):,}", _sizes(found), *_fractions(found))
        table.add_row(*map(as_text, cells))
    return table


def _sizes(found: "ImageFacts") -> str:
    sizes = sorted(set(found.sizes))
    return " to ".join(" x ".join(map(str, size)) for size in dict.fromkeys(sizes[:1] + sizes[-1:]))


def _fractions(found: "ImageFacts") -> Iterator[str]:
    for shares in list(zip(*found.shares, strict=True))[1:]:
        yield f"{sum(shares) / len(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})"


def _write_sheet(path: Path, spec: "SegmentationSpec", root: Path, pairs: "list[PairSample]") -> None:
    """Draw up to ``ON_A_SHEET`` pairs, evenly chosen in the order of their names."""
    from fdg_plugins.data.pairs import stem_of
    from fdg_plugins.lab.preparation.facts import class_shares, read_pair
    from fdg_plugins.lab.preparation.sheets import draw_sheet, mask_tiles

    if not pairs:
        return
    count = min(ON_A_SHEET, len(pairs))
    rows = {}
    for pair in (pairs[number * len(pairs) // count] for number in range(count)):
        image, labels = read_pair(root, spec, pair, most_pixels())
        shares = class_shares(labels, len(spec.classes))[1:]
        texts = [f"{name} {share:.3f}" for name, share in zip(spec.classes[1:], shares, strict=True)]
        rows[stem_of(Path(pair.file).name)] = mask_tiles(image, labels, ", ".join(texts))
    title = f"{spec.title}, {path.stem}: {count} of {len(pairs)} pairs"
    write_output(path, draw_sheet(rows, title, TILE, spec.classes), "--sheets")
    say(f"{path}: {count} of {len(pairs):,} pairs")
