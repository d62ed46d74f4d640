# SPDX-License-Identifier: Apache-2.0
"""``fdg export job``: write a job folder for ``nvflare job submit``, from an existing one or for a method by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdg_plugins.cli.console import say
from fdg_plugins.cli.own_data import DataOption, choose_data
from fdg_plugins.cli.plugins import ModelOption, PluginFiles, chosen_model, load_plugins
from fdg_plugins.cli.run_options import ProtocolOption, SeedOption, SettingsOption, TargetOption, read_values
from fdg_plugins.cli.sweep_options import ProtocolName
from fdg_plugins.errors import SettingsError

if TYPE_CHECKING:
    from fdg_plugins.plugins.own_dataset import DatasetRef


def export_job(
    to: Annotated[Path, typer.Option(help="The folder into which the job is written.")],
    job: Annotated[
        Path | None, typer.Argument(help="The job folder, such as jobs/pacs_fedomg.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Another name for the job; default: that of its folder, or of its recipe.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Method for which to make a job, in place of a job folder.", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="The data set of the job made with --method.", show_default="pacs")
    ] = None,
    data: DataOption = None,
    model: ModelOption = None,
    sites: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Sites of the job made with --method, if they are not named after their domains; fdg kit site "
            "tells each its domain.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        int,
        typer.Option(help="GPUs that each site needs for the job made with --method; fdg kit site lends them."),
    ] = 0,
    gpu_memory: Annotated[
        float | None, typer.Option(metavar="GIB", help="GiB that the job needs of each GPU.", show_default=False)
    ] = None,
    without_gpu: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Sites that need no GPU.", show_default=False)
    ] = None,
    target: TargetOption = None,
    seed: SeedOption = None,
    protocol: ProtocolOption = ProtocolName.PAPER,
    settings: SettingsOption = None,
    plugin: PluginFiles = None,
) -> None:
    """Write a config-only copy of a job, without custom/ folders; or, with --method, the job of a method by name.

    FLARE's simulator needs these folders, although they contain no code. A federation treats them, even if empty, as
    code from the submitter, and requires a right that an operator should not have to grant. With --plugin, and with
    --model MODULE:FACTORY, the job does bring code: a copy of each file, in custom/. A job on images of your own
    (--data) brings their description, the names of domains and classes, and no code.

    Examples:

      fdg export job jobs/pacs_fedomg --to /tmp/jobs

      nvflare job submit -j /tmp/jobs/pacs_fedomg --startup-kit /srv/flare/lead@example.org

      fdg export job --method fedomg --target sketch --set rounds=100 --set kappa=0.25 --to /tmp/jobs

      fdg export job --method fedomg --protocol fedomg --to /tmp/jobs

      fdg export job --method fedomg --data photos --to /tmp/jobs

      fdg export job --method clipped_fedavg --plugin custom/clipped_fedavg.py --to /tmp/jobs

      fdg export job --method fedomg --model my_net.py:build --to /tmp/jobs

      fdg export job --method fedomg --sites site-1,site-2,site-3,site-4 --to /tmp/jobs

      fdg export job --method fedomg --gpus 1 --gpu-memory 8 --without-gpu sketch --to /tmp/jobs
    """
    if (job is None) == (method is None):
        raise SettingsError("fdg export job needs either a job folder or --method, expected one of them.")
    if job is None:
        load_plugins(plugin)
        named: dict[str, Any] = {"gpus": gpus, "gpu_memory": gpu_memory, "without_gpu": _names(without_gpu)}
        named |= {} if sites is None else {"sites": _names(sites)}
        named |= {key: value for key, value in (("target", target), ("seed", seed)) if value is not None}
        named |= _settings(settings or [])
        images = choose_data(data, dataset, None).dataset
        pooled = "pacs" if images is None else images
        named = {**_of_protocol(protocol, pooled, str(method), sites), **named}
        with chosen_model(model) as own:
            files, chosen = [*(plugin or []), *own.files], own.added_to(named)
            say(_made(str(method), pooled, to, name, files, chosen))
    else:
        named_protocol = None if protocol is ProtocolName.PAPER else protocol
        of_made = (dataset, data, model, sites, gpu_memory, without_gpu, target, seed, named_protocol, settings)
        is_made = gpus != 0 or any(one is not None for one in of_made)
        say(_copied(job, is_made, to, name, plugin))


def _settings(texts: list[str]) -> dict[str, Any]:
    """Return what ``--set`` gives; raise ``SettingsError`` for what a run would not take from there either."""
    from fdg_plugins.lab.engine.sources import check_names

    values = read_values(texts)
    check_names(values)
    return values


def _of_protocol(protocol: ProtocolName, dataset: "DatasetRef", method: str, sites: str | None) -> dict[str, Any]:
    """Return the settings of a named protocol; sites that are named are as many as they are."""
    from fdg_plugins.lab.engine.sources import PER_DOMAIN, settings_of_protocol
    from fdg_plugins.plugins.composition import parse_method

    found = settings_of_protocol(protocol.value, dataset, parse_method(method).name)
    return {name: value for name, value in found.items() if name != PER_DOMAIN or sites is None}


def _names(text: str | None) -> list[str]:
    """Return the names in a text of names with commas between them."""
    return [] if text is None else [name.strip() for name in text.split(",")]


def _made(
    method: str,
    dataset: "DatasetRef",
    to: Path,
    name: str | None,
    plugins: list[Path],
    settings: dict[str, Any],
) -> str:
    """Write the job of a method, and return a description of the result."""
    from fdg_plugins.cli.jobs import export_method

    target, files = export_method(method, dataset, to, name, plugins, settings)
    brings = f"the code of {', '.join(files)}" if files else "no code"
    return f"{target}: written; it brings {brings}"


def _copied(job: Path, made: bool, to: Path, name: str | None, plugins: list[Path] | None) -> str:
    """Write a copy of a job folder, and return a description; refuse options of one that --method makes."""
    from fdg_plugins.cli.jobs import export

    if plugins or made:
        raise SettingsError(
            "--plugin, --dataset, --data, --model, --sites, --target, --seed, --protocol, --set and those of GPUs are "
            "for the job of a method, expected --method with them."
        )
    return f"{export(job, to, name)}: written; it brings no code"
