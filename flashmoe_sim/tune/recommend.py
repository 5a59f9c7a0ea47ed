"""A recommendation: what to run on a machine, how large, what else to set, and the evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.parts import Parts
from flashmoe_sim.notebook import InNotebook
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.schema import COMPARED, frame
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import (
    NEAR,
    Compared,
    Replays,
    at_setting,
    otherwise_seated,
    with_filled,
    with_undrafted,
)
from flashmoe_sim.systems.fits import nothing_runs
from flashmoe_sim.systems.prompt import prompted
from flashmoe_sim.timeline.assemble import Conditions, weights_of
from flashmoe_sim.tune.across import Transfer, across
from flashmoe_sim.tune.buy import Advice, Stock, buy
from flashmoe_sim.tune.change import Changed, WhatIf
from flashmoe_sim.tune.enough import Convergence, check_length, converged
from flashmoe_sim.tune.kv_types import KvTypes, other_types
from flashmoe_sim.tune.levers import levers
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.pays import CachePays, cache_pays
from flashmoe_sim.tune.prices import Prices
from flashmoe_sim.tune.proof import Proof, common_first, first, proof, wins
from flashmoe_sim.tune.search import Searched, SearchResult, search
from flashmoe_sim.tune.smaller import faster_when_larger, faster_when_smaller
from flashmoe_sim.tune.speeds import speed

if TYPE_CHECKING:
    import polars

KNEE = 0.9
TOP_K = "top_k"
LEAST_WINS = 0.1  # share of draws
WORTH_A_TRY = 0.1  # of the speed: by so much another system must be faster
PAGING = 0.5  # share of a token's time that waits for pages of mapped files


@dataclass(frozen=True, eq=False)
class Sizes:
    """Sizes of a system that the user should know, each with its interval.

    smallest: the smallest that runs. knee: the smallest with nine tenths of the best speed. chosen: the recommended
    one.
    fastest: the largest that still helps. refused: a larger size, and why it is impossible; None if there is none.
    """

    smallest: Compared
    knee: Compared
    chosen: Compared
    fastest: Compared
    refused: Compared | None


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation(InNotebook):
    """What to run.

    best: the system. main_line: the one to name among those that anybody can install; None if `best` is such a
    system, or none runs.
    sizes: of `best`; None if it has no size to choose. fewer: `best` with fewer experts per token, which changes the
    text.
    levers: the gains of single changes of the machine.
    enough: whether the trace is long enough; None if it is borrowed.
    transfers: the choice made on every given trace, applied to every other one.
    smaller: a smaller quantization that runs much faster, and changes the text; None if there is none. larger: a larger
        one that runs faster with the same engine, because the CPU computes its types faster.
    filled: `best` with every token of the context in it; None if the context has no more than `case.depth`, or its cost
        is unknown.
    undrafted: `best` without drafts; None if there are none.
    otherwise_seated: `best` with two sockets used the other way, see compare.otherwise_seated.
    cache_pays: whether an expert cache is faster here; None if that was not asked, or there is nothing to compare.
    kv_types: what other types of keys and values would do at this depth; None if it does not matter.
    bought: what to buy, if requested. borrowed: whether the trace is another model's.
    notes: what the user should know about the trace and the machine, if the caller knows it.
    """

    case: Case
    workload: Workload
    found: SearchResult
    best: Searched
    main_line: Searched | None
    sizes: Sizes | None
    fewer: tuple[Compared, ...]
    levers: tuple[Changed, ...]
    enough: Convergence | None
    transfers: tuple[Transfer, ...]
    smaller: Changed | None
    filled: Compared | None
    undrafted: Compared | None
    otherwise_seated: Compared | None
    cache_pays: CachePays | None
    kv_types: KvTypes | None
    bought: Advice | None
    borrowed: bool
    notes: tuple[str, ...] = ()
    larger: Changed | None = None

    @property
    def heading(self) -> str:
        best = self.best.best
        return f"{self.case.model.name} on {self.case.machine.name}: {best.system.spec}, {speed(best)}"

    def table(self) -> polars.DataFrame:
        """Every system at its best setting, the fastest first: schema.COMPARED."""
        return frame([one.best.as_row() for one in self.found.systems], COMPARED)

    @property
    def quoted(self) -> Compared:
        """`best`, with its speeds at the full context and without drafts."""
        return replace(self.best.best, filled=self.filled, undrafted=self.undrafted)

    @property
    def plain(self) -> Compared | None:
        """`main_line` at its best."""
        return None if self.main_line is None else self.main_line.best

    @property
    def objective(self) -> Objective:
        return self.found.objective

    @property
    def others(self) -> tuple[Searched, ...]:
        """The other systems, the fastest first."""
        return tuple(one for one in self.found.systems if one.best.system != self.best.best.system)

    @property
    def proof(self) -> Proof:
        """What shows that `best` runs as predicted."""
        return self.proof_of(self.best)

    def proof_of(self, one: Searched) -> Proof:
        return proof(one.best.system, self.case)

    @property
    def faster(self) -> tuple[Searched, ...]:
        """Systems predicted to be faster than `best` that were not chosen: unproven, or they change the text.

        Their speed is higher, and they are faster in most draws.
        """
        own = self.objective.seconds(self.best.best) or 0.0
        ran = [(one, self.objective.seconds(one.best) or 0.0) for one in self.timed]
        return tuple(one for one, seconds in ran if seconds < (1 - NEAR) * own and self.wins(one) > 0.5)

    @property
    def pages(self) -> bool:
        """Whether `best` mostly waits for pages of mapped files."""
        return self.waits_for_pages(PAGING)

    def waits_for_pages(self, share: float) -> bool:
        """Whether `best` waits for pages of mapped files for more than this share of a token's time."""
        best = self.best.best
        spent = best.ms_per_token or {}
        return best.mapped_bytes > 0 and spent.get("read", 0.0) > share * sum(spent.values())

    @property
    def reads_itself(self) -> Searched | None:
        """The fastest of `faster` that reads experts into a cache of its own, if `best` pages.

        It keeps the text, fits, and runs on the machine's operating system; None if there is none.
        """
        for one in self.faster if self.pages else ():
            system = one.best.system
            if system.caches and not one.best.tight and not system.changes_text(self.case) and self.proof_of(one).there:
                return one
        return None

    @property
    def likely_faster(self) -> Searched | None:
        """The fastest of `faster` that is worth a try and only not sure enough to be the answer; None if there is none.

        It is known to run as predicted, keeps the text and fits.
        """
        least = (1 + WORTH_A_TRY) * (self.best.best.tok_s or 0.0)
        faster, other = self.faster, self.reads_itself
        known = [one for one in self.by_program if one in faster and one is not other]
        return next((one for one in known if (one.best.tok_s or 0.0) >= least), None)

    def wins(self, one: Searched) -> float:
        """The share of draws in which another system is faster than `best`."""
        return wins(one.best, self.best.best, self.objective)

    @property
    def rivals(self) -> tuple[Searched, ...]:
        """Other systems that could be faster: they are in at least one of ten draws."""
        return tuple(one for one in self.timed if self.wins(one) >= LEAST_WINS)

    @property
    def by_engine(self) -> tuple[Searched, ...]:
        """The fastest way of each other program to give the same text, of those that are known to run as predicted."""
        own = self.best.best.system.program
        return tuple(one for one in self.by_program if one.best.system.program != own)

    @property
    def by_program(self) -> tuple[Searched, ...]:
        """The same of each program, that of `best` included."""
        fastest = dict[str, Searched]()
        for one in self.timed:
            system, shown = one.best.system, self.proof_of(one)
            if shown.there and (shown.common or shown.shown) and not (one.best.tight or system.changes_text(self.case)):
                fastest.setdefault(system.program, one)
        return tuple(fastest.values())

    @property
    def timed(self) -> tuple[Searched, ...]:
        """The other systems that run, and whose prompts are timed if the objective has one."""
        return tuple(one for one in self.others if self.objective.seconds(one.best) is not None)


