# SPDX-License-Identifier: Apache-2.0
"""Many sites per domain: writes a job and a simulator workspace in which M sites share the domains of a data set.

    python examples/many_sites.py --job jobs/rotatedmnist_fediir --sites 50 --to many
    nvflare simulator many/job -w many/workspace -t 2

Every source domain is divided at random over its sites (FedIIR's Algorithm 2): one site each, then the next to the
domain with most images per site. The held-out domain has one site. How many sites train in a round is a setting of
the protocol: ``FDG_SITES_PER_ROUND=5``. With fewer threads than sites FLARE's simulator starts a process for every turn
of every site, also for those with nothing to do: on 2 cores a round of 50 sites takes minutes. For more than 100 sites,
the held-out one among them, it wants their number: ``-m 201``.
"""

import argparse
import json
import os
import shutil
from pathlib import Path

from fdg_plugins.core.partition import allot_sites
from fdg_plugins.data import dataset_spec, find_data_root, open_domain
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.storage import read_json, write_json


def training_sizes(dataset: str, domains: list[str], data_root: Path | None) -> dict[str, int]:
    """Return the number of training images of each domain, the validation images taken away."""
    root = find_data_root(dataset, data_root, None).path
    return {domain: len(open_domain(root, dataset, domain, seed=0).train) for domain in domains}


def site_entries(sizes: dict[str, int], held_out: str, num_sites: int) -> dict[str, dict[str, str]]:
    """Return the config of every site by its name: ``angle_30-2`` holds the second part of angle_30."""
    entries = {held_out: {"domain": held_out}}
    for domain, count in allot_sites(sizes, num_sites).items():
        for number in range(1, count + 1):
            entries[f"{domain}-{number}"] = {"domain": domain, "part": f"{number}/{count}"}
    return entries


def write_federation(job: Path, num_sites: int, to: Path, data_root: Path | None) -> list[str]:
    """Write ``to/job`` and ``to/workspace``; return the names of the sites."""
    protocol = read_json(job / "app_server/config/config_fed_server.json")["workflows"][0]["args"]["protocol"]
    dataset, held_out = protocol["dataset"], os.environ.get("FDG_TARGET", protocol["target"])
    domains = dataset_spec(dataset).domains
    if held_out not in domains:
        raise SettingsError(f"target (FDG_TARGET) is {held_out!r}, expected one of {', '.join(domains)}.")
    sources = [domain for domain in domains if domain != held_out]
    entries = site_entries(training_sizes(dataset, sources, data_root), held_out, num_sites)
    shutil.copytree(job, to / "job")
    meta = read_json(job / "meta.json")
    meta["deploy_map"]["app_site"] = list(entries)
    write_json(to / "job" / "meta.json", meta)
    write_json(to / "workspace" / "local" / "fdg_site.json", entries)
    return list(entries)


def main() -> None:
    """Write the job and the workspace that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=Path, required=True, help="job folder to start from")
    parser.add_argument("--sites", type=int, required=True, help="number of source sites, M")
    parser.add_argument("--to", type=Path, required=True, help="folder to make")
    arguments = parser.parse_args()
    data_root = os.environ.get("FDG_DATA_ROOT")
    try:
        names = write_federation(arguments.job, arguments.sites, arguments.to, Path(data_root) if data_root else None)
    except (FDGError, ValueError, OSError) as error:
        parser.error(f"{error}")
    print(json.dumps({"sites": len(names), "held_out": names[0]}))  # noqa: T201 - what this script is for


if __name__ == "__main__":
    main()
