"""The verdict, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashmoe_sim.ceilings.gap import Gap, HalfGap, MissSplit
from flashmoe_sim.ceilings.larger import LargerBank
from flashmoe_sim.ceilings.regime import Cliff
from flashmoe_sim.residency.workload import Setup

MOST = 0.5
MANY_ALIASED = 0.01


@dataclass(frozen=True)
class MissVerdict:
    """kind: the first that applies. text: one or two sentences with the numbers.

    `none`: nothing is missed.
    `aliasing`: 1% of the requests or more are aliased.
    `cliff`: one bank for all layers holds less than a token cycle, and the same policy hits more than twice as much
        with the same memory in banks per layer.
    `first-uses`: at least half of the misses are compulsory. Here and below, misses changed by aliasing are left out,
        and experts loaded ahead count as missed. `unknown`: the optimum is unknown.
    `policy`, `working-set`: at least half are the policy's, or capacity.
    `mixed`: no part has half.

    If the bank has aliased references, the text of any verdict ends with them.
    """

    kind: str
    text: str


def verdict_of(
    setup: Setup,
    total: dict[str, Any],
    split: MissSplit,
    gap: Gap,
    cliff: Cliff | None,
    larger: LargerBank,
    lookahead: HalfGap | None,
) -> MissVerdict:
    """Judge by the answers to all questions; total: the counts of the setup."""
    if not split.misses:
        return MissVerdict("none", "Nothing is missed.")
    kind, text = _cause(setup, split, gap, larger, lookahead)
    if cliff is not None and cliff.below and (cliff.layer_hit_rate or 0) > 2 * total["hit_rate"]:
        kind, text = "cliff", _cliff(setup, total, cliff)
    if not split.aliased_refs:
        return MissVerdict(kind, text)
    aliasing = _aliasing(total, larger)
    if split.aliased_refs >= MANY_ALIASED * total["requests"]:
        return MissVerdict("aliasing", f"{aliasing} {text}")
    return MissVerdict(kind, f"{text} {aliasing}")


def _cause(setup: Setup, split: MissSplit, gap: Gap, larger: LargerBank, lookahead: HalfGap | None) -> tuple[str, str]:
    missed = f"{gap.policy:,} misses" if not gap.loaded_ahead else f"{gap.policy:,} experts missed or loaded ahead"
    if gap.contract != setup.contract:
        missed += f" (under {gap.contract})"
    if split.compulsory >= MOST * gap.policy:
        return "first-uses", (
            f"{split.compulsory:,} of {missed} are first uses, which no policy avoids in a bank that starts empty; "
            "loading before the run or prefetching does, and a longer run has a smaller share of them."
        )
    if split.capacity is None or split.policy is None:
        return "unknown", (
            f"{split.compulsory:,} of {missed} are first uses; the policy's share of the rest is unknown if experts of "
            "different sizes share a bank of bytes. Use a bank for each layer, or one in slots."
        )
    more = f"--bank {larger.halves} halves the misses of {setup.policy.spec}"
    if larger.halves is None:
        more = f"no bank halves the misses: {larger.full_misses:,} remain with every expert in it"
    share = f"{split.policy / gap.policy:.0%}"
    if split.policy >= MOST * gap.policy:
        assert gap.victim_choice is not None
        assert gap.admission is not None
        by = "its choice of victims" if gap.victim_choice >= gap.admission else "declining experts that are used late"
        ahead = ""
        if lookahead is not None:
            steps = "step" if lookahead.steps == 1 else f"{lookahead.steps:,} steps"
            ahead = f"; knowing the next {steps} is enough for half of what better victims gain"
        return "policy", f"min in the same bank would avoid {share} of {missed}, mostly by {by}{ahead}."
    if split.capacity >= MOST * gap.policy:
        return "working-set", (
            f"Of {missed}, {gap.minimum:,} remain under the optimum (min): a better policy avoids {share} at most; "
            f"{more}."
        )
    return "mixed", (
        f"Of {missed}, {split.compulsory:,} are first uses, {split.capacity:,} more are missed by min too, and "
        f"{split.policy:,} are the policy's; {more}."
    )


def _cliff(setup: Setup, total: dict[str, Any], cliff: Cliff) -> str:
    unit = "slots" if setup.bank.in_slots or setup.fixed_slots else "bytes"
    return (
        f"One bank of {cliff.bank:,} {unit} for all layers holds less than the {cliff.cycle:,} of one token, and hits "
        f"{total['hit_rate']:.1%}: experts are evicted before their layer comes round again. --bank {cliff.enough} "
        f"holds them; a bank for each layer hits {cliff.layer_hit_rate:.1%} with the same memory."
    )


def _aliasing(total: dict[str, Any], larger: LargerBank) -> str:
    where = f"none are at --bank {larger.unaliased}" if larger.unaliased else "--contract protected avoids it"
    return (
        f"Slot aliasing: {total['aliased_refs']:,} requests ({total['aliased_refs'] / total['requests']:.1%}) are "
        f"computed with the weights of another expert; {where}."
    )
