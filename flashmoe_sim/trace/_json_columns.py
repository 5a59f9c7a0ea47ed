"""The growing columns of a trace that is being read."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.notes import DROPPED, GAP, Note
from flashmoe_sim.trace import _json_kernels as kernels
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE
from flashmoe_sim.trace.lines import counted
from flashmoe_sim.trace.long_traces import Chunk
from flashmoe_sim.trace.routing import offsets


class StepNumbers:
    """Keeps the numbers of steps as recorded until they start again; from there on, each change is the next step.

    They start again if the step goes back, as in two captures in one file and in requests that count their own steps,
    or if `seq` goes back within a step.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: NDArray[np.int64] | None = None  # call
        self._number = 0  # of its step
        self._restarts = self._first_line = 0
        self._unsorted = ""

    def of(self, calls: NDArray[np.int64], line: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step of each of the next calls, i64 [calls].

        calls: i64 [calls, 4], at least one: step, layer, sequence and seq; -1 for none. line: of each call.
        """
        calls = np.vstack((calls[:1] if self._last is None else self._last, calls))
        (step, layer, sequence, seq), (was_step, was_layer, was_sequence, was_seq) = calls[1:].T, calls[:-1].T
        back = step < was_step
        unsorted = back & (layer > was_layer) & (sequence == was_sequence)
        if unsorted.any() and not self._unsorted:
            at = int(unsorted.argmax())
            self._unsorted = (
                f"{self._path}:{line[at]}: step goes back from {was_step[at]} to {step[at]} while the layer goes on "
                f"from {was_layer[at]} to {layer[at]}; sort the lines by step, then by layer"
            )
        again = back | ((step == was_step) & (seq >= 0) & (seq < was_seq))
        numbers = step.copy()
        if self._restarts or again.any():
            first = 0 if self._restarts else int(again.argmax())
            before = int(numbers[first - 1]) if first else self._number
            numbers[first:] = before + np.cumsum(again[first:] | (step != was_step)[first:])
            self._first_line = self._first_line or int(line[first])
            self._restarts += int(again.sum())
        self._last, self._number = calls[-1], int(numbers[-1])
        return numbers  # type: ignore[no-any-return]

    def notes(self) -> tuple[str, ...]:
        """What was assumed.

        Raises BadInput if a step went back while the layer went on: such lines are in the order of their layers.
        """
        if self._unsorted:
            raise Malformed(self._unsorted)
        if not self._restarts:
            return ()
        return (
            f"steps start again {counted(self._restarts, 'time')}, first in line {self._first_line}: taken as several "
            "recordings or requests, one after another, whose steps are numbered on",
        )


# Kept only if every call has it: the column of a trace, and its key.
OPTIONAL = {"slot": "slots", "weight": "weights", "sequence": "sequence", "step": "step"}


class ParsedCalls(NamedTuple):
    """Calls as the kernels write them: a table (i64 [calls, COLUMNS]) and the references."""

    table: NDArray[np.int64]
    expert: NDArray[np.int16]
    slot: NDArray[np.int16]
    weight: NDArray[np.float32] | None


class Collector:
    """Collects the output of the kernels."""

    def __init__(self, path: Path) -> None:
        self.calls = 0
        self._values: dict[str, array[Any]] = {}
        self._having: Counter[str] = Counter()  # calls with each optional column, or with a phase
        self._layers = np.zeros(ID_MAX + 1, np.bool_)
        self._largest = self._bare = self._next_seq = 0
        self._seq_note = ""
        self._steps = StepNumbers(path)
        self._least_used, self._most_used = 2**31, 0

    def add(self, calls: ParsedCalls) -> None:
        """Copy what the kernels made."""
        table, expert, slot, weight = calls
        if not len(table):
            return
        keys, used, tokens = table[:, kernels.KEYS], table[:, kernels.N_EXPERT_USED], table[:, kernels.N_TOKENS]
        has_phase = keys >> kernels.PHASE & 1
        self._follow_seq(table[keys >> kernels.SEQ & 1 == 1])
        self._extend("layer", table[:, kernels.LAYER])
        self._extend("n_tokens", tokens)
        self._extend("refs_of_call", used * tokens)
        self._extend("expert", expert)
        self._extend("phase", np.where(has_phase, table[:, kernels.PHASE], 0))
        given = {
            "slot": slot,
            "weight": weight,
            "sequence": table[:, kernels.SEQUENCE],
            "step": table[:, kernels.STEP],
        }
        for name, values in given.items():
            having = int((keys >> kernels.KEY_NAMES.index(OPTIONAL[name]) & 1).sum())
            if values is not None and self._having[name] == self.calls and having == len(keys):
                self._extend(name, self._numbered(table) if name == "step" else values)
            else:
                self._values.pop(name, None)
            self._having[name] += having
        self._having["phase"] += int(has_phase.sum())
        self._bare += int(np.count_nonzero(keys & kernels.COUNTS == 0))
        self._layers[table[:, kernels.LAYER]] = True
        self._largest = max(self._largest, int(expert.max(initial=0)))
        self._least_used = min(self._least_used, int(used.min()))
        self._most_used = max(self._most_used, int(used.max()))
        self.calls += len(table)

    @property
    def waiting(self) -> int:
        """Calls that have not been taken yet."""
        return len(self._values.get("layer", ()))

    def _extend(self, name: str, values: NDArray[Any]) -> None:
        dtype = _dtype(name)
        column = self._values.setdefault(name, array(dtype.char))
        column.frombytes(np.ascontiguousarray(values, dtype).view(np.uint8).data)

    def _numbered(self, table: NDArray[np.int64]) -> NDArray[np.int64]:
        names = [kernels.STEP, kernels.LAYER, kernels.SEQUENCE, kernels.SEQ]
        there = table[:, [kernels.KEYS]] >> np.array(names) & 1 == 1
        return self._steps.of(np.where(there, table[:, names], -1), table[:, kernels.LINE])

    def _follow_seq(self, having: NDArray[np.int64]) -> None:
        """Remember the first of the lines with `seq` in which it does not go up by one."""
        if not len(having) or self._seq_note:
            return
        seq = having[:, kernels.SEQ]
        expected = np.append(self._next_seq, seq[:-1] + 1)
        if len(gaps := np.flatnonzero(seq != expected)):
            at = int(gaps[0])
            found = f"line {having[at, kernels.LINE]} has seq {seq[at]} where {expected[at]} was expected"
            self._seq_note = Note(GAP, f"seq has gaps: {found}")
        self._next_seq = int(seq[-1]) + 1

    def forget(self) -> None:
        """Drop the calls so far."""
        self._values.clear()

    def take(self, head: Chunk) -> Chunk:
        """Hand over the calls since the last time, of a trace whose head was read before."""
        arrays = self._take()
        return replace(head, **{name: values for name, values in arrays.items() if getattr(head, name) is not None})

    def finish(self, *, format: str, name: str, notes: tuple[str, ...]) -> Chunk:
        """The calls not taken yet, as a chunk whose other fields hold for all calls so far.

        Raises BadInput for steps that are out of order.
        """
        for column, key in OPTIONAL.items():
            if 0 < (having := self._having[column]) < self.calls:
                notes += (Note(DROPPED, f"{key} left out: only {having} of {self.calls} calls have it"),)
        if self._bare:
            bare = "all" if self._bare == self.calls else f"{self._bare:,} of {self.calls:,}"
            notes += (f"{bare} lines lack n_tokens and n_expert_used: each is read as one token",)
        if self._seq_note:
            notes += (self._seq_note,)
        if self._having["step"] == self.calls:
            notes += self._steps.notes()
        layers = np.flatnonzero(self._layers).tolist()
        return Chunk(
            **self._take(),
            n_experts=dict.fromkeys(layers, 1 << self._largest.bit_length()),
            top_k=self._most_used if self._least_used == self._most_used else 0,
            format=format,
            name=name,
            notes=notes,
            all_layers=tuple(layers),
        )

    def _take(self) -> dict[str, Any]:
        taken, self._values = self._values, {}

        def values(name: str) -> NDArray[Any]:
            return np.frombuffer(taken.get(name, b""), _dtype(name))

        kept = {name: self._having[name] == self.calls for name in OPTIONAL} | {"phase": self._having["phase"] > 0}
        return {
            **{name: values(name) for name in ("layer", "n_tokens", "expert")},
            "offset": offsets(values("refs_of_call")),
            **{name: values(name) if keep else None for name, keep in kept.items()},
        }


def _dtype(name: str) -> np.dtype[Any]:
    bounds = PER_CALL | PER_REFERENCE
    return np.dtype(np.int32 if name == "refs_of_call" else bounds[name].dtype)
