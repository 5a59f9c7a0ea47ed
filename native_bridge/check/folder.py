"""Folders of runs for the check: each with its model, and with other runs that complete its information."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.recordings import manifest_of_run
from flashmoe_sim.io.errors import BadInput, Conflict, Malformed, Missing
from native_bridge.cache import STATES
from native_bridge.engines.read import find_run_model, read_run
from native_bridge.engines.runs import Run

CACHE_STATES = ("warm", "cold")


def without_repeat(name: str) -> str:
    """The name that a run shares with its repeats."""
    return re.sub(r"-rep\d+$", "", name)


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A run, and the geometry of its model if known."""

    run: Run
    model: ModelGeometry | None

    @property
    def name(self) -> str:
        return self.run.folder.name

    @property
    def place(self) -> Path:
        return self.run.folder

    @cached_property
    def text(self) -> str | None:
        """The generated text, if it was kept."""
        file = self.place / "text.txt"
        return file.read_bytes().decode("utf-8", "replace") if file.is_file() else None

    @property
    def cache(self) -> str:
        """`warm`, `cold`, `as-is`, or empty if the state of the page cache is unknown: from run.json, else its name."""
        cache = self.run.document.get("cache")
        if isinstance(cache, dict) and cache.get("state") in STATES:
            return str(cache["state"])
        return next((state for state in CACHE_STATES if self.name.startswith(f"{state}-")), "")

    @property
    def routing(self) -> tuple[Any, ...]:
        """What determines the text, and so the routing, beside bank and aliasing: equal values mean equal routing."""
        flags = self.run.engine.routing_flags(self.run)
        return (self.run.document.get("prompt"), *flags, self.run.ubatch, self.run.top_k, self.run.n_predict)

    @property
    def is_repeatable(self) -> bool:
        """Whether the same flags give the same text."""
        return self.run.engine.is_repeatable(self.run)

    @property
    def failure(self) -> str:
        """Why it failed, or empty."""
        code = self.run.document.get("rc")
        return (self.run.log.failure or (f"rc is {code}" if code else "")).removesuffix("; run it again")

    @property
    def unfit(self) -> str:
        """Why its seconds cannot be used, or empty: it failed, was not cold, left out the experts, or is not known."""
        failed = self.run.document.get("failed")
        bypassed = f"{self.run.log.bypass}: no routed expert was computed" if self.run.log.bypass else ""
        return self.failure or (failed if isinstance(failed, str) else bypassed or self.run.log.unknown)


@dataclass
class RunFolders:
    """The given runs, and the runs beside them, which are read only when needed."""

    given: list[RunFolder]
    model: str | None = None
    _beside: dict[Path, list[RunFolder]] = field(default_factory=dict)

    def others(self, of: RunFolder) -> Iterator[RunFolder]:
        """The runs beside a run, then given runs in other folders."""
        parent = of.place.resolve().parent
        if parent not in self._beside:
            self._beside[parent] = list(_readable(parent, self.model))
        yield from (one for one in self._beside[parent] if one.place.resolve() != of.place.resolve())
        yield from (one for one in self.given if one.place.resolve().parent != parent)

    def replayed_by(self, of: RunFolder) -> RunFolder:
        """The run whose trace was replayed.

        Raises BadInput if run.json does not name it, if it is neither beside the run nor given, or has no trace.
        """
        named = of.run.replay_of
        if named is None:
            raise Malformed(
                f"{of.place / 'run.json'}: replay_of is missing: so the trace that {of.name} replayed is unknown"
            )
        found = next((one for one in self.others(of) if one.name == Path(named).name), None)
        if found is None:
            raise Missing(f"{of.place}: replays {named}, which is neither beside it nor given; give its folder, too")
        if found.run.trace is None or found.failure:
            raise Missing(f"{found.place}: failed or has no trace.jsonl.gz, and {of.name} replayed that; put it back")
        return found

    def twin_of(self, of: RunFolder) -> RunFolder | None:
        """A run with a trace that routes the same calls through the same slots; None if there is none."""
        for one in self.others(of):
            same = one.routing == of.routing and one.run.bank == of.run.bank
            whole = one.run.trace is not None and not one.failure
            if same and whole and one.is_repeatable and one.run.log.reads_ahead == of.run.log.reads_ahead:
                return one
        return None


def open_folders(folders: Sequence[Path], *, model: str | None) -> RunFolders:
    """The runs in these folders; a folder without a run.json stands for the runs in it, sorted by name.

    model: of all of them. Raises BadInput for a folder that is missing, has no run, or a run of another model.
    """
    given: dict[Path, RunFolder] = {}
    for folder in folders:
        for place in _expand(folder):
            given.setdefault(place.resolve(), _open(place, model))
    return RunFolders(list(given.values()), model)


def _expand(folder: Path) -> list[Path]:
    if not folder.is_dir() or (folder / "run.json").exists():
        return [folder]
    inside = sorted(path.parent for path in folder.glob("*/run.json"))
    if not inside:
        raise Missing(f"{folder}: no run.json in it, and no folder with one; give the folder of a run, or of several")
    return inside


def _open(place: Path, model: str | None) -> RunFolder:
    run = read_run(place, failed_too=True)
    found = find_run_model([run], model)
    manifest = manifest_of_run(run.folder)
    if model is not None and found is not None and manifest is not None:
        beside = load_model(manifest)
        if beside.layers != found.layers:
            raise Conflict(
                f"{place}: the manifest.json with it is of {beside.name}, not of {model}: bytes or layers differ; "
                "check the runs of each model by themselves"
            )
    return RunFolder(run, found)


def _readable(parent: Path, model: str | None) -> Iterator[RunFolder]:
    """The runs in a folder; anything else is skipped, since nobody named it."""
    for path in sorted(parent.glob("*/run.json")):
        try:
            yield _open(path.parent, model)
        except BadInput:
            continue
