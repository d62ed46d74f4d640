# SPDX-License-Identifier: Apache-2.0
"""``fdg data``: list the data sets, and prepare one on this machine, checked and hashed.

Nothing is downloaded.
"""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdg_plugins.cli.console import INTERRUPTED, OneLineErrors, say, warn
from fdg_plugins.cli.data_check import Place, check_attributed, check_images, check_masks, track
from fdg_plugins.cli.options import PluginFiles, introduce, is_own, load_plugins, most_pixels
from fdg_plugins.cli.tables import make_table, show
from fdg_plugins.errors import DataError, SettingsError

if TYPE_CHECKING:
    from fdg_plugins.data import DatasetSpec
    from fdg_plugins.data.specs import KnownSpec
    from fdg_plugins.lab.preparation import Counts, Verdict

NOT_KNOWN = "not known"
SHOWN = 5

PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME|DIR|FILE.toml",
        help="A name from fdg data list, a folder of your own images, or the file that describes them.",
        show_default=False,
    ),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        envvar="FDG_DATA_ROOT", help="The folder that holds, or will hold, the data sets.", show_default=False
    ),
]

data_app = typer.Typer(
    name="data",
    cls=OneLineErrors,
    help="List, prepare and check data sets.\n\n"
    "Sites read <data root>/<data set>/<domain>/<class>/<image>, or MNIST's four files. Published archives look "
    "different; prepare brings one to this layout, counts its images, and writes a manifest of SHA-256 digests that "
    "verify compares with later.",
    epilog="Exit codes: 0 done, 2 the request cannot be carried out, or the images are not as they should be.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@data_app.command("list")
def list_data_sets(
    name: Annotated[str | None, typer.Argument(help="Only this one, with where to get it and its terms.")] = None,
) -> None:
    """List the data sets, and which of them are below FDG_DATA_ROOT.

    Examples:

      fdg data list

      fdg data list pacs

      FDG_DATA_ROOT=/data fdg data list
    """
    from fdg_plugins.data import DATASETS, dataset_spec
    from fdg_plugins.data.catalogue import origin_of
    from fdg_plugins.storage import named_path

    data_root = named_path("FDG_DATA_ROOT", os.environ)
    if data_root is not None:
        _existing(data_root)
    problems = [] if name is not None else DATASETS.load_usable()
    specs = DATASETS.loaded() if name is None else [dataset_spec(name)]
    head = ("name", "domains", "classes", "images", "found" if data_root is None else f"found in {data_root}")
    show(make_table(head, (_row(spec, data_root) for spec in specs), ("classes", "images")))
    if name is not None:
        origin = origin_of(name)
        say(f"domains: {', '.join(specs[0].domains)}\npage: {origin.page}\nget: {origin.obtain}")
        say(f"licence: {origin.licence}\nterms: {origin.terms}")
    for problem in problems:
        say(f"left out: {problem}", "yellow", on_stderr=True)


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A name from fdg data list, such as pacs.", show_default=False)],
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|ZIP|TAR",
            help="What you downloaded: a folder (with archives directly in it, if any), or an archive.",
            show_default=False,
        ),
    ],
    data_root: DataRoot = None,
    any_counts: Annotated[
        bool, typer.Option("--any-counts", help="Accept other numbers of images than the data set is known to have.")
    ] = False,
) -> None:
    """Prepare a data set below the data root: copy it, count the images, and write the manifest.

    Published folders and archives are recognised, including their own domain names; fdg data list gives the pages.
    After an interruption, the same command resumes: existing files with the same content are left alone. A source may
    contain only some of the domains, so each site can prepare its own.

    Examples:

      fdg data prepare pacs ~/Downloads/PACS.zip --data-root /data

      fdg data prepare terraincognita ~/Downloads/camera_traps --data-root /data
    """
    from fdg_plugins.data.catalogue import origin_of
    from fdg_plugins.data.folders import MANIFEST
    from fdg_plugins.lab.preparation import prepare as prepare_data
    from fdg_plugins.storage import own_path

    spec, root = _on_disk(name), _named(data_root)
    try:
        place = own_path(source)
        done = prepare_data(spec, place, root, any_counts=any_counts, track=track, max_pixels=most_pixels())
    except KeyboardInterrupt as order:
        say("interrupted; the same command goes on with what is left", on_stderr=True)
        raise typer.Exit(INTERRUPTED) from order
    say(f"{spec.name}: {done.written:,} files written, {done.kept:,} were there already")
    for remark in done.plan.remarks:
        say(f"  {remark}")
    if left_out := done.plan.left_out:
        say(f"  {len(left_out):,} files of the source are not part of the data set, such as {left_out[0]}")
    _show_counts(done.counts, done.verdict)
    say(f"terms: {origin_of(spec.name).terms}; {origin_of(spec.name).page}")
    if done.manifest is None:
        raise DataError(
            f"data set {spec.name} in {root}: {'; '.join(done.verdict.differences)}; no manifest was written "
            "(--any-counts accepts what is there)."
        )
    for difference in done.verdict.differences:
        say(f"  note: {difference}")
    say(f"{root / spec.folder / MANIFEST}: {len(done.manifest.files):,} files, sha256 {done.manifest.sha256[:16]}")


