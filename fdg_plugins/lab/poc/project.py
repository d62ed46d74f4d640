# SPDX-License-Identifier: Apache-2.0
"""Who is in a federation on one machine, and what its folder remembers of it."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import yaml

from fdg_plugins.errors import DataError, SettingsError, first_problem
from fdg_plugins.storage import read_json

PROJECT_FILE = Path(__file__).with_name("project.yml")
STATE_FILE = "federation.json"


Port = Annotated[int, pydantic.Field(ge=1, le=65535)]


class State(pydantic.BaseModel):
    """What the folder of a federation remembers: its ports and its sites."""

    model_config = pydantic.ConfigDict(frozen=True)

    version: Literal[1] = 1
    ports: tuple[Port, Port]
    sites: tuple[str, ...] | None = None  # folders of version 0.1.0 have no entry


class Project(NamedTuple):
    """The project as FLARE's provisioning takes it, and who is in it."""

    content: dict[str, Any]
    server: dict[str, Any]
    sites: tuple[str, ...]
    people: tuple[str, ...]

    @property
    def ports(self) -> tuple[int, int]:
        """Port of the sites, port of the people."""
        return int(self.server["fed_learn_port"]), int(self.server["admin_port"])


def read_project(port: int | None = None, admin_port: int | None = None, sites: Sequence[str] | None = None) -> Project:
    """Return ``project.yml``, with other ports and sites where they are given."""
    content = yaml.safe_load(PROJECT_FILE.read_text(encoding="utf-8"))
    if sites is not None:  # they belong to the organisations of those in the file, in turn
        others = [member for member in content["participants"] if member["type"] != "client"]
        orgs = cycle([member["org"] for member in content["participants"] if member["type"] == "client"])
        clients = ({"name": site, "type": "client", "org": org} for site, org in zip(sites, orgs, strict=False))
        content["participants"] = [*others, *clients]
    members: dict[str, list[dict[str, Any]]] = {"server": [], "client": [], "admin": []}
    for participant in content["participants"]:
        members[participant["type"]].append(participant)
    (server,) = members["server"]
    if port is not None:
        server["fed_learn_port"], server["admin_port"] = port, admin_port or port + 1
    names = {kind: tuple(member["name"] for member in found) for kind, found in members.items()}
    return Project(content, server, names["client"], names["admin"])


def known_project(folder: Path, port: int | None = None, sites: Sequence[str] | None = None) -> Project:
    """Return the project that was provisioned into ``folder``.

    Raises ``DataError`` if there is none, ``SettingsError`` for another port or other sites than it has.
    """
    file = folder / STATE_FILE
    if not file.exists():
        raise DataError(f"folder {folder} holds no federation, expected one that start has made.")
    try:
        state = State.model_validate(read_json(file))
    except pydantic.ValidationError as error:
        raise DataError(f"file {file} cannot be used: {first_problem(error)}") from error
    project = read_project(*state.ports, state.sites)
    for name, wanted, fixed in (("port", port, state.ports[0]), ("sites", sites and {*sites}, {*project.sites})):
        if wanted not in (None, fixed):
            expected = f"{fixed}, for which {folder} was provisioned; others need another folder"
            raise SettingsError(field=name, value=wanted, expected=expected)
    return project
