"""Anchors of a fit: the work of a run's decoded token, and the resulting equations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot, sqrt

from flashmoe_sim.machines.equations import Equation
from flashmoe_sim.machines.estimates import estimate

SPEED_SD = estimate("run.speed_sd").value
SPEED_STEP = 0.1  # tokens a second, the precision of printed speeds


@dataclass(frozen=True)
class Installs:
    """All installs of a run, and how long they took, without uploads and for uploads.

    first_bytes: the part of bytes_read that went into slots never used before.
    relative_sd: of both times, from the variation between layers.
    """

    count: int
    bytes_read: float
    first_bytes: float
    reads: float
    read_s: float
    upload_s: float
    relative_sd: float


@dataclass(frozen=True)
class Anchor:
    """A run, or a row of a table, with a known speed.

    misses, bytes_read, first_bytes, reads: of one decoded token; first_bytes as in `Installs`. stalled: its routed
    calls with a miss. weight_bytes: what it streams through the computing unit, experts and all else; None if unknown
    for the model. call_s: the host's time for a routed call. installs: those for which routed calls waited; primed:
    those with which an all-hit run filled its bank in RAM before the first call. layers, top_k: 0 if unknown from the
    run and the model. repeats: how many anchors have the same work, including this one. condition: as a table states
    it, empty for a run.
    """

    name: str
    tok_s: float
    layers: int
    top_k: int
    misses: float = 0.0
    bytes_read: float = 0.0
    first_bytes: float = 0.0
    reads: float = 0.0
    stalled: float = 0.0
    weight_bytes: float | None = None
    call_s: float = 0.0
    installs: Installs | None = None
    primed: Installs | None = None
    repeats: int = 1
    condition: str = ""

    @property
    def uploads(self) -> bool:
        """Whether its installs were uploaded to a GPU."""
        return self.installs is not None and self.installs.upload_s > 0

    @property
    def observations(self) -> list[Equation]:
        """Its equations: the time of a token without the host's and, if installs were timed, the time of all installs.

        Repeats together count as one anchor: they share the errors of the model, which more repeats do not reduce.
        """
        token = _terms(self, upload=self.uploads) | {"layer_us": self.layers * 1e-6, "resume_us": self.stalled * 1e-6}
        if self.weight_bytes is not None:
            token["weights_gb_s"] = self.weight_bytes / 1e9
        token_s = 1 / self.tok_s - self.layers * self.call_s
        rounding = SPEED_STEP / sqrt(12) / self.tok_s
        found = [Equation(f"{self.name}: token", token_s, hypot(SPEED_SD, rounding), token, of="token")]
        for what, all_ in (("reads", self.installs), ("prime", self.primed)):
            if all_ is not None:
                read = _terms(all_, upload=False)
                found.append(Equation(f"{self.name}: {what}", all_.read_s, all_.relative_sd, read, of=what))
        if self.installs is not None and self.uploads:
            terms = {"pinned_gb_s": self.installs.bytes_read / 1e9}
            took, relative_sd = self.installs.upload_s, self.installs.relative_sd
            found.append(Equation(f"{self.name}: uploads", took, relative_sd, terms, of="uploads"))
        return [replace(one, relative_sd=one.relative_sd * sqrt(self.repeats)) for one in found]


def _terms(of: Anchor | Installs, *, upload: bool) -> dict[str, float]:
    moved = {
        "read_gb_s": of.bytes_read / 1e9,
        "first_touch_gb_s": of.first_bytes / 1e9,
        "request_us": of.reads * 1e-6,
    }
    return moved | ({"pinned_gb_s": of.bytes_read / 1e9} if upload else {})
