# SPDX-License-Identifier: Apache-2.0
"""A method on a data set as a FLARE recipe, with every setting checked at once; the jobs that this project keeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.recipe import PocEnv, SimEnv
from nvflare.recipe.spec import ExecEnv, Recipe

from fdg_plugins.controllers import FederationController
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.flare.trackers import check_tracker
from fdg_plugins.objectives.network import check_brought_network, check_network
from fdg_plugins.plans import job_settings, uses_of
from fdg_plugins.plugins.composition import combined, parse_method
from fdg_plugins.plugins.files import files_behind, load_file
from fdg_plugins.plugins.methods import METHODS as RECORDS
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.recipes.job import EvaluationRecipe, FederationJob, federation_job
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.settings.defaults import domains_of_sites


class FDGRecipe(Recipe):
    """A method on a data set, to be exported (``export``) or run (``execute``, ``run``) in FLARE's environments.

    A setting that is omitted or None takes its default: from the data set's protocol
    (:mod:`fdg_plugins.settings.protocols`) and from the records of the method's parts (:mod:`fdg_plugins.methods`).
    Given values also apply to the stand-in. In a run, the ``FDG_*`` variables of the server's environment override
    all of these, as for any job.

    Args:
        method: a published name, or parts joined by ``+``: ``"fedomg"``, ``"fedomg+ga+dim"``.
        dataset: a name in the catalogue: ``"pacs"``, ``"rotatedmnist"``, ``"rotateddigits"`` and others; or the
            description of your own data set: ``own_data("photos").dataset``.
        sites: names of the sites, or the number of source sites, which the domains share by their numbers of images;
            default: one per domain, named after its domain, or ``sites_per_domain`` per source domain, ``photo-1of10``
            and so on. The config of a site with another name must say which domain it holds.
        plugins: plug-in files, ``NAME.py``, with methods, networks or data sets; the job carries a copy of each.
        name: name of the job; default: data set and method, ``"pacs_fedomg_ga"``.
        tracking: ``"mlflow"`` or ``"wandb"``: the server hands the run's metrics to this tracker too.
        gpus: GPUs that each site needs for the job; 0: the job asks for none. FLARE starts the job when every such site
            is connected and has them free. The simulator ignores it.
        gpu_memory: GiB that the job needs of each GPU.
        without_gpu: sites that need none.
        settings: fields of the protocol (``target``, ``rounds``, ``local_epochs``, ``image_size`` in pixels, ``seed``
            and all others of :class:`~fdg_plugins.settings.protocol.Protocol`), and settings of the method's parts.
            ``weighting`` and ``objective`` accept a name or ``{"name": ..., <its settings>}``, and compose.

    Raises:
        SettingsError: in one sentence, for a name that does not exist or a value that is out of range.
    """

    def __init__(
        self,
        method: str,
        /,
        dataset: DatasetRef = "pacs",
        *,
        sites: Sequence[str] | int | None = None,
        plugins: Sequence[str | Path] = (),
        name: str | None = None,
        tracking: str | None = None,
        gpus: int = 0,
        gpu_memory: float | None = None,
        without_gpu: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        check_tracker(tracking)
        files = {load_file(file): file for file in map(Path, plugins)}
        if isinstance(sites, int | str):  # a number, perhaps as text
            sites, settings["sites"] = None, sites
        made = job_settings(parse_method(method), dataset, settings)
        self.method, self.dataset, self.plans = made.method.name, dataset, made.plans
        check_network(self.plans.real.protocol)
        uses = uses_of(made.aggregator_spec, (made.protocol, made.stand_in), {})
        files = dict(sorted({**files, **files_behind(uses.names)}.items()))
        if files:
            made.protocol["plugins"] = list(files)
        controller = FederationController(
            protocol=made.protocol,
            stand_in_protocol=made.stand_in,
            aggregator=made.aggregator_spec,
            tracking=tracking,
        )
        job = federation_job(
            f"{dataset}_{self.method.replace('+', '_')}" if name is None else name,
            [*domains_of_sites(dataset, made.protocol)] if sites is None else sites,
            controller,
            made,
        )
        super().__init__(job)
        self._job: FederationJob = job
        job.plugin_files = tuple(files.values())
        job.ask_for_gpus(gpus, gpu_memory, without_gpu)

    @property
    def sites(self) -> list[str]:
        """The names of the sites, for ``SimEnv(clients=...)`` and ``PocEnv(clients=...)``."""
        return list(self._job.sites)

    def export(
        self,
        job_dir: str,
        server_exec_params: dict[str, Any] | None = None,
        client_exec_params: dict[str, Any] | None = None,
        env: ExecEnv | None = None,
    ) -> None:
        """Write the job into a folder of its name in ``job_dir``, for ``env``; if None, for FLARE's simulator."""
        self._job.with_note = True
        super().export(str(job_dir), server_exec_params, client_exec_params, env)

    def export_for_submission(self, folder: Path) -> list[str]:
        """Write the job to ``folder`` for ``nvflare job submit``; return the names of the code files that it brings.

        It has a ``custom/`` folder only if it brings code. Raises ``SettingsError`` for a network of the user's own
        that cannot take the images: a federation has no stand-in with smaller ones.
        """
        check_brought_network(self.plans.real.protocol)
        self._job.with_note = False
        super().export(str(folder))
        return [file.name for file in self._job.plugin_files]

    def process_env(self, env: ExecEnv) -> None:
        """Include a ``custom/`` folder, containing only a note, in environments without an administrator.

        SimEnv and PocEnv set up their own federation for each run, under FLARE's default allow list, and let the user
        bring code. In any other environment, a site's administrator has allowed the components and may reject code.
        """
        self._job.with_note = isinstance(env, SimEnv | PocEnv)


