"""`sim diagnose`: is it the policy or the working set?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Section, count, pairs, rate
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import SCOPE, BankOptions, bank_text
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.diagnose import Diagnosis
    from flashmoe_sim.residency.workload import Setup
    from flashmoe_sim.verbs.given import Model, Trace

Row = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Diagnose(BankOptions, Verb["Diagnosis"]):
    """Say whether misses are due to the policy or to the working set, like `sim diagnose`.

    docs/background/diagnosis.md explains the verdict.

    >>> diagnose("python-256", bank=64).verdict.kind
    'policy'

    Without a trace, the first of the catalogue is used.
    Raises BadInput for an impossible combination, and for a bank that does not fit the trace.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Say what a policy misses in a bank and why: first uses, a bank too small, or the policy.

    TRACE is a file, or a name from `sim trace catalog`; without one the first of the catalogue is used.
    docs/background/diagnosis.md explains each line.

    \b
    Example:  sim diagnose python-256 --bank 64 --policy lru
    """

    trace: Trace | None = field(default=None, kw_only=False, metadata=option("[TRACE]", "", positional=True))
    scope: str = field(default="layer", metadata=SCOPE)
    model: Model | None = field(default=None, metadata=MODEL)
    seed: int = option_field(1, "N", "Of the random traces with which this one is compared.")

    def run(self, progress: Progress | None = None) -> Diagnosis:
        """Diagnose the trace's misses."""
        from flashmoe_sim.ceilings.diagnose import diagnose
        from flashmoe_sim.verbs.given import task_of

        task = task_of(self)
        return diagnose(task.workload, task.setup, seed=self.seed, progress=progress)

    def document(self, found: Diagnosis) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.verbs.given import task_of

        return {"identity": task_of(self).identity(), "diagnosis": found.to_dict()}

    def sections(self, found: Diagnosis) -> list[Section]:
        """The verdict, and the numbers behind it."""
        from flashmoe_sim.sweep.plan import plan

        setup, _ = plan(self)
        verdict = f"{found.verdict.kind.replace('-', ' ')}: {found.verdict.text}"
        groups = (_misses(found), _gap(found), _demand(found, setup), _nulls(found), _halves(found), _larger(found))
        rows = [row for number, group in enumerate(groups) for row in [("", "", "")][:number] + group]
        title = f"{found.trace}: {found.policy}, {bank_text(setup)}, contract {found.contract}"
        return [Section("", (verdict,)), Section("", (pairs(rows, title=title),))]


def _misses(found: Diagnosis) -> list[Row]:
    split = found.split
    rows = [
        ("misses", f"{split.misses:,}", f"of {found.requests:,} requests; {found.hits:,} hit"),
        ("  first uses", f"{split.compulsory:,}", "of an expert in its layer: compulsory"),
        ("  capacity", count(split.capacity), "missed by min too: the bank is too small"),
        ("  policy", count(split.policy), "not missed by min"),
    ]
    if split.aliased_refs:
        remark = f"over protected; {split.aliased_refs:,} requests are aliased"
        rows.append(("  aliasing", f"{split.conflict:,}", remark))
    if split.loaded_ahead:
        rows.append(("  loaded ahead", f"{-split.loaded_ahead:,}", "without a miss, and then hit"))
    return rows


def _gap(found: Diagnosis) -> list[Row]:
    gap = found.gap
    if gap.minimum is None:
        remark = "unknown: experts of different sizes share a bank of bytes"
        return [("gap to min", "-", remark)]
    return [
        ("gap to min", "", "misses"),
        (f"  {found.policy}", f"{gap.policy:,}", gap.contract + (", with loads ahead" if gap.loaded_ahead else "")),
        ("  min:forced", count(gap.forced), f"{gap.optimum_contract}; victims: {_points(gap.victim_choice_points)}"),
        ("  min", count(gap.minimum), f"{gap.optimum_contract}; admission: {_points(gap.admission_points)}"),
    ]


