"""Which version of the program wrote something, and on which day."""

from __future__ import annotations

import os
from datetime import date
from functools import cache
from importlib import metadata

from flashmoe_sim.io.errors import Malformed

NAME = "flashmoe-sim"


@cache
def version() -> str:
    """The version of the installed package, such as 0.2.0."""
    return metadata.version(NAME)


def program() -> str:
    """Name and version, for files that are read by people and by other programs."""
    return f"{NAME} {version()}"


DAY = "FLASHMOE_TODAY"


def today() -> date:
    """The day of this machine's clock, or the one in `FLASHMOE_TODAY`: what tests print must not change with time.

    Raises BadInput if that is not a day.
    """
    given = os.environ.get(DAY)
    try:
        return date.fromisoformat(given) if given else date.today()
    except ValueError:
        raise Malformed(f"{DAY}={given}: expected a day such as 2026-11-29") from None
