# SPDX-License-Identifier: Apache-2.0
"""Executes a Dockerfile's steps without Docker: ``python docker/rehearse.py docker/Dockerfile.site``.

A new virtual environment stands for the image's Python, and a folder for its root. The Dockerfile's own ``RUN pip``
runs there word for word, what it installed is copied over the environment's files, and the Dockerfile's ``CMD`` runs,
as the Dockerfile's ``USER`` where this process may change to it. The wheel is that of ``nox -s dist``.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Steps:
    """The steps of a Dockerfile that matter without Docker."""

    def __init__(self, file: Path) -> None:
        text = re.sub(r"\\\n\s*", "", file.read_text(encoding="utf-8"))
        self.defaults = dict(re.findall(r'^ARG (\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
        (self.install,) = re.findall(r"^RUN (pip install .*)$", text, re.MULTILINE)
        (source,) = re.findall(r"^COPY constraints.txt dist/\*\.whl (\S+)$", text, re.MULTILINE)
        (copied,) = re.findall(r"^COPY --from=installed (\S+) /usr/local$", text, re.MULTILINE)
        (self.user,) = map(int, re.findall(r"^USER (\d+)$", text, re.MULTILINE))
        (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
        self.wheels, self.installed, self.command = source, copied, list(map(str, json.loads(command)))


def rehearse(file: Path, scratch: Path) -> str:
    """Execute the steps of ``file`` in ``scratch``; return what its command printed."""
    steps, python = Steps(file), scratch / "python"
    wheels = scratch / steps.wheels.strip("/")
    wheels.mkdir(parents=True)
    (wheel,) = (ROOT / "dist").glob("*.whl")
    for copied in (ROOT / "constraints.txt", wheel):
        shutil.copy(copied, wheels)
    venv.create(python, with_pip=True)
    environment = {**os.environ, **steps.defaults, "PATH": f"{python / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    install = steps.install.replace(f" {steps.installed} ", f" {scratch / 'installed'} ")
    install = install.replace(steps.wheels, f"{wheels}/")
    subprocess.run(["sh", "-euc", install], env=environment, check=True)
    shutil.copytree(scratch / "installed", python, dirs_exist_ok=True, symlinks=True)
    user = steps.user if os.geteuid() == 0 else None
    scratch.chmod(0o755)
    program = python / "bin" / steps.command[0]
    home = {**environment, "HOME": str(scratch / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [str(python / "bin" / "python"), str(program), *steps.command[1:]],
        env=home,
        cwd=scratch,
        capture_output=True,
        text=True,
        check=True,
        user=user,
    )
    return done.stdout


def main(arguments: list[str]) -> None:
    """Rehearse the Dockerfiles named."""
    for name in arguments:
        with tempfile.TemporaryDirectory() as scratch:
            printed = rehearse(Path(name), Path(scratch))
        print(f"{shlex.quote(name)}: {printed.strip()}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
