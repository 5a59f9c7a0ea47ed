"""What became of a run: the line that says why it failed, from how it ended and what it printed."""

from __future__ import annotations

import re
import signal

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, shortened
from flashmoe_sim.machines.run_log import exhausted_of, parse_log
from flashmoe_sim.machines.run_log.failure import failure_of
from flashmoe_sim.machines.run_log.text import bare
from flashmoe_sim.machines.runs import MAX_BYTES, bypass_of
from native_bridge.modes import TRACED
from native_bridge.process import KEPT_BYTES, Finished
from native_bridge.request import RunRequest

SHOWN = 200

_OVERFLOW = re.compile(r"slot-bank overflow in layer (\d+): need more than (\d+)")
_SAID = re.compile(r"error|fail|throw|assert|abort|exception|overflow|invalid|exhausted|mismatch", re.IGNORECASE)
ROUTED_CALLS = re.compile(r"^log_runtime_summary: Flash-MoE routed src=\S+ calls=(\d+) ", re.MULTILINE)


def failure(
    request: RunRequest, finished: Finished, log: str, *, calls: int | None, model: ModelGeometry
) -> str | None:
    """Why the run is of no use, or None where it went well.

    calls: routed calls that its trace holds whole, None where it wrote none.
    """
    if finished.timed_out:
        return f"it did not end within {finished.seconds:.0f} s and was ended; {_last(log)}"
    if finished.flooded:
        return f"it printed more than {MAX_BYTES >> 20} MiB and was ended; log.txt has the first {KEPT_BYTES >> 20} MiB"
    if found := _OVERFLOW.search(log):
        return _overflow(request, int(found[1]), int(found[2]), calls, model)
    if ended := exhausted_of(log):
        return (
            f"the trace that it replays ends after {ended.calls} routed calls, and the text went on; replay a run with "
            "as many tokens"
        )
    if finished.code < 0:
        return f"it was ended by {_signal(-finished.code)}; {_last(log)}"
    if not log.strip():
        return f"it printed nothing and ended with code {finished.code}; is it a llama-cli?"
    if finished.code != 0:
        return f"it ended with code {finished.code}; {_last(log)}"
    try:
        parse_log(log, mode=request.mode, where="log.txt", routes=not bypass_of(request.extra))
    except BadInput as error:
        if said := _said(log):
            return f"it said: {said}"
        return f"its log is not one that is known, is it of another version? {error}"
    if request.mode in TRACED and (summary := ROUTED_CALLS.findall(log)) and int(summary[-1]) != calls:
        return f"its trace has {calls or 0} of {summary[-1]} routed calls; is the disk full? free it and run again"
    return None


def _overflow(request: RunRequest, layer: int, bank: int, calls: int | None, model: ModelGeometry) -> str:
    """The call that failed is not in the trace, so that its union is only known to be larger than the bank."""
    top_k = request.top_k or model.top_k
    experts = model.layers[layer].n_experts if layer in model.layers else bank
    enough = min(experts, request.ubatch * top_k)
    where = "" if calls is None else f" at call {calls}"
    smaller = (
        f", a smaller --ubatch (at most {max(1, bank // top_k)} always fits)" if top_k and request.ubatch > 1 else ""
    )
    return (
        f"the bank is too small: layer {layer} needs more than {bank} slots{where}, for {request.ubatch} tokens of "
        f"{top_k} experts each; --bank {enough} always does{smaller}"
    )


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


def _last(log: str) -> str:
    """What it said of an error, else its last line."""
    if said := _said(log):
        return f"it said: {said}"
    lines = [line for line in log.splitlines() if line.strip()]
    return f"its last line: {_shown(lines[-1])}" if lines else "it printed nothing"


def _said(log: str) -> str:
    """The first error that only the runtime can have written, else the first line that speaks of one."""
    lines = log.splitlines()
    certain = (line for line in lines if failure_of(bare(line))[1])
    spoken = (line for line in lines if _SAID.search(line) and not _is_something_else(line))
    return next((_shown(line) for found in (certain, spoken) for line in found), "")


def _is_something_else(line: str) -> bool:
    """A setting, the prompt, the model's metadata, a counter, or the stack of a debugger that the crash started."""
    other = ("log_runtime_summary", "llama_model_loader: - kv", "print_info: ", "ptrace")
    return line.startswith(("  ", ">", "#")) or any(name in line for name in other)


def _shown(line: str) -> str:
    clean = " ".join("".join(letter if letter.isprintable() else " " for letter in line).split())
    return shortened(clean, SHOWN)
