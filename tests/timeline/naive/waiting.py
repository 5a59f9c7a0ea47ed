"""Twins of the models in which all experts are there before any is computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator

import numpy as np

from tests.timeline.naive.twin import Events, Expert, Twin


class Waiting(Twin):
    """A call waits for its misses, and the next call for what is read ahead."""

    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
        yield from self.fetch(call, int(self.work.row[call]), int(self.work.misses[call]))
        if self.work.misses[call]:
            yield from self.during(call, "host", self.once("host", self.costs.resume_s))
        yield from self.during(call, "experts", self.once("compute", self.work.requests[call] * expert_s))

    @abstractmethod
    def fetch(self, call: int, row: int, misses: int) -> Events:
        """Bring the misses of a call to where they are computed."""

    def after(self, call: int) -> Events:
        experts = self.issued_after(call)
        yield self.env.all_of([self.start_reading(expert) for expert in experts])
        for expert in experts:
            yield from self.upload_one(expert.row)


class Resident(Twin):
    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
        yield from self.during(call, "experts", self.once("compute", self.work.requests[call] * expert_s))

    def after(self, call: int) -> Events:
        yield from ()


class Mapped(Twin):
    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
        yield from self.during(call, "read", self.all([self.start_reading(expert) for expert in self.demand(call)]))
        yield from self.during(call, "experts", self.once("compute", self.work.requests[call] * expert_s))

    def after(self, call: int) -> Events:
        yield self.env.all_of([self.start_reading(expert) for expert in self.issued_after(call)])


class SyncInstall(Waiting):
    def fetch(self, call: int, row: int, misses: int) -> Events:
        for is_warm, fills in self.kinds(call):
            service_s = self.service_s(row, warm=is_warm, fills=fills, depth=1)
            yield from self.during(call, "read", self.serially(service_s, int(self.costs.chunks[row])))
            yield from self.copy(call, row)
            yield from self.during(call, "host", self.once("host", self.costs.install_s))

    def serially(self, seconds: float, times: int) -> Events:
        for _ in range(times):
            yield self.passing("storage", seconds)

    def copy(self, call: int, row: int) -> Events:
        yield from self.during(call, "upload", self.upload_one(row))


class KMaterialize(SyncInstall):
    def fetch(self, call: int, row: int, misses: int) -> Events:
        yield from super().fetch(call, row, misses)
        copies = int(self.work.requests[call]) * float(self.costs.upload_s[row])
        yield from self.during(call, "upload", self.once("link", copies))

    def copy(self, call: int, row: int) -> Events:
        yield from ()

    def after(self, call: int) -> Events:
        yield self.env.all_of([self.start_reading(expert) for expert in self.issued_after(call)])


class SplitInstall(Waiting):
    def fetch(self, call: int, row: int, misses: int) -> Events:
        for is_warm, fills in self.kinds(call):
            for part, events in self.by_family(row, warm=is_warm, fills=fills):
                yield from self.during(call, part, events)
            yield from self.during(call, "host", self.once("host", self.costs.install_s))

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

    def after(self, call: int) -> Events:
        for i in np.flatnonzero(self.work.ahead_after == call).tolist():
            warm, fills = bool(self.work.ahead_warm[i]), bool(self.work.ahead_cold[i])
            for _, events in self.by_family(int(self.work.ahead_row[i]), warm=warm, fills=fills):
                yield from events


class ParallelInstall(Waiting):
    def fetch(self, call: int, row: int, misses: int) -> Events:
        yield from self.during(call, "read", self.all([self.start_reading(expert) for expert in self.demand(call)]))
        for _ in range(misses):
            yield from self.during(call, "upload", self.upload_one(row))
            yield from self.during(call, "host", self.once("host", self.costs.install_s))


class AsyncUpload(Waiting):
    def fetch(self, call: int, row: int, misses: int) -> Events:
        experts = [chunk for expert in self.demand(call) for chunk in self.apart(expert)]
        for i, expert in enumerate(experts):
            expert.least_s = self.alone_s(row, i + 1) if expert.least_s else 0.0
        reads = [self.start_reading(expert) for expert in experts]
        for expert, read in zip(experts, reads, strict=True):
            self.env.process(self.arrive_and_upload(expert, read))
        yield from self.during(call, "read", self.all(reads))
        yield from self.during(call, "upload", self.all(expert.usable for expert in experts))
        yield from self.during(call, "host", self.once("host", misses * self.costs.install_s))

    def apart(self, expert: Expert) -> list[Expert]:
        """Its chunks, each of which is uploaded by itself."""
        each_s = expert.upload_s / expert.chunks
        of_all = (expert.row, 1, expert.service_s, each_s)
        return [Expert(*of_all, self.env.event(), least_s=expert.least_s) for _ in range(expert.chunks)]