@data_app.command()
def verify(
    place: PlaceArgument,
    data_root: DataRoot = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the manifest of your own images, which later calls compare with.")
    ] = False,
) -> None:
    """Compare a data set with its manifest, file by file; without a manifest, count its images.

    Missing, extra and changed files are named; fdg data check decodes every image too. Exit codes: 0 the data set is as
    expected, 2 it is not.

    Examples:

      fdg data verify pacs --data-root /data

      fdg data verify photos --write
    """
    from fdg_plugins.data.folders import MANIFEST
    from fdg_plugins.lab.preparation import count_images, find_changes, judge, read_manifest, write_manifest

    found = _files_of(place, data_root)
    spec, root = found.spec, found.root
    if write and not spec.described:
        raise SettingsError(f"--write is for images of your own; fdg data prepare {place} writes a manifest.")
    manifest = None if write else read_manifest(root, spec)
    if manifest is not None:
        if changes := find_changes(root, spec, manifest, track=track):
            lists = {"missing": changes.missing, "extra": changes.extra, "changed": changes.changed}
            for word, files in lists.items():
                for file in files[:SHOWN]:
                    say(f"{word:8}{file}")
                if len(files) > SHOWN:
                    say(f"{word:8}... and {len(files) - SHOWN:,} more")
            counts = ", ".join(f"{word}: {len(files):,}" for word, files in lists.items())
            raise DataError(f"data set {spec.name} in {root} is not as its manifest says; files {counts}.")
        say(f"{spec.name}: all {len(manifest.files):,} files are as the manifest says (sha256 {manifest.sha256[:16]})")
    counted = count_images(root, spec, found.rules if spec.described else None)
    verdict = judge(counted, spec)
    _show_counts(counted, None if spec.described else verdict)
    if write:
        written = write_manifest(root, spec, None, track=track)
        say(f"{root / MANIFEST}: {len(written.files):,} files, sha256 {written.sha256[:16]}")
    elif manifest is None:
        maker = "--write" if spec.described else f"fdg data prepare {spec.name} {root}"
        say(f"{spec.name}: no manifest, so only the images were counted; {maker} writes one")
        if verdict.is_wrong:
            raise DataError(f"data set {spec.name} in {root}: {'; '.join(verdict.differences)}.")


