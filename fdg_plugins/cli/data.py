# SPDX-License-Identifier: Apache-2.0
"""``fdg data``: list the data sets, and prepare one on this machine, checked and hashed."""

import os
import warnings
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fdg_plugins.cli.console import group, make_table, say, show, warn
from fdg_plugins.cli.data_check import Place, check_files, ends_of
from fdg_plugins.cli.options import PluginFiles, introduce, is_own, load_plugins
from fdg_plugins.data import DATASETS, DatasetSpec, dataset_spec
from fdg_plugins.data.catalogue import origin_of
from fdg_plugins.data.folders import MANIFEST
from fdg_plugins.data.own_files import NO_RULES, own_data
from fdg_plugins.data.specs import AttributeSpec, ImageFolderSpec, KnownSpec, SegmentationSpec
from fdg_plugins.data.stand_in import MARKER, STAND_INS, is_stand_in, write_stand_in
from fdg_plugins.errors import DataError, SettingsError, check_choice
from fdg_plugins.lab.doctor.machine import look_for
from fdg_plugins.lab.preparation.checks import (
    Counts,
    Manifest,
    Verdict,
    count_images,
    find_changes,
    judge,
    read_manifest,
    write_manifest,
)
from fdg_plugins.lab.preparation.prepare import prepare as prepare_data
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path

SHOWN = 5

PlaceArgument = Annotated[
    str,
    Argument(
        metavar="NAME|DIR|FILE.toml",
        help="A name from fdg data list, your folder of images, or the file that describes them.",
    ),
]
DataRoot = Annotated[
    Path | None,
    Option(envvar="FDG_DATA_ROOT", help="The folder that holds, or will hold, the data sets."),
]

data = group(
    "data",
    "List, prepare and check data sets.\n\n"
    "Sites read <data root>/<data set>/<domain>/<class>/<image>, or MNIST's four files. Published archives look "
    "different; prepare brings one to this layout, counts its images, and writes a manifest of SHA-256 digests that "
    "verify compares with later. Nothing is downloaded.",
    "Exit codes: 0 done, 2 the request cannot be carried out, or the images are not as they should be.",
)


@data.command("list")
def list_data_sets(
    name: Annotated[str | None, Argument(help="Only this one, with where to get it and its terms.")] = None,
) -> None:
    """List the data sets, and which of them are below FDG_DATA_ROOT."""
    root = named_path("FDG_DATA_ROOT", os.environ)
    if root is not None:
        _root(root)
    problems = [] if name is not None else DATASETS.load_usable()
    specs = DATASETS.loaded() if name is None else [dataset_spec(name)]
    head = ("name", "domains", "classes", "images", "found" if root is None else f"found in {root}")
    show(make_table(head, (_row(spec, root) for spec in specs), ("classes", "images")))
    if name is not None:
        origin = origin_of(name)
        say(f"domains: {', '.join(specs[0].domains)}\npage: {origin.page}\nget: {origin.obtain}")
        say(f"licence: {origin.licence}\nterms: {origin.terms}")
    for problem in problems:
        say(f"left out: {problem}", "yellow", on_stderr=True)


def _row(spec: DatasetSpec, root: Path | None) -> tuple[str, ...]:
    names, releases = ", ".join(spec.domains), origin_of(spec.name).releases
    domains = names if len(names) <= 40 else f"{len(spec.domains)}, such as {spec.domains[0]}"
    images, found = "not known", "with scikit-learn"
    if limit := getattr(spec, "limit", None):
        images = f"{limit:,}"
    elif releases:
        images = f"{sum(releases[0].images.values()):,}{'' if releases[0].certain else ' ?'}"
    if spec.needs_data_root:
        there = None if root is None else look_for(root, spec)
        found = "no data root named" if root is None else "no" if there is None else there.text
    return spec.name, domains, str(len(spec.classes)), images, found


@data.command()
def prepare(
    name: Annotated[str, Argument(help="A name from fdg data list, such as pacs.")],
    source: Annotated[str, Argument(metavar="FOLDER|ZIP|TAR", help="What you downloaded: a folder or an archive.")],
    data_root: DataRoot = None,
    any_counts: Annotated[bool, Option("--any-counts", help="Accept other numbers of images than known.")] = False,
) -> None:
    """Prepare a data set below the data root: copy it, count the images, and write the manifest.

    Published folders and archives are recognised, including their own domain names; fdg data list NAME says where they
    are. After an interruption, the same command resumes. A source may contain only some of the domains, so each site
    can prepare its own.

    Examples:

      fdg data prepare pacs ~/Downloads/PACS.zip --data-root /data
    """
    spec, root = _on_disk(name), _root(data_root, exists=False)
    place = Path(source).expanduser()
    done = prepare_data(spec, place, root, any_counts=any_counts, max_pixels=_most_pixels())
    say(f"{spec.name}: {done.written:,} files written, {done.kept:,} were there already")
    for remark in done.plan.remarks:
        say(f"  {remark}")
    if left_out := done.plan.left_out:
        say(f"  {len(left_out):,} files of the source are not part of the data set, such as {left_out[0]}")
    _show_counts(done.counts, done.verdict)
    say(f"terms: {origin_of(spec.name).terms}; {origin_of(spec.name).page}")
    differences = "; ".join(done.verdict.differences)
    if done.manifest is None:
        end = "no manifest was written (--any-counts accepts what is there)"
        raise DataError(f"data set {spec.name} in {root}: {differences}; {end}.")
    if differences:
        say(f"  note: {differences}")
    _show_manifest(root / spec.folder / MANIFEST, done.manifest)


