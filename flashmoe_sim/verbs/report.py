"""`sim report`: one page with everything, to send to a colleague."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete
from flashmoe_sim.options import MODEL, MemoryOptions, Several, option, option_field
from flashmoe_sim.question import CONTRACT, RULES, ConditionOptions, SweepOptions

if TYPE_CHECKING:
    from flashmoe_sim.drafts import Drafts
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.policies.bank import OneBank
    from flashmoe_sim.report.material import Material, Progress
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.systems.base import Case
    from flashmoe_sim.verbs.given import Model

MOST_BY_DEPTH = 3  # systems whose speed is shown as the context fills
BANKS = 16  # sizes of the sweep that a report makes if none are requested


@dataclass(frozen=True, kw_only=True)
class Report(MemoryOptions):
    """Gather what a page shows of the rows of a sweep, of traces that are swept for it, or of a model alone.

    Without a trace, the model's bundled one is used, or one is made, like bundled ones of other models.
    Raises BadInput whenever a sweep does, for traces of several models on one machine, and for a machine without a
    model.
    """

    sources: tuple[str, ...] = field(
        default=(), kw_only=False, metadata=option("[RESULTS|TRACE]...", "", positional=True)
    )
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine | None = option_field(
        None, "X", "Say how fast it runs, and what to run, on this machine: a name, a file, or parts."
    )
    bank: OneBank | None = option_field(None, "SIZES", "Sizes as for `sim sweep`; default: 16 sizes up to all experts.")
    policy: str = field(default="lru", metadata=RULES)
    contract: str = field(default="protected", metadata=CONTRACT)
    only: str | None = option_field(None, "TRACE", "Of RESULTS, only the rows of this trace; several with commas.")
    measured: Several = option_field(
        (),
        "FILE|SPEED",
        "Speeds that an engine printed on this machine, as for `sim recommend`; or a table of hit rates with "
        "measured speeds, as for `sim predict --table`, to compare with.",
    )

    def _measured(self) -> tuple[str | Path | None, list[str | Path]]:
        """The table of measured speeds to compare with, if there is one, and what engines printed."""
        from flashmoe_sim.measured.read import is_measured

        given = [self.measured] if isinstance(self.measured, str | Path) else list(self.measured)
        tables = [one for one in given if not is_measured(one)]
        if len(tables) > 1:
            raise Conflict(f"--measured: {tables[0]} and {tables[1]} are tables; give one")
        return next(iter(tables), None), [one for one in given if one not in tables]

    def gather(
        self, rows: Sequence[dict[str, Any]], workloads: Sequence[Workload], progress: Progress | None = None
    ) -> Material:
        """The material of the page.

        rows: of an earlier sweep; if there are none, the workloads are swept; without those, a trace of the model.
        """
        from flashmoe_sim.drafts import drafted
        from flashmoe_sim.report.close import look_closely
        from flashmoe_sim.report.material import Material
        from flashmoe_sim.sweep.collect import sweep
        from flashmoe_sim.sweep.left_out import LeftOut, reasons
        from flashmoe_sim.sweep.plan import plan_conditions, plan_setup, plan_sweep
        from flashmoe_sim.sweep.predictions import predict_rates
        from flashmoe_sim.systems.base import Case
        from flashmoe_sim.systems.borrow import borrow, bundled
        from flashmoe_sim.systems.by_depth import by_depth
        from flashmoe_sim.systems.fits import better_file, instead
        from flashmoe_sim.systems.resolve import ALL, parse_systems, resolve
        from flashmoe_sim.timeline.rates import percent_or_share, read_rates
        from flashmoe_sim.tune.recommend import recommend
        from flashmoe_sim.verbs.given import learnt_machine, machine_of, model_of, names_no_quantization

        wanting: list[str] = []
        about_trace: list[str] = []
        borrowed = False
        if not rows and not workloads:
            if (model := model_of(self.model)) is None:
                raise Incomplete("give a trace, a folder of results or --model; see `sim trace catalog`")
            if self.machine is not None and names_no_quantization(None, self.model):
                usual, systems = Case(model, machine_of(self.machine)), parse_systems(ALL)
                if other := better_file(usual, systems):
                    model = other[0]
                    about_trace.append(instead(usual, systems, other))
            own = bundled(model)
            workload, note = own or borrow(model)
            workloads, borrowed = [workload], own is None
            about_trace.append(note)
        notes = list(about_trace)
        if self.measured and (self.machine is None or not workloads):
            raise Incomplete("--measured is compared with predictions; give a trace or --model, and --machine")
        table, speeds = self._measured()
        machine = None if self.machine is None else machine_of(self.machine)
        tell = progress or (lambda what, done, total: None)
        first = next(iter(workloads), None)
        on = None
        if machine is None:
            if any(getattr(self, item.name) is not None for item in fields(MemoryOptions)):
                raise Incomplete("memory and drafts count on a machine; give --machine too, see `sim machine list`")
            seconds = "Ceilings" if any(row["tok_s"] is not None for row in rows) else "Decode speeds"
            wanting.append(f"{seconds}, the systems and what to run: add `--machine`, such as `--machine rtx-4090`.")
        elif first is not None:
            if len({None if one.geometry is None else one.geometry.name for one in workloads}) > 1:
                raise Conflict("traces of several models on one machine; give traces of one model")
            machine = learnt_machine(machine, speeds, workload=first)
            on = resolve(workload=first, model=None, machine=machine, memory=self, must_fit=False)
            machine = on.case.machine
            notes += on.notes
        swept, drafts = not rows, None if on is None else on.case.drafts
        if swept:
            left_out: list[LeftOut] = []
            question = SweepOptions(
                bank=self.bank if self.bank is not None else _sizes(workloads),
                policy=self.policy,
                contract=self.contract,
                machine=machine,
                dense=None if on is None else self.dense,
                **({} if on is None else _context(on.case)),
            )
            setups, plain = plan_sweep(question, left_out=left_out)
            rows = sweep(
                [drafted(one, drafts) for one in workloads],
                setups,
                machines=[] if machine is None else [machine],
                conditions=lambda setup, model: replace(plain(setup, model), drafts=drafts),
                progress=_of(tell, "replaying"),
                left_out=left_out,
            )
            notes += [] if self.bank is None else reasons(left_out)
        close, advice, depths = None, None, list[dict[str, Any]]()
        if first is None:
            wanting.append("Why it misses, and how experts are used: add the trace that was swept, after the folder.")
        else:
            case, seen = None if on is None else on.case, _as_swept(first, drafts, rows)
            close, why_not = look_closely(rows, seen, case, _of(tell, "looking closely"))
            wanting += why_not
        if on is not None and first is not None:
            try:
                compare = _of(tell, "comparing systems")
                advice = recommend(first, on.case, on.systems, borrowed=borrowed, progress=compare)
                advice = replace(advice, notes=(*about_trace, *on.notes))
                shown = [advice.best, *(one for one in advice.others if one.runs)][:MOST_BY_DEPTH]
                names = [one.best.system for one in shown]
                depths = by_depth(first, on.case, names, progress=_of(tell, "filling the context"))
            except BadInput as error:
                wanting.append(f"What to run: {error}.")
        if machine is not None and not any(row["machine"] == machine.name for row in rows):
            wanting.append(f"Decode speeds of these rows: sweep into the folder with `--machine {machine.name}`.")
        compared: list[dict[str, Any]] = []
        if table is None:
            also = ", and `--machine`" if machine is None else ""
            wanting.append(f"Predicted against measured: add `--measured FILE`, a table with measured speeds{also}.")
        else:
            assert on is not None
            case, rates = on.case, read_rates(table)
            on_it = plan_conditions(plan_setup(1), ConditionOptions(dense=case.model.dense_bytes, **_context(case)))
            on_it = replace(on_it, drafts=case.drafts)
            compared = [row.as_row() for row in predict_rates(rates, case.model, case.machine, on_it)]
            notes += filter(None, [percent_or_share(rates)])
        return Material(
            rows,
            swept,
            {one.trace.content_id: one for one in (_as_swept(one, drafts, rows) for one in workloads)},
            machine,
            close,
            advice,
            depths,
            compared,
            tuple(wanting),
            tuple(dict.fromkeys(notes)),
        )


def _as_swept(workload: Workload, drafts: Drafts | None, rows: Sequence[dict[str, Any]]) -> Workload:
    """The workload of the rows: with the drafts if any row is of the drafted one."""
    from flashmoe_sim.drafts import drafted

    seen = drafted(workload, drafts)
    return seen if any(row["trace_id"] == seen.trace.content_id for row in rows) else workload


def _context(case: Case) -> dict[str, Any]:
    """The options that mean the context of a case."""
    return {"kv": case.kv_bytes, "kv_type": case.kv_type, "depth": case.depth}


def _sizes(workloads: Sequence[Workload]) -> list[int]:
    """Sizes in equal steps up to all experts of the widest trace."""
    most = max(max(one.trace.n_experts.values()) for one in workloads)
    return sorted({max(1, most * number // BANKS) for number in range(1, BANKS + 1)})


def _of(tell: Progress, what: str) -> Callable[[int, int], None]:
    return lambda done, total: tell(what, done, total)
