"""Banks replayed along a trace that is being written: their counts so far, and over the last tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, Unsupported
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import one_pass_policy
from flashmoe_sim.residency.growing import (
    LruCurve,
    ReplayState,
    advance,
    begin,
    chunk_workload,
    finish,
    fit_head,
    last_of,
    why_not_while_written,
)
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.chunk import Chunk, Last, part_of
from flashmoe_sim.trace.follow import Follower
from flashmoe_sim.trace.statistics import aliased_by_call

MARKS = 16  # per window, which is then at most 1/8 longer than requested, unless one call has more tokens
RATE_S = 10.0  # tokens per second are averaged over at least this long


class Row(NamedTuple):
    """One setup. window: counts of only the last tokens. reason: why there are no counts; else empty."""

    setup: Setup
    whole: Counts | None
    window: Counts | None
    reason: str


@dataclass(frozen=True)
class Look:
    """What is known about a trace at one moment.

    there: whether there is a file. event: what happened to it since the last look, or empty.
    head: what holds for all calls so far; None before the first.
    tokens_per_s: while it last grew; None before that. still_s: how long it has not grown.
    window_tokens: the number of tokens in the rows' `window`.
    overlap: the share of the window's requests that go to the same experts of the same layers as in the previous
        window, 0 to 1; None until there are two windows.
    aliased: references that the runtime itself recorded in another expert's slot; None without recorded slots.
    """

    there: bool
    event: str
    head: Chunk | None
    read_bytes: int
    calls: int
    tokens: int
    tokens_per_s: float | None
    still_s: float
    window_tokens: int
    overlap: float | None
    aliased: int | None
    rows: list[Row]


class _Mark(NamedTuple):
    """The counts at one call. requests: i64 [experts of all layers], requests for each."""

    tokens: int
    counts: dict[Setup, Counts]
    requests: NDArray[np.int64]


class Watcher:
    """Replays what is written to a trace, at every `look`.

    window_tokens: the minimum for the counts over the last tokens.
    Raises BadInput for a setup that needs future requests.
    """

    def __init__(
        self,
        path: Path,
        setups: Sequence[Setup],
        *,
        geometry: ModelGeometry | None = None,
        window_tokens: int = 256,
        lenient: bool = False,
    ) -> None:
        for setup in setups:
            if reason := why_not_while_written(setup):
                raise Unsupported(reason)
        self._follower = Follower(path, lenient=lenient)
        self._setups, self._geometry, self._window_tokens = list(setups), geometry, window_tokens
        self._beginnings = 0
        self._written: deque[tuple[float, int]] = deque()
        self._head: Chunk | None = None
        self._stale = False
        self._replay: _WatchedReplays | None = None

    def look(self, now_s: float) -> Look:
        """Read and replay what is new. now_s: any clock's time.

        Raises BadInput for a malformed line and for a trace that is not of the model.
        """
        follower = self._follower
        for chunk in follower.look():
            if follower.beginnings != self._beginnings:
                self._forget()
            self._take(chunk)
        if follower.beginnings != self._beginnings:  # a file without a call
            self._forget()
        if self._stale and self._head is not None:
            # The sizes of a replay's arrays follow from all layers and experts: it starts again if there are more.
            self._replay = _WatchedReplays(self._head, self._setups, self._geometry, self._window_tokens)
            for chunk in follower.again(self._head):
                self._replay.add(chunk)
            self._stale = False
        return self._seen(now_s)

    def forget_rate(self) -> None:
        """Count tokens per second from the next look on."""
        self._written.clear()

    def _forget(self) -> None:
        self._beginnings = self._follower.beginnings
        self._head, self._replay, self._stale = None, None, False
        self._written.clear()

    def _take(self, chunk: Chunk) -> None:
        if self._head is None or _holds(chunk) != _holds(self._head):
            self._stale = True
        self._head = part_of(chunk, 0, 0)
        if not self._stale and self._replay is not None:
            self._replay.add(chunk)

    def _seen(self, now_s: float) -> Look:
        follower, replay = self._follower, self._replay
        tokens = 0 if replay is None else replay.tokens
        written = self._written
        if replay is not None and (not written or tokens > written[-1][1]):
            written.append((now_s, tokens))
        while len(written) > 2 and written[-1][0] - written[1][0] >= RATE_S:
            written.popleft()
        rate = None
        if len(written) > 1 and written[-1][0] > written[0][0]:
            rate = (written[-1][1] - written[0][1]) / (written[-1][0] - written[0][0])
        span, overlap = (0, None) if replay is None else replay.drift()
        return Look(
            there=follower.there,
            event=follower.event,
            head=self._head,
            read_bytes=follower.read_bytes,
            calls=0 if replay is None else replay.last.calls,
            tokens=tokens,
            tokens_per_s=rate,
            still_s=now_s - written[-1][0] if written else 0.0,
            window_tokens=span,
            overlap=overlap,
            aliased=None if replay is None else replay.aliased,
            rows=[] if replay is None else replay.rows(),
        )


def _holds(head: Chunk) -> tuple[object, ...]:
    return head.layers, head.n_experts, head.top_k, head.step is None, head.slot is None


class _WatchedReplays:
    """All setups along one trace, from its first call. aliased: as in `Look`."""

    def __init__(
        self, head: Chunk, setups: Sequence[Setup], geometry: ModelGeometry | None, window_tokens: int
    ) -> None:
        self.head = fit_head(head, geometry)
        self.last = Last()
        self.tokens = 0
        self.aliased = None if head.slot is None else 0
        self._setups, self._window_tokens = setups, window_tokens
        self._piece_tokens = max(window_tokens // MARKS, 1)
        self._reasons: dict[Setup, str] = {}
        self._states: dict[Setup, ReplayState] = {}
        self._banks: dict[Setup, list[Capacity]] = {}
        self._curve = LruCurve(self.head)
        for setup in setups:
            try:
                if _in_one_pass(setup):
                    self._banks[setup] = capacities(self.head, setup)
                else:
                    self._states[setup] = begin(self.head, setup)
            except BadInput as error:  # a bank that is larger than the experts seen so far
                self._reasons[setup] = str(error)
        self._requests = np.zeros(sum(self.head.n_experts), np.int64)
        self._marks: deque[_Mark] = deque()
        self._latest = self._mark()
        self._marks.append(self._latest)

    def add(self, chunk: Chunk) -> None:
        """Replay the next calls."""
        if self.aliased is not None:
            self.aliased += int(aliased_by_call(chunk).sum())
        for part in self._parts(chunk):
            calls = chunk_workload(self.head, part, self.last)
            self._serve(calls)
            self.last = last_of(calls)
            self._latest = self._mark()
            if self._latest.tokens - self._marks[-1].tokens >= self._piece_tokens:
                self._marks.append(self._latest)
        _, before = self._window()
        while before is not None and self._marks[0] is not before:
            self._marks.popleft()

    def _parts(self, chunk: Chunk) -> Iterator[Chunk]:
        """A chunk, with its last two windows cut into pieces short enough to be marked."""
        if not chunk.calls:
            return
        of_first = np.where(chunk.layer == chunk.layers[0], chunk.text, 0)
        left = of_first.sum() - np.cumsum(of_first)  # tokens after each call
        number = np.minimum(left // self._piece_tokens, 2 * MARKS + 2)
        bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), chunk.calls]
        for first, end in pairwise(bounds):
            yield part_of(chunk, first, end)

    def _serve(self, calls: Workload) -> None:
        self._requests = self._requests + np.concatenate([pool.requests_by_key for pool in calls.layer_pools])
        self._curve.add(calls)
        for setup, state in list(self._states.items()):
            try:
                self._states[setup] = advance(state, calls)
            except BadInput as error:  # a call that its bank cannot hold, which ends a run
                self._reasons[setup] = str(error)
                del self._states[setup]

    def _mark(self) -> _Mark:
        counts = {setup: finish(state) for setup, state in self._states.items()}
        alike = list(self._banks)
        if alike:
            for setup, one in zip(alike, self._curve.counts(alike, list(self._banks.values())), strict=True):
                if one is not None:
                    counts[setup] = one
                else:
                    needs = max(part.largest for part in self._curve.lists)
                    self._reasons[setup] = (
                        f"bank {setup.bank}: the largest call asks for {needs} distinct experts, "
                        "more than a bank holds (--contract atomic streams the excess)"
                    )
                    del self._banks[setup]
        self.tokens = self._curve.tokens
        return _Mark(self.tokens, counts, self._requests)

    def _window(self) -> tuple[_Mark, _Mark | None]:
        """Where the last tokens begin, and where equally many before them begin; None if there are too few."""
        first = self._at(self.tokens - self._window_tokens) or self._marks[0]
        return first, self._at(first.tokens - self._window_tokens)

    def _at(self, tokens: int) -> _Mark | None:
        """The last mark with at most `tokens` tokens."""
        return next((mark for mark in reversed(self._marks) if mark.tokens <= tokens), None)

    def drift(self) -> tuple[int, float | None]:
        """Tokens of the window, and the overlap of its requests with the previous window's."""
        first, before = self._window()
        span = self.tokens - first.tokens
        if before is None:
            return span, None
        shares = [
            part / max(part.sum(), 1) for part in (self._requests - first.requests, first.requests - before.requests)
        ]
        return span, float(np.minimum(*shares).sum())

    def rows(self) -> list[Row]:
        """A row per setup, in the given order."""
        first, _ = self._window()
        rows = []
        for setup in self._setups:
            whole = self._latest.counts.get(setup)
            window = None if whole is None else whole.since(first.counts[setup])
            rows.append(Row(setup, whole, window, self._reasons.get(setup, "")))
        return rows


def _in_one_pass(setup: Setup) -> bool:
    """Whether `LruCurve` can count a setup."""
    plain = setup.contract == "protected" and setup.scope == "layer" and isinstance(setup.prefetch, NoPrefetch)
    return plain and setup.policy.textbook == "lru" and one_pass_policy(setup.policy, setup.contract)
