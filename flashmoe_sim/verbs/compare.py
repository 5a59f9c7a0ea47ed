"""`sim compare`: the real systems side by side, on one machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import (
    WAITS,
    Column,
    Item,
    Part,
    Section,
    Table,
    brief_interval,
    percent,
    speed,
    table,
)
from flashmoe_sim.io.sizes import GIB, MIB, three
from flashmoe_sim.options import MEASURED, MODEL, MemoryOptions, Several, option, option_field
from flashmoe_sim.question import MACHINE
from flashmoe_sim.verbs.base import DrawnVerb, Progress

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.report.figures.style import Chart
    from flashmoe_sim.systems.base import Case
    from flashmoe_sim.systems.compare import Compared
    from flashmoe_sim.systems.resolve import OneSystem
    from flashmoe_sim.tune.pays import Likely
    from flashmoe_sim.verbs.given import Model, Trace

DISPENSABLE = ("MiB/token", "hit %", "RAM")


def _one_rate(text: str) -> float:
    from flashmoe_sim.timeline.rates import parse_hit_rates

    rate = parse_hit_rates(text)[0].hit_rate
    assert rate is not None
    return rate


@dataclass(frozen=True, eq=False)
class Comparison:
    """The compared systems and their case.

    notes: what the user should know about trace and machine. borrowed: the note on a trace that was made from another
    model's, or empty. hit_rate: the one that every system has instead of a trace.
    """

    case: Case
    rows: list[Compared]
    notes: tuple[str, ...]
    borrowed: str = ""
    hit_rate: float | None = None

    def likely_faster(self) -> tuple[Compared, dict[str, Likely]] | None:
        """`tune.pays.likely_faster` of the rows.

        None at one hit rate, with which whole layers hit as often as a cache.
        """
        from flashmoe_sim.tune.pays import likely_faster

        return likely_faster(self.rows) if self.hit_rate is None else None

    def table(self) -> polars.DataFrame:
        """schema.COMPARED."""
        from flashmoe_sim.schema import COMPARED, frame

        return frame([row.as_row() for row in self.rows], COMPARED)


@dataclass(frozen=True, kw_only=True)
class Compare(MemoryOptions, DrawnVerb[Comparison]):
    """Compare real systems on a machine, like `sim compare`: a row of docs/reference/columns.md for each.

    >>> table = compare("gpt-oss-120b", machine="rtx-4090", systems="placed,cpu,all-gpu", kv="2GiB")
    >>> table["system"].to_list()
    ['placed', 'cpu', 'all-gpu']
    >>> table["why_not"][2]
    'takes 60.8 GiB of the GPU, which has 23.2 for it'

    The fastest comes first; systems that cannot run come last. Without a trace, one is made for `model`, like
    bundled ones of other models, with a warning, or `hit_rate`, 0 to 1, applies to all systems. Systems may be objects.
    Raises BadInput for unknown words, and for a trace that lacks layers of its model.
    """

    reads: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("model", "machine", "systems", "context", "depth", "measured")
    help: ClassVar[str] = """Compare engines and settings on a machine, and give the flags of each.

    TRACE is a file, or a name from `sim trace catalog`. Without one, or with a model's name in its place, a trace is
    made for that model, like bundled ones of other models, or --hit-rate applies to all systems.

    \b
    Examples:  sim compare gpt-oss-120b --machine rtx-4090
               sim compare --model qwen3-30b-a3b --machine "rtx-3060 + 64GiB"
    """

    trace: Trace | None = field(default=None, kw_only=False, metadata=option("[TRACE]", "", positional=True))
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine = field(metadata=MACHINE)
    systems: OneSystem | Iterable[OneSystem] = option_field(
        "all", "S,S", "Systems, with settings: slot-bank:slots=64; or engines, such as llama.cpp.", flag="--system"
    )
    measured: Several = field(default=(), metadata=MEASURED)
    best: bool = option_field(False, "", "Each system at its best setting instead of its default.")
    hit_rate: float | None = option_field(
        None, "R", "Instead of a trace: the hit rate of every system, 0.8 or 80%.", parse=_one_rate
    )
    full: bool = option_field(
        False, "", "Also show where to get each engine, and on how many speeds it rests.", on_command_line=True
    )

    def run(self, progress: Progress | None = None) -> Comparison:
        """Compare the systems on a trace, or on a model alone with a hit rate or a borrowed trace."""
        from flashmoe_sim.io.errors import Conflict, OutOfRange
        from flashmoe_sim.systems.compare import compare, with_filled, with_undrafted
        from flashmoe_sim.systems.fits import nothing_runs
        from flashmoe_sim.systems.resolve import parse_systems, resolve
        from flashmoe_sim.verbs.given import learnt_machine, names_no_quantization, workload_and_model

        workload, model = workload_and_model(self.trace, self.model)
        if self.hit_rate is not None and not 0 <= self.hit_rate <= 1:
            raise OutOfRange(f"--hit-rate {self.hit_rate:g}; expected 0 to 1")
        if workload is not None and self.hit_rate is not None:
            raise Conflict("a hit rate replaces a trace; give one of the two")
        if self.hit_rate is not None and self.best:
            raise Conflict("with one hit rate for every setting, none is best; give a trace instead")
        on = resolve(
            workload=workload,
            model=model,
            machine=learnt_machine(self.machine, self.measured, workload=workload, model=model, dense=self.dense),
            systems=parse_systems(self.systems, any_engine=True),
            memory=self,
            may_borrow=self.hit_rate is None,
            any_file=names_no_quantization(self.trace, self.model),
        )
        rows = compare(
            on.workload,
            on.case,
            on.systems,
            best=self.best,
            borrowed=bool(on.borrowed),
            hit_rate=self.hit_rate,
            progress=progress,
        )
        given: dict[str, Any] = {"borrowed": bool(on.borrowed), "hit_rate": self.hit_rate}
        if self.context:
            rows = [with_filled(on.workload, on.case, row, **given) for row in rows]
        rows = [with_undrafted(on.workload, on.case, row, **given) for row in rows]
        if not any(row.tok_s for row in rows):
            raise nothing_runs(on.case, [(row.system, row.why_not) for row in rows])
        notes = on.notes
        if known := [row.system.name for row in rows if row.hindsight and row.tok_s is not None]:
            notes = (*notes, f"{', '.join(known)}: the profile comes from this very trace, which flatters it")
        unknown = dict.fromkeys(row.system.title for row in rows if not row.system.has_command)
        notes += tuple(f"how {name} places experts is not modelled: its rows are of any engine" for name in unknown)
        ran = dict.fromkeys(row.system.name for row in rows if row.tok_s is not None)
        of_builds = {row.system.unsized.spec: row.system.of_builds(on.case) for row in rows if row.system.name in ran}
        notes = (*notes, *(f"{name} {clause}" for name, clauses in of_builds.items() for clause in clauses))
        return Comparison(on.case, rows, notes, on.borrowed, self.hit_rate)

    def document(self, found: Comparison) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.tune.pays import LIKELY_KEYS
        from flashmoe_sim.tune.proof import proof

        plain, likely = found.likely_faster() or (None, {})
        without = dict.fromkeys(LIKELY_KEYS)
        rows = []
        for row in found.rows:
            launch = row.launch
            shares = row.system.memory(found.case) if row.tok_s is not None else ()
            rows.append(
                row.as_row()
                | {
                    "published_speeds": proof(row.system, found.case).rows,
                    **(likely[row.system.spec].as_row() if row.system.spec in likely else without),
                    "get": row.system.get_row(found.case.machine),
                    "memory": [{"what": one.what, "where": one.where, "bytes": one.size_bytes} for one in shares],
                    "environment": dict(launch.environment) if launch else {},
                }
            )
        return {
            "model": found.case.model.name,
            "machine": found.case.machine.name,
            "context": found.case.context,
            "kv_bytes": found.case.kv_bytes,
            "drafts": None if found.case.drafts is None else asdict(found.case.drafts),
            "budget": [
                {"what": one.what, "where": one.where, "bytes": one.size_bytes, "why": one.why}
                for one in found.case.budget.terms()
            ],
            "notes": list(found.notes),
            "plain": None if plain is None else plain.system.spec,
            "rows": rows,
        }

    def chart(self, found: Comparison) -> Chart:
        """The systems by speed."""
        from flashmoe_sim.report.figures import systems

        return systems(found.table())

    def sections(self, found: Comparison) -> list[Section]:
        """A row for each system, the command line of each, and what cannot run."""
        parts: list[Part] = [_compared(found)]
        parts += filter(None, (_cache_pays(found),))
        lines: list[Part] = []
        for row in found.rows:
            if row.launch is not None:
                name = row.system.labelled(found.case.machine)
                lines += [name, row.launch.command(), *(_engine(row, found) if self.full else ())]
        cannot = [Item(f"  {row.system.spec}: {row.why_not}", 4) for row in found.rows if row.tok_s is None]
        made = [Section("", tuple(parts)), Section("", tuple(lines))]
        return [*made, Section("", ("cannot run here:", *cannot))] if cannot else made


def _caption(found: Comparison, legend: str) -> str:
    """The legend and the notes; what the machine was taken as, and each measurement, has a line of its own."""
    from flashmoe_sim.machines.basis import basis

    machine = found.case.machine
    taken = [sentence] if (sentence := basis(machine)) else []
    measured = () if machine.learnt is None else machine.learnt.notes
    alone = (*(sentence.removesuffix(".") for sentence in taken), *measured)
    others = [note for note in found.notes if note not in alone]
    return "\n".join(["; ".join([legend, *others]), *taken, *measured])


def _compared(found: Comparison) -> Table:
    from flashmoe_sim.machines.basis import heading

    ran = [row for row in found.rows if row.tok_s is not None]
    names = [row.system.name for row in ran]
    columns: list[Column] = [
        ("system", "left", lambda row: row.system.spec if names.count(row.system.name) > 1 else row.system.name),
        ("GPU", "right", lambda row: f"{(row.gpu_bytes or 0) / GIB:.1f}"),
        ("RAM", "right", lambda row: f"{(row.held_bytes or 0) / GIB:.1f}"),
        ("hit %", "right", lambda row: percent(row.hit_rate)),
        ("MiB/token", "right", lambda row: three((row.miss_bytes_per_token or 0) / MIB)),
        ("tok/s", "right", lambda row: speed(row.tok_s)),
        ("90%", "right", lambda row: brief_interval(row.tok_s_lo, row.tok_s_hi)),
        ("waits for", "right", _waits),
    ]
    caption = "GPU, RAM: GiB used, mapped files included; MiB/token: missed experts; waits for: most of a token's time"
    if found.case.drafts is not None:
        columns = [column for column in columns if column[0] != "MiB/token"]
        columns[-1:] = [
            ("plain", "right", lambda row: speed(row.undrafted and row.undrafted.tok_s)),
            ("pays", "right", _pays),
            columns[-1],
        ]
        caption = (
            "GPU, RAM: GiB used, mapped files included; plain: tok/s without drafts; pays: the acceptance from which "
            "drafts gain"
        )
    if any(row.filled for row in ran):
        place = [name for name, *_ in columns].index("90%") + 1
        columns.insert(place, ("full", "right", lambda row: speed(row.filled and row.filled.tok_s)))
        caption = f"full: tok/s with all {found.case.context:,} tokens in the context; {caption}"
    machine = found.case.machine
    taken_as = heading(machine)
    taken_as = taken_as if taken_as != machine.title else f"{machine.name}: {machine.title}"
    title = f"{found.case.model.name} on {taken_as}"
    return table(columns, ran, title=title, caption=_caption(found, caption), dispensable=DISPENSABLE)


def _cache_pays(found: Comparison) -> str:
    """How likely each cache is faster than the best setting without one; empty if there is nothing to compare."""
    plain, likely = found.likely_faster() or (None, {})
    if plain is None or not likely:
        return ""
    order = sorted(likely, key=lambda spec: -likely[spec].rank)
    sure = [(spec, one) for spec in order if (one := likely[spec]).p is not None]
    each = ", ".join(f"{spec} {one.p:.0%}{f' ({one.despite})' if one.despite else ''}" for spec, one in sure)
    none = ", ".join(f"{spec} ({likely[spec].why_none})" for spec in order if likely[spec].p is None)
    sentences = [f"Probability that a cache is faster than {plain.system.spec}: {each}."] if each else []
    sentences += [f"No difference from {plain.system.spec}: {none}."] if none else []
    return " ".join(sentences)


def _pays(row: Compared) -> str:
    """The acceptance from which drafts pay."""
    if row.pass_cost is None:
        return "-"
    return "never" if row.break_even_accept is None else f"{row.break_even_accept:.2f}"


def _engine(row: Compared, found: Comparison) -> list[Part]:
    """Where to get the engine, and on how many published speeds its prediction rests."""
    from flashmoe_sim.tune.proof import proof

    lines = [f"rests on: {proof(row.system, found.case).sentence}", *row.system.how_to_get(found.case.machine)]
    return [Item(f"  {line}", 4) for line in lines]


def _waits(row: Compared) -> str:
    """What most of a token's time waits for, and its share."""
    assert row.ms_per_token is not None
    most, ms = max(row.ms_per_token.items(), key=lambda group: group[1])
    return f"{WAITS[most][0]} {ms / sum(row.ms_per_token.values()):.0%}"
