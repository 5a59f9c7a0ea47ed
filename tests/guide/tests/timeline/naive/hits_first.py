"""The twin of `hits-first`."""

from __future__ import annotations

from tests.timeline.naive.twin import Events
from tests.timeline.naive.waiting import SyncInstall


class HitsFirst(SyncInstall):
    def serve(self, call: int, expert_s: float, cold_s: float) -> Events:
        row, misses = int(self.work.row[call]), int(self.work.misses[call])
        hits = int(self.work.requests[call]) - misses
        yield from self.during(call, "experts", self.once("compute", hits * expert_s))
        yield from self.fetch(call, row, misses)
        yield from self.during(call, "experts", self.once("compute", misses * expert_s))
