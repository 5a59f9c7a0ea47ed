"""`sim report`: one page with everything, to send to a colleague."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from warnings import warn

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed
from flashmoe_sim.options import FORCE, LENIENT, MODEL, MemoryOptions, Several, option, option_field
from flashmoe_sim.question import CONTRACT, RULES, ConditionOptions, SweepOptions, command_line
from flashmoe_sim.report.figure_files import FigureFiles
from flashmoe_sim.verbs.base import Message, Stages, Verb

if TYPE_CHECKING:
    from flashmoe_sim.drafts import Drafts
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.policies.bank import OneBank
    from flashmoe_sim.report.close import Material
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.systems.base import Case
    from flashmoe_sim.verbs.given import Model, Read

MOST_BY_DEPTH = 3  # systems whose speed is shown as the context fills
BANKS = 16  # sizes of the sweep that a report makes if none are requested
PAGES = (".html", ".htm")
OF_ROWS = ("bank", "policy", "contract")  # which a folder of results has already


@dataclass(frozen=True, eq=False)
class Page:
    """A page: its sections, and every file to write with its content, the page last."""

    content: list[Section]
    files: dict[Path, bytes]


@dataclass(frozen=True, kw_only=True)
class Report(MemoryOptions, FigureFiles, Verb[Page]):
    """Gather what a page shows of the rows of a sweep, of traces that are swept for it, or of a model alone.

    Without a trace, the model's bundled one is used, or one is made, like bundled ones of other models.
    Raises BadInput whenever a sweep does, for traces of several models on one machine, and for a machine without a
    model.
    """

    help: ClassVar[str] = """Write one web page with the answer, its figures and the evidence; it needs no network.

    RESULTS is a folder written by `sim sweep --out`: the page shows its rows. TRACE is a file, or a name from `sim
    trace catalog`. Alone, it is swept for the page; after RESULTS, it is a trace from the sweep, and adds what only a
    trace can show. A bundled trace need not be given after RESULTS. With --model alone, or a model's name, a trace is
    made for that model, like bundled ones of other models.

    \b
    Examples:  sim report python-256 --out report.html
               sim report gpt-oss-120b --machine rtx-4090 --out report.html
               sim report glm-4.5-air --machine rtx-4090 --out report.html
               sim report results/ my.jsonl --out report.html --figures figures/ \\
               --format pdf,csv --size 3.3in --font-size 8 --no-titles
    """

    sources: tuple[str, ...] = field(
        default=(), kw_only=False, metadata=option("[RESULTS|TRACE]...", "", positional=True)
    )
    out: Path = field(metadata=option("FILE", "The page to write, FILE.html."))
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

    force: bool = field(default=False, metadata=FORCE)
    lenient: bool = field(default=False, metadata=LENIENT)

    def check(self) -> None:
        """Raise BadInput for a page that cannot be written, and for figures that cannot be."""
        from flashmoe_sim.io.whole import refuse_existing
        from flashmoe_sim.report.page import check_installed

        if self.out.suffix.lower() not in PAGES:
            raise Malformed(f"{self.out}: the report is a web page; give --out a name that ends in .html")
        refuse_existing(self.out, force=self.force)
        self.check_figures()
        check_installed()
        self.check_font()

    def run(self, stages: Stages | None = None, read: Read | None = None, message: Message = warn) -> Page:
        """Gather, and make the page and its figures."""
        from flashmoe_sim.report.page import html
        from flashmoe_sim.report.report import sections
        from flashmoe_sim.residency.workload import names_model

        question = self
        if self.model is None and len(self.sources) == 1 and names_model(self.sources[0]):
            question = replace(self, sources=(), model=self.sources[0])
        rows, workloads = question._read(read, message)
        found = question.gather(rows, workloads, stages)
        content = sections(found, command=command_line("report", self))
        page = html(content[0].title, content)
        return Page(content, self.drawn(content, force=self.force) | {self.out: page.encode()})

    def finish(self, found: Page) -> Iterator[str]:
        """Write the page and the files of figures, all or none."""
        from flashmoe_sim.systems.files import write_together

        with self.folder_made():
            write_together(found.files, force=self.force)
        figures = sum(len(one.figures) for one in found.content)
        yield f"wrote {self.out}, {len(found.files[self.out]) / 1e6:.1f} MB, {figures} figures"
        if self.folder is not None:
            yield f"wrote {len(found.files) - 1} files to {self.folder}"

    def document(self, found: Page) -> dict[str, Any]:
        """What `--json` prints."""
        titles = [{"title": one.title, "figures": [figure.name for figure in one.figures]} for one in found.content]
        names = [str(path) for path in found.files if path != self.out]
        return {"path": str(self.out), "bytes": len(found.files[self.out]), "sections": titles, "figures": names}

    def sections(self, found: Page) -> list[Section]:
        """Nothing: the page has it."""
        return []

    def _read(self, read: Read | None, message: Message) -> tuple[list[dict[str, Any]], list[Workload]]:
        """The rows of the folder of results, and the traces that are given or in the catalogue."""
        from flashmoe_sim.report.results import bundled_traces, check_swept, is_results, of_traces, read_results
        from flashmoe_sim.sweep.workloads import plan_workloads
        from flashmoe_sim.verbs.given import workload_of

        model = None if self.model is None else str(self.model)
        folders = [Path(source) for source in self.sources if is_results(Path(source))]
        if len(folders) > 1:
            raise Conflict(f"{folders[1]}: a second folder of results; one page shows one folder")
        traces = [source for source in self.sources if Path(source) not in folders]
        if self.only is not None and not folders:
            raise Incomplete("--only chooses rows of a folder of results; give the folder, or that trace alone")
        workloads = [(read or workload_of)(trace, model, lenient=self.lenient) for trace in traces]
        if not folders:
            return [], plan_workloads(workloads, traces)
        given = [one.name for one in fields(self) if one.name in OF_ROWS and getattr(self, one.name) != one.default]
        if given:
            raise Conflict(
                f"--{given[0]} with the folder of results {folders[0]}: the page shows its rows; leave it out"
            )
        rows, notes = read_results(folders[0])
        for note in notes:
            message(note)
        rows = rows if self.only is None else of_traces(rows, self.only)
        check_swept(rows, workloads)
        return rows, workloads or bundled_traces(rows, model)

    def _measured(self) -> tuple[str | Path | None, list[str | Path]]:
        """The table of measured speeds to compare with, if there is one, and what engines printed."""
        from flashmoe_sim.measured.read import is_measured

        given = [self.measured] if isinstance(self.measured, str | Path) else list(self.measured)
        tables = [one for one in given if not is_measured(one)]
        if len(tables) > 1:
            raise Conflict(f"--measured: {tables[0]} and {tables[1]} are tables; give one")
        return next(iter(tables), None), [one for one in given if one not in tables]

    def gather(
        self, rows: Sequence[dict[str, Any]], workloads: Sequence[Workload], stages: Stages | None = None
    ) -> Material:
        """The material of the page.

        rows: of an earlier sweep; if there are none, the workloads are swept; without those, a trace of the model.
        """
        from flashmoe_sim.drafts import drafted
        from flashmoe_sim.report.close import Material, look_closely
        from flashmoe_sim.sweep.collect import sweep
        from flashmoe_sim.sweep.left_out import LeftOut, reasons
        from flashmoe_sim.sweep.plan import plan_conditions, plan_setup, plan_sweep
        from flashmoe_sim.systems.base import Case
        from flashmoe_sim.systems.borrow import borrow, bundled, by_depth
        from flashmoe_sim.systems.fits import better_file, instead
        from flashmoe_sim.systems.resolve import ALL, parse_systems, resolve
        from flashmoe_sim.timeline.from_rates import predict_rates
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
        stages = stages or (lambda what, done, total: None)
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
                progress=partial(stages, "replaying"),
                left_out=left_out,
            )
            notes += [] if self.bank is None else reasons(left_out)
        close, advice, depths = None, None, list[dict[str, Any]]()
        if first is None:
            wanting.append("Why it misses, and how experts are used: add the trace that was swept, after the folder.")
        else:
            case, seen = None if on is None else on.case, _as_swept(first, drafts, rows)
            close, why_not = look_closely(rows, seen, case, partial(stages, "looking closely"))
            wanting += why_not
        if on is not None and first is not None:
            try:
                compare = partial(stages, "comparing systems")
                advice = recommend(first, on.case, on.systems, borrowed=borrowed, progress=compare)
                advice = replace(advice, notes=(*about_trace, *on.notes))
                shown = [advice.best, *(one for one in advice.others if one.runs)][:MOST_BY_DEPTH]
                names = [one.best.system for one in shown]
                depths = by_depth(first, on.case, names, progress=partial(stages, "filling the context"))
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
