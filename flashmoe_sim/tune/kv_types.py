"""Keys and values of another type, which make a token faster or slower at depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, Compared, at_setting
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.tune.change import TRIED_REFS, at_own_size
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import wins
from flashmoe_sim.tune.search import stretch

WEIGHED = ("f16", "q8_0", "q4_0")  # every build of llama.cpp has kernels of flash attention for these, both alike


@dataclass(frozen=True, eq=False)
class OtherType:
    """The recommended system, or a plain one that fits only then, with keys and values of another type.

    best: with its speed. gains: whether it is faster by more than NEAR, in most draws.
    """

    kv_type: str
    best: Compared
    gains: bool


@dataclass(frozen=True, eq=False)
class KvTypes:
    """What other types of keys and values would do. proposed: the one worth its change of the text; None if none is."""

    tried: tuple[OtherType, ...]
    proposed: OtherType | None


def other_types(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    best: Compared,
    *,
    objective: Objective | None = None,
    borrowed: bool = False,
) -> KvTypes | None:
    """Each of WEIGHED beside the case's own type; None if no other runs, or it is not known what another would do.

    That is so at an empty context, for a prompt alone and for a context of a given size. It tries the system of `best`,
    at its size and, unless that was given, at its own rule's; and of the given systems, all on the GPU and experts
    placed by layer, which a smaller context may let fit. Of two that gain, that of more bits is proposed, unless the
    other is faster by more than NEAR.
    """
    objective = objective or Objective()
    if not case.depth or objective.goal == "prompt" or best.tok_s is None or not _follows(case):
        return None
    plain = [one for one in systems if one.name in (AllGpu.name, PlacedLayers.name)]
    sized = any(one.size_given for one in systems if one.name == best.system.name)
    candidates = [best.system, *([] if sized else [best.system.unsized]), *plain]
    tried = []
    for kv_type in WEIGHED:
        if kv_type == case.kv_type or (there := with_type(case, kv_type)) is None:
            continue
        found = _fastest(workload, there, candidates, best, objective)
        if found is None:
            continue
        tokens = objective.prompt_tokens
        sure = at_setting(workload, there, found, borrowed=borrowed, prompt_tokens=tokens)
        seconds, own = objective.seconds(sure), objective.seconds(best)
        if seconds is not None and own is not None:
            tried.append(OtherType(kv_type, sure, seconds < (1 - NEAR) * own and wins(sure, best, objective) > 0.5))
    return KvTypes(tuple(tried), _proposed(tried, objective)) if tried else None


def _follows(case: Case) -> bool:
    """Whether the size of the context is that of the model's attention, and not a given one."""
    attention = case.model.attention
    return attention is not None and case.kv_bytes == attention.context_bytes(case.context, kv_type=case.kv_type)


def with_type(case: Case, kv_type: str) -> Case | None:
    """The case with keys and values of a type, and a context of that size.

    None if the model has no such, or the size of its context was given.
    """
    if not _follows(case):
        return None
    assert case.model.attention is not None
    try:
        size = case.model.attention.context_bytes(case.context, kv_type=kv_type)
    except BadInput:
        return None
    return replace(case, kv_type=kv_type, kv_bytes=size)


def _fastest(
    workload: Workload, case: Case, systems: Sequence[System], best: Compared, objective: Objective
) -> System | None:
    """The fastest of some systems, those without a size at that of their own rule; None if none runs.

    If `best` leaves the GPU the memory that a recommended setting leaves free, so must they.
    """
    part, ran = stretch(workload, TRIED_REFS), []
    for system in systems:
        one = at_own_size(part, case, system, prompt_tokens=objective.prompt_tokens)
        if objective.seconds(one) is not None and (best.tight or not one.tight):
            ran.append(one)
    return min(ran, key=lambda one: objective.seconds(one) or 0.0).system if ran else None


def _proposed(tried: Sequence[OtherType], objective: Objective) -> OtherType | None:
    """Of those that gain, the one of most bits that none beats by more than NEAR."""
    gaining = [one for one in tried if one.gains]
    fastest = min((objective.seconds(one.best) or 0.0 for one in gaining), default=0.0)
    return next((one for one in gaining if (objective.seconds(one.best) or 0.0) * (1 - NEAR) <= fastest), None)
