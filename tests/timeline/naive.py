"""The twin of the timeline: the same rules as processes on SimPy, event by event.

SimPy decides who goes first: a resource is a queue by the time of the request, and what happens at one time happens in
the order in which it was asked for. Every time is `now` plus a duration, as in the kernel, so that times are equal to
the last bit. Two rules of the design are about events at the same time, and come out of the order in which the twin
asks: chunks of a batch that end together belong to experts in the order of the batch, and late experts ask before the
misses of their call. All other ties are avoided by durations drawn from a continuous range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import simpy

from flashmoe_sim.timeline.costs import Costs
from flashmoe_sim.timeline.names import PARTS
from flashmoe_sim.timeline.work import Work

AWAITING = ("sync-install", "split-install", "parallel-install", "async-upload", "page-cache", "k-materialize")
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


class Twin:
    """One run; `end`, `parts` and `busy` are as in `Timeline`."""

    def __init__(
        self, work: Work, costs: Costs, model: str, *, min_parallel: int = 2, copy_from_tokens: int = 32
    ) -> None:
        self.work, self.costs, self.model = work, costs, model
        self.min_parallel, self.copy_from_tokens = min_parallel, copy_from_tokens
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
        return self.chunks(expert.chunks, expert.service_s)

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
        depth = {False: self.depth((misses - warm) * chunks), True: self.depth(warm * chunks)}
        return [
            self.new_expert(row, warm=is_warm, fills=fills, depth=depth[is_warm]) for is_warm, fills in self.kinds(call)
        ]

    def apart(self, expert: Expert) -> list[Expert]:
        """Its chunks, each of which is uploaded by itself."""
        each_s = expert.upload_s / expert.chunks
        return [Expert(expert.row, 1, expert.service_s, each_s, self.env.event()) for _ in range(expert.chunks)]

    def by_family(self, row: int, *, warm: bool, fills: bool) -> Generator[tuple[str, Events], None, None]:
        """The reads and the upload of each tensor family of an expert, and the part that each is."""
        costs = self.costs
        table = costs.family_warm_chunk_s if warm else costs.family_chunk_s
        for f, chunks in enumerate(costs.family_chunks[row].tolist()):
            service_s = float(table[row, f, self.depth(chunks) - 1]) + float(fills and costs.family_fill_s[row, f])
            yield "read", self.at_once(service_s, chunks)
            if costs.family_upload_s[row, f] > 0:
                yield "upload", self.once("link", costs.family_upload_s[row, f])

    def at_once(self, service_s: float, chunks: int) -> Events:
        yield self.chunks(chunks, service_s)

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

    def after(self, call: int) -> Events:
        """What is read ahead once `call` has ended."""
        if self.model == "split-install":
            for i in np.flatnonzero(self.work.ahead_after == call).tolist():
                warm, fills = bool(self.work.ahead_warm[i]), bool(self.work.ahead_cold[i])
                for _, events in self.by_family(int(self.work.ahead_row[i]), warm=warm, fills=fills):
                    yield from events
        elif self.model in AWAITING:
            experts = self.issued_after(call)
            yield self.env.all_of([self.start_reading(expert) for expert in experts])
            if self.model != "k-materialize":
                for expert in experts:
                    yield from self.upload_one(expert.row)
        elif self.model != "resident":
            for expert in self.issued_after(call):
                self.ahead[expert.used_by].append(expert)
                assert expert.job is not None
                if self.model != "overlap-prefetch" and expert.in_ram:
                    expert.job.left = 0.0
                self.reading.add(expert.job)

    def upload_one(self, row: int) -> Events:
        if self.costs.upload_s[row] > 0:
            yield self.passing("link", float(self.costs.upload_s[row]))

    def claimed(self, call: int) -> tuple[list[Expert], int]:
        """The experts read ahead that a call has to wait for, no longer in the background, and how many are usable."""
        used = self.ahead.pop(call, [])
        late = [expert for expert in used if not expert.usable.triggered]
        for expert in late:
            of = self.reading if expert.arrived < 0 else self.uploading
            assert expert.job is not None
            of.remove(expert.job)
            if of is self.uploading:
                expert.upload_s = expert.job.left
        return late, len(used) - len(late)

    def rest(self, late: Iterable[Expert], missing: Sequence[Expert]) -> Events:
        """Read what is left of the late experts, one after another, then the misses of the call."""
        self.reading.take()
        for expert in late:
            assert expert.job is not None
            begin = self.env.now
            yield self.env.timeout(expert.job.left)
            self.read(expert.job.lanes, begin)
            self.env.process(self.arrive_and_upload(expert, None))
        reads = [self.start_reading(expert) for expert in missing]
        for expert, read in zip(missing, reads, strict=True):
            self.env.process(self.arrive_and_upload(expert, read))
        yield self.env.all_of(reads)
        self.reading.give()

    def reading_from_to(self, late: Iterable[Expert], missing: Sequence[Expert]) -> tuple[float, float]:
        """From when to when the misses of a call are read."""
        first = self.env.now
        for expert in late:
            assert expert.job is not None
            first += expert.job.left
        free = [first] * self.n_lanes
        for expert in missing:
            for _ in range(expert.chunks):
                free[free.index(min(free))] += expert.service_s
        return first, max(free)

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
                yield from self.during(call, "output", self.once("compute", self.costs.step_s))
            self.end.append(self.env.now)

    def during(self, call: int, part: str, events: Events) -> Events:
        begin = self.env.now
        yield from events
        self.table[call][part] += self.env.now - begin

    def once(self, resource: str, seconds: float) -> Events:
        yield self.passing(resource, float(seconds))

    def one_call(self, call: int) -> Events:
        work, costs = self.work, self.costs
        row, requests, misses = int(work.row[call]), int(work.requests[call]), int(work.misses[call])
        each = work.refs[call] / requests if requests else 0.0
        expert_s = float(costs.expert_s[row]) * max(1.0, each / costs.knee_tokens)
        cold_s = float(costs.cold_expert_s[row]) * max(1.0, each / costs.cold_knee_tokens)
        dense_s = float(costs.dense_s[row]) * max(1.0, work.n_tokens[call] / costs.knee_tokens)
        yield from self.during(call, "dense", self.once("compute", dense_s))
        yield from self.during(call, "host", self.once("host", costs.call_s))

        if self.model == "overlap-prefetch":
            yield from self.overlapped(call, expert_s)
        elif self.model in ("hot-cold", "prefill-copy"):
            yield from self.two_lanes(call, expert_s, cold_s)
        else:
            yield from self.fetched(call, row, misses)
            if misses and self.model != "resident":
                yield from self.during(call, "host", self.once("host", costs.resume_s))
            yield from self.during(call, "experts", self.once("compute", requests * expert_s))

    def fetched(self, call: int, row: int, misses: int) -> Events:
        """The models in which all experts are there before any is computed."""
        if self.model in ("sync-install", "k-materialize"):
            for is_warm, fills in self.kinds(call):
                service_s = self.service_s(row, warm=is_warm, fills=fills, depth=1)
                yield from self.during(call, "read", self.serially(service_s, int(self.costs.chunks[row])))
                if self.model == "sync-install":
                    yield from self.during(call, "upload", self.upload_one(row))
                yield from self.during(call, "host", self.once("host", self.costs.install_s))
            if self.model == "k-materialize":
                copies = int(self.work.requests[call]) * float(self.costs.upload_s[row])
                yield from self.during(call, "upload", self.once("link", copies))
        elif self.model == "split-install":
            for is_warm, fills in self.kinds(call):
                for part, events in self.by_family(row, warm=is_warm, fills=fills):
                    yield from self.during(call, part, events)
                yield from self.during(call, "host", self.once("host", self.costs.install_s))
        elif self.model in ("parallel-install", "page-cache"):
            reads = [self.start_reading(expert) for expert in self.demand(call)]
            yield from self.during(call, "read", self.all(reads))
            for _ in range(misses):
                yield from self.during(call, "upload", self.upload_one(row))
                yield from self.during(call, "host", self.once("host", self.costs.install_s))
        elif self.model == "async-upload":
            experts = [chunk for expert in self.demand(call) for chunk in self.apart(expert)]
            reads = [self.start_reading(expert) for expert in experts]
            for expert, read in zip(experts, reads, strict=True):
                self.env.process(self.arrive_and_upload(expert, read))
            yield from self.during(call, "read", self.all(reads))
            yield from self.during(call, "upload", self.all(expert.usable for expert in experts))
            yield from self.during(call, "host", self.once("host", misses * self.costs.install_s))

    def serially(self, seconds: float, times: int) -> Events:
        for _ in range(times):
            yield self.passing("storage", seconds)

    def all(self, events: Iterable[simpy.Event]) -> Events:
        yield self.env.all_of(list(events))

    def two_lanes(self, call: int, expert_s: float, cold_s: float) -> Events:
        requests, misses = int(self.work.requests[call]), int(self.work.misses[call])
        late, _ = self.claimed(call)
        copying = self.model == "prefill-copy" and self.work.n_tokens[call] >= self.copy_from_tokens
        row, installs = int(self.work.row[call]), int(self.work.installs[call])
        copies = self.demand(call) if copying else []
        stored = [expert for expert in (copies or self.demand(call)) if not expert.in_ram]
        unread = [expert for expert in late if expert.arrived < 0]
        read = self.env.process(self.rest(unread, stored if copying else []))
        for expert in (*late, *copies):
            if expert.arrived >= 0 or (expert in copies and expert.in_ram):
                self.env.process(self.arrive_and_upload(expert, None))
        # the uploads of the call's own misses queue up while it waits for the late ones
        yield from self.during(call, "late", self.all(expert.usable for expert in late))
        yield from self.during(call, "read", self.all([read]))
        yield from self.during(call, "upload", self.all(expert.usable for expert in copies))
        if copying:
            yield from self.during(call, "host", self.once("host", installs * self.costs.install_s))
            yield from self.during(call, "experts", self.once("compute", requests * expert_s))
            return
        hot_s, cold_lane_s = (requests - misses) * expert_s, misses * cold_s
        in_ram = self.env.event()
        uploads: list[simpy.Event] = []
        lane = self.cold_lane(stored, in_ram, cold_lane_s, [row] * installs, uploads)
        if 0 < misses < requests and self.model == "hot-cold" and requests >= self.min_parallel:
            cold = self.env.process(lane)
            yield from self.during(call, "experts", self.once("compute", hot_s))
            yield from self.during(call, "read", self.all([in_ram]))
            yield from self.during(call, "cold_lane", self.all([cold]))
            yield from self.during(call, "merge", self.once("compute", self.costs.merge_s))
        else:
            yield from self.during(call, "experts", self.once("compute", hot_s))
            cold = self.env.process(lane)
            yield from self.during(call, "read", self.all([in_ram]))
            yield from self.during(call, "cold_lane", self.all([cold]))
        yield from self.during(call, "upload", self.all(uploads))
        yield from self.during(call, "host", self.once("host", installs * self.costs.install_s))

    def cold_lane(
        self, stored: list[Expert], in_ram: simpy.Event, cold_lane_s: float, installs: list[int], out: list[simpy.Event]
    ) -> Events:
        """The CPU reads what RAM does not hold, then computes, while what the call installs is uploaded."""
        if stored:
            self.reading.take()
            yield from self.all([self.start_reading(expert) for expert in stored])
            self.reading.give()
        in_ram.succeed()
        out += [self.env.process(self.upload_beside(row)) for row in installs]
        yield from self.once("cold_lane", cold_lane_s)

    def upload_beside(self, row: int) -> Events:
        if self.costs.upload_s[row] > 0:
            yield from self.upload_now(float(self.costs.upload_s[row]))

    def overlapped(self, call: int, expert_s: float) -> Events:
        late, on_time = self.claimed(call)
        missing, memory_s = self.demand(call), float(self.costs.memory_s[self.work.row[call]])
        there = simpy.Store(self.env)
        for expert in late:
            self.env.process(self.announce(expert, there, installing=False))
        for expert in missing:
            self.env.process(self.announce(expert, there, installing=True))
        unread = [expert for expert in late if expert.arrived < 0]
        first, last = self.reading_from_to(unread, missing)
        share = min(len(missing) * memory_s / (last - first), 1.0) if last > first else 0.0
        for expert in late:
            if expert.arrived >= 0:
                self.env.process(self.arrive_and_upload(expert, None))
        if unread or missing:
            self.env.process(self.rest(unread, missing))
        hits = int(self.work.requests[call]) - len(late) - len(missing)
        yield from self.during(call, "experts", self.slowed(hits * expert_s + on_time * memory_s, first, last, share))
        part = self.table[call]
        for _ in range(len(late) + len(missing)):
            clock = self.env.now
            expert = yield there.get()
            now = self.env.now
            if expert in late:
                part["late"] += now - clock
            else:
                arrived = max(clock, expert.arrived)
                uploaded = max(arrived, expert.uploaded)
                part["read"] += arrived - clock
                part["upload"] += uploaded - arrived
                part["host"] += now - uploaded
            seconds = expert_s + memory_s if expert in late else expert_s
            yield from self.during(call, "experts", self.slowed(seconds, first, last, share))

    def slowed(self, seconds: float, first: float, last: float, share: float) -> Events:
        """Computing that is slower by a share from `first` to `last`."""
        begin = self.env.now
        end = begin + seconds
        if share and begin < last and end > first:
            beside = max(begin, first)
            left, done = seconds - (beside - begin), (last - beside) * (1.0 - share)
            end = beside + left / (1.0 - share) if left < done else last + (left - done)
        if seconds:
            yield self.passing("compute", end - begin)

    def announce(self, expert: Expert, there: simpy.Store, *, installing: bool) -> Events:
        yield expert.usable
        if installing:
            yield from self.holding(self.host, self.host.request(), "host", float(self.costs.install_s))
        yield there.put(expert)
