# SPDX-License-Identifier: Apache-2.0
"""``fdg data``: list the data sets, and prepare one on this machine, checked and hashed.

Nothing is downloaded.
"""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdg_plugins.cli.console import INTERRUPTED, OneLineErrors, say
from fdg_plugins.cli.data_check import check_masks
from fdg_plugins.cli.data_tables import counts_table, datasets_table, show, track, waiting
from fdg_plugins.cli.data_verify import find_own, verify_data_set, verify_own
from fdg_plugins.cli.image_check import check_images
from fdg_plugins.cli.own_data import is_own
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.errors import DataError, SettingsError

if TYPE_CHECKING:
    from fdg_plugins.data.own_files import FileRules
    from fdg_plugins.data.specs import ImageFolderSpec, KnownSpec, SegmentationSpec
    from fdg_plugins.lab.preparation import Prepared

Name = Annotated[str, typer.Argument(help="A name from fdg data list, such as pacs.", show_default=False)]
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
    data_root: DataRoot = None,
) -> None:
    """List the data sets, and which of them are below the data root.

    Examples:

      fdg data list

      fdg data list pacs

      fdg data list --data-root /data
    """
    from fdg_plugins.data import DATASETS, dataset_spec
    from fdg_plugins.data.catalogue import origin_of

    if data_root is not None:
        _existing(data_root)
    if name is not None:
        spec, origin = dataset_spec(name), origin_of(name)
        show(datasets_table([spec], data_root))
        for line in (f"domains: {', '.join(spec.domains)}", f"page: {origin.page}", f"get: {origin.obtain}"):
            say(line)
        say(f"licence: {origin.licence}\nterms: {origin.terms}")
        return
    problems = DATASETS.load_usable()
    show(datasets_table(DATASETS.loaded(), data_root))
    for problem in problems:
        say(f"left out: {problem}", "yellow", on_stderr=True)


@data_app.command()
def prepare(
    name: Name,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FOLDER|ZIP|TAR",
            help="What you downloaded: a folder (with archives directly in it, if any), or an archive.",
            show_default=False,
        ),
    ],
    data_root: DataRoot = None,
    link: Annotated[
        bool,
        typer.Option("--link", help="Make hard links to the files of a folder, where possible: they take no space."),
    ] = False,
    any_counts: Annotated[
        bool, typer.Option("--any-counts", help="Accept other numbers of images than the data set is known to have.")
    ] = False,
) -> None:
    """Prepare a data set below the data root: copy it, count the images, and write the manifest.

    Published folders and archives are recognised, including their own domain names; fdg data list gives the pages.
    After an interruption, the same command resumes: existing files with the same content are left alone. A source may
    contain only some of the domains, so each site can prepare its own.

    Examples:

      fdg data prepare pacs --from ~/Downloads/PACS.zip --data-root /data

      fdg data prepare terraincognita --from ~/Downloads/camera_traps --data-root /data

      fdg data prepare domainnet10 --from /data/domainnet --data-root /data --link
    """
    from fdg_plugins.cli.own_data import most_pixels
    from fdg_plugins.lab.preparation import prepare as prepare_data
    from fdg_plugins.storage import own_path

    spec, root = _on_disk(name), _named(data_root)
    try:
        done = prepare_data(
            spec, own_path(source), root, link=link, any_counts=any_counts, track=track, max_pixels=most_pixels()
        )
    except KeyboardInterrupt as order:
        say("interrupted; the same command goes on with what is left", on_stderr=True)
        raise typer.Exit(INTERRUPTED) from order
    _report(spec, done, root)


@data_app.command()
def verify(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|DIR|FILE.toml", help="A name from fdg data list, or your own images.", show_default=False
        ),
    ],
    data_root: DataRoot = None,
    images: Annotated[
        bool, typer.Option("--images", help="Decode every image too, and name those that cannot be used.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the manifest of your own images, which later calls compare with.")
    ] = False,
) -> None:
    """Compare a data set with its manifest, file by file; without a manifest, count its images.

    Missing, extra and changed files are named. With --images, every image is decoded, as in a site's census, with the
    limit of FDG_MAX_IMAGE_PIXELS. Exit codes: 0 the data set is as expected, 2 it is not.

    Examples:

      fdg data verify pacs --data-root /data

      fdg data verify pacs --data-root /data --images

      fdg data verify photos --write
    """

    if is_own(name):
        verify_own(name, data_root, images=images, write=write)
    elif write:
        raise SettingsError(f"--write is for images of your own; fdg data prepare {name} writes a manifest.")
    else:
        verify_data_set(_on_disk(name), _existing(_named(data_root)).resolve(), images=images)


