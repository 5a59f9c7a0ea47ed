"""How fast a run could be on a machine, and what holds it back: ceilings in reads, bytes and seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.ceilings.bottleneck import Floor, bottleneck, floor_of
from flashmoe_sim.ceilings.hardware import hardware_moves
from flashmoe_sim.ceilings.optimum import comparable_setup, optimum_known
from flashmoe_sim.ceilings.speed_verdict import SpeedVerdict, speed_verdict
from flashmoe_sim.io.errors import BadInput, Incomplete, Unsupported
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.belief import ends
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.notebook import InNotebook
from flashmoe_sim.policies.lookahead import Lookahead
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.prefetchers.oracle import Oracle1
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.stream import ReadAhead
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.timeline.assemble import Conditions, costs_of, weights_of
from flashmoe_sim.timeline.from_replay import Timed, time_replay
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.timeline.models.resident import Resident
from flashmoe_sim.timeline.timing import speed_draws
from flashmoe_sim.timeline.work import INTERVAL_STEPS, Work, last_steps

if TYPE_CHECKING:
    import polars

THIS, STOCK, ALL_HIT, FLOOR = "this", "stock", "all-hit", "bandwidth limit"
ORACLE, OVERLAPPED = "oracle-prefetch", "oracle-prefetch, overlapped"
PREFETCHED = ", prefetched"


@dataclass(frozen=True)
class Ceiling:
    """A bound on the run. meaning: one sentence.

    reads_per_token, bytes_per_token: experts brought to where they are computed, on misses and ahead of time, and their
        bytes; per token of the workload. Misses that the CPU computes in place in RAM are not included.
    tok_s: decode speed; tok_s_lo, tok_s_hi: its 90% interval. ms_per_token: 1000 / tok_s.
    """

    name: str
    meaning: str
    hit_rate: float
    reads_per_token: float
    bytes_per_token: float
    tok_s: float
    tok_s_lo: float
    tok_s_hi: float
    ms_per_token: float


@dataclass(frozen=True, repr=False)
class SpeedCeilings(InNotebook):
    """The ceilings of one setup on one machine, `this` first, and the verdict.

    notes: why rows are missing, and whether `stock` fits. floor: how long each resource is busy.
    part_ms_per_token: the parts of a token's time in `this`, by timeline.names.PARTS.
    """

    trace: str
    policy: str
    contract: str
    scope: str
    bank: str
    prefetch: str
    machine: str
    execution: str
    verdict: SpeedVerdict
    rows: tuple[Ceiling, ...]
    floor: Floor
    part_ms_per_token: dict[str, float]
    notes: tuple[str, ...]

    def row(self, name: str) -> Ceiling | None:
        """The row of this name; None if there is none."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def heading(self) -> str:
        setup = f"{self.policy}, bank {self.bank}, contract {self.contract}, {self.execution}"
        return f"{self.trace} on {self.machine}: {setup}. {self.verdict.text}"

    def table(self) -> polars.DataFrame:
        """One row per ceiling."""
        import polars

        return polars.DataFrame([asdict(row) for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """The same as nested dictionaries, as printed by `sim ceilings --json`."""
        return asdict(self)


def ceilings(
    workload: Workload,
    setup: Setup,
    machine: Machine,
    conditions: Conditions,
    *,
    lookahead: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> SpeedCeilings:
    """How fast `setup` runs on the machine, how fast it could run, and what holds it back.

    lookahead: steps that the row `lookahead-W` sees. Every setup is replayed once.
    progress: called after each row with the number done and the total.
    Raises BadInput for a bank that does not fit the trace or the machine, for a machine that lacks what the execution
    model needs, if sizes or tokens are not known, and for a policy that makes misses of minor experts cheaper.
    """
    if setup.policy.minor_rule is not None:
        raise Unsupported(f"policy {setup.policy.spec}: ceilings are of runs that read every miss; leave out minor")
    resident = replace(conditions, execution=Resident())
    free = costs_of(workload, setup, machine, resident)
    if not (free.layer_s or free.dense_s.any() or free.expert_s.any()):
        raise Incomplete(f"machine {machine.name}: computing takes no time there; give it layer_us or weights_gb_s")
    notes = list(machine.notes)
    own = replay(workload, setup, record=True)
    everything = all_hits(own)
    this, timed = _row(
        workload, machine, THIS, f"The setup as given, under {conditions.execution.name}.", own, conditions
    )
    stock, _ = _row(workload, machine, STOCK, _stock(workload, machine, conditions, notes), everything, resident)
    meaning = "The setup with every expert in its slot: what its hit path allows."
    all_hit, _ = _row(workload, machine, ALL_HIT, meaning, everything, conditions)
    rows, last = [this, stock, all_hit], own
    others = list(_others(workload, setup, conditions, lookahead, notes))
    for other in others:
        if progress is not None:
            progress(len(rows), len(others) + 5)  # the floor and the hardware each take a row's time too
        if other.setup != last.setup:
            last = replay(workload, other.setup, record=True)
        rows.append(_row(workload, machine, other.name, other.meaning, last, other.conditions)[0])
    floor_row, floor = _floor_row(workload, machine, this, timed, setup, conditions)
    rows.append(floor_row)
    held = bottleneck(timed.work, timed.costs, conditions.execution)
    hardware = hardware_moves(workload, own, timed.work, machine, conditions)
    speeds = {row.name: row.tok_s for row in rows}
    named = {name: speeds[name] for name in (ALL_HIT, OVERLAPPED, "min") if name in speeds}
    return SpeedCeilings(
        trace=workload.trace.name,
        policy=setup.policy.spec,
        contract=setup.contract,
        scope=setup.scope,
        bank=str(setup.bank),
        prefetch=setup.prefetch.spec,
        machine=machine.name,
        execution=conditions.execution.name,
        verdict=speed_verdict(held, speeds[THIS], named, hardware),
        rows=tuple(rows),
        floor=floor,
        part_ms_per_token=timed.timing.part_ms_per_token,
        notes=tuple(notes),
    )


def all_hits(own: Replayed) -> Replayed:
    """The same calls with only hits, and nothing read ahead."""
    assert own.stream is not None
    assert own.hit is not None
    stream = own.stream
    none = np.zeros_like(stream.misses)
    hit = replace(
        stream,
        hits=stream.requests,
        misses=none,
        cold=none,
        evictions=none,
        aliased=none,
        bypassed=none,
        prefetch_issued=none,
        bytes_read=None if stream.bytes_read is None else np.zeros_like(stream.bytes_read),
        prefetch_bytes=None if stream.prefetch_bytes is None else np.zeros_like(stream.prefetch_bytes),
        ahead=ReadAhead.of([]),
    )
    return replace(own, hit=np.ones_like(own.hit), stream=hit)


class _Other(NamedTuple):
    name: str
    meaning: str
    setup: Setup
    conditions: Conditions


def _others(
    workload: Workload, setup: Setup, conditions: Conditions, lookahead: int, notes: list[str]
) -> Iterator[_Other]:
    """The setups with an oracle or an optimum; if one is impossible, the reason goes to the notes."""
    overlapped = replace(conditions, execution=OverlapPrefetch())
    try:
        oracle = replace(setup, prefetch=Oracle1())
    except BadInput as error:
        notes.append(f"{ORACLE}: {error}")
    else:
        yield _Other(ORACLE, "The next call's experts are read one call ahead, as the setup runs.", oracle, conditions)
        yield _Other(OVERLAPPED, "The same, with reads beside computing.", oracle, overlapped)
    if not conditions.execution.has_bank:
        notes.append(f"min: {conditions.execution.name} has no bank that a policy could fill")
        return
    if not optimum_known(workload, setup):
        notes.append("min: unknown if experts of different sizes share a bank of bytes")
        return
    for policy, meaning in (
        (Min(), "The fewest reads that any policy needs in these banks."),
        (MinForced(), "The fewest reads of a policy that admits every miss."),
        (Lookahead(steps=lookahead), f"The same with a view of {lookahead} steps, and LRU beyond."),
    ):
        best = comparable_setup(setup, policy)
        name = policy.spec if policy.name != Lookahead.name else f"{policy.name}-{lookahead}"
        yield _Other(name, meaning, best, conditions)
        if best.contract in Oracle1.contracts:
            ahead = replace(best, prefetch=Oracle1())
            yield _Other(
                f"{name}{PREFETCHED}", "The same, prefetched one call ahead, beside computing.", ahead, overlapped
            )


def _stock(workload: Workload, machine: Machine, conditions: Conditions, notes: list[str]) -> str:
    """The meaning of `stock`; whether it fits goes to the notes."""
    assert workload.geometry is not None
    budget = weights_of(workload, conditions).budget(machine, conditions)
    if budget.room_bytes == np.inf:
        return "Everything resident, with the ordinary loader; whether it fits is not known."
    if workload.geometry.routed_bytes <= budget.left_bytes:
        return "Everything resident, with the ordinary loader; it fits."
    needs = workload.geometry.routed_bytes + budget.taken_bytes
    notes.append(f"stock: {needs / GIB:.1f} GiB do not fit {machine.name}, which has {budget.room}")
    return "Everything resident, with the ordinary loader; it would not fit."


def _row(
    workload: Workload, machine: Machine, name: str, meaning: str, replayed: Replayed, conditions: Conditions
) -> tuple[Ceiling, Timed]:
    timed = time_replay(workload, replayed, machine, conditions, must_fit=name != STOCK)
    if timed.timing.tok_s is None:
        raise Incomplete(f"{workload.trace.name}: no decoded step whose tokens are known, so there is no speed")
    assert timed.tok_s_lo is not None
    assert timed.tok_s_hi is not None
    assert replayed.stream is not None
    stream = replayed.stream
    experts = _brought_in(timed.work, conditions.execution)
    tokens = workload.trace.tokens
    row = Ceiling(
        name=name,
        meaning=meaning,
        hit_rate=float(stream.hits.sum() / max(stream.requests.sum(), 1)),
        reads_per_token=float(experts.sum() / tokens),
        bytes_per_token=float(experts @ np.array(workload.expert_bytes, np.int64) / tokens),
        tok_s=timed.timing.tok_s,
        tok_s_lo=timed.tok_s_lo,
        tok_s_hi=timed.tok_s_hi,
        ms_per_token=1e3 / timed.timing.tok_s,
    )
    return row, timed


def _brought_in(work: Work, execution: ExecutionModel) -> NDArray[np.int64]:
    """How many experts of each row are brought to where they are computed: i64 [rows]."""
    rows = int(work.row.max()) + 1
    ahead = work.ahead_row if execution.reads_ahead else work.ahead_row[:0]
    missed = execution.brought_in(work)
    return (np.bincount(work.row, missed, rows) + np.bincount(ahead, minlength=rows)).astype(np.int64)


def _floor_row(
    workload: Workload, machine: Machine, this: Ceiling, timed: Timed, setup: Setup, conditions: Conditions
) -> tuple[Ceiling, Floor]:
    """The floor of `this`, with the interval from the machine's numbers."""
    floor = floor_of(timed.work, timed.costs, conditions.execution)
    some = last_steps(timed.work, INTERVAL_STEPS)

    def speed_on(other: Machine) -> float:
        return floor_of(some, costs_of(workload, setup, other, conditions), conditions.execution).tok_s

    lo, hi = ends(floor.tok_s, speed_draws(speed_on, machine, timed.timing.decode_step_s))
    meaning = f"What {floor.resource.replace('_', ' ')} would take if everything else were hidden behind it."
    row = replace(
        this, name=FLOOR, meaning=meaning, tok_s=floor.tok_s, tok_s_lo=lo, tok_s_hi=hi, ms_per_token=1e3 / floor.tok_s
    )
    return row, floor
