"""Why the runtime ended a run, from its log."""

from __future__ import annotations

import re

from flashmoe_sim.geometry.model import ModelGeometry
from native_bridge.engines.base import RunRequest
from native_bridge.engines.flashmoe.log import exhausted_of, failure_of, overflow_of
from native_bridge.engines.flashmoe.log.text import bare

_SAID = re.compile(r"error|fail|throw|assert|abort|exception|overflow|invalid|exhausted|mismatch", re.IGNORECASE)


def refusal(request: RunRequest, log: str, *, calls: int | None, model: ModelGeometry) -> str | None:
    """Why the runtime ended a run: its bank was too small, or the trace that it replayed too short."""
    if found := overflow_of(log, of_a_call=True):
        return _overflow(request, found.layer, found.slots, calls, model)
    if ended := exhausted_of(log):
        return (
            f"the trace that it replays ends after {ended.calls} routed calls, and the text went on; replay a run with "
            "as many tokens"
        )
    return None


def _overflow(request: RunRequest, layer: int, bank: int, calls: int | None, model: ModelGeometry) -> str:
    """The failed call is not in the trace, so its union is only known to be larger than the bank."""
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


def complaint(log: str) -> str:
    """The first error that only the runtime can have written, else the first line that mentions one."""
    lines = log.splitlines()
    certain = (line for line in lines if failure_of(bare(line))[1])
    spoken = (line for line in lines if _SAID.search(line) and not _is_something_else(line))
    return next((line for found in (certain, spoken) for line in found), "")


def _is_something_else(line: str) -> bool:
    """A setting, the prompt, the model's metadata, a counter, or the stack of a debugger that the crash started."""
    other = ("log_runtime_summary", "llama_model_loader: - kv", "print_info: ", "ptrace")
    return line.startswith(("  ", ">", "#")) or any(name in line for name in other)