# Our own compositions: FedDIM under FedOMG, alone and with GA's weights. No paper reports them.
_OURS = ("fedomg+dim", "fedomg+ga+dim")
# The methods with kept jobs, and those with kept jobs on RotatedMNIST and on the retinal vessels too.
METHODS = (*RECORDS.own(), *(parse_method("+".join(pair)).name for pair in combined()), *_OURS)
_ON_ROTATED_MNIST = ("fedavg", "fedomg", "feddim", "fediir")
_ON_VESSELS = ("fedavg", "fedomg", "fedga", "feddim", "fediir", "harmofl")
JOBS = (
    *(("pacs", method) for method in METHODS),
    *(("rotatedmnist", method) for method in _ON_ROTATED_MNIST),
    *(("vessels", method) for method in _ON_VESSELS),
)

# Subfolders of the result of Run.get_result(): the simulator's workspace, or a downloaded job.
_RUN_FOLDERS = (SIMULATOR_FOLDER, "workspace")


def make_recipe(method: str, dataset: DatasetRef = "pacs", **settings: Any) -> FDGRecipe:
    """Return the recipe of ``method``: a published name, or one and parts in any order (``"fedomg+ga+dim"``).

    ``settings`` are those of :class:`~fdg_plugins.recipes.FDGRecipe`; numbers and truth values may also be text.
    Raises ``SettingsError`` for invalid settings and for a ``weighting`` or ``objective`` that changes the method.
    """
    recipe = FDGRecipe(method, dataset, **settings)
    if (name := parse_method(method).name) != recipe.method:
        expected = f"{recipe.method!r}, which its weighting and objective make it"
        raise SettingsError(field="method", value=name, expected=expected)
    return recipe


def job_recipes() -> dict[str, FDGRecipe | EvaluationRecipe]:
    """Return the recipes of all jobs that this project keeps, by the name of the job."""
    recipes: list[FDGRecipe | EvaluationRecipe] = [make_recipe(method, dataset) for dataset, method in JOBS]
    recipes.append(EvaluationRecipe())
    return {recipe.name: recipe for recipe in recipes}


def export_jobs(folder: str | Path) -> None:
    """Write all jobs that this project keeps to ``folder``, replacing earlier ones."""
    for recipe in job_recipes().values():
        recipe.export(str(folder))


def results_file(result: str | Path | None) -> Path:
    """Return the path of ``results.json`` in ``result``, the return value of ``Run.get_result()``.

    Raises ``DataError`` if there is none: the run has not begun, or its workspace was removed.
    """
    if result is not None:
        for folder in _RUN_FOLDERS:
            if (path := Path(result, folder, RESULTS_FILE)).is_file():
                return path
    expected = f"the result of a run that has ended, with {RESULTS_FILE} in {' or '.join(_RUN_FOLDERS)}"
    raise DataError(field="result", value=str(result), expected=expected)
