"""The page cache before a run: warm, cold, or unchanged; and the proof that cold was cold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flashmoe_sim.geometry.gguf import read_files
from flashmoe_sim.geometry.manifest import repacked_files
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import TooLarge, Unusable
from flashmoe_sim.io.sizes import size
from native_bridge import page_cache
from native_bridge.engines.base import Engine, Mode, RunRequest
from native_bridge.process import Finished

STATES = ("as-is", "warm", "cold")
PROGRAM_BYTES = 450 << 20  # for the program, its graph and a short context, as in the recorded cold runs
WARM_SHARE, COLD_SHARE, FROM_DISK = 0.99, 0.01, 0.5


class Cache:
    """The preparation of the page cache before a run, and its findings.

    state: warm (the source files are read first), cold (they are dropped, and the run is confined to the memory it
    needs, if the system allows it) or as-is.
    """

    def __init__(self, state: str) -> None:
        self.state = state
        self.found: dict[str, Any] = {}

    @contextmanager
    def before(
        self, request: RunRequest, mode: Mode, geometry: ModelGeometry, *, model: Path, sidecar: Path | None
    ) -> Iterator[Path | None]:
        """Prepare the cache; return the cgroup for the run, or None. mode: the request's.

        Raises BadInput if the requested state is impossible, since the run would silently be a different one.
        """
        if self.state == "as-is":
            yield None
            return
        files = source_files(mode, model=model, sidecar=sidecar)
        total = page_cache.total_bytes(files)
        self.found["source_bytes"] = total
        if self.state == "warm":
            page_cache.warm(files)
        elif self.state == "cold":
            page_cache.drop(files)
        self.found["resident_before"] = share = page_cache.resident_bytes(files) / max(1, total)
        if self.state == "warm" and share < WARM_SHARE:
            raise TooLarge(
                f"--cache warm: {share:.0%} of {size(total)} are in the page cache after reading them; "
                "free memory, or give --cache as-is"
            )
        if self.state == "cold" and share > COLD_SHARE:
            raise Unusable(
                f"--cache cold: {share:.0%} of {size(total)} stay in the page cache; end what has the files open, and "
                "own them (the system does not say so of others' files)"
            )
        if self.state != "cold":
            yield None
            return
        whole = model_files(model)
        uncached = max(0, page_cache.total_bytes(whole) - page_cache.resident_bytes(whole))
        self.found["dense_bytes_uncached"] = min(geometry.dense_bytes or 0, uncached) if mode.sidecar else 0
        limit = PROGRAM_BYTES + (geometry.dense_bytes or 0)
        limit += geometry.bank_bytes(request.bank) if mode.sidecar else geometry.routed_bytes
        limit += geometry.routed_bytes if mode.kind == "copied" else 0
        with page_cache.confined(limit) as group:
            self.found["confined_to_bytes"] = limit if group is not None else None
            yield group

    def after(
        self, engine: Engine, request: RunRequest, geometry: ModelGeometry, finished: Finished, log: str
    ) -> str | None:
        """Why a run that should be cold was not, or None."""
        if self.state != "cold":
            return None
        wanted = self.found["source_bytes"]
        if engine.modes[request.mode].kind in ("streamed", "all-hit", "prefetched"):
            wanted = _installs(engine, request, log) * geometry.bank_bytes(1) // len(geometry.layers)
        read = max(0, finished.read_bytes - self.found["dense_bytes_uncached"])  # the model was not dropped
        share = read / wanted if wanted else 0.0
        self.found |= {"wanted_bytes": wanted, "from_disk": round(share, 3)}
        if share >= FROM_DISK:
            return None
        self.found["not_cold"] = True
        why = (
            "the page cache refilled: this system lets us make no cgroup to confine it"
            if self.found["confined_to_bytes"] is None
            else f"the page cache had the rest, within the {size(self.found['confined_to_bytes'])} of its cgroup"
        )
        return f"not cold: {share:.0%} of the {size(wanted)} it read came from the disk; {why}; take a larger model"

    def facts(self) -> dict[str, Any]:
        """For run.json."""
        return {"state": self.state, **self.found}


def _installs(engine: Engine, request: RunRequest, log: str) -> int:
    """Experts that were read from the sidecar: before the run, ahead and on demand."""
    read = engine.read_log(log, mode=request.mode, where=request.mode, extra=request.extra)
    routed = read.routed.misses if read.routed is not None else 0
    return routed + read.prefetched + (read.prime.installs if read.prime is not None else 0)


def source_files(mode: Mode, *, model: Path, sidecar: Path | None) -> list[Path]:
    """The files from which experts are read: the sidecar's, or the model's if all are resident without a sidecar."""
    if not mode.sidecar or sidecar is None:
        return model_files(model)
    return repacked_files(sidecar)


def model_files(model: Path) -> list[Path]:
    """The files of a model, given any one of them; the runtime is given the first."""
    return [file.path for file in read_files(model)]
