"""Made traces that are kept on disk: making one takes longer than all else in an answer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from tempfile import NamedTemporaryFile

import numba
import numpy as np

from flashmoe_sim.cache import cache_root
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth_shape import Shape, assemble

MAKERS = ("synth_like.py", "synth_kernels.py", "synth_shape.py", "counting.py")  # whose code decides what is made
FOLDER = "traces"


def kept(sources: Iterable[Path], shape: Shape, share: float, make: Callable[[], RoutingTrace]) -> RoutingTrace:
    """The trace that `make` makes of these files, for a shape without a prompt; made only if no earlier one is kept.

    share: what else decides it. Another version of its code, numpy or numba makes it again, as does a damaged file. If
    nothing can be written, it is not kept.
    """
    digest = hashlib.sha256(repr((sorted(shape.n_experts.items()), shape.top_k, share)).encode())
    digest.update(f"{np.__version__} {numba.__version__}".encode())
    for maker in MAKERS:
        digest.update(resources.files("flashmoe_sim.trace").joinpath(maker).read_bytes())
    for source in sources:
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    try:
        path = cache_root() / FOLDER / f"{digest.hexdigest()}.npz"
    except RuntimeError:  # there is no home folder
        return make()
    if (found := _read(path, shape)) is None:
        found = make()
        with suppress(OSError):
            _write(path, found)
    return found


def _read(path: Path, shape: Shape) -> RoutingTrace | None:
    """The trace of a file; None if there is none, or it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            expert, notes = stored["expert"], stored["notes"]
            known = hashlib.sha256(expert.tobytes()).hexdigest() == str(stored["digest"])
    except Exception:  # foreign bytes can raise anything
        return None
    if (
        not known
        or expert.dtype != np.int16
        or expert.ndim != 3
        or expert.shape[::2] != (len(shape.n_experts), shape.top_k)
    ):
        return None
    return assemble(shape, list(expert), prompt=0, name="", notes=tuple(map(str, notes)))


def _write(path: Path, trace: RoutingTrace) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    layers = len(trace.layers)
    expert = np.ascontiguousarray(trace.expert.reshape(-1, layers, trace.top_k).swapaxes(0, 1))
    digest = hashlib.sha256(expert.tobytes()).hexdigest()
    with NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            np.savez_compressed(file, expert=expert, notes=np.array(trace.notes), digest=np.array(digest))
            file.close()
            os.replace(file.name, path)
        except BaseException:
            file.close()
            os.unlink(file.name)
            raise
