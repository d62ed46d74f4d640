# SPDX-License-Identifier: Apache-2.0
"""What a kit names on the machine where it lies: a site's data, the GPUs that it lends to jobs, a server's storage."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nvflare.app_common.resource_managers.gpu_resource_manager import GPUResourceManager
from torch import cuda

from fdg_plugins.data import DATASETS, DatasetSpec, ImageFolderSpec, SegmentationSpec
from fdg_plugins.data.folders import is_unfinished
from fdg_plugins.data.site_names import split_site
from fdg_plugins.data.stand_in import is_stand_in
from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.gpus import CONSUMER_ID, MANAGER_ID, Lent, lent_gpus
from fdg_plugins.flare.resources import declared_component
from fdg_plugins.lab.doctor.finding import Finding, ok, problem, warning
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.values import shorten

DATA_ROOT = "data root"
GPUS = "gpus"
STORAGE = "job storage"
SHARED = Path("/tmp")


def check_data_root(site: str, config: SiteConfig, *, in_containers: bool = False) -> Finding:
    """Return whether the data root that a site's config names is there, and what it holds; no image is read.

    ``in_containers``: the site's jobs run in containers, so that a path of theirs need not be there on this machine.
    """
    root, file = config.data_root, config.dataset_file
    if root is None:
        text = "none is named: the site draws a STAND-IN, unless the environment of its process has FDG_DATA_ROOT"
        return warning(DATA_ROOT, text)
    if in_containers and not os.path.lexists(root):
        return warning(DATA_ROOT, f"{root} is not there: only jobs in containers that have it find their images")
    if not root.is_dir():
        return problem(DATA_ROOT, f"{root} is not a folder")
    if not os.access(root, os.R_OK | os.X_OK):
        return problem(DATA_ROOT, f"{root} cannot be read by this user; does the site run as another?")
    if in_containers and file is not None and not os.path.lexists(file):
        return warning(DATA_ROOT, f"dataset_file {file} is not there: only jobs in containers that have it find it")
    if file is not None and not file.is_file():
        return problem(DATA_ROOT, f"dataset_file {file} is not a file")
    return _check_contents(root, config.domain or split_site(site)[0])


def _check_contents(root: Path, domain: str) -> Finding:
    """Return what a data root holds, by the names of folders: data sets of the catalogue, or a domain of one's own."""
    found = [spec for spec in DATASETS.all() if spec.needs_data_root and (root / spec.folder).is_dir()]
    folders = ", ".join(dict.fromkeys(spec.folder for spec in found))
    if drawn := [spec.name for spec in found if is_stand_in(root, spec.folder)]:
        return warning(DATA_ROOT, f"{root} holds the STAND-IN of {', '.join(drawn)}, drawings")
    if unfinished := dict.fromkeys(spec.folder for spec in found if is_unfinished(root / spec.folder)):
        return warning(
            DATA_ROOT, f"{root}: fdg data prepare has not ended for {', '.join(unfinished)}: no job runs on it"
        )
    if any(_has_domain(root, spec, domain) for spec in found):
        return ok(DATA_ROOT, f"{root} holds {folders}")
    if (root / domain).is_dir():
        return ok(DATA_ROOT, f"{root} holds images of your own of domain {domain}")
    if found:
        return problem(DATA_ROOT, f"{root} holds {folders} without a domain {domain!r}: fdg kit site --domain names it")
    return problem(DATA_ROOT, f"{root} holds neither a data set of the catalogue nor a folder {domain}")


def _has_domain(root: Path, spec: DatasetSpec, domain: str) -> bool:
    """Return whether a data set has the domain, and its folder is there if each domain has one."""
    has_folders = isinstance(spec, ImageFolderSpec | SegmentationSpec)
    return domain in spec.domains and (not has_folders or (root / spec.folder / domain).is_dir())


def check_lent_gpus(resources: Mapping[str, Any], owner: object) -> Iterator[Finding]:
    """Yield what GPUs a site lends to jobs, and whether FLARE's resource manager would start with them here."""
    lent = lent_gpus(resources, owner)
    if not lent.number:
        yield ok(GPUS, "none is lent: jobs that ask for one are not started at this site")
        return
    manager = declared_component(resources, MANAGER_ID) or {}
    try:
        GPUResourceManager(**manager["args"])
    except (ValueError, TypeError, RuntimeError) as error:
        yield problem(GPUS, f"{lent} lent, with which FLARE does not start on this machine: {str(error).rstrip('.')}")
        return
    if declared_component(resources, CONSUMER_ID) is None:
        yield problem(GPUS, f"{lent} lent, but no {CONSUMER_ID} tells the jobs: fdg kit site --gpus writes it")
        return
    yield _check_use(lent)


def _check_use(lent: Lent) -> Finding:
    """Return whether the jobs of a site can use what it lends."""
    if cuda.is_available():
        return ok(GPUS, f"{lent} lent to jobs")
    return warning(GPUS, f"{lent} lent to jobs, but torch can use none: they compute on the CPU")


def check_storage(resources: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield where a server keeps jobs and their results, if its kit says it."""
    manager = declared_component(resources, "job_manager")
    if manager is None:
        return
    place = Path(_root_of(manager))
    if SHARED in place.parents:
        text = "which other federations of this machine share, and a restart may empty: job_manager, uri_root"
        yield warning(STORAGE, f"{place}, {text}")
    else:
        yield ok(STORAGE, str(place))


def _root_of(manager: Mapping[str, Any]) -> str:
    """Return where a job manager keeps jobs; raise ``SettingsError`` if its entry does not say it."""
    arguments = manager.get("args")
    root = arguments.get("uri_root") if isinstance(arguments, dict) else None
    if not isinstance(root, str):
        raise SettingsError(f"uri_root of job_manager is {shorten(root)}, expected a path.")
    return root
