"""The twin of the timeline: the same rules as processes on SimPy, event by event.

SimPy decides who goes first: a resource is a queue by the time of the request, and what happens at one time happens in
the order in which it was requested. Every time is `now` plus a duration, as in the kernel, so that times are equal to
the last bit. Two rules of the design are about events at the same time, and come out of the order in which the twin
asks: chunks of a batch that end together belong to experts in the order of the batch, and late experts ask before the
misses of their call. All other ties are avoided by durations drawn from a continuous range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import simpy

from flashmoe_sim.timeline.names import PARTS
from flashmoe_sim.timeline.work import Costs, Work

Events = Generator[Any, Any, Any]


@dataclass
class Job:
    """Work in the background; finish: what happens once it is done."""

    left: float
    finish: Callable[[], None]
    lanes: int = 1


class Background:
    """A resource in the time that no call needs it: one job after another, broken off and taken up again."""

    def __init__(self, env: simpy.Environment, note: Callable[[Job, float], None]) -> None:
        self.env, self.note = env, note
        self.jobs: list[Job] = []
        self.taken = False
        self.begin: float | None = None  # of the job that is worked on
        self.wake = env.event()
        self.process = env.process(self.loop())

    def loop(self) -> Events:
        while True:
            if self.taken or not self.jobs:
                self.wake = self.env.event()
                yield self.wake
                continue
            self.begin = self.env.now
            job = self.jobs[0]
            with suppress(simpy.Interrupt):
                yield self.env.timeout(job.left)
                self.note(job, self.begin)
                self.begin = None
                self.jobs.pop(0)
                job.left = 0.0
                job.finish()

    def stop(self) -> None:
        """Break off what is worked on."""
        if self.begin is not None:
            self.jobs[0].left -= self.env.now - self.begin
            self.note(self.jobs[0], self.begin)
            self.begin = None
            self.process.interrupt()

    def go_on(self) -> None:
        if not self.wake.triggered:
            self.wake.succeed()

    def add(self, job: Job) -> None:
        self.jobs.append(job)
        self.go_on()

    def remove(self, job: Job) -> None:
        """A call waits for it now."""
        if self.jobs[0] is job:
            self.stop()
        self.jobs.remove(job)
        self.go_on()

    def take(self) -> None:
        self.stop()
        self.taken = True

    def give(self) -> None:
        self.taken = False
        self.go_on()


@dataclass
class Expert:
    """One expert on its way, or one chunk of it: its reads, then its upload. job: what is left in the background."""

    row: int
    chunks: int
    service_s: float
    upload_s: float
    usable: simpy.Event
    used_by: int = -1
    in_ram: bool = False
    job: Job | None = None
    arrived: float = -1.0
    uploaded: float = -1.0
    least_s: float = 0.0  # in which storage alone could have read it


class Twin(ABC):
    """One run; `end`, `parts` and `busy` are as in `Timeline`.

    copied: whether experts in RAM are copied as a batch with those that are read.
    """

    copied = True

    def __init__(self, work: Work, costs: Costs) -> None:
        self.work, self.costs = work, costs
        self.env = simpy.Environment()
        self.n_lanes = costs.chunk_s.shape[1]
        self.lanes = simpy.Resource(self.env, self.n_lanes)
        self.link = simpy.Resource(self.env, 1)
        self.host = simpy.Resource(self.env, 1)
        self.reading = Background(self.env, lambda job, begin: self.read(job.lanes, begin))
        self.uploading = Background(self.env, lambda _, begin: self.note("link", begin))
        self.did: list[tuple[str, float, float]] = []
        self.ahead: defaultdict[int, list[Expert]] = defaultdict(list)  # by the call that uses them
        self.end: list[float] = []
        self.table: list[dict[str, float]] = []
        self.env.run(until=self.env.process(self.everything()))
        self.reading.stop()
        self.uploading.stop()
        self.total_s = self.env.now
        self.parts = np.array([[row[name] for name in PARTS] for row in self.table])

    def busy(self) -> dict[str, float]:
        """Seconds of each resource within the run."""
        seconds = dict.fromkeys(("compute", "cold_lane", "storage", "link", "host"), 0.0)
        for resource, begin, duration in self.did:
            seconds[resource] += min(duration, self.total_s - begin)
        seconds["storage"] /= self.n_lanes
        return seconds

    @abstractmethod
    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
        """The experts of a call, once its slots are known; what each takes, and on the CPU beside a GPU."""

    @abstractmethod
    def after(self, call: int) -> Events:
        """What is read ahead once `call` has ended."""

    # resources

    def note(self, resource: str, begin: float) -> None:
        self.did.append((resource, begin, self.env.now - begin))

    def read(self, lanes: int, begin: float) -> None:
        for _ in range(lanes):
            self.note("storage", begin)

    def passing(self, resource: str, seconds: float) -> simpy.Event:
        self.did.append((resource, self.env.now, seconds))
        return self.env.timeout(seconds)

    def holding(self, of: simpy.Resource, turn: simpy.Event, resource: str, seconds: float) -> Events:
        yield turn
        yield self.passing(resource, seconds)
        of.release(turn)

    def new_expert(self, row: int, *, warm: bool, fills: bool, depth: int, used_by: int = -1) -> Expert:
        service_s = self.service_s(row, warm=warm, fills=fills, depth=depth)
        chunks, upload_s = int(self.costs.chunks[row]), float(self.costs.upload_s[row])
        return Expert(row, chunks, service_s, upload_s, self.env.event(), used_by, warm)

    def service_s(self, row: int, *, warm: bool, fills: bool, depth: int) -> float:
        table = self.costs.warm_chunk_s if warm else self.costs.chunk_s
        return float(table[row, depth - 1]) + (float(self.costs.fill_s[row]) if fills else 0.0)

    def start_reading(self, expert: Expert) -> simpy.Event:
        """Queue for all chunks at once; the event is when all have been read."""
        return self.env.all_of([self.chunks(expert.chunks, expert.service_s), self.env.timeout(expert.least_s)])

    def chunks(self, number: int, service_s: float) -> simpy.Event:
        turns = [self.lanes.request() for _ in range(number)]
        return self.env.all_of(
            [self.env.process(self.holding(self.lanes, turn, "storage", service_s)) for turn in turns]
        )

    def arrive_and_upload(self, expert: Expert, reads: simpy.Event | None) -> Events:
        if reads is not None:
            yield reads
        expert.arrived = self.env.now
        if expert.upload_s > 0:
            yield from self.upload_now(expert.upload_s)
        self.use(expert)

    def upload_now(self, seconds: float) -> Events:
        turn = self.link.request()
        yield turn
        self.uploading.take()
        yield self.passing("link", seconds)
        self.link.release(turn)
        self.uploading.give()

    def use(self, expert: Expert) -> None:
        expert.uploaded = self.env.now
        expert.usable.succeed()

    def demand(self, call: int) -> list[Expert]:
        """The misses of a call as one batch, on no way yet."""
        row, misses, warm = (int(column[call]) for column in (self.work.row, self.work.misses, self.work.warm))
        chunks = int(self.costs.chunks[row])
        all_chunks, stored = (misses if self.copied else misses - warm) * chunks, (misses - warm) * chunks
        depth = self.depth(all_chunks)
        found = [self.new_expert(row, warm=is_warm, fills=fills, depth=depth) for is_warm, fills in self.kinds(call)]
        if 0 < stored < all_chunks:
            in_a_round = -(-stored // -(-all_chunks // self.n_lanes))
            copy_s = self.service_s(row, warm=True, fills=False, depth=depth)
            read_s = max(self.service_s(row, warm=False, fills=False, depth=in_a_round), copy_s)
            for i, (expert, (is_warm, fills)) in enumerate(zip(found, self.kinds(call), strict=True)):
                if not is_warm:
                    expert.service_s = read_s + (float(self.costs.fill_s[row]) if fills else 0.0)
                    expert.least_s = self.alone_s(row, (i + 1) * chunks)
        return found

    def alone_s(self, row: int, chunks: int) -> float:
        """Seconds in which storage reads that many chunks as one batch."""
        return -(-chunks // self.n_lanes) * float(self.costs.chunk_s[row, self.depth(chunks) - 1])

    def kinds(self, call: int) -> list[tuple[bool, bool]]:
        """Of each miss of a call, whether the page cache serves it and whether it fills a slot for the first time."""
        misses, warm, fills = (int(column[call]) for column in (self.work.misses, self.work.warm, self.work.cold))
        return [(i >= misses - warm, i < fills) for i in range(misses)]

    def depth(self, chunks: int) -> int:
        """The chunks of a round when a batch takes as few rounds as it can, all as large as each other or one less."""
        for rounds in range(1, chunks + 1):
            if rounds * self.n_lanes >= chunks:
                return next(depth for depth in range(1, chunks + 1) if rounds * depth >= chunks)
        return 1

    # experts read ahead

    def issued_after(self, call: int) -> list[Expert]:
        """The experts issued after a call, each with the job of reading it in the background."""
        places = [int(i) for i in np.flatnonzero(self.work.ahead_after == call)]
        chunks = [0, 0]
        for i in places:
            chunks[self.work.ahead_warm[i]] += int(self.costs.chunks[self.work.ahead_row[i]])
        found = []
        for i in places:
            warm = bool(self.work.ahead_warm[i])
            expert = self.new_expert(
                int(self.work.ahead_row[i]),
                warm=warm,
                fills=bool(self.work.ahead_cold[i]),
                depth=self.depth(chunks[warm]),
                used_by=int(self.work.ahead_used[i]),
            )
            rounds = -(-chunks[warm] // self.n_lanes)
            left = expert.service_s * rounds * (expert.chunks / chunks[warm])
            expert.job = Job(left, partial(self.upload_ahead, expert), self.depth(chunks[warm]))
            found.append(expert)
        return found

    def upload_ahead(self, expert: Expert) -> None:
        """Upload it in the background: it has been read."""
        expert.arrived, expert.job = self.env.now, None
        if expert.upload_s > 0:
            expert.job = Job(expert.upload_s, partial(self.use, expert))
            self.uploading.add(expert.job)
        else:
            self.use(expert)

    def upload_one(self, row: int) -> Events:
        if self.costs.upload_s[row] > 0:
            yield self.passing("link", float(self.costs.upload_s[row]))

    # the calls

    def everything(self) -> Events:
        calls = len(self.work.row)
        self.table = [dict.fromkeys(PARTS, 0.0) for _ in range(calls)]
        yield from self.during(0, "ahead", self.after(-1))
        for call in range(calls):
            if self.work.refs[call] > 0 or self.work.n_tokens[call] > 0:
                yield from self.one_call(call)
            yield from self.during(call, "ahead", self.after(call))
            if call == calls - 1 or self.work.step[call + 1] != self.work.step[call]:
                drafted = max(self.verified(other) for other in range(calls) if self.same_step(other, call))
                seconds = self.costs.step_s + drafted * self.costs.draft_s
                yield from self.during(call, "output", self.once("compute", seconds))
            self.end.append(self.env.now)

    def same_step(self, call: int, other: int) -> bool:
        return bool(self.work.step[call] == self.work.step[other])

    def verified(self, call: int) -> int:
        """Drafted tokens of a call that takes time."""
        return int(self.work.drafted[call]) if self.work.refs[call] > 0 or self.work.n_tokens[call] > 0 else 0

    def during(self, call: int, part: str, events: Events) -> Events:
        begin = self.env.now
        yield from events
        self.table[call][part] += self.env.now - begin

    def once(self, resource: str, seconds: float) -> Events:
        yield self.passing(resource, float(seconds))

    def one_call(self, call: int) -> Events:
        work, costs = self.work, self.costs
        row, requests = int(work.row[call]), int(work.requests[call])
        each = work.refs[call] / requests if requests else 0.0
        batch = each / costs.knee_tokens
        times = max(1.0, batch)
        if work.n_tokens[call] >= costs.added_from:
            times = 1.0 + batch + min(costs.padded_tokens, work.n_tokens[call] / 4) / costs.knee_tokens
        expert_s = float(costs.expert_s[row]) * times
        cold_s = float(costs.cold_expert_s[row]) * max(1.0, each / costs.cold_knee_tokens)
        dense_s = float(costs.dense_s[row]) * max(1.0, work.n_tokens[call] / costs.dense_knee_tokens)
        if work.drafted[call] > 0:
            expert_s, cold_s = expert_s * costs.verify_times, cold_s * costs.verify_times
        of_context = max(costs.attention_s, work.n_tokens[call] * costs.attention_token_s)
        dense_s = costs.layer_s + dense_s + of_context
        if work.drafted[call] > 0:
            dense_s += costs.verify_call_s
        yield from self.during(call, "dense", self.once("compute", dense_s))
        yield from self.during(call, "host", self.once("host", costs.call_s if work.misses[call] else costs.hit_call_s))
        yield from self.serve(call, expert_s, cold_s)

    def all(self, events: Iterable[simpy.Event]) -> Events:
        yield self.env.all_of(list(events))
