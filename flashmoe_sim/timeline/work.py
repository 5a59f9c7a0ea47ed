"""The work that stage 1 hands to stage 2."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.routing import PHASE_DECODE


@dataclass(frozen=True, eq=False)
class Work:
    """The work of every routed call, in order; all i32 [calls] unless noted.

    row: the place of the call's layer in `RoutingTrace.layers`.
    step: never decreases; the calls of a step are consecutive.
    n_tokens: tokens of the call; 0 if not recorded. n_text: how many of them became text, which speeds count.
    drafted: how many of them were drafted, to be verified in this call.
    refs, requests, misses: references, distinct experts, and distinct experts that were not resident.
    warm: how many of the misses the page cache serves.
    cold: how many of the misses were installed without an eviction: the first of them.
    installs: how many of the misses were installed; the others were served without a slot.
    phase: u8 [calls], as in trace/routing.py.
    ahead_after: i64 [ahead], ascending: the routed call after which each expert read ahead was issued, -1: before the
        first.
    ahead_row: i32 [ahead]. ahead_warm: u8 [ahead], 1 if the page cache serves it. ahead_cold: u8 [ahead], 1 if
        nothing was displaced.
    ahead_used: i64 [ahead], the routed call whose hit first uses it, after `ahead_after` and of the same row; -1 if
        there is none.
    """

    row: NDArray[np.int32]
    step: NDArray[np.int32]
    n_tokens: NDArray[np.int32]
    n_text: NDArray[np.int32]
    drafted: NDArray[np.int32]
    refs: NDArray[np.int32]
    requests: NDArray[np.int32]
    misses: NDArray[np.int32]
    warm: NDArray[np.int32]
    cold: NDArray[np.int32]
    installs: NDArray[np.int32]
    phase: NDArray[np.uint8]
    ahead_after: NDArray[np.int64]
    ahead_row: NDArray[np.int32]
    ahead_warm: NDArray[np.uint8]
    ahead_cold: NDArray[np.uint8]
    ahead_used: NDArray[np.int64]

    @cached_property
    def broken_rule(self) -> str:
        """The first rule that the columns break, or empty."""
        calls, used = len(self.row), self.ahead_used >= 0
        rules = {
            "columns of calls have one length": all(
                len(getattr(self, item.name)) == calls for item in fields(self) if not item.name.startswith("ahead")
            ),
            "steps never decrease": bool((np.diff(self.step) >= 0).all()),
            "0 <= warm <= misses, 0 <= cold <= installs <= misses <= requests <= refs": bool(
                ((self.warm >= 0) & (self.warm <= self.misses) & (self.cold >= 0) & (self.cold <= self.installs)).all()
                and (self.installs <= self.misses).all()
                and (self.misses <= self.requests).all()
                and (self.requests <= self.refs).all()
            ),
            "ahead_after ascends from -1": bool((np.diff(self.ahead_after, prepend=-1) >= 0).all()),
            "ahead_used is a later call": bool(
                (self.ahead_used[used] > self.ahead_after[used]).all() and (self.ahead_used < calls).all()
            ),
        }
        broken = [rule for rule, kept in rules.items() if not kept]
        if not broken and used.any():
            same_row = bool((self.ahead_row[used] == self.row[self.ahead_used[used]]).all())
            hits = bool((np.bincount(self.ahead_used[used], minlength=calls) <= self.requests - self.misses).all())
            broken = [] if same_row and hits else ["what is used of the experts read ahead are hits of their layer"]
        return broken[0] if broken else ""

    @cached_property
    def last_decoded(self) -> Work:
        """The last 512 decoded steps, by which machines are compared, see `decoded`."""
        return last_steps(decoded(self), INTERVAL_STEPS)


INTERVAL_STEPS = 512
OF_CALLS = (
    *("row", "step", "n_tokens", "n_text", "drafted"),
    *("refs", "requests", "misses", "warm", "cold", "installs", "phase"),
)
OF_READS_AHEAD = ("ahead_after", "ahead_row", "ahead_warm", "ahead_cold", "ahead_used")


def some_calls(work: Work, kept: NDArray[np.bool_]) -> Work:
    """The `kept` calls, bool [calls], which are whole steps, with what was read ahead after them.

    Reads ahead before the first call are kept if that call is. An expert whose use is left out counts as never used.
    """
    place = np.cumsum(kept) - 1
    before_all = work.ahead_after < 0
    stays = np.where(before_all, kept[:1].any(), kept[work.ahead_after]) if len(kept) else before_all
    after, used = work.ahead_after[stays], work.ahead_used[stays]
    return replace(
        work,
        **{name: getattr(work, name)[kept] for name in OF_CALLS},
        ahead_after=np.where(after < 0, after, place[after]),
        ahead_row=work.ahead_row[stays],
        ahead_warm=work.ahead_warm[stays],
        ahead_cold=work.ahead_cold[stays],
        ahead_used=np.where((used >= 0) & kept[used], place[used], -1),
    )


def decoded(work: Work) -> Work:
    """The calls of decoded steps, or all if there are none; of these, if any have known tokens, only those."""
    decode = work.phase == PHASE_DECODE
    if decode.any():
        work = some_calls(work, decode)
    known = np.repeat(*_by_step(work)) > 0
    return some_calls(work, known) if known.any() and not known.all() else work


def last_steps(work: Work, steps: int) -> Work:
    """The last `steps` steps, with what was read ahead in them."""
    return some_calls(work, work.step >= np.unique(work.step)[-steps:][0])


def tokens_of(work: Work) -> int:
    """Tokens of text of all steps: for each step, the most of any of its calls."""
    return int(_by_step(work)[0].sum())


def _by_step(work: Work) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tokens of text and calls of each step."""
    first = np.flatnonzero(np.diff(work.step, prepend=-1))
    tokens = np.maximum.reduceat(work.n_text, first) if len(first) else first
    return tokens.astype(np.int64), np.diff(first, append=len(work.step))
