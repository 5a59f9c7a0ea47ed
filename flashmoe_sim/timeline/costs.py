"""The costs of all work on one machine: the numbers that the timeline adds up."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Costs:
    """Seconds of each kind of work, by row: the place of a layer in `RoutingTrace.layers`.

    dense_s: f64 [rows], everything in a routed call but its experts and attention to earlier tokens, one token, on the
        computing unit. layer_s: of it beside that, however many tokens the call has.
    attention_s, attention_token_s: reading the keys and values of earlier tokens, once in a routed call; and computing
        with them, for each token of it, if that takes longer. Equal in all rows.
    expert_s: f64 [rows], one expert, one token, on the GPU (or on the CPU if there is no GPU).
    cold_expert_s: f64 [rows], one expert, one token, on the CPU lane of `hot-cold` and `prefill-copy`.
    dense_knee_tokens, knee_tokens, cold_knee_tokens: the largest batch, in tokens, that takes no longer than one token,
        for each of these three. added_from: tokens of a call from which an expert's arithmetic comes after it is read,
        and is padded by a quarter of the call's tokens, or by padded_tokens if that is less.
    chunks: i32 [rows], reads per expert, at least 1.
    chunk_s: f64 [rows, lanes], service time of one read from storage with 1, 2, … `lanes` reads in flight.
    warm_chunk_s: f64 [rows, lanes], the same from the page cache; 0 if an expert in RAM is used in place.
    fill_s: f64 [rows], how much longer a read takes if it fills a slot for the first time.
    upload_s: f64 [rows], copying one expert over the link; 0 if there is no link.
    memory_s: f64 [rows], how much reading an expert's bytes slows computing at the same time; 0 if it does not.
    family_chunks: i32 [rows, families], reads of each tensor family of an expert, which add up to `chunks`; 0 for a
        family that a layer does not have.
    family_chunk_s, family_warm_chunk_s: f64 [rows, families, lanes]; family_fill_s, family_upload_s: f64 [rows,
        families]; like `chunk_s`, `warm_chunk_s`, `fill_s` and `upload_s`, for one family.
    call_s, hit_call_s: the host thread, per routed call with and without a miss. install_s: per install.
    resume_s: before computing, per routed call that waited for reads.
    merge_s: joining the two lanes of `hot-cold`.
    step_s: once per step, after its last call (output layer, sampling). draft_s: then, for each token that was drafted.
    verify_call_s: more in a routed call that verifies drafted tokens. verify_times: how many times as long an expert
        takes in such a call.
    """

    dense_s: NDArray[np.float64]
    expert_s: NDArray[np.float64]
    cold_expert_s: NDArray[np.float64]
    dense_knee_tokens: float
    knee_tokens: float
    cold_knee_tokens: float
    added_from: int
    padded_tokens: float
    chunks: NDArray[np.int32]
    chunk_s: NDArray[np.float64]
    warm_chunk_s: NDArray[np.float64]
    fill_s: NDArray[np.float64]
    upload_s: NDArray[np.float64]
    memory_s: NDArray[np.float64]
    family_chunks: NDArray[np.int32]
    family_chunk_s: NDArray[np.float64]
    family_warm_chunk_s: NDArray[np.float64]
    family_fill_s: NDArray[np.float64]
    family_upload_s: NDArray[np.float64]
    attention_s: float
    attention_token_s: float
    call_s: float
    hit_call_s: float
    install_s: float
    resume_s: float
    merge_s: float
    step_s: float
    layer_s: float = 0.0
    draft_s: float = 0.0
    verify_call_s: float = 0.0
    verify_times: float = 1.0

    def slower(self, times: float) -> Costs:
        """All work, taking so many times as long."""
        if times == 1.0:
            return self
        return replace(
            self, **{item.name: times * getattr(self, item.name) for item in fields(self) if item.name.endswith("_s")}
        )

    @cached_property
    def content(self) -> bytes:
        """All numbers as bytes, equal for costs of the same model that are equal."""
        return b"".join(np.asarray(getattr(self, item.name)).tobytes() for item in fields(self))
