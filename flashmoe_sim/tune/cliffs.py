"""Floors and cliffs: sizes beyond which a system no longer behaves as expected, one sentence each."""

from __future__ import annotations

import numpy as np

from flashmoe_sim.io.sizes import GIB, three
from flashmoe_sim.policies.class_lru import ClassLru
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.tune.recommend import Recommendation
from flashmoe_sim.tune.search import Searched


def cliffs(found: Recommendation) -> list[str]:
    """What the user should know before choosing another size, one or two sentences each."""
    best = found.best
    plan = best.best.system.plan(found.case)
    of_builds = [f"{best.best.system.name} {clause}." for clause in best.best.system.of_builds(found.case)]
    sentences = [*of_builds, _profile(found), _too_large(found), _aliasing(best)]
    if plan.setup.scope == "global":
        sentences.append(_token_cycle(found.case, best.best))
    elif plan.setup.contract == "runtime":
        sentences.append(_micro_batch(found.workload, found.case, best.best))
    return [one for one in sentences if one]


def largest_union(workload: Workload) -> tuple[int, int]:
    """The most experts that one call of one layer uses, and the tokens of that call; (0, 0) without calls."""
    trace = workload.trace
    call = np.repeat(np.arange(trace.calls), np.diff(trace.offset))
    pairs = np.unique(call * (int(trace.expert.max(initial=0)) + 1) + trace.expert)
    each = np.bincount(pairs // (int(trace.expert.max(initial=0)) + 1), minlength=trace.calls)
    if not each.size:
        return 0, 0
    place = int(each.argmax())
    return int(each[place]), int(trace.n_tokens[place])


def _micro_batch(workload: Workload, case: Case, best: Compared) -> str:
    """Slots per layer against the experts that one call uses."""
    slots = best.system.plan(case).setup.bank.slots
    if slots is None:
        return ""
    if isinstance(best.system, SlotBank) and best.system.micro_batch > 1:
        size = best.system.micro_batch
        return (
            f"A micro-batch of {size} tokens uses up to {size} times the experts of one token, and the runtime stops "
            f"if that is more than the {slots} slots: with fewer slots give a smaller -ub."
        )
    used, tokens = largest_union(workload)
    if tokens < 2:
        return ""
    if used > slots:
        return (
            f"A micro-batch of {tokens} tokens in the trace uses {used} experts of a layer, more than the {slots} "
            f"slots, and the runtime then refuses the call: keep -ub 1, or give at least {used} slots."
        )
    return f"A micro-batch of {tokens} tokens uses up to {used} experts of a layer; fewer slots than that are refused."


def _token_cycle(case: Case, best: Compared) -> str:
    """A pool for all layers against the experts of one token."""
    setup = best.system.plan(case).setup
    cycle, pool = case.model.token_cycle_bytes(), setup.bank.budget_bytes or 0
    name, which = best.system.name, "most experts" if isinstance(setup.policy, ClassLru) else "every expert"
    if pool < cycle:
        return (
            f"One token uses {cycle / GIB:.2f} GiB of experts over all layers, more than the cache of {name} holds: "
            f"it throws {which} out before the next token asks again."
        )
    return (
        f"One token uses {cycle / GIB:.2f} GiB of experts over all layers. With a smaller cache {name} throws {which} "
        "out before the next token asks again."
    )


def _too_large(found: Recommendation) -> str:
    if found.sizes is None or found.sizes.refused is None or not found.sizes.refused.why_not:
        return ""
    return f"{found.sizes.refused.system.spec} is too large here: {found.sizes.refused.why_not}."


def _profile(found: Recommendation) -> str:
    """A system that depends on a profile, against the fastest one without a profile."""
    if not found.best.best.system.uses_profile:
        return ""
    without = next((one.best for one in found.others if one.runs and not one.best.system.uses_profile), None)
    safer = "" if without is None else f" {without.system.spec}, at {three(without.tok_s or 0.0)} tok/s, needs none."
    return (
        f"{found.best.best.system.name} depends on a profile: the trace's second half is timed with a profile of its "
        f"first half. A profile of other work hits less; --also TRACE says how much.{safer}"
    )


def _aliasing(best: Searched) -> str:
    """Slots shared by two experts of a call, and the size from which none are."""
    share = best.best.aliased_share
    if not share:
        return ""
    system = best.best.system
    without = [getattr(one.system, system.size) for one in best.tried if one.aliased_share == 0]
    fix = f"From {min(without)} on none is" if without else "No size that fits avoids it"
    return (
        f"At this size {share:.2%} of the experts that tokens route to are computed with the weights of another one "
        f"(slot aliasing), so the text can differ from the model's own. {fix}."
    )
