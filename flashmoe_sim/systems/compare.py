"""Systems side by side: each sized by its own rule, or at its best, replayed and timed on one machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from flashmoe_sim.budget import wired_limit_advice
from flashmoe_sim.drafts import Drafts, break_even, drafted
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete
from flashmoe_sim.io.whole import temporary_folder
from flashmoe_sim.machines.belief import Draws, ends, error_draws, learnt_times, times_of
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.sockets import BOUND, INTERLEAVED
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.systems.base import Case, Launch, System, free_bytes
from flashmoe_sim.systems.doubt import OtherText, prompt_doubt
from flashmoe_sim.systems.prompt import own_attention_s, prompt_batch, prompt_draws, prompt_parts, prompted
from flashmoe_sim.systems.split import overflow
from flashmoe_sim.timeline.assemble import page_cache_bytes, price, weights_of
from flashmoe_sim.timeline.from_rates import predict
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.timeline.rates import Rate
from flashmoe_sim.timeline.run import total_seconds
from flashmoe_sim.timeline.timing import Timing
from flashmoe_sim.timeline.work import some_calls, tokens_of
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace

NEAR = 0.03
Replays = dict[tuple[System, Setup, Drafts | None, int], tuple[Workload, Replayed]]  # the number: of prompt tokens
# The parts of a token's time, by what it waits for.
GROUPS = {
    "read": ("read", "late", "ahead"),
    "upload": ("upload",),
    "cpu": ("cold_lane",),
    "compute": ("dense", "experts", "merge", "output"),
    "host": ("host",),
}


@dataclass(frozen=True, eq=False)
class Compared:
    """One system in a comparison; None for anything unknown, or missing because the system cannot run.

    system: with the chosen setting. why_not: why it cannot run, or empty. code: of the error that says so, if any.
    hit_rate: of the bank, or without a bank of the page cache.
    gpu_bytes, ram_bytes: what it keeps in each, without mapped files, which have mapped_bytes. gpu_free_bytes,
        ram_free_bytes: what it leaves free, see `systems.base.free_bytes`. tight: whether it leaves less GPU memory
        than a recommended setting should, so that it may not fit.
    miss_bytes_per_token: bytes of the experts that were not where they are computed; storage_bytes_per_token: the part
        of these read from storage.
    page_cache_bytes: RAM left for the page cache; None if the RAM is unknown.
    aliased_share: share of references computed with another expert than the routed one; None unless the engine can
        alias slots.
    draws, prompt_draws: of both speeds in tokens a second, f64 [512], the same draws for every system, see
        `machines.belief`. sure: whether the machine's numbers are drawn too, so that there is an interval; if not,
        only the engine's error and the text are.
    ms_per_token: by GROUPS. hindsight: whether it chose its experts by the very trace on which it is replayed.
    filled: the same with every token of the context in it; None if that was not requested.
    undrafted: the same without drafts; None if there are none, or it was not requested.
    drafted: tokens that are drafted before a pass. pass_tokens: tokens of text that a pass yields. None without drafts.
    """

    system: System
    why_not: str = ""
    gpu_bytes: int | None = None
    ram_bytes: int | None = None
    gpu_free_bytes: int | None = None
    ram_free_bytes: int | None = None
    mapped_bytes: int = 0
    tight: bool = False
    page_cache_bytes: int | None = None
    hit_rate: float | None = None
    aliased_share: float | None = None
    miss_bytes_per_token: float | None = None
    storage_bytes_per_token: float | None = None
    tok_s: float | None = None
    draws: Draws | None = None
    prompt_tok_s: float | None = None
    prompt_draws: Draws | None = None
    sure: bool = False
    ms_per_token: dict[str, float] | None = None
    launch: Launch | None = None
    hindsight: bool = False
    filled: Compared | None = None
    undrafted: Compared | None = None
    drafted: int | None = None
    pass_tokens: float | None = None
    code: str = ""

    @classmethod
    def refused(cls, system: System, error: BadInput) -> Self:
        """A system that cannot run, as the error says."""
        return cls(system, str(error), code=error.code)

    @property
    def held_bytes(self) -> int | None:
        """RAM that it uses, with what RAM holds of mapped files."""
        if self.ram_bytes is None:
            return None
        pages = self.mapped_bytes if self.page_cache_bytes is None else max(self.page_cache_bytes, 0)
        return self.ram_bytes + min(self.mapped_bytes, pages)

    @property
    def loads_files(self) -> bool:
        """Whether it reads into RAM, as a whole, what it could map."""
        return self.launch is not None and self.system.unmapped[0] in self.launch.words

    @property
    def pass_cost(self) -> float | None:
        """Seconds of a pass with drafts over seconds of a token without; None if either is not known."""
        if self.undrafted is None or not self.tok_s or not self.undrafted.tok_s or self.pass_tokens is None:
            return None
        return self.pass_tokens / self.tok_s * self.undrafted.tok_s

    @property
    def break_even_accept(self) -> float | None:
        """The acceptance from which drafts pay, if a pass takes as long; None if they never do, or it is not known."""
        return None if self.pass_cost is None or self.drafted is None else break_even(self.drafted, self.pass_cost)

    @property
    def tok_s_lo(self) -> float | None:
        return self._ends(self.tok_s, self.draws)[0]

    @property
    def tok_s_hi(self) -> float | None:
        return self._ends(self.tok_s, self.draws)[1]

    @property
    def prompt_tok_s_lo(self) -> float | None:
        return self._ends(self.prompt_tok_s, self.prompt_draws)[0]

    @property
    def prompt_tok_s_hi(self) -> float | None:
        return self._ends(self.prompt_tok_s, self.prompt_draws)[1]

    def _ends(self, tok_s: float | None, draws: Draws | None) -> tuple[float | None, float | None]:
        """The 90% interval of a speed."""
        known = self.sure and tok_s is not None and draws is not None
        return ends(tok_s, np.log(draws / tok_s)) if known else (None, None)  # type: ignore[arg-type, operator]

    def as_row(self) -> dict[str, Any]:
        """schema.COMPARED."""
        launch, filled, undrafted = self.launch, self.filled, self.undrafted
        return {
            "system": self.system.name,
            "setting": self.system.spec,
            "engine": self.system.engine,
            "why_not": self.why_not or None,
            "gpu_bytes": self.gpu_bytes,
            "ram_bytes": self.ram_bytes,
            "held_bytes": self.held_bytes,
            "gpu_free_bytes": self.gpu_free_bytes,
            "ram_free_bytes": self.ram_free_bytes,
            "page_cache_bytes": self.page_cache_bytes,
            "hit_rate": self.hit_rate,
            "aliased_share": self.aliased_share,
            "miss_bytes_per_token": self.miss_bytes_per_token,
            "storage_bytes_per_token": self.storage_bytes_per_token,
            "tok_s": self.tok_s,
            "tok_s_lo": self.tok_s_lo,
            "tok_s_hi": self.tok_s_hi,
            "filled_tok_s": None if filled is None else filled.tok_s,
            "filled_tok_s_lo": None if filled is None else filled.tok_s_lo,
            "filled_tok_s_hi": None if filled is None else filled.tok_s_hi,
            "undrafted_tok_s": None if undrafted is None else undrafted.tok_s,
            "break_even_accept": self.break_even_accept,
            "prompt_tok_s": self.prompt_tok_s,
            "prompt_tok_s_lo": self.prompt_tok_s_lo,
            "prompt_tok_s_hi": self.prompt_tok_s_hi,
            **{f"{group}_ms": None if self.ms_per_token is None else self.ms_per_token[group] for group in GROUPS},
            "command": None if launch is None else launch.line,
        }


def compare(
    workload: Workload | None,
    case: Case,
    systems: Sequence[System],
    *,
    best: bool = False,
    borrowed: bool = False,
    hit_rate: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Compared]:
    """Each system on a case, the fastest first, then systems that cannot run.

    A system is sized by its own rule; with `best`, it gets its smallest size within 3% of the fastest.
    workload: of the case's model; None if there is a hit rate, which then applies to every system that can miss.
    borrowed: whether the trace comes from another model, so that hits are less certain.
    Raises BadInput if neither a workload nor a hit rate is given.
    """
    if (workload is None) == (hit_rate is None):
        raise Conflict("compare: give either a trace or a hit rate")
    found = []
    for number, system in enumerate(systems):
        if progress is not None:
            progress(number, len(systems))
        found.append(_one(workload, case, system, best=best, borrowed=borrowed, hit_rate=hit_rate))
    return sorted(found, key=lambda one: -(one.tok_s or 0.0))


def with_filled(workload: Workload | None, case: Case, row: Compared, **given: Any) -> Compared:
    """A row with `filled`, if it runs, the model's attention is known and the context has room beyond the depth.

    given: as for `at_setting`.
    """
    if row.tok_s is None or case.model.attention is None or case.context <= case.depth:
        return row
    return replace(row, filled=at_setting(workload, replace(case, depth=case.context), row.system, **given))


def with_undrafted(workload: Workload | None, case: Case, row: Compared, **given: Any) -> Compared:
    """A row with `undrafted`, if it runs and drafts.

    given: as for `at_setting`.
    """
    if row.tok_s is None or case.drafts is None:
        return row
    return replace(row, undrafted=at_setting(workload, replace(case, drafts=None), row.system, **given))


def otherwise_seated(workload: Workload | None, case: Case, row: Compared, **given: Any) -> Compared | None:
    """A row with two sockets used the other way: both instead of one, or one, as if its RAM had room, instead of both.

    None with one socket, and if it runs as the machine's file says.
    given: as for `at_setting`.
    """
    mode = row.system.socket_mode(case) if row.tok_s is not None else ""
    if not mode or case.machine.socket_mode:
        return None
    machine = replace(case.machine, socket_mode=INTERLEAVED if mode == BOUND else BOUND)
    return at_setting(workload, replace(case, machine=machine), row.system, **given)


def case_of(
    model: ModelGeometry, machine: Machine, *, workload: Workload | None, kv_bytes: int = 0, context: int = 0
) -> Case:
    """The case of a model on a machine; the trace may record the dense weights if the model does not.

    Raises BadInput if neither does, unless the machine was fitted on this model, including its dense weights.
    """
    if model.dense_bytes is None and workload is not None and workload.trace.dense_bytes is not None:
        model = replace(model, dense_bytes=sum(workload.trace.dense_bytes.values()))
    unit = machine.gpu or machine.cpu
    if model.dense_bytes is None and (unit is None or unit.weights_gb_s is not None):
        raise Incomplete(
            f"{model.name}: does not record its dense weights, which every token reads; "
            "give them (--dense 5GiB), or a GGUF or a named model as --model"
        )
    return Case(model, machine, kv_bytes, context, leaves_spare=True)


def _one(
    workload: Workload | None, case: Case, system: System, *, best: bool, borrowed: bool, hit_rate: float | None
) -> Compared:
    try:
        if reason := system.why_not(case):
            return Compared(system, reason)
        chosen = system.sized(case)
        if best and workload is not None and not system.size_given:
            chosen = _best(workload, case, system) or chosen
    except BadInput as error:
        return Compared.refused(system, error)
    return at_setting(workload, case, chosen, borrowed=borrowed, hit_rate=hit_rate)


def _best(workload: Workload, case: Case, system: System) -> System | None:
    """The smallest of a system's sizes within NEAR of the fastest one; None if none runs."""
    ran = [at_setting(workload, case, one, interval=False) for one in system.at_each_size(case)]
    ran = [one for one in ran if one.tok_s and not one.tight] or ran
    fastest = max((one.tok_s or 0.0 for one in ran), default=0.0)
    near = [one for one in ran if one.tok_s is not None and one.tok_s >= (1 - NEAR) * fastest]
    return min(near, key=lambda one: (one.gpu_bytes or 0) + (one.ram_bytes or 0)).system if near else None


