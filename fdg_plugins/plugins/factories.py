# SPDX-License-Identifier: Apache-2.0
"""A network by the path of its factory, ``module:factory``, as a plug-in file.

Only a command line has such paths. A file with the record of the network is written and loaded like any plug-in file:
it names an installed module, or is a copy of a file of one's own with the record at its end. The job carries it and
names the network, so that nothing is imported by a path in a job's config.
"""

import re
from importlib.util import find_spec
from pathlib import Path

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.files import SUFFIX, load_file

LONGEST = 90  # of a name made of those of module and factory

_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_PATH = re.compile(rf"({_MODULE}|[^:]+\.py):([A-Za-z_]\w*)")
_RECORD = """

# --- the record of the network, added by fdg_plugins ---
from fdg_plugins.models import network_of as _network_of  # noqa: E402

_NETWORK = _network_of({factory}, name="{name}")
"""


def bring_factory(text: str, here: Path, folder: Path) -> tuple[Path, str]:
    """Write and load the plug-in file of the network that a factory builds; return the file, and the network's name.

    Args:
        text: ``"package.module:factory"`` or ``"file.py:factory"``; a factory is a function or a class.
        here: the folder in which a module that is not installed, and a relative path, are looked for.
        folder: an existing folder for the file, which must stay there until the job is written.

    Raises:
        SettingsError: for text in another form, and for a module or factory that is not there or cannot be loaded.
    """
    if (found := _PATH.fullmatch(text)) is None:
        expected = "the name of a network, package.module:factory or file.py:factory"
        raise SettingsError(field="model", value=text, expected=expected)
    module, factory = found.groups()
    is_file = module.endswith(SUFFIX)
    name = re.sub(r"[^a-z0-9]+", "_", f"{Path(module).stem if is_file else module}_{factory}".lower()).strip("_")
    name = (name if name[:1].isalpha() else f"net_{name}")[:LONGEST]
    path = folder / f"{name}{SUFFIX}"
    if not is_file and find_spec(module.partition(".")[0]) is not None:
        content, factory = '"""A network by the path of its factory."""', f'"{text}"'
    else:
        file = here / (module if is_file else f"{module.replace('.', '/')}{SUFFIX}")
        if not file.is_file():
            raise SettingsError(f"model names {module!r}, which is neither an installed module nor the file {file}.")
        content = file.read_text(encoding="utf-8")
    path.write_text(content + _RECORD.format(factory=factory, name=name), encoding="utf-8")
    load_file(path)
    return path, name
