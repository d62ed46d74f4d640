# SPDX-License-Identifier: Apache-2.0
"""What a user has set up for runs: ``FDG_*`` variables, data below the data root, ImageNet weights."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.aggregators.weightings import weighting_names
from fdg_plugins.data import DATASETS, AttributeSpec, DatasetSpec, PublishedSpec, RotatedSpec, dataset_spec
from fdg_plugins.data.catalogue import files_of
from fdg_plugins.data.folders import MANIFEST, is_unfinished
from fdg_plugins.data.own_files import own_data
from fdg_plugins.data.stand_in import is_stand_in
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.doctor.finding import Finding, ok, problem, warning
from fdg_plugins.lab.sweep.prepare import check_machine
from fdg_plugins.models import NETWORKS, model_names
from fdg_plugins.models.pretrained import cache_folder, imagenet_file
from fdg_plugins.objectives import OBJECTIVES, objective_settings
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.plugins.own_dataset import shorten_names
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, environment_settings, make_protocol, part_settings
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path
from fdg_plugins.training.loop import DevicePolicy
from fdg_plugins.training.precision import suited_precision, why_slow

WEIGHTS = "ImageNet weights"


def check_precision(environment: Mapping[str, str]) -> Finding:
    """Return in which precision a site on this machine computes if the protocol leaves it to the site (``auto``)."""
    own = {name: value for name, value in environment.items() if name == "FDG_DEVICE"}  # nothing else decides
    device = read_site_config("of this machine", None, own).torch_device()
    suited = suited_precision(device)
    named = environment.get("FDG_PRECISION", "").strip()
    if (slow := why_slow(DevicePolicy(device, named == "bfloat16"))) is not None:
        return warning("precision", slow)
    return ok("precision", f"auto means {suited.precision} for a site on {device}: {suited.reason}")


def check_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield each ``FDG_*`` variable that is set; a problem for an unknown one, and for a value that stops every job.

    The value of a setting of methods is checked by the methods that have it, in the job.
    """
    found = [name for name in sorted(environment) if name.startswith(PREFIX) and environment[name].strip()]
    if not found:
        yield ok("variables", f"no {PREFIX}* variable is set")
    for name in found:
        try:
            _use_variable(name, environment)
            yield ok(name, f"is {environment[name]!r}")
        except SettingsError as error:
            yield problem(name, str(error).rstrip("."))


def _use_variable(name: str, environment: Mapping[str, str]) -> None:
    alone = {name: environment[name]}
    if name in OTHER_VARIABLES:
        check_machine({"PWD": environment.get("PWD", ""), **alone})
        return
    server = {setting for make in AGGREGATORS.values() for setting in parameters_of(make)}
    own = {setting for objective in OBJECTIVES for setting in objective_settings(objective)}
    own |= {setting for weighting in WEIGHTINGS for setting in weighting_names(weighting)}
    protocol = make_protocol([part_settings(environment_settings(alone), server, own, "environment").protocol])
    NETWORKS.get(protocol.model)
    dataset_spec(protocol.dataset)


def check_data(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the data root, and each data set of the catalogue that is below it."""
    root = named_path("FDG_DATA_ROOT", environment)
    if root is None:
        text = "unless a site's config names a data root, PACS and vessels are drawn as a STAND-IN"
        yield warning("data", f"FDG_DATA_ROOT is not set: {text}")
        return
    specs = [spec for spec in DATASETS.all() if spec.needs_data_root]
    if found := [finding for finding in (look_for(root, spec) for spec in specs) if finding is not None]:
        yield from found
        return
    folders = ", ".join(dict.fromkeys(f"{spec.folder}/" for spec in specs))
    yield problem("data", f"data root {root} holds no data set, expected a folder with one of {folders}")


def look_for(root: Path, spec: DatasetSpec) -> Finding | None:
    """Return how much of a data set is below the data root, by names of files and folders; None if it has no folder."""
    check, folder = f"data, {spec.name}", root / spec.folder
    if not folder.is_dir():
        return None
    names, what = [f"{spec.folder}/{domain}" for domain in spec.domains], "domains"
    if isinstance(spec, AttributeSpec):
        parts = (spec.attribute_list, spec.part_list, spec.image_folder)
        names, what = [f"{spec.folder}/{part}" for part in parts], "lists and folders"
    elif isinstance(spec, RotatedSpec) or (isinstance(spec, PublishedSpec) and not (folder / "train").is_dir()):
        names, what = list(files_of(spec)), "files"
    there = sum((root / name).exists() for name in names)
    text = f"{there} of {len(names)} {what}"
    if is_stand_in(root, spec.folder):
        return warning(check, "STAND-IN, drawings")
    if is_unfinished(folder):
        return problem(check, f"{text}, preparation not ended")
    judge = ok if there == len(names) else warning if what == "domains" else problem
    return judge(check, f"{text}, manifest" if (folder / MANIFEST).is_file() else text)


def check_own_data(place: Path) -> Iterator[Finding]:
    """Yield what a folder of the user's own images, or the file that describes them, has."""
    own = own_data(place)
    domains, classes = own.dataset.domains, own.dataset.classes
    yield ok("data", f"{own.root}: {len(domains)} domains ({shorten_names(domains)}), {len(classes)} classes")
    for domain, names in own.absent.items():
        text = f"domain {domain} has no images of {shorten_names(names)}; the other sites teach them"
        yield warning("data", text)


def check_weights(environment: Mapping[str, str]) -> Finding:
    """Return which ImageNet weights the server would start from; they are not read."""
    if path := named_path("FDG_PRETRAINED_FILE", environment):
        is_file = path.is_file()
        text = f"{path}, named by FDG_PRETRAINED_FILE" + ("" if is_file else ", is not a file")
        return (ok if is_file else problem)(WEIGHTS, text)
    files = {name: file for name in model_names() if (file := imagenet_file(name)) is not None}
    if found := [f"{name} ({file.name})" for name, file in files.items() if file.is_file()]:
        return ok(WEIGHTS, ", ".join(found))
    expected = f"expected {files['resnet18'].name}, or another network's, in {cache_folder()}, or FDG_PRETRAINED_FILE"
    if environment.get("FDG_PRETRAINED", "").strip() == "imagenet":
        return problem(WEIGHTS, f"FDG_PRETRAINED demands them; {expected}")
    return warning(WEIGHTS, f"none, so that runs start from scratch; {expected}")
