# SPDX-License-Identifier: Apache-2.0
"""``fdg data``: list the data sets, and prepare one on this machine, checked and hashed.

Only ``fdg data prepare NAME --from hf`` ever downloads.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdg_plugins.cli.console import OneLineErrors, say
from fdg_plugins.cli.data_tables import counts_table, datasets_table, show, track, waiting
from fdg_plugins.cli.plugins import PluginFiles, load_plugins
from fdg_plugins.errors import DataError, SettingsError

if TYPE_CHECKING:
    from fdg_plugins.data import Damaged
    from fdg_plugins.data.catalogue import KnownSpec
    from fdg_plugins.data.preparation import Changes, Manifest, Prepared, Source, Verdict

HUB = "hf"
SHOWN = 5
INTERRUPTED = 130

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
    help="Data sets on this machine: list, prepare, verify, or draw the stand-in.\n\n"
    "Sites read <data root>/<data set>/<domain>/<class>/<image>, or MNIST's four files. Published archives look "
    "different; prepare brings one to this layout, counts its images, and writes a manifest of SHA-256 digests that "
    "verify compares with later.",
    epilog="Exit codes: 0 done, 2 the request cannot be carried out, or the images are not as they should be.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@data_app.command("list")
def list_data_sets(data_root: DataRoot = None) -> None:
    """List the data sets: domains, classes, images, licence, and which of them are below the data root.

    Examples:

      fdg data list

      fdg data list --data-root /data
    """
    from fdg_plugins.data import DATASETS
    from fdg_plugins.data.origins import origin_of

    if data_root is not None:
        _existing(data_root)
    show(datasets_table(data_root))
    names_by_origin: dict[tuple[str, str, str], list[str]] = {}
    for name in (spec.name for spec in DATASETS.all()):
        origin = origin_of(name)
        names_by_origin.setdefault((origin.page, origin.obtain, origin.terms), []).append(name)
    for (page, obtain, terms), names in names_by_origin.items():
        say(f"{', '.join(names)}: {page}")
        say(f"  get: {obtain}")
        say(f"  terms: {terms}")


@data_app.command()
def prepare(
    name: Name,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FOLDER|ZIP|TAR|hf",
            help="What was downloaded: a folder (with archives directly in it, if any), an archive, or hf, which "
            "downloads from Hugging Face.",
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

      fdg data prepare officehome --from hf --data-root /data
    """
    from fdg_plugins.data.preparation import prepare as prepare_data

    spec, root = _on_disk(name), _named(data_root)
    try:
        with waiting(f"reading {source}"):
            opened = _opened(name, source)
        done = prepare_data(spec, opened, root, link=link, any_counts=any_counts, track=track)
    except KeyboardInterrupt as order:
        say("interrupted; the same command goes on with what is left", on_stderr=True)
        raise typer.Exit(INTERRUPTED) from order
    _report(spec, done, root)


@data_app.command()
def verify(
    name: Name,
    data_root: DataRoot = None,
    images: Annotated[
        bool, typer.Option("--images", help="Decode every image too, and name those that cannot be used.")
    ] = False,
) -> None:
    """Compare a data set with its manifest, file by file; without a manifest, count its images.

    Missing, extra and changed files are named. With --images, every image is decoded, as in a site's census, with the
    default limit of pixels. Exit codes: 0 the data set is as expected, 2 it is not.

    Examples:

      fdg data verify pacs --data-root /data

      fdg data verify pacs --data-root /data --images
    """
    from fdg_plugins.data.preparation import count_images, judge, read_manifest

    spec, root = _on_disk(name), _existing(_named(data_root)).resolve()
    _check_is_there(spec, root)
    manifest = read_manifest(root, spec)
    if manifest is not None:
        _compare(spec, root, manifest)
    counts = count_images(root, spec)
    verdict = judge(counts, spec)
    show(counts_table(counts, verdict))
    if manifest is None:
        _accept_counts(spec, root, verdict)
    if images:
        _check_images(spec, root, list(counts))


