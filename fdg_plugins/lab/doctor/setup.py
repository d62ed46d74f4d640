# SPDX-License-Identifier: Apache-2.0
"""What a user has set up for runs: ``FDG_*`` variables, data below the data root, ImageNet weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS, make_weighting, read_weighting, weighting_names
from fdg_plugins.data import DATASETS, AttributeSpec, DatasetSpec, PublishedSpec, RotatedSpec, dataset_spec
from fdg_plugins.data.folders import is_unfinished
from fdg_plugins.data.own_folder import own_data
from fdg_plugins.data.specs import files_of
from fdg_plugins.data.stand_in import cache_folder as drawings_folder
from fdg_plugins.data.stand_in import is_stand_in
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.flare.metrics import statsd_address
from fdg_plugins.flare.trackers import chosen_tracker
from fdg_plugins.lab.doctor.finding import Finding, ok, problem, warning
from fdg_plugins.models import check_model_name, model_names
from fdg_plugins.models.pretrained import cache_folder
from fdg_plugins.models.torchvision_networks import imagenet_file_name
from fdg_plugins.objectives import OBJECTIVES, make_objective, objective_settings, read_settings
from fdg_plugins.plugins.own_dataset import shorten_names
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, environment_settings, make_protocol, part_settings
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path, user_path
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
    """Yield each ``FDG_*`` variable that is set; a problem for one that stops every job: unknown, or of no use."""
    set_ones = [name for name in sorted(environment) if name.startswith(PREFIX) and environment[name].strip()]
    if not set_ones:
        yield ok("variables", f"no {PREFIX}* variable is set")
    yield from (_check_variable(name, environment) for name in set_ones)


def _check_variable(name: str, environment: Mapping[str, str]) -> Finding:
    value = environment[name]
    try:
        _use_variable(name, value, environment)
    except SettingsError as error:
        return problem(name, str(error).rstrip("."))
    return ok(name, f"is {value!r}")


def _use_variable(name: str, value: str, environment: Mapping[str, str]) -> None:
    """Raise ``SettingsError`` if the variable is unknown, or what reads it refuses its value."""
    alone = {name: value}
    if name in OTHER_VARIABLES:
        read_site_config("of this machine", None, {"PWD": environment.get("PWD", ""), **alone}).torch_device()
        statsd_address(alone)
        chosen_tracker(None, alone)
        return
    server = {setting for make in AGGREGATORS.values() for setting in make.setting_names()}
    own = {setting for objective in OBJECTIVES for setting in objective_settings(objective)}
    own |= {setting for weighting in WEIGHTINGS for setting in weighting_names(weighting)}
    parted = part_settings(environment_settings(alone), server, own, "environment")
    protocol = make_protocol([parted.protocol])
    make_objective(protocol.objective)
    check_model_name(protocol.model)
    dataset_spec(protocol.dataset)
    makers = [make for make in AGGREGATORS.values() if {*parted.aggregator} & {*make.setting_names()}]
    _check_taken([partial(make().configure, parted.aggregator) for make in makers])
    names = [objective for objective in OBJECTIVES if {*parted.objective} & {*objective_settings(objective)}]
    weightings = [weighting for weighting in WEIGHTINGS if {*parted.objective} & {*weighting_names(weighting)}]
    uses = [partial(_make, objective, parted.objective) for objective in names]
    _check_taken([*uses, *(partial(_make_weighting, weighting, parted.objective) for weighting in weightings)])


def _make_weighting(weighting: str, settings: Mapping[str, str]) -> None:
    make_weighting({"name": weighting, **read_weighting(weighting, settings)})


def _make(objective: str, settings: Mapping[str, str]) -> None:
    make_objective({"name": objective, **read_settings(objective, settings)})


def _check_taken(uses: Sequence[Callable[[], None]]) -> None:
    """Raise the first error of ``uses`` if every one raises: a value must suit one of those that have the setting."""
    errors = []
    for use in uses:
        try:
            return use()
        except SettingsError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def check_data(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the data root, and each data set of the catalogue that is below it with the domains found."""
    named = environment.get("FDG_DATA_ROOT", "").strip()
    root = user_path(named, environment)
    if not named:
        text = "unless a site's config names a data root, PACS and vessels are drawn as a STAND-IN"
        yield warning("data", f"FDG_DATA_ROOT is not set: {text}")
    elif not root.is_dir():
        yield problem("data", f"FDG_DATA_ROOT is {named!r}, but {root} is not a folder")
    else:
        yield from _check_data_sets(root)


