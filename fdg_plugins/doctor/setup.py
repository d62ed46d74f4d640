# SPDX-License-Identifier: Apache-2.0
"""A user's set-up for runs: ``FDG_*`` variables, data below the data root, ImageNet weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fdg_plugins.aggregators import AGGREGATORS
from fdg_plugins.data import DATASETS, DatasetSpec, ImageFolderSpec, dataset_spec
from fdg_plugins.data.mnist import FILES, FOLDER
from fdg_plugins.data.stand_in import is_stand_in, stand_in_root
from fdg_plugins.doctor.finding import Finding, Status
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import check_model_name, model_names
from fdg_plugins.models.pretrained import cache_folder
from fdg_plugins.models.resnet import imagenet_file_name
from fdg_plugins.objectives import OBJECTIVES, make_objective, objective_settings, read_settings
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, environment_settings, make_protocol, part_settings
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import user_path


def check_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield each ``FDG_*`` variable that is set; a problem for one that stops every job: unknown, or unusable."""
    set_ones = {name: value for name, value in sorted(environment.items()) if name.startswith(PREFIX) and value.strip()}
    if not set_ones:
        yield Finding("variables", Status.OK, f"no {PREFIX}* variable is set")
    for name, value in set_ones.items():
        try:
            _check_variable(name, value, environment)
        except SettingsError as error:
            yield Finding(name, Status.PROBLEM, str(error).rstrip("."))
        else:
            yield Finding(name, Status.OK, f"is {value!r}")


def _check_variable(name: str, value: str, environment: Mapping[str, str]) -> None:
    alone = {name: value}
    if name in OTHER_VARIABLES:
        read_site_config("of this machine", None, {"PWD": environment.get("PWD", ""), **alone})
        return
    aggregators = [make() for make in AGGREGATORS.values()]
    settings = {setting for aggregator in aggregators for setting in aggregator.setting_names()}
    own = {setting for objective in OBJECTIVES for setting in objective_settings(objective)}
    parted = part_settings(environment_settings(alone), settings, own, "environment")
    protocol = make_protocol([parted.protocol])
    make_objective(protocol.objective)
    check_model_name(protocol.model)
    dataset_spec(protocol.dataset)
    for setting in parted.aggregator:
        holders = [aggregator for aggregator in aggregators if setting in aggregator.setting_names()]
        _refuse_if_all([partial(holder.configure, parted.aggregator) for holder in holders])
    for setting in parted.objective:
        names = [objective for objective in OBJECTIVES if setting in objective_settings(objective)]
        _refuse_if_all([partial(_make_objective, objective, parted.objective) for objective in names])


def _make_objective(name: str, settings: Mapping[str, str]) -> None:
    make_objective({"name": name, **read_settings(name, settings)})


def _refuse_if_all(uses: Sequence[Callable[[], None]]) -> None:
    """Raise the first error of ``uses`` if all raise: a value must suit at least one owner of the setting."""
    errors = []
    for use in uses:
        try:
            use()
        except SettingsError as error:
            errors.append(error)
    if len(errors) == len(uses):
        raise errors[0]


def check_data(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the data root, and each data set of the catalogue below it with the domains found."""
    named = environment.get("FDG_DATA_ROOT", "").strip()
    if not named:
        text = "FDG_DATA_ROOT is not set: unless a site's config names a data root, PACS is drawn as a STAND-IN"
        yield Finding("data", Status.WARNING, text)
        return
    root = user_path(named, environment)
    if not root.is_dir():
        yield Finding("data", Status.PROBLEM, f"FDG_DATA_ROOT is {named!r}, but {root} is no folder")
        return
    found = [finding for spec in DATASETS.all() for finding in _check_data_set(root, spec)]
    yield from found
    if not found:
        folders = ", ".join(dict.fromkeys(f"{spec.folder}/" for spec in DATASETS.all() if spec.folder))
        yield Finding("data", Status.PROBLEM, f"data root {root} holds no data set, expected one of {folders}")


def _check_data_set(root: Path, spec: DatasetSpec) -> Iterator[Finding]:
    """Yield what exists of one data set; nothing if its folder does not exist. Reads names of folders, no images."""
    if not spec.needs_data_root or not (root / spec.folder).is_dir():
        return
    check = f"data, {spec.name}"
    if is_stand_in(root, spec.folder):
        yield Finding(check, Status.WARNING, f"{root / spec.folder} holds the STAND-IN, drawings")
        return
    if not isinstance(spec, ImageFolderSpec):
        missing = [name for name in FILES if not (root / FOLDER / name).is_file()]
        lack = f"{root / FOLDER} lacks {', '.join(missing)}"
        text = f"{len(spec.domains)} domains, turned from {root / FOLDER}"
        yield Finding(check, Status.PROBLEM, lack) if missing else Finding(check, Status.OK, text)
        return
    missing = [domain for domain in spec.domains if not (root / spec.folder / domain).is_dir()]
    text = f"{len(spec.domains) - len(missing)} of {len(spec.domains)} domains in {root / spec.folder}"
    if missing:
        yield Finding(check, Status.WARNING, f"{text}; {', '.join(missing)} missing, which other sites may hold")
    else:
        yield Finding(check, Status.OK, text)


def check_weights(environment: Mapping[str, str]) -> Finding:
    """Return which ImageNet weights the server would start from; the files are not read."""
    named = environment.get("FDG_PRETRAINED_FILE", "").strip()
    if named:
        path = user_path(named, environment)
        if path.is_file():
            return Finding("ImageNet weights", Status.OK, f"{path}, named by FDG_PRETRAINED_FILE")
        return Finding("ImageNet weights", Status.PROBLEM, f"FDG_PRETRAINED_FILE is {named!r}, but {path} is no file")
    files = {name: file for name in model_names() if (file := imagenet_file_name(name)) is not None}
    found = [f"{name} ({file})" for name, file in files.items() if (cache_folder() / file).is_file()]
    if found:
        return Finding("ImageNet weights", Status.OK, f"{', '.join(found)} in {cache_folder()}")
    expected = f"expected {' or '.join(files.values())} in {cache_folder()}, or FDG_PRETRAINED_FILE"
    if environment.get("FDG_PRETRAINED", "").strip() == "imagenet":
        return Finding("ImageNet weights", Status.PROBLEM, f"FDG_PRETRAINED demands them; {expected}")
    return Finding("ImageNet weights", Status.WARNING, f"none, so that runs start from scratch; {expected}")


def cache_folder_of(environment: Mapping[str, str]) -> Path:
    """Return the folder for generated files such as the stand-in: ``FDG_CACHE``, or this user's cache."""
    named = environment.get("FDG_CACHE", "").strip()
    return stand_in_root(user_path(named, environment) if named else None).parent
