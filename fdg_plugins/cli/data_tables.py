# SPDX-License-Identifier: Apache-2.0
"""The output of ``fdg data``: tables on stdout, and on stderr, in a terminal only, the progress of long steps."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import track as track_with_bar
from rich.table import Table

from fdg_plugins.cli.tables import as_text

if TYPE_CHECKING:
    from fdg_plugins.data import DatasetSpec
    from fdg_plugins.lab.preparation import Counts, Verdict

WIDTH = 160
NOT_KNOWN = "not known"
WIDEST = 40

T = TypeVar("T")


def show(table: Table) -> None:
    """Print a table at the terminal's width, or in full if there is no terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    console.print(table)


def track(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """Yield ``items`` with a progress bar that disappears at the end."""
    console = Console(stderr=True)
    return track_with_bar(
        items, description=escape(what), total=total, console=console, transient=True, disable=not console.is_terminal
    )


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show that an operation of unknown duration is in progress."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(escape(what)):
        yield


def datasets_table(specs: "Iterable[DatasetSpec]", data_root: Path | None) -> Table:
    """Return a row per data set; the last column shows what is in ``data_root``."""
    place = "found" if data_root is None else f"found in {data_root}"
    table = _table("name", "domains", "classes", "images", place)
    for spec in specs:
        table.add_row(
            spec.name,
            _domains(spec),
            f"{len(spec.classes)}",
            _images(spec),
            _found(spec, data_root),
        )
    return table


def counts_table(counts: "Counts", verdict: "Verdict | None" = None) -> Table:
    """Return the table of the counted images, next to the counts of the release; without ``verdict``, none exists."""
    release = None if verdict is None else verdict.release
    has_classes = any(len(by_class) > 1 for by_class in counts.values())
    expected = () if verdict is None else ("expected",)
    table = _table("domain", "images", *expected, *(("fewest in a class", "most in a class") if has_classes else ()))
    if release is not None:
        certain = "" if release.certain else ", not certain"
        table.title = f"expected: {release.name} ({release.source}{certain})"
        table.title_justify = "left"
        table.min_width = len(table.title)
    for domain, by_class in counts.items():
        _add_counts(table, domain, by_class, None if release is None else release.images[domain], bool(expected))
    return table


def _add_counts(table: Table, domain: str, by_class: Mapping[str, int], expected: int | None, told: bool) -> None:
    """Add the row of one domain, in colour if another number of images is ``expected``; ``told``: with that number."""
    total = sum(by_class.values())
    cells = (
        domain,
        f"{total:,}",
        *((NOT_KNOWN if expected is None else f"{expected:,}",) if told else ()),
        *(f"{by_class[name]:,} ({name})" for name in _extremes(by_class)),
    )
    table.add_row(*map(as_text, cells), style="" if expected in (None, total) else "yellow")


def _extremes(by_class: Mapping[str, int]) -> tuple[str, ...]:
    """Return the classes with the fewest and the most images, nothing unless there are several."""
    if len(by_class) < 2:
        return ()
    return min(by_class, key=by_class.__getitem__), max(by_class, key=by_class.__getitem__)


def _table(*heads: str) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for head in heads:
        is_number = head in ("classes", "images", "expected")
        table.add_column(head, overflow="fold", justify="right" if is_number else "left", no_wrap=head == "name")
    return table


def _domains(spec: "DatasetSpec") -> str:
    """Return the number of domains and as many names as fit a line of the table."""
    names = ", ".join(spec.domains)
    return names if len(names) <= WIDEST else f"{len(spec.domains)}, such as {spec.domains[0]}"


def _images(spec: "DatasetSpec") -> str:
    """Return the number of images of a data set, as text."""
    from fdg_plugins.data.catalogue import origin_of

    if limit := getattr(spec, "limit", None):
        return f"{limit:,}"
    releases = origin_of(spec.name).releases
    if not releases:
        return NOT_KNOWN
    return f"{sum(releases[0].images.values()):,}{'' if releases[0].certain else ' ?'}"


def _found(spec: "DatasetSpec", data_root: Path | None) -> str:
    """Return how much of a data set is present, as text; reads only names."""
    if not spec.needs_data_root:
        return "with scikit-learn"
    if data_root is None:
        return "no data root named"
    return _found_below(data_root, spec)


def _found_below(data_root: Path, spec: "DatasetSpec") -> str:
    from fdg_plugins.data.folders import MANIFEST, is_unfinished
    from fdg_plugins.data.stand_in import is_stand_in

    places, what = _places(data_root, spec)
    there = sum(place.exists() for place in places)
    if not there:
        return "no"
    kind = "STAND-IN" if is_stand_in(data_root, spec.folder) else f"{there} of {len(places)} {what}"
    if is_unfinished(data_root / spec.folder):
        return f"{kind}, preparation not ended"
    return f"{kind}, manifest" if (data_root / spec.folder / MANIFEST).is_file() else kind


def _places(data_root: Path, spec: "DatasetSpec") -> tuple[list[Path], str]:
    """Return where a complete data set has its files or folders, and which of the two they are."""
    from fdg_plugins.data import AttributeSpec, PublishedSpec, RotatedSpec
    from fdg_plugins.data.specs import files_of

    in_folders = isinstance(spec, PublishedSpec) and (data_root / spec.folder / "train").is_dir()
    if isinstance(spec, PublishedSpec | RotatedSpec) and not in_folders:
        return [data_root / name for name in files_of(spec)], "files"
    if isinstance(spec, AttributeSpec):
        names = (*spec.lists, f"{spec.folder}/{spec.image_folder}")
        return [data_root / name for name in names], "lists and folders"
    return [data_root / spec.folder / domain for domain in spec.domains], "domains"