@data_app.command()
def check(
    name: Name,
    data_root: DataRoot = None,
    sheets: Annotated[
        Path | None,
        typer.Option(help="A folder for contact sheets, a PNG file per domain: images beside themselves with masks."),
    ] = None,
    plugin: PluginFiles = None,
) -> None:
    """Look into the images of a data set with masks: counts, unusable pairs, sizes, and the fraction of each class.

    With --sheets, some pairs of each domain are drawn, so that a mask of another image is seen. The sheets show the
    images, so they belong where the images may be. Exit codes: 0 every pair can be used, 2 some cannot.

    Examples:

      fdg data check vessels --data-root /data --sheets /tmp/sheets
    """
    from fdg_plugins.cli.data_check import check_masks
    from fdg_plugins.data.catalogue import SegmentationSpec

    load_plugins(plugin)
    spec, root = _on_disk(name), _existing(_named(data_root)).resolve()
    if not isinstance(spec, SegmentationSpec):
        raise SettingsError(f"data set {name} has no masks; fdg data verify {name} --images decodes its images.")
    check_masks(spec, root, sheets)


@data_app.command("stand-in")
def stand_in(
    to: Annotated[Path, typer.Option(help="A folder that is not there yet, or empty.", show_default=False)],
    dataset: Annotated[
        str, typer.Option(help="The data set whose layout the drawings have: pacs or vessels.")
    ] = "pacs",
    images_per_class: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Drawings of each class in each domain (default 30); of vessels, pairs in each domain (default 32).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Draw the STAND-IN for PACS or for the retinal vessels into a folder of its own, in the layout of the data set.

    These are drawings by this package, not the data set: a file STAND-IN.json next to and in pacs/ or vessels/ says
    so, and every run on them is marked STAND-IN in everything that it prints and records. Use them to try data roots
    and site configs.

    Examples:

      fdg data stand-in --to /tmp/stand-in

      fdg data stand-in --dataset vessels --to /tmp/stand-in-vessels
    """
    from fdg_plugins.data import stand_in as pacs
    from fdg_plugins.data import stand_in_vessels as vessels
    from fdg_plugins.data.stand_in_files import MARKER, is_stand_in

    if dataset not in (pacs.DATASET, vessels.DATASET):
        raise SettingsError(
            f"data set {dataset!r} is not drawn; expected --dataset {pacs.DATASET} or {vessels.DATASET}."
        )
    if is_stand_in(to):
        say(f"{to}: the STAND-IN is there already; nothing was drawn")
        return
    with waiting("drawing"):
        if dataset == pacs.DATASET:
            pacs.write_stand_in(to, images_per_class=images_per_class or pacs.IMAGES_PER_CLASS)
        else:
            vessels.write_vessels(to, images=images_per_class or vessels.IMAGES_PER_DOMAIN)
    spec = _on_disk(dataset)
    layout = f"{spec.folder}/<domain>/{'<class>' if dataset == pacs.DATASET else 'images and masks'}/"
    say(f"{to}: STAND-IN for {spec.title}, drawings in {layout}; {MARKER} marks them as such")
    say(f"every run with FDG_DATA_ROOT={to} calls itself STAND-IN")


def _opened(name: str, source: str) -> "Source":
    from fdg_plugins.data.preparation import HubSource, open_source

    return HubSource(name) if source == HUB else open_source(Path(source).expanduser())


def _on_disk(name: str) -> "KnownSpec":
    from fdg_plugins.data import dataset_spec

    spec = dataset_spec(name)
    if not spec.needs_data_root:
        raise SettingsError(f"data set {name} comes with an installed package; there is nothing to prepare or verify.")
    return spec


def _named(data_root: Path | None) -> Path:
    if data_root is None:
        raise SettingsError("no data root is named; expected --data-root DIR or the variable FDG_DATA_ROOT.")
    return data_root.expanduser()


def _existing(data_root: Path) -> Path:
    if not data_root.is_dir():
        raise DataError(f"data root {data_root} is not a folder; expected --data-root or FDG_DATA_ROOT to name one.")
    return data_root


def _report(spec: "KnownSpec", done: "Prepared", root: Path) -> None:
    """Report what was done; raise DataError if the counts were not accepted."""
    from fdg_plugins.data.origins import origin_of
    from fdg_plugins.data.preparation import MANIFEST

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
    say(f"{spec.name}: {done.copied.written:,} files written, {done.copied.kept:,} were there already")
    for remark in done.plan.remarks:
        say(f"  {remark}")
    if left_out := done.plan.left_out:
        say(f"  {len(left_out):,} files of the source are no part of the data set, such as {left_out[0]}")


def _check_is_there(spec: "KnownSpec", root: Path) -> None:
    """Raise DataError if the data root holds the stand-in, or no folder of the data set."""
    from fdg_plugins.data.stand_in import is_stand_in

    if is_stand_in(root, spec.folder):
        raise DataError(f"data root {root} holds the STAND-IN, drawings; expected images of {spec.title}.")
    if not (root / spec.folder).is_dir():
        raise DataError(f"folder {root / spec.folder} is not there; fdg data prepare {spec.name} makes it.")


def _compare(spec: "KnownSpec", root: Path, manifest: "Manifest") -> None:
    """Compare the data set with its manifest; name the differences and raise DataError if there are any."""
    from fdg_plugins.data.preparation import find_changes

    if changes := find_changes(root, spec, manifest, track=track):
        _show_changes(changes)
        raise DataError(
            f"data set {spec.name} in {root} is not as its manifest says; files missing: {len(changes.missing):,}, "
            f"extra: {len(changes.extra):,}, changed: {len(changes.changed):,}."
        )
    say(f"{spec.name}: all {len(manifest.files):,} files are as the manifest says (sha256 {manifest.sha256[:16]})")


def _accept_counts(spec: "KnownSpec", root: Path, verdict: "Verdict") -> None:
    """Say that only the images of a data set without manifest were counted; raise DataError for wrong counts."""
    counted = f"no manifest, so only the images were counted; fdg data prepare {spec.name} --from {root} writes one"
    say(f"{spec.name}: {counted}")
    if verdict.is_wrong:
        raise DataError(f"data set {spec.name} in {root}: {'; '.join(verdict.differences)}.")


def _check_images(spec: "KnownSpec", root: Path, domains: list[str]) -> None:
    """Decode every image of the domains and name all unusable ones; raise DataError, with their number, if any."""
    from fdg_plugins.data import RotatedSpec, find_damaged, open_domain

    if isinstance(spec, RotatedSpec):
        return  # read as a whole when the images were counted
    unusable = looked_at = 0
    for domain in track(domains, "decoding", len(domains)):
        data = open_domain(root, spec.name, domain, seed=0)
        damaged = find_damaged(data)
        looked_at += len({sample.file for sample in (*data.train, *data.validation, *data.test)})
        unusable += len(damaged.files)
        _show_damaged(damaged)
    if unusable:
        raise DataError(f"of {looked_at:,} images of data set {spec.name} in {root}, {unusable:,} cannot be used.")
    say(f"{spec.name}: all {looked_at:,} images can be decoded")


def _show_damaged(damaged: "Damaged") -> None:
    for word, files in (("unreadable", damaged.unreadable), ("too large", damaged.too_large)):
        for file in files:
            say(f"{word:12}{file}")
    for file, reason in damaged.masks.items():
        say(f"{'mask':12}{file}: its mask has {reason}")


def _show_changes(changes: "Changes") -> None:
    for word in ("missing", "extra", "changed"):
        files = getattr(changes, word)
        for file in files[:SHOWN]:
            say(f"{word:8}{file}")
        if len(files) > SHOWN:
            say(f"{word:8}... and {len(files) - SHOWN:,} more")