def at_setting(
    workload: Workload | None,
    case: Case,
    system: System,
    *,
    borrowed: bool = False,
    hit_rate: float | None = None,
    interval: bool = True,
    prompt_tokens: int = 0,
    replays: Replays | None = None,
) -> Compared:
    """A system with its given settings on a case; see `compare`.

    interval: whether to price the machine's intervals too. prompt_tokens: of a prompt before the decoded tokens, see
    `systems.prompt`; 0: the trace as it is, without an interval of its prompt speed.
    replays: replays of this workload, valid for any machine; new ones are added.
    """
    try:
        system.check(case)
        plan, shares = system.planned(case), system.memory(case)
        kept = {
            where: sum(one.size_bytes for one in shares if one.where == where) for where in ("gpu", "ram", "mapped")
        }
        free = free_bytes(case, shares)
        tight = kept["gpu"] > 0 and free["gpu"] is not None and free["gpu"] < case.spare_bytes
        if tight and wired_limit_advice(case.machine, kept["gpu"] + case.spare_bytes):
            tight = False  # the limit is the system's, and can be raised
        tight = tight or overflow(case, system.each_gpu(case), case.spare_bytes) is not None
        result = Compared(
            system,
            "",
            kept["gpu"],
            kept["ram"],
            free["gpu"],
            free["ram"],
            kept["mapped"],
            tight,
            launch=system.started(case) if system.has_command else None,
            drafted=None if case.drafts is None else case.drafts.count,
        )
        conditions, whose = system.conditions(plan, case), system.whose(case.model.base_name)
        if hit_rate is not None:
            banked = plan.execution.reads and plan.execution.has_bank
            rate = Rate("hit rate", hit_rate=hit_rate if banked else float(not plan.execution.reads))
            bank = plan.setup.bank if plan.setup.policy.has_bank else None
            split = plan.setup.io_split
            one = predict([rate], case.model, plan.machine, conditions, bank=bank, io_split=split, whose=whose)[0]
            misses = one.misses_per_call / one.top_k
            from_storage = misses * (1 - (one.page_cache_share or 0.0))
            misses = misses if plan.execution.has_bank else from_storage
            token_bytes = case.model.token_cycle_bytes(top_k=one.top_k)
            return replace(
                result,
                hit_rate=1 - misses,
                miss_bytes_per_token=misses * token_bytes,
                storage_bytes_per_token=from_storage * token_bytes,
                tok_s=one.tok_s,
                draws=one.tok_s * np.exp(one.draws if interval else error_draws(plan.machine, whose)),
                sure=interval,
                ms_per_token=_grouped(one.timing.part_ms_per_token),
                pass_tokens=None if case.drafts is None else case.drafts.text_tokens,
            )
        assert workload is not None
        replays = {} if replays is None else replays
        if (key := (system, plan.setup, case.drafts, prompt_tokens)) not in replays:
            replays[key] = _replayed(workload, case, system, prompt_tokens)
        routed, replayed = replays[key]
        result = replace(result, hindsight=getattr(replayed.setup.policy, "profile", None) == "")
        timed = time_replay(routed, replayed, plan.machine, conditions, interval=interval, whose=whose)
        pages = page_cache_bytes(routed, plan.setup, replayed, plan.machine, conditions)
    except BadInput as error:
        return Compared.refused(system, error)
    if timed.speeds.tok_s is None:
        return Compared(system, "the trace has no decoded tokens to time")
    counts, tokens, work = replayed.counts.total(), routed.trace.tokens, timed.work
    resident = not plan.execution.reads
    hits, missed_bytes = counts["hit_rate"], counts["bytes_per_token"]
    if not plan.execution.has_bank:
        hits, missed_bytes = 1 - (work.misses - work.warm).sum() / work.requests.sum(), timed.storage_bytes / tokens
    waits = ("read", "upload", "cpu") if plan.setup.policy.by_routing else ("read",)
    text = OtherText(routed, waits, made=borrowed, profiled=system.learns_first_half, hit_rate=float(hits))
    engine = error_draws(plan.machine, whose)
    own = engine if timed.draws is None else timed.draws
    if not resident:
        own = own + text.draws(_grouped(timed.speeds.part_ms_per_token))
    prompt, of_prompt = timed.speeds.prompt_tok_s if system.times_prompts else None, None
    if prompt_tokens and prompt is not None:
        batch = prompt_batch(timed)

        def attending_s(on: Machine) -> float:
            return own_attention_s(routed, on, conditions, tokens=prompt_tokens, batch=batch)

        prompt = 1 / (1 / prompt + attending_s(plan.machine))
        prompt *= learnt_times(plan.machine, whose, prompt=True) / learnt_times(plan.machine, whose)
        parts = _grouped(prompt_parts(timed))
        log_prompt = error_draws(plan.machine, whose, prompt=True)
        if interval:
            log_prompt = prompt_draws(timed, routed, plan.setup, plan.machine, conditions, whose, more_s=attending_s)
        if not resident:
            made = system.learns_first_half or prompted(workload, prompt_tokens)[1].made
            log_prompt = log_prompt + text.draws(parts) + prompt_doubt(parts, made=made)
        of_prompt = prompt * np.exp(log_prompt)
    return replace(
        result,
        page_cache_bytes=None if case.budget.ram_bytes is None else pages,
        hit_rate=1.0 if resident else float(hits),
        aliased_share=counts["aliased_refs"] / counts["refs"] if plan.setup.contract == "runtime" else None,
        miss_bytes_per_token=0.0 if resident else missed_bytes,
        storage_bytes_per_token=timed.storage_bytes / tokens,
        tok_s=timed.speeds.tok_s,
        draws=timed.speeds.tok_s * np.exp(own),
        prompt_tok_s=prompt,
        prompt_draws=of_prompt,
        sure=interval,
        ms_per_token=_grouped(timed.speeds.part_ms_per_token),
        pass_tokens=None if case.drafts is None else _pass_tokens(timed.timing),
    )


