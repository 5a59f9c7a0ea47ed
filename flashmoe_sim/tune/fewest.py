"""Which machines are at least as good as which others, and the least that suffice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Machine

# Quantities that do not affect decode speed, or are counted with RAM.
LEFT_OUT = ("gpu.knee_tokens", "cpu.knee_tokens", "memory.reserve_gib")


def at_least(machines: Sequence[Machine]) -> NDArray[np.bool_]:
    """[i, j]: whether machine i has no worse quantity than machine j, and the same kinds of parts."""
    values = [_quantities(machine) for machine in machines]
    kinds = [(machine.unified, machine.api, tuple(found)) for machine, found in zip(machines, values, strict=True)]
    kind = np.array([kinds.index(one) for one in kinds])
    result: NDArray[np.bool_] = kind[:, None] == kind[None, :]
    for path in dict.fromkeys(path for found in values for path in found):
        one = np.array([found.get(path, 0.0) for found in values])
        result &= one[:, None] >= one[None, :]
    return result


def _quantities(machine: Machine) -> dict[str, float]:
    """Quantities by path, such that larger is better."""
    found = {
        path: -quantity.value if path.endswith("_us") else quantity.value
        for path, quantity in machine.quantities()
        if path not in LEFT_OUT
    }
    if machine.memory is not None:
        found["memory.ram_gib"] -= machine.memory.reserve_gib.value
    return found


def least(
    better: NDArray[np.bool_],
    enough: Callable[[int], bool],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[int]:
    """The least items that are enough, in their order: none that they are at least as good as is enough. Tests few
    items.

    better: as from `at_least`. Exact if everything at least as good as an item that is enough is also enough.
    """
    left, found = np.ones(len(better), np.bool_), []

    def ask(item: int) -> None:
        if progress is not None:
            progress(int((~left).sum()), len(left))
        if enough(item):
            found.append(item)
            left[better[:, item]] = False
        else:
            left[better[item]] = False

    for best in np.flatnonzero(~(better & ~better.T).any(axis=0)):
        if left[best]:
            ask(int(best))
    while left.any():
        open_ = better & left[:, None] & left[None, :]
        ask(int(np.argmax(np.minimum(open_.sum(axis=0), open_.sum(axis=1)))))
    return [item for item in sorted(found) if not any(better[item, other] and other != item for other in found)]
