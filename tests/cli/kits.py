# SPDX-License-Identifier: Apache-2.0
"""Startup kits, as far as ``fdg kit`` and ``fdg doctor`` read them."""

import json
from pathlib import Path
from typing import Any

from fdg_plugins.flare.components import SERVER, SITE

GUARD = "my_hospital.filters.Guard"
BEFORE = {"format_version": 2, "class_allow_list": [GUARD], "components": [{"id": "x"}]}


def make_kit(folder: Path, end: str = SITE, content: Any = BEFORE, site: str = "site-1") -> Path:
    """Make a kit of a server, or of a site."""
    for part in ("startup", "local"):
        (folder / part).mkdir(parents=True)
    file = "fed_server.json" if end == SERVER else "fed_client.json"
    (folder / "startup" / file).write_text(json.dumps({"client": {"fqsn": site}}))
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "local" / "resources.json").write_text(text)
    return folder
