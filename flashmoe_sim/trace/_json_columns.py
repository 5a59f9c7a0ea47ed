"""The columns of a trace that is being read, grown piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace._json_kernels import (
    KEYS,
    LAYER,
    LINE,
    N_EXPERT_USED,
    N_TOKENS,
    PHASE,
    SEQ,
    SEQUENCE,
    SLOTS,
    STEP,
    WEIGHTS,
)
from flashmoe_sim.trace.routing import RoutingTrace, infer_n_experts


def _joined(pieces: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    """All pieces as one array; the pieces are let go."""
    whole = np.concatenate(pieces) if pieces else np.empty(0, dtype)
    pieces.clear()
    return whole


@dataclass
class _Optional:
    """A column that only counts when every call has it."""

    name: str
    key: int
    dtype: type[np.generic]
    calls: int = 0
    pieces: list[NDArray[Any]] = field(default_factory=list)

    def add(self, keys: NDArray[np.int64], values: NDArray[Any] | None, *, calls_before: int) -> None:
        """Take over the values of the calls whose keys are given, unless a call up to here lacked them."""
        having = int(np.count_nonzero(keys >> self.key & 1))
        if values is not None and self.calls == calls_before and having == len(keys):
            self.pieces.append(values.astype(self.dtype))
        else:
            self.pieces.clear()
        self.calls += having


class Columns:
    """Collects the output of the kernels; peak memory is the finished columns plus the largest of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.refs = 0
        self._layer: list[NDArray[np.int16]] = []
        self._n_tokens: list[NDArray[np.int32]] = []
        self._refs_of_call: list[NDArray[np.int32]] = []
        self._expert: list[NDArray[np.int16]] = []
        self._phase: list[NDArray[np.uint8]] = []
        self._phases = 0
        self._slot = _Optional("slots", SLOTS, np.int16)
        self._weight = _Optional("weights", WEIGHTS, np.float32)
        self._sequence = _Optional("sequence", SEQUENCE, np.int32)
        self._step = _Optional("step", STEP, np.int32)
        self._seqs = 0
        self._next_seq = 0
        self._seq_note = ""
        self._least_used, self._most_used = 2**31, 0

    def add(
        self,
        table: NDArray[np.int64],
        *,
        expert: NDArray[np.int16],
        slot: NDArray[np.int16],
        weight: NDArray[np.float32] | None,
    ) -> None:
        """Copy a table of calls (i64 [calls, COLUMNS]) and its references."""
        if not len(table):
            return
        keys = table[:, KEYS]
        used = table[:, N_EXPERT_USED]
        self._follow_seq(table)
        self._layer.append(table[:, LAYER].astype(np.int16))
        self._n_tokens.append(table[:, N_TOKENS].astype(np.int32))
        self._refs_of_call.append((used * table[:, N_TOKENS]).astype(np.int32))
        self._expert.append(expert.copy())
        has_phase = keys >> PHASE & 1
        self._phase.append(np.where(has_phase, table[:, PHASE], 0).astype(np.uint8))
        self._phases += int(has_phase.sum())
        self._slot.add(keys, slot, calls_before=self.calls)
        self._weight.add(keys, weight, calls_before=self.calls)
        self._sequence.add(keys, table[:, SEQUENCE], calls_before=self.calls)
        self._step.add(keys, table[:, STEP], calls_before=self.calls)
        self._least_used = min(self._least_used, int(used.min()))
        self._most_used = max(self._most_used, int(used.max()))
        self.calls += len(table)
        self.refs += len(expert)

    def _follow_seq(self, table: NDArray[np.int64]) -> None:
        """Remember the first place where `seq` is not one more than before, looking only at lines that have it."""
        having = table[table[:, KEYS] >> SEQ & 1 == 1]
        if not len(having) or self._seq_note:
            self._seqs += len(having)
            return
        seq = having[:, SEQ]
        before = np.empty_like(seq)
        before[0] = self._next_seq - 1
        before[1:] = seq[:-1]
        gaps = np.flatnonzero(seq - 1 != before)
        if len(gaps):
            at = int(gaps[0])
            self._seq_note = (
                f"seq has gaps: line {having[at, LINE]} has seq {seq[at]} where {int(before[at]) + 1} was expected"
            )
        self._seqs += len(having)
        self._next_seq = int(seq[-1]) + 1

    def finish(self, *, format: str, name: str, notes: tuple[str, ...]) -> RoutingTrace:
        """The trace; the columns are handed over, so nothing can be added afterwards."""
        optional = (self._slot, self._weight, self._sequence, self._step)
        partial = [column for column in optional if 0 < column.calls < self.calls]
        notes += tuple(f"{item.name} left out: only {item.calls} of {self.calls} calls have it" for item in partial)
        if self._seq_note:
            notes += (self._seq_note,)
        slot, weight, sequence, step = (
            _joined(item.pieces, item.dtype) if item.calls == self.calls else None for item in optional
        )
        expert = _joined(self._expert, np.int16)
        offset = np.zeros(self.calls + 1, np.int64)
        np.cumsum(_joined(self._refs_of_call, np.int32), out=offset[1:])
        layer = _joined(self._layer, np.int16)
        return RoutingTrace(
            layer=layer,
            n_tokens=_joined(self._n_tokens, np.int32),
            offset=offset,
            expert=expert,
            n_experts=infer_n_experts(layer, expert),
            top_k=self._most_used if self._least_used == self._most_used else 0,
            weight=weight,
            slot=slot,
            phase=_joined(self._phase, np.uint8) if self._phases else None,
            sequence=sequence,
            step=step,
            format=format,
            name=name,
            notes=notes,
        )
