"""The traces that ship with the program."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flashmoe_sim.io.errors import Malformed, Missing, did_you_mean

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class BundledTrace:
    """A trace of the catalogue.

    model: a manifest or the name of a model; None if the trace itself records expert sizes. dense_bytes: what a
    token reads outside the routed experts; None if the trace or the model records it. experts: of the largest layer.
    """

    name: str
    path: Path
    model: str | None
    what: str
    origin: str
    licence: str
    dense_bytes: int | None
    tokens: int
    layers: int
    experts: int
    top_k: int


def bundled_folder() -> Path:
    """The folder with `traces/`, `notebooks/` and the recorded runs in `data/`: in the package, or the checkout."""
    return next(place for place in (_PACKAGE / "_bundled", _PACKAGE.parent) if place.is_dir())


@cache
def catalog() -> dict[str, BundledTrace]:
    """The bundled traces by name; the first is the default."""
    root = bundled_folder()
    entries = tomllib.loads((root / "traces" / "catalog.toml").read_text("utf-8"))
    found = {}
    for name, entry in entries.items():
        model = entry.get("model")
        if model is not None and (root / model).exists():
            model = str(root / model)
        found[name] = BundledTrace(
            name,
            root / entry["file"],
            model,
            entry["what"],
            entry["origin"],
            entry["licence"],
            entry.get("dense_bytes"),
            *(entry[name] for name in ("tokens", "layers", "experts", "top_k")),
        )
    return found


def find_trace(trace: str | Path) -> tuple[Path, BundledTrace | None]:
    """The trace's file: a path, stdin for `-`, or a bundled trace's file with its catalogue entry.

    Raises BadInput for a bare name that is neither, and for an empty one.
    """
    if not str(trace):
        raise Malformed("an empty TRACE; give a file, or a name from `sim trace catalog`; is a shell variable empty?")
    if str(trace) == "-":
        return Path("/dev/stdin"), None
    path = Path(trace)
    if re.fullmatch(r"[\w.-]+", str(trace)) is None or os.path.lexists(path):
        return path, None
    known = catalog()
    if str(trace) not in known:
        meant = did_you_mean(str(trace), [*known, *_files_here()])
        raise Missing(f"{trace}: no such file, nor a bundled trace; {meant}bundled traces: {', '.join(known)}")
    return known[str(trace)].path, known[str(trace)]


def _files_here() -> list[str]:
    try:
        return sorted(os.listdir())
    except OSError:  # a folder that is gone, or may not be listed
        return []
