"""The engines that the bridge knows."""

from __future__ import annotations

from flashmoe_sim.io.errors import BadInput
from native_bridge.engines.base import Engine, Runtime
from native_bridge.engines.flashmoe.engine import FlashMoeEngine
from native_bridge.engines.hotcache.engine import HotCacheEngine

ENGINES: dict[str, Engine] = {
    "flashmoe": FlashMoeEngine(),
    "hot-cache": HotCacheEngine(),
}
UNNAMED = "flashmoe"  # the engine of a run.json that names none


def find_runtime(given: str | None, *, ready: bool = True) -> Runtime:
    """The given program, else the installed one, described by the first engine that can make runs with it.

    ready: accept only an engine that can make runs; else, if none can, use the first that can describe it. Raises the
    first engine's BadInput if no engine knows the program.
    """
    refused: list[BadInput] = []
    described: list[Runtime] = []
    for engine in ENGINES.values():
        try:
            described.append(engine.describe(engine.find(given)))
            engine.check_runtime(described[-1])
        except BadInput as error:
            refused.append(error)
        else:
            return described[-1]
    if described and not ready:
        return described[0]
    raise refused[0]
