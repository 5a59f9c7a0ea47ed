"""Parts of a bank that a policy gives different rules."""

from __future__ import annotations

from flashmoe_sim.errors import BadInput


def slots_of(share: float, capacity: int) -> int:
    """The slots of a region: its share rounded down, but one at least, and one less than all where there are two."""
    return max(min(int(share * capacity), capacity - 1), 1)


def check_share(policy: str, name: str, share: float) -> None:
    """Raises BadInput for what is not a share of a bank."""
    if not 0 < share < 1:
        raise BadInput(f"policy {policy}: {name}={share} is not a share of the bank, between 0 and 1")
