"""The traces that ship with the program."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class BundledTrace:
    """A trace of the catalogue.

    model: a manifest or the name of a model; None where the trace itself tells what an expert costs.
    """

    name: str
    path: Path
    model: str | None
    what: str
    origin: str
    licence: str


@cache
def catalog() -> dict[str, BundledTrace]:
    """The bundled traces by name; the first is the default."""
    folder = next(place for place in (_PACKAGE / "_bundled", _PACKAGE.parent / "traces") if place.is_dir())
    entries = tomllib.loads((folder / "catalog.toml").read_text("utf-8"))
    found = {}
    for name, entry in entries.items():
        model = entry.get("model")
        if model is not None and (folder / model).exists():
            model = str(folder / model)
        found[name] = BundledTrace(
            name, folder / entry["file"], model, entry["what"], entry["origin"], entry["licence"]
        )
    return found