@data.command()
def verify(
    place: PlaceArgument,
    data_root: DataRoot = None,
    write: Annotated[bool, Option("--write", help="Write the manifest of your images.")] = False,
) -> None:
    """Compare a data set with its manifest, file by file; without a manifest, count its images.

    Missing, extra and changed files are named; fdg data check decodes every image too.
    """
    found = _files_of(place, data_root)
    spec, root = found.spec, found.root
    if write and not spec.described:
        raise SettingsError(f"--write is for your images; fdg data prepare {place} writes a manifest.")
    manifest = None if write else read_manifest(root, spec)
    if manifest is not None:
        _compare(root, spec, manifest)
    counted = count_images(root, spec, found.rules)
    verdict = judge(counted, spec)
    _show_counts(counted, None if spec.described else verdict)
    if write:
        _show_manifest(root / MANIFEST, write_manifest(root, spec, None))
    elif manifest is None:
        maker = "--write" if spec.described else f"fdg data prepare {spec.name} {root}"
        say(f"{spec.name}: no manifest, so only the images were counted; {maker} writes one")
        if verdict.is_wrong:
            raise DataError(f"data set {spec.name} in {root}: {'; '.join(verdict.differences)}.")


def _compare(root: Path, spec: KnownSpec, manifest: Manifest) -> None:
    changes = find_changes(root, spec, manifest)
    for word, files in changes.items():
        for file in files[:SHOWN]:
            say(f"{word:8}{file}")
    if any(changes.values()):
        counts = ", ".join(f"{word}: {len(files):,}" for word, files in changes.items())
        raise DataError(f"data set {spec.name} in {root} is not as its manifest says; files {counts}.")
    say(f"{spec.name}: all {len(manifest.files):,} files are as the manifest says (sha256 {manifest.sha256[:16]})")


def _show_manifest(file: Path, manifest: Manifest) -> None:
    say(f"{file}: {len(manifest.files):,} files, sha256 {manifest.sha256[:16]}")


@data.command()
def check(
    place: PlaceArgument,
    data_root: DataRoot = None,
    sheets: Annotated[Path | None, Option(help="A folder for pictures: some images of each domain.")] = None,
    plugin: PluginFiles = None,
) -> None:
    """Look into the images of a data set: what is there, damaged and duplicate files, sizes, and a picture of them.

    Labelled images are counted by class; of masks, the fraction of each class is shown. What a run passes over is
    named, and so are images with the same bytes: one in two domains is in training and in the test. A sheet shows the
    images, so it belongs where they may be.

    Examples:

      fdg data check photos --sheets /tmp/sheets
      fdg data check vessels --data-root /data
    """
    load_plugins(plugin)
    found = _files_of(place, data_root)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # they name lines of Pillow, and no image
    if not isinstance(found.spec, SegmentationSpec | ImageFolderSpec | AttributeSpec):
        raise SettingsError(f"data set {place} has no files of images; fdg data verify {place} reads its files.")
    check_files(found, sheets)


@data.command("stand-in")
def stand_in(
    to: Annotated[Path, Argument(help="A folder that is not there yet, or empty.")],
    dataset: Annotated[str, Option(help="The data set that is drawn: pacs, vessels or celeba.")] = "pacs",
) -> None:
    """Draw the STAND-IN for PACS, the retinal vessels or CelebA into a new folder, in the data set's layout.

    These are drawings by this package, not the data set, to try data roots and site configs with. A file STAND-IN.json
    says so, and every run on them is marked STAND-IN in everything that it prints and records.
    """
    check_choice("--dataset", dataset, STAND_INS)
    spec = _on_disk(dataset)
    if is_stand_in(to):
        if not (to / spec.folder / MARKER).is_file():
            raise DataError(f"{to} holds the STAND-IN for another data set than {dataset}, expected a new folder.")
        say(f"{to}: the STAND-IN is there already; nothing was drawn")
        return
    write_stand_in(to, dataset)
    say(f"{to}: STAND-IN for {spec.title}, drawings in {spec.folder}/; every run on it calls itself STAND-IN")


def _on_disk(name: str) -> KnownSpec:
    spec = dataset_spec(name)
    if not spec.needs_data_root:
        raise SettingsError(f"data set {name} comes with an installed package; there is nothing to prepare or verify.")
    return spec


def _files_of(place: str, data_root: Path | None) -> Place:
    if is_own(place):
        own = own_data(place, data_root if place.endswith(".toml") else None)
        introduce(own)
        return Place(dataset_spec(own.dataset), own.root, own.rules, _most_pixels())
    spec, root = _on_disk(place), _root(data_root).resolve()
    if is_stand_in(root, spec.folder):
        warn(f"data root {root} holds the STAND-IN, drawings, not images of {spec.title}.")
    return Place(spec, root, NO_RULES, _most_pixels())


def _root(data_root: Path | None, *, exists: bool = True) -> Path:
    root = None if data_root is None else data_root.expanduser()
    if root is None or (exists and not root.is_dir()):
        raise DataError(field="data root", value=root and str(root), expected="a folder: --data-root, FDG_DATA_ROOT")
    return root


def _most_pixels() -> int:
    return read_site_config("of this machine", None, os.environ).max_image_pixels


def _show_counts(counts: Counts, verdict: Verdict | None) -> None:
    release = None if verdict is None else verdict.release
    if release is not None:
        say(f"expected: {release.name} ({release.source}{'' if release.certain else ', not certain'})")
    rows = []
    for domain, by_class in counts.items():
        row = {"domain": domain, "images": f"{sum(by_class.values()):,}"}
        if verdict is not None:
            row["expected"] = "not known" if release is None else f"{release.images[domain]:,}"
        rows.append(row | (ends_of(by_class) if len(by_class) > 1 else {}))
    show(make_table(tuple(rows[0]), (tuple(row.values()) for row in rows), ("images", "expected")))
