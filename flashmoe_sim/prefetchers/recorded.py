"""Predictions that were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from flashmoe_sim.content import hash_of
from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, shown
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.prefetchers.base import Predictions, Prefetcher, rows_of
from flashmoe_sim.trace.calls import ID_MAX, check_whole
from flashmoe_sim.trace.lines import numbered_lines
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import open_bytes

LONGEST_LINE = 64 << 20
MOST_STEP = (1 << 31) - 1
MOST_AHEAD = 1 << 16
EXAMPLE = '{"step": 7, "layer": 3, "ahead": {"1": [5, 9]}}'


class Line(NamedTuple):
    """What was predicted at one time.

    step, layer: of the routed call after which it was predicted; None for before the first call.
    ahead: the experts predicted for a later call, keyed by how many calls later it is.
    requested: the experts of the call itself, if the line has them.
    """

    number: int
    step: int | None
    layer: int | None
    ahead: dict[int, list[int]]
    requested: list[int] | None


@dataclass(frozen=True)
class Recorded(Prefetcher):
    """Replay the predictions that a file holds, whoever made them.

    file: lines of JSON, plain or compressed, as `sim trace capture --lookahead` and other programs write them: step and
        layer of a routed call, and in `ahead` the experts predicted right after it, the most urgent first, for the call
        that follows it (`"1"`), the one after that (`"2"`), and so on. A line without step and layer was predicted
        before the first call. Where a line also has `experts`, the trace must request the same ones in that call. The
        path must not contain ':' or ','.
    calls: use only what was predicted this many routed calls ahead; 0: everything.
    width: experts of a prediction that are used, for each token of its call; 0: all.
    """

    name: ClassVar[str] = "recorded"
    source: ClassVar[str] = "any predictor; with later layers' gates on the state of now: Fate (arXiv 2502.12224)"
    limits: ClassVar[Limits] = {"calls": (0, INT32), "width": (0, INT32)}
    lead: ClassVar[str] = "as recorded"

    file: str = ""
    calls: int = 0
    width: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.file:
            raise Incomplete(f"predictor recorded: give file=FILE, with lines such as {EXAMPLE}")
        if not self._lines:  # read before anything runs
            raise Malformed(f"{self.file}: holds no predictions; expected lines such as {EXAMPLE}")

    @cached_property
    def _lines(self) -> list[Line]:
        return list(_read(Path(self.file)))

    @cached_property
    def _content(self) -> str:
        return hash_of([line[1:4] for line in self._lines])

    def contents(self) -> dict[str, Any]:
        return {"file": self._content}

    def predict(self, trace: RoutingTrace) -> Predictions:
        """Raises BadInput if the predictions are not for this trace; those for calls after its last are left out."""
        find = _Calls(trace)
        made: list[tuple[int, int, list[int]]] = []
        for line in self._lines:
            after = find(self.file, line)
            if after is None:
                continue
            for calls, experts in line.ahead.items():
                target = after + calls
                if target < trace.calls and self.calls in (0, calls):
                    most = self.width * max(int(trace.n_tokens[target]), 1)
                    made.append((after, target, experts[: most or None]))
        if not find.found and any(line.step is not None for line in self._lines):
            raise Conflict(f"{self.file}: predicts for no call of {trace.name}; give the predictions of its run")
        made.sort(key=lambda one: one[:2])
        call = np.array([target for _, target, _ in made], np.int64)
        offset = np.zeros(len(made) + 1, np.int64)
        np.cumsum([len(experts) for _, _, experts in made], out=offset[1:])
        expert = np.fromiter((one for _, _, experts in made for one in experts), np.int16, int(offset[-1]))
        row = rows_of(trace)[call]
        there = np.array([trace.n_experts[layer] for layer in trace.layers])
        wrong = np.flatnonzero(expert >= np.repeat(there[row], np.diff(offset)))
        if len(wrong):
            layer = trace.layers[row[np.searchsorted(offset, wrong[0], side="right") - 1]]
            raise Conflict(
                f"{self.file}: predicts expert {expert[wrong[0]]} of layer {layer}, which has "
                f"{trace.n_experts[layer]} in {trace.name}; give the predictions of its run"
            )
        return Predictions(np.array([after for after, _, _ in made], np.int64), row, offset, expert, call)


class _Calls:
    """Finds routed calls of a trace by step and layer. found: whether it ever found one."""

    def __init__(self, trace: RoutingTrace) -> None:
        key = _key(trace.steps.astype(np.int64), trace.layer.astype(np.int64))
        self._order = np.argsort(key, kind="stable")
        self._trace, self._key, self.found = trace, key[self._order], False

    def __call__(self, file: str, line: Line) -> int | None:
        """The call after which a line was predicted, -1 for none before it; None if the trace lacks it.

        Raises BadInput if the trace has two, or if the line has other experts.
        """
        if line.step is None or line.layer is None:
            return -1
        wanted = _key(line.step, line.layer)
        first, end = np.searchsorted(self._key, wanted), np.searchsorted(self._key, wanted, side="right")
        if first == end:
            return None
        at = f"{file}: line {line.number}: step {line.step}, layer {line.layer}"
        if end - first > 1:
            raise Conflict(f"{at}: {self._trace.name} has {end - first} such calls; expected one")
        self.found, call = True, int(self._order[first])
        begin, end = self._trace.offset[call], self._trace.offset[call + 1]
        if line.requested is not None and self._trace.expert[begin:end].tolist() != line.requested:
            raise Conflict(f"{at}: uses other experts in {self._trace.name}; give the predictions of its run")
        return call


def _key(step: Any, layer: Any) -> Any:
    return (step << 16) + layer


def _read(path: Path) -> Iterator[Line]:
    """The lines with predictions; raises BadInput for a line that is none and cannot be one."""
    with open_bytes(path) as stream:
        for number, text in numbered_lines(stream, path=path, most_bytes=LONGEST_LINE):
            if not text.strip():
                continue
            try:
                record = strict_json.loads(text)
                if not isinstance(record, dict):
                    raise ValueError(f"is {shown(record)}, expected an object")
                if "ahead" in record:
                    yield _line(number, record)
            except ValueError as error:
                raise Malformed(f"{path}: line {number}: {error}; expected such as {EXAMPLE}") from None


def _line(number: int, record: dict[str, Any]) -> Line:
    """Raises ValueError, saying what is wrong."""
    step, layer, ahead = record.get("step"), record.get("layer"), record["ahead"]
    if (step is None) != (layer is None):
        raise ValueError("has one of step and layer, expected both or neither")
    for name, value, most in (("step", step, MOST_STEP), ("layer", layer, ID_MAX)):
        if value is not None and (type(value) is not int or not 0 <= value <= most):
            raise ValueError(f"{name} is {shown(value)}, expected 0 to {most}")
    if not isinstance(ahead, dict):
        raise ValueError(f"ahead is {shown(ahead)}, expected an object of lists")
    found = {}
    for calls, predicted in ahead.items():
        if not calls.isdecimal() or not 1 <= int(calls[:9]) <= MOST_AHEAD:
            raise ValueError(f"ahead has {shown(calls)}, expected a number of calls, 1 to {MOST_AHEAD}")
        found[int(calls[:9])] = _ids(f"ahead[{calls}]", predicted)
    requested = record.get("experts")
    return Line(number, step, layer, found, None if requested is None else _ids("experts", requested))


def _ids(name: str, value: Any) -> list[int]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {shown(value)}, expected a list of experts")
    try:
        check_whole(value)
    except ValueError as error:
        raise ValueError(f"{name} is {error}") from None
    return value
