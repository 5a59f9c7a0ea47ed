"""Execution models: in which order a system reads, uploads and computes the experts of a routed call."""

from __future__ import annotations

from dataclasses import dataclass

from flashmoe_sim.io.errors import unknown_name

# How the experts of a routed call are served; the functions of calls.py.
RESIDENT, ONE_BY_ONE, BY_FAMILY, TOGETHER, AS_THEY_ARRIVE, OVERLAPPED, TWO_LANES, COPIED_BATCHES, REBUILT = range(9)
# What becomes of experts read ahead: nothing; the next call waits for them; read and uploaded, or only uploaded, beside
# the calls that follow.
NEVER_AHEAD, AWAITED, IN_BACKGROUND, UPLOADED_IN_BACKGROUND = range(4)


@dataclass(frozen=True)
class ExecutionModel:
    """One order of events.

    meaning: one sentence. describes: the system that works this way.
    serve: how the experts of a call are served. ahead: what becomes of experts read ahead.
    min_parallel: requests of a call from which its two lanes run side by side (`hot-cold`).
    copy_from_tokens: tokens of a call from which the experts it misses are copied to the GPU (`prefill-copy`).
    has_bank: whether what is read goes on into a slot; otherwise it is computed where it was read to.
    """

    name: str
    meaning: str
    describes: str
    serve: int
    ahead: int
    min_parallel: int = 2
    copy_from_tokens: int = 32
    has_bank: bool = True

    @property
    def reads(self) -> bool:
        """Whether a miss may be read; with every expert resident there is none."""
        return self.serve != RESIDENT

    @property
    def in_place(self) -> bool:
        """Whether misses that RAM holds are used where they lie, so that only the others are read, from storage."""
        return self.serve in (TWO_LANES, COPIED_BATCHES)


_MODELS = (
    ExecutionModel(
        "resident",
        "Every expert is where it is computed; nothing is read, and nothing is read ahead.",
        "any system whose memory holds the whole model",
        RESIDENT,
        NEVER_AHEAD,
    ),
    ExecutionModel(
        "sync-install",
        "Each miss is read, uploaded and installed before the next one is read; then all experts are computed.",
        "engines that read with one thread",
        ONE_BY_ONE,
        AWAITED,
    ),
    ExecutionModel(
        "split-install",
        "Each miss in turn, one tensor family after another: its chunks are read at once, then uploaded; then all "
        "experts are computed.",
        "the patched llama.cpp runtime by default",
        BY_FAMILY,
        AWAITED,
    ),
    ExecutionModel(
        "parallel-install",
        "All misses are read at once over the lanes, uploaded and installed in turn; then all experts are computed.",
        "the patched llama.cpp runtime with parallel slot reads",
        TOGETHER,
        AWAITED,
    ),
    ExecutionModel(
        "async-upload",
        "As parallel-install, but each chunk is uploaded as soon as it has been read.",
        "the patched llama.cpp runtime with parallel slot reads and an io-split of 1",
        AS_THEY_ARRIVE,
        AWAITED,
    ),
    ExecutionModel(
        "overlap-prefetch",
        "Hits are computed while misses are read, misses as they arrive; experts are read ahead behind demand reads.",
        "streaming engines with predictions and a queue of reads by priority",
        OVERLAPPED,
        IN_BACKGROUND,
    ),
    ExecutionModel(
        "hot-cold",
        "The GPU computes hits while the CPU computes misses in RAM, and the call waits for the slower lane.",
        "forks of llama.cpp with a hot set on the GPU: a tumbling window, or a profile",
        TWO_LANES,
        UPLOADED_IN_BACKGROUND,
    ),
    ExecutionModel(
        "prefill-copy",
        "Batches of many tokens copy missing experts to the GPU; smaller calls compute them in RAM after the hits.",
        "llama.cpp with experts placed on the CPU",
        COPIED_BATCHES,
        UPLOADED_IN_BACKGROUND,
    ),
    ExecutionModel(
        "page-cache",
        "No bank: every expert of every call is read at once over the lanes, from the page cache where it is there.",
        "flash-moe, whose only tier is the page cache",
        TOGETHER,
        AWAITED,
        has_bank=False,
    ),
    ExecutionModel(
        "k-materialize",
        "As sync-install, but every expert of every call, hit or miss, is copied into fresh tensors.",
        "the patched llama.cpp runtime's diagnostic mode without a stable bank",
        REBUILT,
        AWAITED,
    ),
)
EXECUTION_MODELS: dict[str, ExecutionModel] = {model.name: model for model in _MODELS}


def parse_execution(name: str) -> ExecutionModel:
    """The execution model of this name; raises BadInput for one that there is not."""
    if name not in EXECUTION_MODELS:
        raise unknown_name("execution model", name, EXECUTION_MODELS)
    return EXECUTION_MODELS[name]