def _demand(found: Diagnosis, setup: Setup) -> list[Row]:
    regime, cliff = found.regime, found.cliff
    over = f"p99 {regime.demand_over_bank_p99:.2f}; {rate(regime.share_over)} of the {regime.demand}s exceed it"
    rows = [
        (f"one {regime.demand} / bank", f"{regime.demand_over_bank_p50:.2f}", over),
        ("", "", _regime(regime.demand_over_bank_p50)),
    ]
    if regime.token_cycle_slots is not None:
        cycle = f"top-{regime.top_k} of {regime.token_cycle_slots // regime.top_k} layers"
        if regime.token_cycle_bytes is not None:
            cycle += f", {size(regime.token_cycle_bytes)}"
        holds = count(regime.bank_slots) if regime.bank_slots is not None else size(regime.bank_bytes)
        rows.append(("token cycle", f"{regime.token_cycle_slots:,}", f"{cycle}; the bank has {holds}"))
    if cliff is not None:
        in_slots = setup.bank.in_slots or setup.fixed_slots
        least = f"{cliff.lru_hits_from:,}" if in_slots else size(cliff.lru_hits_from)
        rows.append(("cliff", least, "with less LRU hits exactly nothing"))
        rows.append(("a bank for each layer", rate(cliff.layer_hit_rate), "hit rate with the same memory"))
    return rows


def _regime(over: float) -> str:
    if over > 1:
        return "above 1: does not fit, experts pass through"
    if over >= 1 / 3:
        return "1/3 to 1: one or two fit, little to choose"
    return "below 1/3: several fit, a policy can choose"


def _nulls(found: Diagnosis) -> list[Row]:
    nulls = found.nulls
    guessed = "" if nulls.experts_known else "; the number of experts is a guess"
    rows = [
        ("hit rate", rate(nulls.hit_rate), ""),
        ("  calls shuffled", rate(nulls.shuffled), f"recency: {_points(nulls.recency_points)}"),
        ("  experts uniform", rate(nulls.uniform), f"popularity: {_points(nulls.popularity_points)}{guessed}"),
    ]
    if nulls.closed_form is not None:
        rows.append(("  slots / experts", rate(nulls.closed_form), "what uniform tends to"))
    return rows


def _halves(found: Diagnosis) -> list[Row]:
    halves = found.stationarity
    if halves is None:
        return [("second half", "-", "a half of the steps lacks calls of some layer")]
    overlap = f"{rate(halves.overlap)} of the right experts"
    return [
        ("second half", "", f"hit rate of the last {halves.steps - halves.first_steps:,} of {halves.steps:,} steps"),
        ("  profile of the first", rate(halves.profile), f"{halves.policy}; has {overlap}"),
        ("  profile of itself", rate(halves.hindsight), f"{halves.policy}; by hindsight"),
        ("  lru, empty", rate(halves.lru_empty), f"{halves.contract}; bank empty when it begins"),
        ("  lru, warm", rate(halves.lru_warm), f"{halves.contract}; bank as the first half left it"),
    ]


def _larger(found: Diagnosis) -> list[Row]:
    larger, ahead = found.larger, found.lookahead
    full = f"a bank of everything: {larger.full_misses:,}"
    rows = [("bank to halve misses", "-", full)]
    if larger.halves is not None:
        rows = [("bank to halve misses", larger.halves, f"to {larger.halves_misses:,}; {full}")]
    if larger.unaliased is not None:
        rows.append(("bank without aliasing", larger.unaliased, "the smallest found"))
    if ahead is not None:
        remark = f"steps, for half of victims: to {ahead.misses:,} ({ahead.contract})"
        rows.append(("lookahead", f"{ahead.steps:,}", remark))
    return rows


def _points(points: float | None) -> str:
    return "-" if points is None else f"{points:+.1f} points"