@data_app.command()
def check(
    place: PlaceArgument,
    data_root: DataRoot = None,
    sheets: Annotated[
        Path | None,
        typer.Option(help="A folder for a contact sheet: a PNG with a row per domain; with masks, one per domain."),
    ] = None,
    plugin: PluginFiles = None,
) -> None:
    """Look into the images of a data set: what is there, damaged and duplicate files, sizes, and a picture of them.

    Labelled images are counted by class; of masks, the fraction of each class is shown. What a run passes over is
    named, and so are images with the same bytes: one in two domains is in training and in the test. A sheet shows the
    images, so it belongs where they may be. Exit codes: 0 every image can be used, 2 some cannot, or no run could
    start.

    Examples:

      fdg data check photos --sheets /tmp/sheets

      fdg data check pacs --data-root /data

      fdg data check vessels --data-root /data --sheets /tmp/sheets
    """
    from fdg_plugins.data.specs import AttributeSpec, ImageFolderSpec, SegmentationSpec

    load_plugins(plugin)
    found = _files_of(place, data_root)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # they name lines of Pillow, and no image
    if isinstance(found.spec, SegmentationSpec):
        check_masks(found, found.spec, sheets)
    elif isinstance(found.spec, ImageFolderSpec):
        check_images(found, found.spec, sheets)
    elif isinstance(found.spec, AttributeSpec):
        check_attributed(found, found.spec)
    else:
        raise SettingsError(f"data set {place} has no files of images; fdg data verify {place} reads its files.")


@data_app.command("stand-in")
def stand_in(
    to: Annotated[Path, typer.Argument(help="A folder that is not there yet, or empty.", show_default=False)],
    dataset: Annotated[
        str, typer.Option(help="The data set whose layout the drawings have: pacs, vessels or celeba.")
    ] = "pacs",
) -> None:
    """Draw the STAND-IN for PACS, the retinal vessels or CelebA into a folder of its own, in the data set's layout.

    These are drawings by this package, not the data set: a file STAND-IN.json next to and in the data set's folder says
    so, and every run on them is marked STAND-IN in everything that it prints and records. Use them to try data roots
    and site configs.

    Examples:

      fdg data stand-in /tmp/stand-in

      fdg data stand-in /tmp/stand-in-vessels --dataset vessels
    """
    from fdg_plugins.data.stand_in import MARKER, STAND_INS, is_stand_in, write_stand_in

    if dataset not in STAND_INS:
        raise SettingsError(field="--dataset", value=dataset, expected=f"one that is drawn: {', '.join(STAND_INS)}")
    spec = _on_disk(dataset)
    if is_stand_in(to):
        if not (to / spec.folder / MARKER).is_file():
            raise DataError(f"{to} holds the STAND-IN for another data set than {dataset}, expected a new folder.")
        say(f"{to}: the STAND-IN is there already; nothing was drawn")
        return
    write_stand_in(to, dataset)
    say(f"{to}: STAND-IN for {spec.title}, drawings in {spec.folder}/; {MARKER} marks them as such")
    say(f"every run with FDG_DATA_ROOT={to} calls itself STAND-IN")


def _on_disk(name: str) -> "KnownSpec":
    from fdg_plugins.data import dataset_spec

    spec = dataset_spec(name)
    if not spec.needs_data_root:
        raise SettingsError(f"data set {name} comes with an installed package; there is nothing to prepare or verify.")
    return spec


def _files_of(place: str, data_root: Path | None) -> Place:
    """Return the record of a data set of files, its resolved data root, and what its own file says about them.

    Raises DataError if the data root holds the stand-in, or no folder of the data set.
    """
    from fdg_plugins.data import DATASETS, dataset_spec
    from fdg_plugins.data.own_files import NO_RULES
    from fdg_plugins.data.own_folder import own_data
    from fdg_plugins.data.stand_in import is_stand_in

    if is_own(place):
        own = own_data(place, data_root if place.endswith(".toml") else None)
        introduce(own)
        return Place(dataset_spec(own.dataset), own.root, own.rules)
    if place not in DATASETS.names() and not Path(place).exists():
        raise SettingsError(f"there is no folder {place!r} here, nor a data set of that name: fdg data list has those.")
    spec, root = _on_disk(place), _existing(_named(data_root)).resolve()
    if is_stand_in(root, spec.folder):
        warn(f"data root {root} holds the STAND-IN, drawings, not images of {spec.title}.")
    return Place(spec, root, NO_RULES)


