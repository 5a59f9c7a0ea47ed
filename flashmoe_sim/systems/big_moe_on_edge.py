"""BigMoeOnEdge: one list of experts in RAM, streamed with direct I/O, computed on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, ladder, llama_words, no_room, ram_weights
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.workloads import with_fewer
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch

FLOOR_MIB, LEAST_MIB = 1536, 1500


@dataclass(frozen=True, kw_only=True)
class BigMoeOnEdge(System, program="big-moe-on-edge"):
    """The CPU computes, and a RAM cache of a given size holds the last used experts of all layers together.

    A cache that is a layer or more smaller than what one token uses in all layers hits nothing: it always evicts the
    experts of the layer that is needed next.

    cache_mib: size of the cache; left out: the RAM left beside 1536 MiB, dense weights and context, at least 1500. The
        engine's own `auto` ignores dense weights, and so asks for more than there is.
    top_k: experts per token; left out: the model's.
    """

    cache_mib: int | None = None
    top_k: int | None = None

    def own_size(self, case: Case) -> int:
        kept = case.dense_bytes + case.kv_bytes + case.drafter_bytes + FLOOR_MIB * MIB
        room = min(case.ram_bytes - kept, case.model.routed_bytes) // MIB
        if room < LEAST_MIB < case.model.routed_bytes // MIB:
            raise no_room("the cache", room * MIB)
        return max(room, 1)

    def sizes(self, case: Case) -> Sequence[int]:
        most = self.own_size(case)
        return sorted({most, *(1024 * gib for gib in ladder(4, most // 1024))})

    def plan(self, case: Case) -> Plan:
        bank = Bank(budget_bytes=self.chosen * MIB)
        setup = Setup(bank, Lru(stamp="last"), "atomic", scope="global")
        return Plan(setup, OverlapPrefetch(), self.adapted(case.machine), direct_io=True)

    def memory(self, case: Case) -> tuple[Share, ...]:
        return (Share("cache", "ram", min(self.chosen * MIB, case.model.routed_bytes)), *ram_weights(case))

    def prepared(self, workload: Workload) -> Workload:
        return with_fewer(workload, self.top_k)

    def launch(self, case: Case) -> Launch:
        streamed = ["--moe-stream", "--cache-mb", str(self.cache_mib), "--overlap", "--io-threads", "8"]
        streamed += ["--force-cache"] if self.chosen < LEAST_MIB else []
        fewer = ("--n-expert-used", str(self.top_k)) if self.top_k else ()
        words = ("-t", case.cores, "--chatml", "-n", "512", "-p", "PROMPT")
        return Launch(llama_words(case, *streamed, *fewer, *words, program="bmoe-cli"))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls(cache_mib=run.told(run.number_after("--cache-mb ", "cache "), "how large the cache is"))
