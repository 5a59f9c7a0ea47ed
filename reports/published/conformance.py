"""The toy trace of moe-cache-eval (arXiv 2608.07911), which says what event-atomic replay must count, call by call."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.routing import RoutingTrace
from reports.pages import joined, table

TRACE = Path(__file__).with_name("traces") / "event-atomic-toy.csv"
EXPERTS, SLOTS = 4, 2  # of a layer
SAID = {"accesses": 30, "hits": 12, "misses": 18, "evictions": 12}
ABOUT = """[moe-cache-eval](https://github.com/shijiuzhang/moe-cache-eval) at b8c702f (arXiv 2608.07911, Apache-2.0)
publishes a trace of three layers of four experts, to be checked by hand: an event is looked up as a whole, and only
then residents change; LRU, two slots a layer. That is the contract `atomic` here, and every event's hits are as
printed (one by one, as in `sequential`, they would be the same: the trace does not tell contracts apart). The
routing behind its other tables, and behind its 46,172 sampled decisions, is withheld: nothing else of it can be
replayed.
"""


class Event(NamedTuple):
    """What a layer of a step asks for, and the counts that were published."""

    step: int
    layer: int
    experts: tuple[int, ...]
    hits: int
    misses: int


def events() -> list[Event]:
    """As published."""
    with TRACE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Event(
            step=int(row["step"]),
            layer=int(row["layer"]),
            experts=tuple(map(int, row["experts"].split())),
            hits=int(row["hits"]),
            misses=int(row["misses"]),
        )
        for row in rows
    ]


def replayed(policy: Policy, contract: str) -> Replayed:
    """The trace under a policy and a contract."""
    each = events()
    trace = RoutingTrace(
        np.array([one.layer for one in each], np.int16),
        np.ones(len(each), np.int32),
        np.cumsum([0, *(len(one.experts) for one in each)]),
        np.array([expert for one in each for expert in one.experts], np.int16),
        dict.fromkeys(range(3), EXPERTS),
        n_experts_known=True,
        step=np.array([one.step for one in each], np.int32),
    )
    return replay(prepare(trace, None), Setup(Bank(slots=SLOTS), policy, contract), record=True)


def counts(contract: str = "atomic") -> dict[str, int]:
    """What this program counts, by the published names."""
    total = replayed(Lru(), contract).counts.total()
    names = {"accesses": "requests", "evictions": "evictions"}
    return {name: int(total[names.get(name, name)]) for name in SAID}


def section() -> str:
    """Published beside counted."""
    ours = counts()
    rows = [(name, said, ours[name], "yes" if ours[name] == said else "no") for name, said in SAID.items()]
    shown = table(("what", "published", "replayed", "as printed"), rows)
    return joined("## moe-cache-eval, event-atomic toy trace", shown, ABOUT)
