"""Estimates on which seconds depend: one table, `estimates.toml`, with where each number is from and how it was set."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

SETS = ("rows", "presets", "measured", "source", "assumed")  # the head of the table explains them


@dataclass(frozen=True, kw_only=True)
class Estimated:
    """A number that nobody knows exactly.

    lo, hi: the least and the most that are likely; the value itself if nothing says how far it may be off. set: how,
    of SETS. cases: what it is taken from, in the words of a machine's file, if these are not the source's. condition:
    under which it holds.
    """

    value: float
    lo: float
    hi: float
    unit: str
    source: str
    set: str
    cases: str = ""
    condition: str = ""

    @property
    def ends(self) -> tuple[float, float, float]:
        """lo, value and hi."""
        return self.lo, self.value, self.hi


KEYS = frozenset(item.name for item in fields(Estimated))


def estimate(name: str, key: str | None = None) -> Estimated:
    """An entry by its name, such as `gpu.knee_tokens`. key: in a table by key; an unknown one has the entry `other`."""
    known = _table()
    return known[name] if key is None else known.get(f"{name}.{key}") or known[f"{name}.other"]


@cache
def estimates(name: str) -> Mapping[str, Estimated]:
    """The entries of a table by their keys, in its order."""
    start = f"{name}."
    return {one.removeprefix(start): entry for one, entry in _table().items() if one.startswith(start)}


@cache
def _table() -> Mapping[str, Estimated]:
    text = resources.files("flashmoe_sim.machines").joinpath("estimates.toml").read_text("utf-8")
    return read_estimates(tomllib.loads(text))


def read_estimates(document: Mapping[str, Any]) -> dict[str, Estimated]:
    """All entries of such a table. Raises ValueError for one that is not as `Estimated` says, with its name."""
    return dict(_entries("", document, {}))


def _entries(name: str, table: Mapping[str, Any], above: Mapping[str, Any]) -> Iterator[tuple[str, Estimated]]:
    """A table has a value, or entries that share its texts; a number alone is an entry's value."""
    if "value" in table:
        yield name, _entry(name, {**above, **table})
        return
    shared = {**above, **{key: one for key, one in table.items() if key in KEYS}}
    for key, one in table.items():
        if key not in KEYS:
            yield from _entries(f"{name}.{key}".lstrip("."), one if isinstance(one, dict) else {"value": one}, shared)


def _entry(name: str, given: dict[str, Any]) -> Estimated:
    try:
        found = Estimated(**{"lo": given["value"], "hi": given["value"], **given})
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    numbers = all(isinstance(end, int | float) for end in found.ends)
    if not numbers or not found.lo <= found.value <= found.hi:
        raise ValueError(f"{name}: {found.ends}; expected lo <= value <= hi")
    if found.set not in SETS:
        raise ValueError(f"{name}: set {found.set!r}; expected one of {', '.join(SETS)}")
    return found
