# SPDX-License-Identifier: Apache-2.0
"""The config of the site whose process this is, from its workspace."""

import os
from pathlib import Path

from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare.components import SERVER
from fdg_plugins.flare.simulator import in_simulator
from fdg_plugins.plugins.admission import Allowed
from fdg_plugins.settings.site_config import FILE_NAME, SiteConfig, read_allowed_plugins, read_site_config


def site_config_of(site: str, fl_ctx: FLContext) -> SiteConfig:
    """Return the config of ``site`` from its workspace and the environment of its process.

    Raises ``SettingsError`` and ``DataError`` as :func:`~fdg_plugins.settings.site_config.read_site_config`; only the
    sites of a simulator share one file.
    """
    path = Path(fl_ctx.get_engine().get_workspace().get_file_path_in_site_config(FILE_NAME))
    return read_site_config(site, path if os.path.lexists(path) else None, os.environ, shared=in_simulator(fl_ctx))


def allowed_at_server(fl_ctx: FLContext) -> Allowed:
    """Return the list of plug-ins that the server's operator allows, from its workspace; None if there is no list.

    Raises as :func:`~fdg_plugins.settings.site_config.read_allowed_plugins`.
    """
    path = Path(fl_ctx.get_engine().get_workspace().get_root_dir(), "local", FILE_NAME)
    return read_allowed_plugins(SERVER, path, shared=in_simulator(fl_ctx))