def check_own_data(place: Path) -> Iterator[Finding]:
    """Yield what a folder of the user's own images, or the file that describes them, has; a problem if it has none."""
    try:
        own = own_data(place)
    except FDGError as error:
        yield problem("data, own", str(error).rstrip("."))
        return
    dataset = own.dataset
    domains = f"{len(dataset.domains)} domains ({shorten_names(dataset.domains)})"
    yield ok("data, own", f"{own.root}: {domains}, {len(dataset.classes)} classes")
    for domain, names in own.absent.items():
        yield warning(
            "data, own", f"domain {domain} has no images of {shorten_names(names)}; the other sites teach them"
        )


def _check_data_sets(root: Path) -> list[Finding]:
    specs = [spec for spec in DATASETS.all() if spec.needs_data_root]
    found = [_check_data_set(root, spec) for spec in specs if (root / spec.folder).is_dir()]
    folders = ", ".join(dict.fromkeys(f"{spec.folder}/" for spec in specs))
    return found or [problem("data", f"data root {root} holds no data set, expected one of {folders}")]


def _check_data_set(root: Path, spec: DatasetSpec) -> Finding:
    """Return what is there of one data set. Names of folders are read, no image."""
    check, folder = f"data, {spec.name}", root / spec.folder
    if is_stand_in(root, spec.folder):
        return warning(check, f"{folder} holds the STAND-IN, drawings")
    if is_unfinished(folder):
        return problem(
            check, f"the preparation of {folder} has not ended; fdg data prepare {spec.name} goes on with it"
        )
    in_folders = isinstance(spec, PublishedSpec) and (folder / "train").is_dir()
    if isinstance(spec, PublishedSpec | RotatedSpec) and not in_folders:
        return _check_files(check, root, files_of(spec))
    if isinstance(spec, AttributeSpec):
        return _check_lists(check, root, spec)
    return _check_domains(check, folder, spec.domains)


def _check_lists(check: str, root: Path, spec: AttributeSpec) -> Finding:
    images = root / spec.folder / spec.image_folder
    return _check_files(check, root, spec.lists) if images.is_dir() else problem(check, f"folder {images} is missing")


def _check_files(check: str, root: Path, files: Sequence[str]) -> Finding:
    if missing := [name for name in files if not (root / name).is_file()]:
        return problem(check, f"{root} lacks {', '.join(missing)}")
    return ok(check, f"{len(files)} files in {(root / files[0]).parent}")


def _check_domains(check: str, folder: Path, domains: Sequence[str]) -> Finding:
    missing = [domain for domain in domains if not (folder / domain).is_dir()]
    text = f"{len(domains) - len(missing)} of {len(domains)} domains in {folder}"
    if missing:
        return warning(check, f"{text}; {', '.join(missing)} missing, which other sites may hold")
    return ok(check, text)


def check_weights(environment: Mapping[str, str]) -> Finding:
    """Return which ImageNet weights the server would start from; they are not read."""
    if named := environment.get("FDG_PRETRAINED_FILE", "").strip():
        path = user_path(named, environment)
        if path.is_file():
            return ok(WEIGHTS, f"{path}, named by FDG_PRETRAINED_FILE")
        return problem(WEIGHTS, f"FDG_PRETRAINED_FILE is {named!r}, but {path} is not a file")
    return _check_cached_weights(are_demanded=environment.get("FDG_PRETRAINED", "").strip() == "imagenet")


def _check_cached_weights(*, are_demanded: bool) -> Finding:
    files = _imagenet_files()
    if found := [f"{name} ({file})" for name, file in files.items() if (cache_folder() / file).is_file()]:
        return ok(WEIGHTS, f"{', '.join(found)} in {cache_folder()}")
    of_default = files[make_protocol([{}]).model]
    expected = f"expected {of_default}, or another network's, in {cache_folder()}, or FDG_PRETRAINED_FILE"
    if are_demanded:
        return problem(WEIGHTS, f"FDG_PRETRAINED demands them; {expected}")
    return warning(WEIGHTS, f"none, so that runs start from scratch; {expected}")


def _imagenet_files() -> dict[str, str]:
    """Return the name of the file with ImageNet weights, by the name of each network that has one."""
    return {name: file for name in model_names() if (file := imagenet_file_name(name)) is not None}


def cache_folder_of(environment: Mapping[str, str]) -> Path:
    """Return where what is made once is kept, such as the stand-in: ``FDG_CACHE``, or this user's cache."""
    return drawings_folder(named_path("FDG_CACHE", environment))