def speed_of(workload: Workload, case: Case, system: System, *, prompt_tokens: int = 0) -> Callable[[Machine], float]:
    """The speed of a setting on any machine of the same sizes, in the middle of its engine's error: tokens a second.

    prompt_tokens: as for `at_setting`; if given, it is the speed of the prompt.
    Raises BadInput if the setting does not run on the case.
    """
    system.check(case)
    plan = system.planned(case)
    conditions = system.conditions(plan, case)
    routed, replayed = _replayed(workload, case, system, prompt_tokens)
    timed = time_replay(routed, replayed, plan.machine, conditions, interval=False, whose=None)
    known, of_prompt = timed.speeds.tok_s, timed.work.phase == PHASE_PROMPT
    some = timed.work.last_decoded
    if prompt_tokens:
        known, some = timed.speeds.prompt_tok_s, some_calls(timed.work, of_prompt)
    if known is None:
        raise Incomplete(f"{system.spec}: the trace has no tokens to time")
    weights, batch = weights_of(routed, conditions), prompt_batch(timed) if prompt_tokens else 1.0

    def seconds(machine: Machine) -> float:
        costs = price(weights, machine, conditions, io_split=plan.setup.io_split)
        return total_seconds(some, costs, conditions.execution) / tokens_of(some)

    here = seconds(plan.machine)
    times = times_of(plan.machine, system.whose(case.model.base_name), prompt=bool(prompt_tokens))

    def speed(machine: Machine) -> float:
        other = replace(case, machine=machine)
        own = system.seated(system.machine_of(other), other)
        token_s = seconds(own) / (known * here)
        if prompt_tokens:
            token_s += own_attention_s(routed, own, conditions, tokens=prompt_tokens, batch=batch)
        return times / token_s

    return speed


