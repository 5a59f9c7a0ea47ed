"""The plain twins of the policies, from their definitions, in lists and dicts, without a look at the kernels.

Experts are pairs (layer, expert number), in a bank of one layer as in a global one. Time is counted in uses.
"""

from __future__ import annotations

Expert = tuple[int, int]
# The call of the next use and its place there; (inf, -time of the last use) if there is none.
Next = tuple[float, int]


class Twin:
    """What every twin is told and asked; `capacity` is how many experts the bank holds.

    step_of: the step of every call of the trace. number: the call, layer and tokens: its own. reference: of it, if each
        is a use. ahead: while a prediction is served, the call after which it was made.
    """

    bypass = False
    step_of: list[int]
    number: int
    layer: int
    tokens: int
    reference: int | None = None
    ahead: int | None = None

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    def call(self, step: int) -> None:
        """A routed call of this step begins."""

    def missed(self, expert: Expert, now: int) -> None:
        """The expert was requested and is not there; nothing was evicted for it yet."""

    def admits(self, expert: Expert, now: int) -> bool:
        """Whether to install a missing expert at all."""
        return True

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        """A hit."""

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        """A miss that was put into a slot."""

    def evicted(self, slot: int, expert: Expert) -> None:
        """The expert left the slot."""

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        """The slot to give up, of those that may be, which come in ascending order of slots."""
        raise NotImplementedError

    def declines(self, slot: int, coming: Next) -> bool:
        """Whether to serve a miss without installing it rather than give up the victim in `slot`."""
        return False
