# SPDX-License-Identifier: Apache-2.0
"""Is this machine ready for a run: software, GPUs, cores, memory, disks, what a user has set up; and how to start one.

>>> recommend(cores=2, gpus=(), sites=4, processes=8).command
'FDG_THREADS=1 FDG_WORKERS=0 nvflare simulator jobs/pacs_fedomg -t 4'
>>> recommend(cores=16, gpus=("0",), sites=4, processes=8).command
'FDG_THREADS=4 FDG_WORKERS=3 nvflare simulator jobs/pacs_fedomg -gpu 0,0,0,0'
"""

import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distributions, requires, version
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from packaging.requirements import Requirement

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.aggregators.weightings import weighting_names
from fdg_plugins.data import DATASETS, PACS, DatasetSpec, dataset_spec
from fdg_plugins.data.catalogue import files_of
from fdg_plugins.data.folders import MANIFEST, is_unfinished
from fdg_plugins.data.own_files import own_data
from fdg_plugins.data.specs import AttributeSpec, PublishedSpec, RotatedSpec
from fdg_plugins.data.stand_in import cache_folder, is_stand_in
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.lab.doctor.finding import Finding, Status, findings_of, gibibytes, ok, problem, warning
from fdg_plugins.lab.sweep.machine import available_cores, sites_at_once, visible_gpus
from fdg_plugins.lab.sweep.prepare import check_machine
from fdg_plugins.models import NETWORKS, pretrained
from fdg_plugins.objectives import OBJECTIVES, objective_settings
from fdg_plugins.plugins.classes import parameters_of
from fdg_plugins.plugins.own_dataset import shorten_names
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, environment_settings, make_protocol, part_settings
from fdg_plugins.settings.site_config import read_site_config
from fdg_plugins.storage import named_path
from fdg_plugins.training.loop import DevicePolicy, suited_precision, why_slow

PACKAGE = "fdg-plugins"
NAMED = ("nvflare", "torch", "torchvision")  # shown even if all is well
CGROUP = Path("/sys/fs/cgroup")  # in a container, that of the container
WEIGHTS = "ImageNet weights"
JOB = "jobs/pacs_fedomg"
MOST_WORKERS = 4

# Measured, resident: 0.85 GiB with torch and FLARE loaded, 1.5 GiB after steps of ResNet-18, 224 px, batch 16.
MEMORY_PER_SITE = 3 * 2**29
MEMORY_OF_SERVER = 2**30
LITTLE_DISK = 2 * 2**30
NO_DISK = 2**28  # a run keeps its models several times over


class Advice(NamedTuple):
    """How to start a simulation.

    ``alive`` is the number of sites that have a process at the same time; ``threads`` and ``workers`` are the values
    of ``FDG_THREADS`` and ``FDG_WORKERS`` for each of them; ``gpus`` names a GPU for each, and is empty on the CPU.
    """

    alive: int
    threads: int
    workers: int
    gpus: tuple[str, ...]

    @property
    def command(self) -> str:
        """The bare command with its options and variables; never ``-n``, which would rename the sites."""
        where = f"-gpu {','.join(self.gpus)}" if self.gpus else f"-t {self.alive}"
        return f"FDG_THREADS={self.threads} FDG_WORKERS={self.workers} nvflare simulator {JOB} {where}"


def examine(environment: Mapping[str, str], data: Path | None) -> tuple[tuple[Finding, ...], int, str]:
    """Return what is found on this machine, and the number of sites of a simulation with the command that starts it.

    ``data``: the user's own images, or the file that describes them, whose domains are the sites; else those of PACS.
    """
    try:
        sites = len(PACS.domains if data is None else own_data(data).dataset.domains)
    except FDGError:  # which is a finding
        sites = len(PACS.domains)
    cores, memory, gpus = read_cores(), read_memory(), visible_gpus(environment)
    fitting = max(0, (memory - MEMORY_OF_SERVER) // MEMORY_PER_SITE)
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "versions": check_versions,
        "gpu": lambda: check_gpus(gpus),
        "precision": lambda: [check_precision(environment)],
        "cores": lambda: check_cores(cores, memory, fitting, sites),
        "disk": lambda: check_disks(cache_folder(named_path("FDG_CACHE", environment))),
        "data": lambda: check_data(environment) if data is None else check_own_data(data),
        "weights": lambda: [check_weights(environment)],
        "variables": lambda: check_variables(environment),
    }
    # No job folder is about the user's own images.
    own = None if data is None else f"fdg run fedomg --dataset {shlex.quote(str(data))}"
    return findings_of(checks), sites, own or recommend(cores, gpus, sites, fitting).command


