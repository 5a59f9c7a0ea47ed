"""BigMoeOnEdge: one list of experts in RAM, streamed with direct I/O, computed on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, drafter_share, ladder, llama_words, no_room
from flashmoe_sim.systems.published import PublishedRun, RanAs
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.trace.cut import cut

FLOOR_MIB, LEAST_MIB = 1536, 1500


@dataclass(frozen=True, kw_only=True)
class BigMoeOnEdge(System):
    """The CPU computes, and a RAM cache of a given size holds the last used experts of all layers together.

    A cache that is a layer or more smaller than what one token uses in all layers hits nothing: it always evicts the
    experts of the layer that is needed next.

    cache_mib: size of the cache; left out: the RAM left beside 1536 MiB, dense weights and context, at least 1500. The
        engine's own `auto` ignores dense weights, and so asks for more than there is.
    top_k: experts per token; left out: the model's.
    """

    name: ClassVar[str] = "big-moe-on-edge"
    title: ClassVar[str] = "BigMoeOnEdge"
    engine: ClassVar[str] = "BigMoeOnEdge"
    program: ClassVar[str] = "big-moe-on-edge"
    source: ClassVar[str] = (
        "Helldez/BigMoeOnEdge 2d4f2b11: cli/main.cpp; 07045c19: docs/cache-sizing.md, "
        "core/src/moe/expert_stream_source.cpp"
    )
    keeps: ClassVar[str] = "the experts used last, of all layers together, in RAM"
    misses: ClassVar[str] = "read from storage past the page cache, while hits are computed"
    limits: ClassVar[Limits] = {"cache_mib": (1, INT32), "top_k": (1, INT32)}
    size: ClassVar[str] = "cache_mib"
    several_gpus: ClassVar[bool] = True

    cache_mib: int | None = None
    top_k: int | None = None

    def why_not(self, case: Case) -> str:
        return "needs a CPU that the machine's file describes" if case.machine.cpu is None else super().why_not(case)

    def _room_mib(self, case: Case) -> int:
        kept = case.dense_bytes + case.kv_bytes + case.drafter_bytes + FLOOR_MIB * MIB
        room = min(case.ram_bytes - kept, case.model.routed_bytes) // MIB
        if room < LEAST_MIB < case.model.routed_bytes // MIB:
            raise no_room("the cache", room * MIB)
        return max(room, 1)

    def sizes(self, case: Case) -> Sequence[int]:
        most = self._room_mib(case)
        return sorted({most, *(1024 * gib for gib in ladder(4, most // 1024))})

    def sized(self, case: Case) -> Self:
        return self if self.size_given else replace(self, cache_mib=self._room_mib(case))

    def plan(self, case: Case) -> Plan:
        bank = Bank(budget_bytes=self.chosen * MIB)
        setup = Setup(bank, Lru(stamp="last"), "atomic", scope="global")
        return Plan(setup, OverlapPrefetch(), self.adapted(case.machine), direct_io=True)

    def adapted(self, machine: Machine) -> Machine:
        return replace(super().adapted(machine), gpu=None, link=None, api="")

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (
            Share("cache", "ram", min(self.chosen * MIB, case.model.routed_bytes)),
            Share("dense weights", "ram", case.dense_bytes),
            Share("context", "ram", case.kv_bytes),
            *drafter_share(case, "ram"),
        )

    def prepared(self, workload: Workload) -> Workload:
        if self.top_k is None or self.top_k >= workload.trace.top_k:
            return workload
        return prepare(cut(workload.trace, top_k=self.top_k), workload.geometry)

    def launch(self, case: Case) -> Launch:
        streamed = ["--moe-stream", "--cache-mb", str(self.cache_mib), "--overlap", "--io-threads", "8"]
        streamed += ["--force-cache"] if self.chosen < LEAST_MIB else []
        fewer = ("--n-expert-used", str(self.top_k)) if self.top_k else ()
        words = ("-t", case.cores, "--chatml", "-n", "512", "-p", "PROMPT")
        return Launch(llama_words(case, *streamed, *fewer, *words, program="bmoe-cli"))

    ran_as: ClassVar[RanAs] = {"BigMoeOnEdge": ("ssd_stream",)}

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls(cache_mib=run.told(run.number_after("--cache-mb ", "cache "), "how large the cache is"))
