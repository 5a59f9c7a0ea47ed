"""The engines that the bridge knows."""

from __future__ import annotations

from flashmoe_sim.io.errors import BadInput
from native_bridge.engines.base import Engine, Runtime
from native_bridge.engines.flashmoe.engine import FlashMoe

ENGINES: dict[str, Engine] = {
    "flashmoe": FlashMoe(),
}
UNNAMED = "flashmoe"  # the engine of a run.json that names none


def find_runtime(given: str | None, *, ready: bool = True) -> Runtime:
    """The program given, else the one that is installed, as the first engine that knows it describes it.

    ready: only one that can make runs. Raises BadInput, as the first engine says it, if no engine knows it.
    """
    refused = []
    for engine in ENGINES.values():
        try:
            runtime = engine.describe(engine.find(given))
            if ready:
                engine.check_runtime(runtime)
        except BadInput as error:
            refused.append(error)
        else:
            return runtime
    raise refused[0]
