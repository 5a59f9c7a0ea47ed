"""The day on which the program runs."""

from __future__ import annotations

import os
from datetime import date

from flashmoe_sim.io.errors import Malformed

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
