"""Compiling loops in other processes while this one goes on: a first command needs many, of some seconds each."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from typing import Any

import numpy as np

from flashmoe_sim._jit import is_compiled
from flashmoe_sim.timeline.costs import Costs
from flashmoe_sim.timeline.kernel import loop_of
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.work import Work

LEAST = 3  # loops for which it is worth to start a process, which takes as long as compiling half of one
MOST_PROCESSES = 8
POLL_S = 0.02

_children: dict[Any, subprocess.Popen[bytes]] = {}  # by the loop that one compiles


def compile_ahead(models: Iterable[type[ExecutionModel]]) -> None:
    """Start to compile the loops of execution models that no earlier run left, each in one of several processes.

    A process that fails only means that its loops are compiled when they are called. All end with this one.
    """
    missing = {loop_of(model): model for model in models if model.__module__.startswith("flashmoe_sim.")}
    missing = {loop: model for loop, model in missing.items() if not is_compiled(loop) and loop not in _children}
    processes = min(os.cpu_count() or 1, MOST_PROCESSES, len(missing))
    if len(missing) < LEAST or processes < 2:
        return
    for number in range(processes):
        share = dict(list(missing.items())[number::processes])
        names = [f"{model.__module__}:{model.__qualname__}" for model in share.values()]
        with suppress(OSError):
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *names],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            atexit.register(child.terminate)
            _children.update(dict.fromkeys(share, child))


def wait_for(loop: Any) -> None:
    """Wait until another process has compiled a loop, if one does."""
    child = _children.pop(loop, None)
    while child is not None and child.poll() is None and not is_compiled(loop):
        time.sleep(POLL_S)


def main(names: Sequence[str]) -> None:
    """Compile the loops of execution models, each given as `module:class`, by running them on no calls at all."""
    from flashmoe_sim.timeline.run import simulate

    work = Work(**{item.name: np.zeros(0, np.int32) for item in fields(Work)})
    for name in names:
        module, _, model = name.partition(":")
        simulate(work, _no_costs(), getattr(import_module(module), model)())


def _no_costs() -> Costs:
    """Of one row, one lane and one tensor family."""
    shapes = {"chunks": (1,), "chunk_s": (1, 1), "warm_chunk_s": (1, 1), "family_chunks": (1, 1)}
    shapes |= {"family_chunk_s": (1, 1, 1), "family_warm_chunk_s": (1, 1, 1)}
    shapes |= {"family_fill_s": (1, 1), "family_upload_s": (1, 1)}
    return Costs(
        **{
            item.name: np.ones(shapes.get(item.name, (1,)), np.int32 if "chunks" in item.name else np.float64)
            if "NDArray" in str(item.type)
            else 1.0
            for item in fields(Costs)
        }
    )


if __name__ == "__main__":
    main(sys.argv[1:])