def recommend(cores: int, gpus: Sequence[str], sites: int, processes: int) -> Advice:
    """Return how to simulate ``sites`` sites with ``cores`` cores and these GPUs, as ``-gpu`` takes their ids.

    ``processes``: how many sites' processes the memory holds. All sites stay alive while there are at most two per core
    and the memory holds them; else as many as there are cores, and memory for. Those alive share the cores.
    """
    alive = sites_at_once(sites, cores, max(1, processes))
    workers = min(MOST_WORKERS, max(0, cores // alive - 1)) if gpus else 0
    return Advice(alive, max(1, cores // alive), workers, tuple(islice(cycle(gpus), alive)))


def check_versions() -> Iterator[Finding]:
    """Yield Python, this package and what it needs; a problem for what is missing or not in the supported range."""
    yield ok("python", platform.python_version())  # an older one than pip takes cannot even import this module
    yield ok(PACKAGE, version(PACKAGE))
    for requirement in map(Requirement, requires(PACKAGE) or []):
        if requirement.marker is None or requirement.marker.evaluate():
            found = check_requirement(requirement)
            if found.status is not Status.OK or found.check in NAMED:
                yield found


def check_requirement(requirement: Requirement) -> Finding:
    """Return whether a package is installed in a version that is supported."""
    name, wanted = requirement.name, requirement.specifier
    found = next((one.version for one in distributions(name=name)), None)
    if found is None or not wanted.contains(found, prereleases=True):
        return problem(name, f"{found or 'not installed'}, expected {wanted or 'any version'}")
    return ok(name, f"{found} ({wanted})")


def check_gpus(gpus: Sequence[str]) -> Iterator[Finding]:
    """Yield each GPU that torch can use; if there is none, what torch is built for."""
    built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
    for number, gpu in enumerate(gpus):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        yield ok(f"gpu {gpu}", f"{name}, {gibibytes(free)} free of {gibibytes(total)}, {built}")
    if not gpus:
        driver = Path("/dev/nvidiactl").exists()
        text = "the driver is there, but torch can use none" if driver else "none, sites compute on the CPU"
        yield (warning if driver else ok)("gpu", f"{text}; {built}")


def read_cores() -> int:
    """Return how many cores this process may use at a time, within the limit of its container."""
    quota = _limit("cpu.max")
    return max(1, min(available_cores(), quota[0] // quota[1])) if quota else available_cores()


def read_memory() -> int:
    """Return the bytes of memory that a run can take, within the limit of this container."""
    return min(psutil.virtual_memory().available, *_limit("memory.max") or [2**63])


def _limit(file: str) -> list[int]:
    """Return the numbers of a limit of this container (control groups, version 2); none if it sets no limit."""
    try:
        words = (CGROUP / file).read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [int(word) for word in words] if all(map(str.isdecimal, words)) else []


def check_cores(usable: int, memory: int, fitting: int, sites: int) -> Iterator[Finding]:
    """Yield how many cores can be used, and for how many sites that are alive at the same time there is memory."""
    limited = "; the container allows no more at a time, which torch does not know: set FDG_THREADS"
    judge = warning if usable < available_cores() else ok
    yield judge("cores", f"{usable} usable of {os.cpu_count()}{limited if judge is warning else ''}")
    judge = problem if memory < 2 * MEMORY_OF_SERVER else warning if fitting < sites else ok
    text = f"{gibibytes(memory)} free: enough for {fitting} sites at a time with ResNet-18 at 224 pixels"
    yield judge("memory", text)


def check_disks(cache: Path) -> Iterator[Finding]:
    """Yield what is free where a run writes: the cache, temporary files, and the folder it is started from."""
    places = {"cache": cache, "temporary files": Path(tempfile.gettempdir()), "working folder": Path.cwd()}
    for name, place in places.items():
        there = next(filter(Path.exists, (place, *place.absolute().parents)))
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            yield problem(f"disk, {name}", f"{there} cannot be written to, expected a folder of this user's")
            continue
        free = shutil.disk_usage(there).free
        judge = problem if free < NO_DISK else warning if free < LITTLE_DISK else ok
        yield judge(f"disk, {name}", f"{gibibytes(free)} free in {place}")


# --- what a user has set up ---


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
    files = {name: file for name in sorted(NETWORKS.names()) if (file := pretrained.imagenet_file(name)) is not None}
    if found := [f"{name} ({file.name})" for name, file in files.items() if file.is_file()]:
        return ok(WEIGHTS, ", ".join(found))
    name = files["resnet18"].name
    expected = f"expected {name}, or another network's, in {pretrained.cache_folder()}, or FDG_PRETRAINED_FILE"
    if environment.get("FDG_PRETRAINED", "").strip() == "imagenet":
        return problem(WEIGHTS, f"FDG_PRETRAINED demands them; {expected}")
    return warning(WEIGHTS, f"none, so that runs start from scratch; {expected}")
