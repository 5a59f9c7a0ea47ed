"""Recorded steps in the order of the calls, also of a file that holds several recordings one after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.trace.lines import counted


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