def _named(data_root: Path | None) -> Path:
    from fdg_plugins.storage import own_path

    if data_root is None:
        raise SettingsError("no data root is named; expected --data-root DIR or the variable FDG_DATA_ROOT.")
    return own_path(data_root)


def _existing(data_root: Path) -> Path:
    if not data_root.is_dir():
        raise DataError(f"data root {data_root} is not a folder; expected --data-root or FDG_DATA_ROOT to name one.")
    return data_root


def _show_counts(counts: "Counts", verdict: "Verdict | None") -> None:
    """Print the table of the counted images, next to the counts of the release; without ``verdict``, none exists."""
    release = None if verdict is None else verdict.release
    has_classes = any(len(by_class) > 1 for by_class in counts.values())
    expected = () if verdict is None else ("expected",)
    head = ("domain", "images", *expected, *(("fewest in a class", "most in a class") if has_classes else ()))
    if release is not None:
        say(f"expected: {release.name} ({release.source}{'' if release.certain else ', not certain'})")

    def rows() -> Iterator[tuple[str, ...]]:
        for domain, by_class in counts.items():
            known = (NOT_KNOWN if release is None else f"{release.images[domain]:,}",) if expected else ()
            yield domain, f"{sum(by_class.values()):,}", *known, *(extremes(by_class) if has_classes else ())

    show(make_table(head, rows(), ("images", "expected")))


def extremes(by_class: Mapping[str, int]) -> Iterable[str]:
    """Return the classes with the fewest and the most images, with their numbers."""
    ends = min(by_class, key=by_class.__getitem__), max(by_class, key=by_class.__getitem__)
    return [f"{by_class[name]:,} ({name})" for name in ends]


def _row(spec: "DatasetSpec", data_root: Path | None) -> tuple[str, ...]:
    """Return a data set's row of the list; the last cell says how much of it is present, by names alone."""
    from fdg_plugins.data.catalogue import origin_of

    names = ", ".join(spec.domains)
    domains = names if len(names) <= 40 else f"{len(spec.domains)}, such as {spec.domains[0]}"
    releases = origin_of(spec.name).releases
    images = NOT_KNOWN
    if limit := getattr(spec, "limit", None):
        images = f"{limit:,}"
    elif releases:
        images = f"{sum(releases[0].images.values()):,}{'' if releases[0].certain else ' ?'}"
    found = "with scikit-learn"
    if spec.needs_data_root:
        found = "no data root named" if data_root is None else _found_below(data_root, spec)
    return spec.name, domains, str(len(spec.classes)), images, found


def _found_below(data_root: Path, spec: "DatasetSpec") -> str:
    from fdg_plugins.data import AttributeSpec, PublishedSpec, RotatedSpec
    from fdg_plugins.data.folders import MANIFEST, is_unfinished
    from fdg_plugins.data.specs import files_of
    from fdg_plugins.data.stand_in import is_stand_in

    folder = data_root / spec.folder
    names, what = [f"{spec.folder}/{domain}" for domain in spec.domains], "domains"
    if isinstance(spec, AttributeSpec):
        names, what = [*spec.lists, f"{spec.folder}/{spec.image_folder}"], "lists and folders"
    elif isinstance(spec, RotatedSpec) or (isinstance(spec, PublishedSpec) and not (folder / "train").is_dir()):
        names, what = list(files_of(spec)), "files"
    there = sum((data_root / name).exists() for name in names)
    if not there:
        return "no"
    kind = "STAND-IN" if is_stand_in(data_root, spec.folder) else f"{there} of {len(names)} {what}"
    if is_unfinished(folder):
        return f"{kind}, preparation not ended"
    return f"{kind}, manifest" if (folder / MANIFEST).is_file() else kind
