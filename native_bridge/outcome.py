"""The outcome of a run: why it failed, from how it ended and what it printed."""

from __future__ import annotations

import signal

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, shortened
from native_bridge.engines.base import Engine, RunRequest
from native_bridge.engines.read import MAX_BYTES
from native_bridge.process import KEPT_BYTES, Finished

SHOWN = 200


def failure(
    engine: Engine, request: RunRequest, finished: Finished, log: str, *, calls: int | None, model: ModelGeometry
) -> str | None:
    """Why the run is unusable, or None if it went well.

    calls: complete routed calls in its trace, None if it wrote none.
    """
    if finished.timed_out:
        return f"stopped after {finished.seconds:.0f} s, its time limit; {_last(engine, log)}"
    if finished.flooded:
        return f"it printed more than {MAX_BYTES >> 20} MiB and was ended; log.txt has the first {KEPT_BYTES >> 20} MiB"
    if refused := engine.refusal(request, log, calls=calls, model=model):
        return refused
    if finished.code < 0:
        return f"it was ended by {_signal(-finished.code)}; {_last(engine, log)}"
    if not log.strip():
        return f"it printed nothing and ended with code {finished.code}; is it a llama-cli?"
    if finished.code != 0:
        return f"it ended with code {finished.code}; {_last(engine, log)}"
    try:
        read = engine.read_log(log, mode=request.mode, where="log.txt", extra=request.extra)
    except BadInput as error:
        if complaint := engine.complaint(log):
            return f"it said: {_shown(complaint)}"
        return f"its log is unknown; is it of another version of the engine? {error}"
    counted = None if read.routed is None else read.routed.calls
    if engine.modes[request.mode].traced and counted is not None and counted != calls:
        return f"its trace has {calls or 0} of {counted} routed calls; the disk may be full: free space and run again"
    return None


def _signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    hints = {
        "SIGILL": " (an instruction that this processor does not have: see `sim bridge doctor`)",
        "SIGKILL": " (out of memory?)",
        "SIGXFSZ": " (a file grew over its limit)",
    }
    return f"{name}{hints.get(name, '')}"


def _last(engine: Engine, log: str) -> str:
    """Its error message, else its last line."""
    if complaint := engine.complaint(log):
        return f"it said: {_shown(complaint)}"
    lines = [line for line in log.splitlines() if line.strip()]
    return f"its last line: {_shown(lines[-1])}" if lines else "it printed nothing"


def _shown(line: str) -> str:
    clean = " ".join("".join(letter if letter.isprintable() else " " for letter in line).split())
    return shortened(clean, SHOWN)
