"""What a predictor is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Prefetcher:
    """Parameters of a predictor, and what holds for every set of them.

    contracts: the replay contracts that it is defined under.
    """

    name: ClassVar[str]
    contracts: ClassVar[tuple[str, ...]]
    source: ClassVar[str] = ""


@dataclass(frozen=True)
class LastCall(Prefetcher):
    """After every step, each layer prefetches experts of its own last call, in their order.

    width: how many of the call's distinct experts, from the first; 0 for all.
    """

    contracts: ClassVar[tuple[str, ...]] = ("runtime", "protected")
    source: ClassVar[str] = "the patched llama.cpp runtime"
    width: ClassVar[int] = 0
