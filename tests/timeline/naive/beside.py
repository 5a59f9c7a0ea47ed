"""Twins of the models in which experts are computed while others are on their way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import simpy

from tests.timeline.naive.twin import Events, Expert, Twin


class Beside(Twin):
    """Experts are read ahead while the calls that follow go on."""

    def after(self, call: int) -> Events:
        for expert in self.issued_after(call):
            self.ahead[expert.used_by].append(expert)
            assert expert.job is not None
            self.before_reading(expert)
            self.reading.add(expert.job)
        yield from ()

    def before_reading(self, expert: Expert) -> None:
        """Change what is left to read of an expert."""

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

    def rest(self, late: Sequence[Expert], missing: Sequence[Expert]) -> Events:
        """Read what is left of the late experts, one after another, then the misses of the call."""
        if not (late or missing):
            return  # nothing is broken off: what is left of a job, in two parts, differs in the last bit
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


class OverlapPrefetch(Beside):
    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
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
        return first, max([*free, *(first + expert.least_s for expert in missing)])

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


class HotCold(Beside):
    """Misses lie in RAM, and what is read ahead is only uploaded."""

    copied = False
    min_parallel = 2

    def before_reading(self, expert: Expert) -> None:
        assert expert.job is not None
        if expert.in_ram:
            expert.job.left = 0.0

    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
        late, _ = self.claimed(call)
        yield from self.wait(call, late, [])
        yield from self.two_lanes(call, expert_s, cold_s, side_by_side_from=self.min_parallel)

    def wait(self, call: int, late: list[Expert], copies: list[Expert]) -> Events:
        """For the late experts, while the copies that the call makes queue up behind them, and for those."""
        stored = [expert for expert in copies if not expert.in_ram]
        unread = [expert for expert in late if expert.arrived < 0]
        while unread and unread[0].job is not None and unread[0].job.left == 0.0:  # it is there before the copies
            unread.pop(0).arrived = self.env.now
            self.reading.take()
            self.reading.give()
        read = self.env.process(self.rest(unread, stored))
        for expert in (*late, *copies):
            if expert.arrived >= 0 or (expert in copies and expert.in_ram):
                self.env.process(self.arrive_and_upload(expert, None))
        yield from self.during(call, "late", self.all(expert.usable for expert in late))
        yield from self.during(call, "read", self.all([read]))
        yield from self.during(call, "upload", self.all(expert.usable for expert in copies))

    def two_lanes(self, call: int, expert_s: float, cold_s: float, *, side_by_side_from: int) -> Events:
        requests, misses = int(self.work.requests[call]), int(self.work.misses[call])
        installs = int(self.work.installs[call])
        stored = [expert for expert in self.demand(call) if not expert.in_ram]
        in_ram = self.env.event()
        uploads: list[simpy.Event] = []
        lane = self.cold_lane(stored, in_ram, misses * cold_s, [int(self.work.row[call])] * installs, uploads)
        side_by_side = 0 < misses < requests and requests >= side_by_side_from
        if side_by_side:
            cold = self.env.process(lane)
        yield from self.during(call, "experts", self.once("compute", self.hot(requests, misses) * expert_s))
        if not side_by_side:
            cold = self.env.process(lane)
        yield from self.during(call, "read", self.all([in_ram]))
        yield from self.during(call, "cold_lane", self.all([cold]))
        if side_by_side:
            yield from self.during(call, "merge", self.once("compute", self.costs.merge_s))
        yield from self.during(call, "upload", self.all(uploads))
        yield from self.during(call, "host", self.once("host", installs * self.costs.install_s))

    def hot(self, requests: int, misses: int) -> int:
        """The experts that the GPU computes."""
        return requests - misses

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


class Copying(HotCold):
    """Calls of many tokens have their misses copied to the GPU."""

    copy_from_tokens: int

    def copies(self, call: int) -> bool:
        return bool(self.work.n_tokens[call] >= self.copy_from_tokens)

    def copy_and_compute(self, call: int, late: list[Expert], expert_s: float) -> Events:
        yield from self.wait(call, late, self.demand(call))
        yield from self.during(call, "host", self.once("host", self.work.installs[call] * self.costs.install_s))
        yield from self.during(call, "experts", self.once("compute", self.work.requests[call] * expert_s))


class HotColdPadded(Copying):
    copy_from_tokens = 256

    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
        if self.copies(call):
            late, _ = self.claimed(call)
            yield from self.copy_and_compute(call, late, expert_s)
        else:
            yield from super().serve(call, expert_s, cold_s)

    def hot(self, requests: int, misses: int) -> int:
        return requests if requests > misses else 0


class PrefillCopy(Copying):
    copy_from_tokens = 32

    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
        late, _ = self.claimed(call)
        if self.copies(call):
            yield from self.copy_and_compute(call, late, expert_s)
        else:
            yield from self.wait(call, late, [])
            yield from self.two_lanes(call, expert_s, cold_s, side_by_side_from=int(self.work.requests[call]) + 1)
