"""The lines that say why a run failed."""

from __future__ import annotations

import re

from native_bridge.engines.flashmoe.log.text import bare
from native_bridge.engines.run_log import Exhausted, Overflow

# Lines that only the runtime can have written. The model's text may precede them.
_CERTAIN = re.compile(
    r"graph_compute: Flash-MoE graph compute failed: (.+)"
    r"|model_load: error loading model: (.+)"
    r"|init_from_model: failed to initialize the context: (.+)"
    r"|common_init_result: (Flash-MoE sidecar runs with GPU offload must keep --fit on .+)"
    r"|(GGML_ASSERT\(.+\) failed)"
    r"|((?:CUDA|ROCm) error: .+)"
    r"|  what\(\):  (.+)"
)
# Lines that the model may also have written.
_COMPLAINT = re.compile(r"[Ee]rror: (.+)|(Failed to load the model)|(error while handling argument .+)")
# As it is said, and as later builds say it.
_OF_A_CALL = (
    r"slot-bank overflow in layer (?P<layer>\d{1,15}): need more than (?P<slots>\d{1,15}) "
    r"|slot-bank overflow in layer (?P<layer_1>\d{1,15}): need at least \d+ slots for this routed batch "
    r"\(configured (?P<slots_1>\d{1,15}),"
)
_OVERFLOW = re.compile(
    rf"{_OF_A_CALL}"
    r"|needs more than (?P<slots_2>\d{1,15}) slots in layer (?P<layer_2>\d{1,15})"
    r"|needs \d+ slots in layer (?P<layer_3>\d{1,15}), but only (?P<slots_3>\d{1,15}) are configured"
)
_SAID = re.compile(r"error|fail|throw|assert|abort|exception|overflow|invalid|exhausted|mismatch", re.IGNORECASE)
_EXHAUSTED = re.compile(r"oracle trace exhausted at layer (\d{1,15}) after (\d{1,15}) routed calls")


def failure_of(line: str) -> tuple[str | None, bool]:
    """What went wrong, and whether only the runtime can have written it; None for any other line."""
    if found := _CERTAIN.search(line):
        return next(group for group in found.groups() if group), True
    if found := _COMPLAINT.match(line):
        return next(group for group in found.groups() if group), False
    return None, False


def overflow_of(failure: str, *, of_a_call: bool = False) -> Overflow | None:
    """Which layer's bank was too small, if the failure says so.

    of_a_call: only for a routed call, not for the replay of a trace.
    """
    found = re.search(_OF_A_CALL if of_a_call else _OVERFLOW, failure)
    if found is None:
        return None
    named = {name.partition("_")[0]: int(value) for name, value in found.groupdict().items() if value is not None}
    return Overflow(**named)


def exhausted_of(failure: str) -> Exhausted | None:
    """Where the trace of a replay ended, if the failure says so."""
    found = _EXHAUSTED.search(failure)
    return Exhausted(int(found[1]), int(found[2])) if found else None


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
