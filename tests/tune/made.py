"""Traces whose working set is known, and banks that hold it or do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Compared, at_setting
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace

BANKS = [SlotBank(slots=slots) for slots in (2, 3, 4, 6, 8, 12, 16)]


def drawn(
    case: Case, working_sets: Sequence[range], *, name: str = "made", prompt: int = 0, tokens: int = 1
) -> Workload:
    """A step for each working set: two experts of it in every layer, all as likely.

    prompt: how many steps are one. tokens: of each step.
    """
    layers, steps = sorted(case.model.layers), len(working_sets)
    random = np.random.default_rng(1)
    experts = [random.choice(used, 2, replace=False) for used in working_sets for _ in range(tokens * len(layers))]
    phases = np.repeat([PHASE_PROMPT, PHASE_DECODE], [prompt * len(layers), (steps - prompt) * len(layers)])
    trace = RoutingTrace(
        layer=np.tile(np.array(layers, np.int16), steps),
        n_tokens=np.full(steps * len(layers), tokens, np.int32),
        offset=2 * tokens * np.arange(steps * len(layers) + 1, dtype=np.int64),
        expert=np.concatenate(experts).astype(np.int16),
        n_experts=dict.fromkeys(layers, 16),
        phase=phases.astype(np.uint8),
        top_k=2,
        name=name,
    )
    return prepare(trace, case.model)


def tried(of: Workload, case: Case, settings: Sequence[System] = BANKS) -> list[Compared]:
    return [at_setting(of, case, one, interval=False) for one in settings]