@data_app.command()
def check(
    place: Annotated[
        str,
        typer.Argument(
            metavar="NAME|DIR|FILE.toml",
            help="A name from fdg data list, a folder of your own images, or the file that describes them.",
            show_default=False,
        ),
    ],
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
    from fdg_plugins.data.specs import SegmentationSpec

    load_plugins(plugin)
    spec, root, rules = _files_of(place, data_root)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # they name lines of Pillow, and no image
    if isinstance(spec, SegmentationSpec):
        check_masks(spec, root, rules, sheets)
    else:
        check_images(spec, root, rules, sheets)


@data_app.command("stand-in")
def stand_in(
    to: Annotated[Path, typer.Option(help="A folder that is not there yet, or empty.", show_default=False)],
    dataset: Annotated[
        str, typer.Option(help="The data set whose layout the drawings have: pacs, vessels or celeba.")
    ] = "pacs",
    images_per_class: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Drawings of each class in each domain (default 30); of vessels, pairs in each domain (default 32); "
            "not for celeba.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Draw the STAND-IN for PACS, the retinal vessels or CelebA into a folder of its own, in the data set's layout.

    These are drawings by this package, not the data set: a file STAND-IN.json next to and in the data set's folder says
    so, and every run on them is marked STAND-IN in everything that it prints and records. Use them to try data roots
    and site configs.

    Examples:

      fdg data stand-in --to /tmp/stand-in

      fdg data stand-in --dataset vessels --to /tmp/stand-in-vessels
    """
    from fdg_plugins.data.stand_in import MARKER, STAND_INS, is_stand_in, write_stand_in

    if dataset not in STAND_INS:
        raise SettingsError(f"data set {dataset!r} is not drawn; expected --dataset {', '.join(STAND_INS)}.")
    if images_per_class is not None and not STAND_INS[dataset].usual:
        raise SettingsError(f"the drawings of {dataset} have a fixed number; expected no --images-per-class.")
    if is_stand_in(to):
        _check_drawn(to, dataset, images_per_class)
        say(f"{to}: the STAND-IN is there already; nothing was drawn")
        return
    with waiting("drawing"):
        write_stand_in(to, dataset, images_per_class=images_per_class)
    spec = _on_disk(dataset)
    say(f"{to}: STAND-IN for {spec.title}, drawings in {spec.folder}/; {MARKER} marks them as such")
    say(f"every run with FDG_DATA_ROOT={to} calls itself STAND-IN")


def _check_drawn(to: Path, dataset: str, asked: int | None) -> None:
    """Raise DataError unless the drawings in ``to`` are those of the data set, in the number that is asked for."""
    from fdg_plugins.data.stand_in import MARKER
    from fdg_plugins.storage import read_json

    place = to / _on_disk(dataset).folder / MARKER
    if not place.is_file():
        raise DataError(f"{to} holds the STAND-IN for another data set than {dataset}, expected a new folder.")
    drawn = read_json(place).get("images_per_class")
    if asked is not None and asked != drawn:
        raise DataError(f"{to} holds the STAND-IN with {drawn} drawings each, expected a new folder for {asked}.")


def _on_disk(name: str) -> "KnownSpec":
    from fdg_plugins.data import dataset_spec

    spec = dataset_spec(name)
    if not spec.needs_data_root:
        raise SettingsError(f"data set {name} comes with an installed package; there is nothing to prepare or verify.")
    return spec


def _files_of(place: str, data_root: Path | None) -> "tuple[ImageFolderSpec | SegmentationSpec, Path, FileRules]":
    """Return the record of a data set of files, its resolved data root, and what its own file says about them."""
    from fdg_plugins.data import DATASETS, AttributeSpec, PublishedSpec, RotatedSpec
    from fdg_plugins.data.own_files import NO_RULES

    if is_own(place):
        return find_own(place, data_root)
    if place not in DATASETS.names() and not Path(place).exists():
        raise SettingsError(
            f"there is no folder {place!r} here, nor a data set of that name: fdg data list shows those."
        )
    spec, root = _on_disk(place), _existing(_named(data_root)).resolve()
    if isinstance(spec, PublishedSpec | RotatedSpec):
        raise SettingsError(f"data set {place} has no files of images; fdg data verify {place} reads its files.")
    if isinstance(spec, AttributeSpec):
        raise SettingsError(
            f"data set {place} has no folders of domains; fdg data verify {place} --images reads its lists and images."
        )
    return spec, root, NO_RULES


def _named(data_root: Path | None) -> Path:
    from fdg_plugins.storage import own_path

    if data_root is None:
        raise SettingsError("no data root is named; expected --data-root DIR or the variable FDG_DATA_ROOT.")
    return own_path(data_root)


def _existing(data_root: Path) -> Path:
    if not data_root.is_dir():
        raise DataError(f"data root {data_root} is not a folder; expected --data-root or FDG_DATA_ROOT to name one.")
    return data_root


def _report(spec: "KnownSpec", done: "Prepared", root: Path) -> None:
    """Report what was done; raise DataError if the counts were not accepted."""
    from fdg_plugins.data.catalogue import origin_of
    from fdg_plugins.data.folders import MANIFEST

    _report_copy(spec, done)
    show(counts_table(done.counts, done.verdict))
    terms = f"terms: {origin_of(spec.name).terms}; {origin_of(spec.name).page}"
    if done.manifest is None:
        say(terms)
        raise DataError(
            f"data set {spec.name} in {root}: {'; '.join(done.verdict.differences)}; no manifest was written "
            "(--any-counts accepts what is there)."
        )
    for difference in done.verdict.differences:
        say(f"  note: {difference}")
    say(f"{root / spec.folder / MANIFEST}: {len(done.manifest.files):,} files, sha256 {done.manifest.sha256[:16]}")
    say(terms)


def _report_copy(spec: "KnownSpec", done: "Prepared") -> None:
    say(f"{spec.name}: {done.written:,} files written, {done.kept:,} were there already")
    for remark in done.plan.remarks:
        say(f"  {remark}")
    if left_out := done.plan.left_out:
        say(f"  {len(left_out):,} files of the source are not part of the data set, such as {left_out[0]}")
