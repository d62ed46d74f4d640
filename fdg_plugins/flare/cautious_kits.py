# SPDX-License-Identifier: Apache-2.0
"""Startup kits with the policies of a cautious operator, as FLARE's provisioning makes them with this builder.

In ``project.yml``, after FLARE's ``StaticFileBuilder``:

    builders:
      - path: fdg_plugins.flare.cautious_kits.CautiousKits

``nvflare provision`` and, for a participant's own definition, ``nvflare package`` then write kits that let a job build
the components that jobs of this package need, and no others; let nobody bring code, no lead operate a machine, nor a
lead or a project admin run shell commands; and do not send a site's logs to the server. Each operator can change this
in ``local/`` of the kit, and ``fdg kit check`` says what a kit permits.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.lighter.spec import Builder

from fdg_plugins.flare.components import SITE
from fdg_plugins.flare.kits import CLASS_ALLOW_LIST, OPERATE, SHELL, STREAMING, read_kit
from fdg_plugins.storage import make_private_folder, read_json, write_json

AUTHORIZATION = "authorization.json"
DANGEROUS = ("byoc", SHELL)
NOT_A_LEADS = (*DANGEROUS, OPERATE)  # a lead submits jobs; to stop a machine, or to look into it, is its operator's
RETURNING_SITES = "fdg_plugins.server.rejoin.ReturningSites"


class CautiousKits(Builder):
    """Writes ``local/resources.json`` and ``local/authorization.json`` into the kits of the server and the sites."""

    def build(self, project: Any, ctx: Any) -> None:
        """Write both files into every kit; FLARE calls this, after the builders that stand above in the project."""
        for folder in map(Path, (ctx.get_workspace(), ctx.get_state_dir())):  # which will have every private key
            make_private_folder(folder)
            ctx.info(f"Accessible to its owner only, as it has private keys: {folder}")
        for participant in (project.get_server(), *project.get_clients()):
            if participant is not None:
                kit = Path(ctx.get_ws_dir(participant))
                harden(kit)
                _restrict_project_admins(kit / "local" / AUTHORIZATION)


def harden(folder: Path, adjust_server: Callable[[dict[str, Any]], None] = lambda resources: None) -> None:
    """Write the policies into the kit in ``folder``, of which a project admin may still bring code.

    What an operator has written there stays; only a list loses what FLARE allows by default and no job needs.
    ``adjust_server`` may change the resources of a server that has no own one yet.
    """
    kit = read_kit(folder)
    if not kit.target.exists():
        if kit.end == SITE:
            # A log names files. FLARE sends it to the server unless this is false; its provisioning overlooks "false"
            # in project.yml.
            kit.resources[STREAMING] = False
        else:
            # FLARE starts a running job nowhere again: without it, a site that comes back waits for the next job.
            kit.resources["components"].append({"id": "returning_sites", "path": RETURNING_SITES, "args": {}})
            adjust_server(kit.resources)
    is_own = kit.target.exists() and CLASS_ALLOW_LIST in kit.resources
    kit.write_list([entry for entry in kit.least_list() if not is_own or entry in kit.entries])
    policy = folder / "local" / AUTHORIZATION
    if not policy.exists():  # FLARE's, with no right for leads but those that jobs need
        content = read_json(policy.with_name(f"{AUTHORIZATION}.default"))
        content["permissions"]["lead"] |= dict.fromkeys(NOT_A_LEADS, "none")
        write_json(policy, content)


def _restrict_project_admins(policy: Path) -> None:
    """Give a project admin, whose "any" is every right, all rights of the policy but those that no job needs."""
    content = read_json(policy)
    permissions = content["permissions"]
    permissions["project_admin"] = dict.fromkeys(permissions["lead"], "any") | dict.fromkeys(DANGEROUS, "none")
    write_json(policy, content)
