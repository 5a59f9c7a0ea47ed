"""Which version of the program wrote something."""

from __future__ import annotations

from functools import cache
from importlib import metadata

NAME = "flashmoe-sim"


@cache
def version() -> str:
    """The version of the installed package, such as 0.2.0."""
    return metadata.version(NAME)


def program() -> str:
    """Name and version, for files that are read by people and by other programs."""
    return f"{NAME} {version()}"
