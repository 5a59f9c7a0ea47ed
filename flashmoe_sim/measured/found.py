"""What a reader of one format finds in a file."""

from __future__ import annotations

from dataclasses import dataclass, field

from flashmoe_sim.measured.value import Measured


@dataclass(frozen=True)
class Found:
    """The measurements of a file.

    left_out: one line for each that is there and no use, such as a mean over requests.
    """

    measured: list[Measured] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
