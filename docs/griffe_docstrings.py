# SPDX-License-Identifier: Apache-2.0
"""Docstrings as Markdown for the site: Sphinx's roles become code, and examples of an interpreter a block of code.

``mkdocs.yml`` names this file as an extension of griffe, which reads the package without importing it.
"""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:mod|class|func|meth|attr|data|exc):`(~?)([^`]+)`")
_DOCTEST = re.compile(r"^(?P<indent> *)>>> .*\n?(?:(?P=indent) *\S.*\n?)*", re.MULTILINE)


class MarkdownDocstrings(griffe.Extension):
    """Rewrites every docstring once, when griffe has read its object."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of ``obj``, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Return a docstring whose roles and interpreter examples are Markdown's."""
    return _DOCTEST.sub(_as_code, _ROLE.sub(_as_name, docstring))


def _as_name(role: re.Match[str]) -> str:
    return f"`{role[2].rpartition('.')[2] if role[1] else role[2]}`"


def _as_code(example: re.Match[str]) -> str:
    indent = example["indent"]
    lines = [line.removeprefix(indent) for line in example[0].rstrip("\n").split("\n")]
    return "\n".join(["```pycon", *lines, "```", ""])
