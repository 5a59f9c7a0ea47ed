"""What holds a run back and what would help, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flashmoe_sim.ceilings.bottleneck import Bottleneck
from flashmoe_sim.ceilings.hardware import CHANGES, Move
from flashmoe_sim.io.sizes import three

WORTH_NAMING = 0.005
WORDS = {
    "all-hit": "all hits",
    "oracle-prefetch, overlapped": "perfect one-call prefetch",
    "min": "the best policy",
}

COSTS = {"read": "reads", "cpu": "misses on the CPU", "upload": "uploads and installs", "compute": "computing"}


@dataclass(frozen=True)
class SpeedVerdict:
    """kind: read, cpu, upload, compute or none, as bottleneck.py defines them. text: a sentence with the numbers.

    free_tok_s: the speed without each kind of cost; free_misses_tok_s: without all costs of misses. Both are infinite
        if nothing else takes time.
    ceilings: all-hit, oracle-prefetch overlapped and min, the largest gain first. hardware: each single change of the
        machine, the largest gain first.
    """

    kind: str
    text: str
    tok_s: float
    free_tok_s: dict[str, float]
    free_misses_tok_s: float
    ceilings: tuple[Move, ...]
    hardware: tuple[Move, ...]


def speed_verdict(
    held: Bottleneck, tok_s: float, ceilings: Mapping[str, float], hardware: tuple[Move, ...]
) -> SpeedVerdict:
    """Judge by the bottleneck, the speeds of the named ceilings, and the speeds after changes of the machine.

    tok_s: the speed of the given setup.
    """
    moves = [Move(name, speed, speed / tok_s - 1) for name, speed in ceilings.items()]
    moves.sort(key=lambda move: -move.tok_s)
    worth = [(WORDS[move.name], three(move.tok_s)) for move in moves if move.gain >= WORTH_NAMING]
    parts = [_cause(held), "neither hits nor prefetch nor policy would help"]
    if worth:
        (first, speed), *others = worth
        parts[1] = ", ".join([f"{first} would give {speed}", *map(" ".join, others)])
    if hardware and hardware[0].gain >= WORTH_NAMING:
        best = hardware[0]
        parts.append(
            f"the most helpful hardware change is {CHANGES[best.name].words}: {three(best.tok_s)} tok/s"
            f"{_elsewhere(held.kind, hardware)}"
        )
    else:
        parts.append("no single hardware change helps")
    text = "; ".join(parts) + "."
    return SpeedVerdict(held.kind, text, tok_s, held.free_tok_s, held.free_misses_tok_s, tuple(moves), hardware)


def _elsewhere(kind: str, hardware: tuple[Move, ...]) -> str:
    """Why the best change is of something else than what holds the run back; empty if it is not."""
    if kind not in COSTS or kind in CHANGES[hardware[0].name].kinds:
        return ""
    why = ", as each change halves one part only"
    own = next((move for move in hardware if kind in CHANGES[move.name].kinds), None)
    if own is None or own.gain < WORTH_NAMING:
        return f"{why}, and of {COSTS[kind]} none gains"
    return f"{why}: of {COSTS[kind]}, {CHANGES[own.name].words} gives most, {three(own.tok_s)}"


def _cause(held: Bottleneck) -> str:
    if held.kind == "none":
        return f"Nothing alone holds it back at {three(held.tok_s)} tok/s"
    what, free = {
        "read": ("Reads hold", "free reads"),
        "cpu": ("Misses computed on the CPU hold", "free misses on the CPU"),
        "upload": ("Uploads and installs hold", "free uploads and installs"),
        "compute": ("Computing holds", "free layers, experts and slot lookups"),
    }[held.kind]
    speed = held.free_tok_s[held.kind]
    gives = f"{three(speed)} tok/s instead of {three(held.tok_s)}"
    if not np.isfinite(speed):
        gives = f"no limit instead of {three(held.tok_s)} tok/s"
    return f"{what} it back ({free}: {gives})"