def _pass_tokens(timing: Timing) -> float:
    """Tokens of text that a decoded pass yields."""
    decoded = timing.tokens[timing.phase == PHASE_DECODE] if (timing.phase == PHASE_DECODE).any() else timing.tokens
    return float(decoded.mean())


def _replayed(workload: Workload, case: Case, system: System, prompt_tokens: int) -> tuple[Workload, Replayed]:
    """The workload that a system replays, and the replay; only the second half if its profile is from the first."""
    if system.learns_first_half:
        first, second = _halves(workload)
        with temporary_folder() as folder:
            if (profiled := system.with_profile_of(first, folder)) is not None:
                routed = profiled.prepared(_asked(second, case.drafts, prompt_tokens))
                return routed, profiled.replay(routed, profiled.plan(case).setup)
    routed = system.prepared(_asked(workload, case.drafts, prompt_tokens))
    return routed, system.replay(routed, system.plan(case).setup)


@lru_cache(maxsize=2)
def _halves(workload: Workload) -> tuple[RoutingTrace, Workload]:
    middle = int(np.median(np.unique(workload.trace.steps)))
    first, second = (cut(workload.trace, steps=part) for part in ((None, middle), (middle, None)))
    return first, prepare(second, workload.geometry)


def _asked(workload: Workload, drafts: Drafts | None, prompt_tokens: int) -> Workload:
    return drafted(prompted(workload, prompt_tokens)[0] if prompt_tokens else workload, drafts)


def _grouped(parts: dict[str, float]) -> dict[str, float]:
    return {group: float(np.sum([parts[name] for name in names])) for group, names in GROUPS.items()}