@dataclass(frozen=True)
class Purchase:
    """What may be bought: parts other than the machine's.

    target_tok_s: the target speed, None for any gain. prices: of the parts that may be bought; None for all.
    """

    parts: Parts
    target_tok_s: float | None = None
    prices: Prices | None = None

    def found(self, what_if: WhatIf, progress: Callable[[int, int], None] | None) -> Advice:
        return buy(Stock(what_if, self.parts, self.prices), self.target_tok_s, progress=progress)


def recommend(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    *,
    objective: Objective | None = None,
    borrowed: bool = False,
    purchase: Purchase | None = None,
    replays: Replays | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Recommendation:
    """Choose a system and its settings for a case by the seconds of a workload.

    borrowed: whether the trace is another model's, so that misses are less certain. purchase: for advice on what to
    buy. replays: of this workload and model, valid for any machine; new ones are added.
    Raises BadInput if no system can run, saying what the least demanding one needs, if the trace is too short, and if
    the objective has a prompt and no call of the trace has known tokens.
    """
    check_length(workload)
    weights_of(workload, Conditions(dense_bytes=case.dense_bytes))  # refuses a trace of another model
    objective = objective or Objective()
    if objective.prompt_tokens:
        prompted(workload, objective.prompt_tokens)  # refuses a trace from which no prompt can be made
    found = search(workload, case, systems, objective=objective, borrowed=borrowed, replays=replays, progress=progress)
    found, replays = replace(found, replays=None), found.replays  # an answer may live long
    best = chosen(found, case)
    if best is None:
        raise nothing_runs(case, [(one.best.system, one.best.why_not) for one in found.systems])
    plain = common_first([one.best for one in found.systems], found.objective)

    def timed(one: Compared) -> Compared:
        tokens = objective.prompt_tokens
        return (
            one
            if one is best.best
            else at_setting(workload, case, one.system, borrowed=borrowed, prompt_tokens=tokens, replays=replays)
        )

    def what_if(candidates: Sequence[System]) -> WhatIf:
        return WhatIf(workload, case, candidates, now=best.best, borrowed=borrowed, replays=replays)

    return Recommendation(
        case,
        workload,
        found,
        best,
        None if best.best.system.common else _searched(found, plain),
        _sizes(workload, best, case, found.objective, timed),
        _fewer(best.best.system, case, timed),
        tuple(levers(what_if([best.best.system]), progress=progress)),
        None
        if borrowed or len(best.tried) < 2
        else converged(workload, case, best.tried, objective=found.objective, progress=progress),
        (),
        None
        if objective.goal == "prompt"
        else faster_when_smaller(workload, case, systems, best.best, borrowed=borrowed),
        with_filled(workload, case, best.best, borrowed=borrowed, replays=replays).filled,
        with_undrafted(workload, case, best.best, borrowed=borrowed).undrafted,
        otherwise_seated(workload, case, best.best, borrowed=borrowed, replays=replays),
        None if objective.goal == "prompt" else cache_pays(found, case, named=best.best.system),
        other_types(workload, case, systems, best.best, objective=objective, borrowed=borrowed),
        None if purchase is None else purchase.found(what_if(systems), progress),
        borrowed,
        larger=None if objective.goal == "prompt" else faster_when_larger(workload, case, best.best),
    )


def chosen(found: SearchResult, case: Case) -> Searched | None:
    """The system that an answer names first; None if none runs."""
    return _searched(found, first([one.best for one in found.systems], case, found.objective))


def _searched(found: SearchResult, best: Compared | None) -> Searched | None:
    return next((one for one in found.systems if one.best is best), None)


def refuse_other_models(workload: Workload, others: Sequence[Workload]) -> None:
    """Raise BadInput if a trace is given twice or is of another model."""
    for number, other in enumerate(others):
        _refuse_another_model(workload, other)
        if other.trace.content_id in {one.trace.content_id for one in (workload, *others[:number])}:
            raise Conflict(f"{other.trace.name}: is given twice; give traces of other work")


def with_transfers(found: Recommendation, others: Sequence[Workload]) -> Recommendation:
    """The same, with its choice tested on traces of other work with the same model."""
    sizes = [one.system for one in found.best.tried]
    return replace(
        found, transfers=tuple(across([found.workload, *others], found.case, sizes, objective=found.objective))
    )


def _refuse_another_model(workload: Workload, other: Workload) -> None:
    ours, theirs = workload.trace, other.trace
    if (ours.n_experts, ours.top_k) != (theirs.n_experts, theirs.top_k):
        raise Conflict(
            f"{theirs.name}: is a trace of another model than {ours.name}: other layers, experts or top-k",
            advice="give traces of one model",
        )


def _sizes(
    workload: Workload, best: Searched, case: Case, objective: Objective, timed: Callable[[Compared], Compared]
) -> Sizes | None:
    if len(best.tried) < 2:
        return None
    system, tried = best.best.system, best.tried
    seconds = {id(one): objective.seconds(one) or float("inf") for one in tried}
    fastest = min(tried, key=lambda one: seconds[id(one)])
    knee = next(one for one in tried if seconds[id(one)] * KNEE <= seconds[id(fastest)])
    most = max(getattr(one.system, system.size) for one in tried)
    larger = [system.of_size(size) for size in system.sizes(case) if size > most]
    return Sizes(
        timed(tried[0]),
        timed(knee),
        best.best,
        timed(fastest),
        _too_large(at_setting(workload, case, larger[0], interval=False), case) if larger else None,
    )


def _too_large(one: Compared, case: Case) -> Compared:
    """A size that is too large, with the reason even if it may fit, but the plan says that it is near the limit."""
    if one.why_not or not one.tight:
        return one
    free, spare, taken = ((of or 0) / GIB for of in (one.gpu_free_bytes, case.spare_bytes, one.gpu_bytes))
    why = f"leaves {free:.1f} GiB of the GPU free; a desktop and the error of this plan need {spare:.1f}"
    if free < 0:
        why = f"takes {taken:.1f} GiB of the GPU, which has {case.gpu_bytes / GIB:.1f} for it"
    return replace(one, why_not=why)


def _fewer(system: System, case: Case, timed: Callable[[Compared], Compared]) -> tuple[Compared, ...]:
    """The system with three quarters and half of the model's experts per token, as far as they can be replayed.

    A machine that was fitted without the rate of its weights does not say what fewer experts save.
    """
    top_k, unit = case.model.top_k, case.machine.gpu or case.machine.cpu
    if all(item.name != TOP_K for item in fields(system)) or top_k < 2 or unit is None or unit.weights_gb_s is None:
        return ()
    less = sorted({(3 * top_k + 3) // 4, (top_k + 1) // 2} - {top_k, getattr(system, TOP_K)}, reverse=True)
    found = [timed(Compared(replace(system, top_k=fewer))) for fewer in less]  # type: ignore[call-arg]
    return tuple(one for one in found if one.tok_s is not None)
