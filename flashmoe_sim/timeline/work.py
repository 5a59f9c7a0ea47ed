"""What the timeline adds up: the work that a replay hands to it, and what that work costs on one machine."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT


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

    @property
    def calls_are_alone(self) -> bool:
        """Whether there are calls, and none uses experts that were read ahead, which calls share."""
        return len(self.row) > 0 and len(self.ahead_after) == 0

    @cached_property
    def first_calls(self) -> NDArray[np.intp]:
        """The first call of each step."""
        return np.flatnonzero(np.diff(self.step, prepend=-1))

    @cached_property
    def kinds(self) -> Kinds:
        """Its calls without those that repeat another, if they are alone."""
        return Kinds.of(self)

    @cached_property
    def timed_kinds(self) -> dict[int, tuple[Kinds, int] | None]:
        """The kinds of the calls by which decoding and prompts are timed, and their tokens of text, by phase.

        These are the calls of the steps of a phase whose tokens are known, or without any phase of all such steps; None
        if there are none.
        """
        first = self.first_calls
        tokens, calls = np.maximum.reduceat(self.n_text, first), np.diff(first, append=len(self.step))
        phase = self.phase[first] if self.phase.any() else np.full(len(first), PHASE_DECODE, np.uint8)
        found = {}
        for wanted in (PHASE_DECODE, PHASE_PROMPT):
            known = (phase == wanted) & (tokens > 0)
            some = self if known.all() else some_calls(self, np.repeat(known, calls))
            found[wanted] = (Kinds.of(some), int(tokens[known].sum())) if known.any() else None
        return found

    @cached_property
    def missed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The misses of each row, and how many of them the page cache serves, i64 [rows]."""
        misses, warm = (np.bincount(self.row, weights=of).astype(np.int64) for of in (self.misses, self.warm))
        return misses, warm

    @cached_property
    def last_decoded(self) -> Work:
        """The last 512 decoded steps, by which machines are compared, see `decoded`."""
        return last_steps(decoded(self), INTERVAL_STEPS)


class Kinds(NamedTuple):
    """The different calls of some work, each of which takes as long wherever it stands.

    work: one call of each kind, all of one step. calls: i64 [kinds], how many there are. steps: of the whole work.
    drafted: the sum over its steps of the most tokens that a call has drafted.
    """

    work: Work
    calls: NDArray[np.int64]
    steps: int
    drafted: int

    @classmethod
    def of(cls, work: Work) -> Kinds:
        """The kinds of work that reads nothing ahead."""
        number, places = np.zeros(len(work.row), np.int64), 1
        for name in OF_KIND:
            column = getattr(work, name)
            least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
            if places > MOST_PLACES:
                kept, number = np.unique(number, return_inverse=True)
                places = len(kept)
            if most > least:
                places *= most - least + 1
                number = number * (most - least + 1) + (column - least)
        if places <= FEW_PLACES * len(number):
            counts, place = np.bincount(number, minlength=places), np.zeros(places, np.int64)
            place[number] = np.arange(len(number))
            first, count = place[counts > 0], counts[counts > 0]
        else:
            _, first, count = np.unique(number, return_index=True, return_counts=True)
        each = {name: getattr(work, name)[first] for name in OF_CALLS} | {"step": np.zeros(len(first), np.int32)}
        starts = work.first_calls
        most_drafted = np.maximum.reduceat(work.drafted, starts) if work.drafted.any() else np.zeros(1, np.int32)
        return cls(replace(work, **each), count, len(starts), int(most_drafted.sum()))


INTERVAL_STEPS = 512
MOST_PLACES = 2**31  # of kinds that are told apart by one number before the next column is added to it
FEW_PLACES = 8  # to each call: fewer are counted in a tenth of the time of sorting
OF_KIND = ("row", "n_tokens", "drafted", "refs", "requests", "misses", "warm", "cold", "installs")
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
    if decode.any() and not decode.all():
        work = some_calls(work, decode)
    known = np.repeat(*_by_step(work)) > 0
    return some_calls(work, known) if known.any() and not known.all() else work


def last_steps(work: Work, steps: int) -> Work:
    """The last `steps` steps, with what was read ahead in them."""
    return some_calls(work, work.step >= work.step[work.first_calls][-steps:][0])


def tokens_of(work: Work) -> int:
    """Tokens of text of all steps: for each step, the most of any of its calls."""
    return int(_by_step(work)[0].sum())


def _by_step(work: Work) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tokens of text and calls of each step."""
    first = work.first_calls
    tokens = np.maximum.reduceat(work.n_text, first) if len(first) else first
    return tokens.astype(np.int64), np.diff(first, append=len(work.step))
