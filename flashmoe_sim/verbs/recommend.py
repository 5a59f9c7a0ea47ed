"""`sim recommend`: what to run on a machine, with which flags, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, OutOfRange
from flashmoe_sim.io.notes import CUT_OFF, Note, code_of
from flashmoe_sim.io.sections import Column, Command, Item, Part, Section, brief_interval, speed, table
from flashmoe_sim.options import (
    ANSWER_TOKENS,
    FORCE,
    MEASURED,
    MODEL,
    OBJECTIVE,
    PROMPT_TOKENS,
    MemoryOptions,
    Several,
    option,
    option_field,
)
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.systems.base import Case
    from flashmoe_sim.systems.resolve import OneSystem
    from flashmoe_sim.tune.many import Cells
    from flashmoe_sim.tune.objective import Objective
    from flashmoe_sim.tune.recommend import Recommendation
    from flashmoe_sim.tune.runs_here import RunsHere, WhatRuns
    from flashmoe_sim.verbs.given import Model, Read, Trace

PAGES = (".md", ".html")
STRIP, GAP = 24, 2  # columns of a speed's strip in a table, and between two of the table's


@dataclass(frozen=True, kw_only=True)
class Recommend(MemoryOptions, Verb["Recommendation | Cells | WhatRuns"]):
    """Recommend an engine and its settings for a model on a machine, like `sim recommend`.

        found = sim.recommend("gpt-oss-120b", machine="rtx-4090")
        print(found.best.best.launch.line)

    Without a machine it is for the computer that it runs on. Without a trace, one is made for `model`, like bundled
    ones of other models, with a warning. Systems may be objects, and so may the objective. `buy` adds `.bought`.
    Raises BadInput for unknown words, and if nothing can run.
    """

    reads: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("model", "machine", "context", "measured", "why", "save")
    help: ClassVar[str] = """Recommend an engine and its flags for a model on a machine, with the evidence.

    TRACE is a file, or a name from `sim trace catalog`. Without one, or with a model's name in its place, a trace is
    made for that model, like bundled ones of other models.

    Without a model, it shows which models run: the most weights first, each in the largest usual GGUF file (of 8 to 2
    bits, or the model's own) that likely reaches --at-least: in two of three draws. It takes only engines that anybody
    can install.

    \b
    Examples:  sim recommend gpt-oss-120b
               sim recommend gpt-oss-120b --machine rtx-4090
               sim recommend --model qwen3-30b-a3b --machine "rtx-3060 + 64GiB"
               sim recommend gpt-oss-120b --buy --target 20 \\
                   --machine "rtx-3060 + ryzen-5600 + 32GiB + nvme-gen4"
               sim recommend gpt-oss-120b --machine all
               sim recommend --machine "rtx-3060 + 32GiB" --at-least 20
    """

    trace: Trace | None = field(default=None, kw_only=False, metadata=option("[TRACE]", "", positional=True))
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine = option_field(
        "this",
        "X",
        "A name from `sim machine list`, a file, parts, or the computer that it runs on; several with commas, or all.",
    )
    also: Iterable[Trace] = option_field(
        (), "TRACE", "Traces of other work with the same model, to check that the choice holds there."
    )
    systems: OneSystem | Iterable[OneSystem] = option_field(
        "all",
        "S,S",
        "Choose among these systems, with settings: slot-bank:top_k=4; see `sim system list`.",
        flag="--system",
    )
    measured: Several = field(default=(), metadata=MEASURED)
    objective: str | Objective | None = field(default="decode", metadata=OBJECTIVE)
    prompt_tokens: int | None = field(default=None, metadata=PROMPT_TOKENS)
    answer_tokens: int = field(default=500, metadata=ANSWER_TOKENS)
    buy: bool = option_field(False, "", "Show what better parts would gain; give --machine as parts.")
    target: float | None = option_field(None, "TOK/S", "With --buy: a speed to reach.", above=0)
    prices: str | Path | None = option_field(
        None, "FILE", "With --buy: only parts in this table, part,price; the cheapest first."
    )
    budget: float | None = option_field(
        None, "N", "With --buy: the most to spend; without --prices, at prices of cards at launch.", above=0
    )

    at_least: float | None = option_field(
        None,
        "TOK/S",
        "Without a model: show only models that likely reach this speed; default: all, in groups by 10.",
        above=0,
    )
    why: bool = option_field(
        False, "", "The whole advice: sizes, settings, other systems, what it rests on.", on_command_line=True
    )
    save: Path | None = option_field(
        None,
        "FILE",
        "Also write the advice to FILE.md, or to FILE.html with a card on top and its picture FILE.png; and the files "
        "named in its command next to it.",
        on_command_line=True,
    )
    force: bool = field(default=False, metadata=FORCE)

    def __post_init__(self) -> None:
        if self.target is not None and not self.buy:
            raise Incomplete("--target is the speed that --buy must reach; add --buy (in Python, buy=True)")
        if self.prices is not None and not self.buy:
            raise Incomplete("--prices is for --buy; add it (in Python, buy=True)")
        if self.budget is not None and not self.buy:
            raise Incomplete("--budget is for --buy; add it (in Python, buy=True)")

    def check(self) -> None:
        """Raise BadInput for a page that cannot be written, and for names that are not of one table."""
        from flashmoe_sim.io.whole import refuse_existing
        from flashmoe_sim.systems.files import possible_files
        from flashmoe_sim.verbs.given import trace_and_model

        if (save := self.save) is not None:
            if save.suffix not in PAGES:
                raise Malformed(f"{save}: expected a name that ends in {' or '.join(PAGES)}")
            if save.suffix == ".html":
                from flashmoe_sim.report.page import check_installed

                check_installed()
            earlier = any(save.with_suffix(suffix).exists() for suffix in PAGES)  # whose files may well be the same
            picture = [save.with_suffix(".png")] if save.suffix == ".html" else []
            for path in (save, *picture, *([] if earlier else possible_files(save.parent, save.stem))):
                refuse_existing(path, force=self.force)
        trace, model = trace_and_model(self.trace, self.model)
        if self._asks_what_runs():
            self._check_what_runs()
        elif self.at_least is not None:
            raise Conflict("--at-least chooses among all models; leave out the model, or --at-least")
        machines, models = self._names()
        for flag, text, names in (("--machine", self.machine, machines), ("--model", model, models)):
            if "" in names:
                raise Malformed(f"{flag} {text!r}: an empty name; give names with commas between them")
        if trace is not None and len(models) > 1:
            raise Conflict("a trace is of one model; leave it out to compare models")
        if self._several() and not self._makes_a_table():
            raise Conflict("several machines or models make one table; give one of each for the full advice")

    def _names(self) -> tuple[list[str], list[str]]:
        """The machines and the models."""
        from flashmoe_sim.machines.load import machines_in
        from flashmoe_sim.machines.table import PRESETS
        from flashmoe_sim.verbs.given import trace_and_model

        _, model = trace_and_model(self.trace, self.model)
        machines = list(PRESETS) if self.machine == "all" else machines_in(str(self.machine))
        return machines, [] if model is None else [name.strip() for name in str(model).split(",")]

    def _taken(self) -> list[str]:
        """What each machine was taken as; of all presets, `sim machine list` says it."""
        from flashmoe_sim.machines.basis import basis, uncounted
        from flashmoe_sim.machines.load import load_machine

        machines = [] if self.machine == "all" else [load_machine(name) for name in self._names()[0]]
        each = [sentence for one in machines for sentence in (basis(one), uncounted(one))]
        return [sentence.removesuffix(".") for sentence in each if sentence]

    def _asks_what_runs(self) -> bool:
        """Whether neither a model nor a trace is given."""
        return self.trace is None and self.model is None

    def _check_what_runs(self) -> None:
        """Raise BadInput for what is asked of one model only."""
        given = {
            "--also": self.also,
            "--measured": self.measured,
            "--buy": self.buy,
            "--save": self.save,
            "--objective": self.objective != "decode",
            "--dense": self.dense,
            "--kv": self.kv,
            "--depth": self.depth,
            "--draft": self.draft,
        }
        if of_one := [flag for flag, value in given.items() if value]:
            raise Incomplete(f"{of_one[0]} is about one model; give it: --model gpt-oss-20b")
        if len(self._names()[0]) > 1:
            raise Incomplete("several machines: give one model, or one machine to see which models run there")

    def _several(self) -> bool:
        return any(len(names) > 1 for names in self._names())

    def _makes_a_table(self) -> bool:
        """Whether nothing is requested that only the full advice has."""
        return not (self.also or self.buy or self.save is not None or self.objective != "decode")

    def run(self, progress: Progress | None = None, read: Read | None = None) -> Recommendation | Cells | WhatRuns:
        """The advice, or the fastest for several machines or models."""
        if self._asks_what_runs() and self._makes_a_table():
            return self.what_runs(progress)
        if self._several():
            return self.run_each(*self._names(), progress, read)
        found = self.advise(progress, read)
        return found if self.save is None else _with_files(found, self.save.parent, self.save.stem)[0]

    def advise(
        self, progress: Progress | None = None, read: Read | None = None, replays: dict[str, Any] | None = None
    ) -> Recommendation:
        """Recommend for a trace, or for a model alone with a borrowed trace.

        replays: by the model's full name, from advice on other machines; new ones are added.
        """
        from flashmoe_sim.systems.resolve import resolve
        from flashmoe_sim.tune.prices import launch_prices, read_prices
        from flashmoe_sim.tune.recommend import Purchase, recommend, refuse_other_models, with_transfers
        from flashmoe_sim.tune.shop import parts_of
        from flashmoe_sim.verbs.given import learnt_machine, names_no_quantization, workload_and_model, workload_of

        read = read or workload_of
        workload, model = workload_and_model(self.trace, self.model, read=read)
        runs_on = learnt_machine(self.machine, self.measured, workload=workload, model=model, dense=self.dense)
        goal = self._goal()
        memory = replace(self, context=self._context(goal, workload.geometry if workload is not None else model))
        on = resolve(
            workload=workload,
            model=model,
            machine=runs_on,
            systems=self.systems,
            memory=memory,
            any_file=names_no_quantization(self.trace, self.model),
        )
        assert on.workload is not None
        prices = None
        if self.prices is not None:
            prices = read_prices(Path(self.prices), self.budget)
        elif self.budget is not None:
            prices = launch_prices(self.budget)
        others = [read(other, self.model if model is None else model) for other in self.also]
        refuse_other_models(on.workload, others)
        found = recommend(
            on.workload,
            on.case,
            on.systems,
            objective=goal,
            borrowed=bool(on.borrowed),
            replays=None if replays is None else replays.setdefault(on.case.model.name, {}),
            purchase=Purchase(parts_of(runs_on.name), self.target, prices) if self.buy else None,
            progress=progress,
        )
        if others:
            found = with_transfers(found, others)
        of_model = [note for note in on.case.model.notes if code_of(note) == CUT_OFF]
        cut_off = [Note(CUT_OFF, f"{on.case.model.name}: {note}") for note in of_model]
        return replace(found, notes=(*on.notes, *cut_off))

    def what_runs(self, progress: Progress | None = None) -> WhatRuns:
        """Which of all models the machine runs.

        Raises BadInput for unknown words, and if none runs.
        """
        from flashmoe_sim.systems.resolve import parse_systems, resolve
        from flashmoe_sim.tune.runs_here import GOOD_TOK_S, what_runs
        from flashmoe_sim.verbs.given import machine_of

        machine, systems = machine_of(self.machine), parse_systems(self.systems)

        def case_of(model: ModelGeometry) -> Case:
            return resolve(
                workload=None, model=model, machine=machine, systems=systems, memory=self, may_borrow=False
            ).case

        return what_runs(case_of, systems, at_least_tok_s=self.at_least or GOOD_TOK_S, progress=progress)

    def run_each(
        self,
        machines: Sequence[str],
        models: Sequence[str],
        progress: Progress | None = None,
        read: Read | None = None,
    ) -> Cells:
        """The fastest system for one model on each of the machines, or for each of the models on one machine.

        Raises BadInput for several models on several machines, and for unknown words.
        """
        from flashmoe_sim.geometry.load import load_model
        from flashmoe_sim.machines.load import load_machine
        from flashmoe_sim.systems.fits import file_that_fits
        from flashmoe_sim.systems.resolve import parse_systems, resolve
        from flashmoe_sim.tune.many import over_machines, over_models
        from flashmoe_sim.verbs.given import names_no_quantization, trace_and_model, workload_of

        if self.measured:
            raise Conflict("--measured: speeds are of one machine and one model; give one of each")
        if len(models) > 1 and len(machines) > 1:
            raise Conflict("several models on several machines; give one model, or one machine")
        trace, of_trace = trace_and_model(self.trace, self.model)
        workload = None if trace is None else (read or workload_of)(trace, of_trace)
        on_machines, of_models = [load_machine(name) for name in machines], [load_model(name) for name in models]
        if len(models) > 1:
            on = [
                resolve(
                    workload=None,
                    model=model,
                    machine=on_machines[0],
                    systems=self.systems,
                    memory=self,
                    may_borrow=False,
                    any_file=names_no_quantization(None, name),
                )
                for name, model in zip(models, of_models, strict=True)
            ]
            return over_models([one.case for one in on], on[0].systems, progress=progress)
        of_model = next(iter(of_models), None)
        chosen = parse_systems(self.systems)
        if of_model is not None and names_no_quantization(None, models[0]):
            of_model = file_that_fits(of_model, on_machines, chosen)
        first = resolve(
            workload=workload,
            model=of_model,
            machine=on_machines[0],
            systems=chosen,
            memory=self,
            must_fit=False,
        )
        assert first.workload is not None
        return over_machines(
            first.workload, first.case, first.systems, on_machines, borrowed=bool(first.borrowed), progress=progress
        )

    def _goal(self) -> Objective:
        from flashmoe_sim.tune.objective import Objective

        if isinstance(self.objective, Objective):
            return self.objective
        return Objective(
            goal=self.objective or "decode",
            prompt_tokens=self.prompt_tokens or 0,
            answer_tokens=self.answer_tokens,
        )

    def _context(self, goal: Objective, model: ModelGeometry | None) -> int | None:
        """The context: as given, or else what depth, prompt and answer need if that is more than the default."""
        from flashmoe_sim.systems.resolve import DEFAULT_CONTEXT

        before = (self.depth or 0) if goal.tokens else 0
        needed = before + goal.tokens
        if self.context and self.context < needed:
            what = "depth, prompt and answer" if before else "prompt and answer"
            raise OutOfRange(f"--context {self.context}: {what} have {needed:,} tokens; give at least as many")
        if self.context is not None or self.kv is not None or model is None or model.attention is None:
            return self.context
        return needed if needed > DEFAULT_CONTEXT else None

    def finish(self, found: Recommendation | Cells | WhatRuns) -> Iterator[str]:
        """Write the page, and the files named in its command next to it."""
        from flashmoe_sim.tune.recommend import Recommendation

        if self.save is None or not isinstance(found, Recommendation):
            return
        from flashmoe_sim.io.provenance import program, today
        from flashmoe_sim.io.sections import markdown
        from flashmoe_sim.question import command_line
        from flashmoe_sim.report.advice import sections
        from flashmoe_sim.report.card import card_of
        from flashmoe_sim.report.figures.compared import picture
        from flashmoe_sim.report.page import html, preview
        from flashmoe_sim.systems.files import write_together

        content = sections(_with_files(found, Path(), self.save.stem)[0])  # its reader has another folder
        content[0] = replace(content[0], parts=(f"{today()}, {program()}", *content[0].parts))
        _, files = _with_files(found, self.save.parent, self.save.stem)
        if self.save.suffix == ".html":
            card = card_of(found, command_line("recommend", replace(self, save=None, force=False)))
            at = next(number for number, part in enumerate(content[0].parts, 1) if isinstance(part, Command))
            parts = content[0].parts
            content[0] = replace(content[0], parts=(*parts[:at], picture(found), *parts[at:]))
            title, image = content[0].title, self.save.with_suffix(".png")
            content[0] = replace(content[0], title="The whole advice")
            page = html(title, content, card=card, image=image.name)
            files[image] = preview(card)
        else:
            page = markdown(content)
        files[self.save] = page.encode()
        write_together(files, force=self.force)
        yield from (f"wrote {path}" for path in files)

    def document(self, found: Recommendation | Cells | WhatRuns) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.tune.recommend import Recommendation

        if isinstance(found, Recommendation):
            from flashmoe_sim.report.advice_json import document

            return document(found)
        from flashmoe_sim.tune.runs_here import WhatRuns

        if isinstance(found, WhatRuns):
            return {"at_least_tok_s": found.at_least_tok_s, "rows": found.rows(), "notes": self._taken()}
        rows = [cell.as_row() for cell in found.cells]
        return {"rows": rows, "evaluations": found.evaluations, "notes": self._taken()}

    def sections(self, found: Recommendation | Cells | WhatRuns) -> Iterable[Section]:
        """The whole advice, or a row for each machine or model."""
        from flashmoe_sim.tune.recommend import Recommendation

        if isinstance(found, Recommendation):
            from flashmoe_sim.report import advice, first_screen

            return advice.sections(found) if self.why else first_screen.sections(found)
        from flashmoe_sim.tune.runs_here import WhatRuns

        if isinstance(found, WhatRuns):
            from flashmoe_sim.verbs.given import machine_of

            taken = [f"{sentence}." for sentence in self._taken()]
            return _what_runs(found, machine_of(self.machine).title, taken, all_groups=self.at_least is None)
        of_machines = len(self._names()[0]) > 1
        taken = [f"{sentence}." for sentence in self._taken()]
        return [Section("", (*_fastest(found, of_machines=of_machines), *taken))]


def _with_files(found: Recommendation, folder: Path, stem: str) -> tuple[Recommendation, dict[Path, bytes]]:
    """The advice with a command line that names files in this folder, and the files."""
    from flashmoe_sim.systems.files import with_files

    best = found.best.best
    own = None if found.borrowed else found.workload
    launch, files = with_files(best.system, found.case, own, folder, stem)
    return replace(found, best=replace(found.best, best=replace(best, launch=launch))), files


def _fastest(cells: Cells, *, of_machines: bool) -> list[Part]:
    """The fastest system for each machine or model, and its command line."""
    name = attrgetter("machine" if of_machines else "model")
    columns: list[Column] = [
        ("machine" if of_machines else "model", "left", name),
        ("setting", "left", lambda cell: cell.found.system.spec),
        ("tok/s", "right", lambda cell: speed(cell.found.tok_s)),
        ("90%", "right", lambda cell: brief_interval(cell.found.tok_s_lo, cell.found.tok_s_hi)),
    ]
    ran = [cell for cell in cells.fastest if cell.found.tok_s is not None]
    cannot = [name(cell) for cell in cells.fastest if cell.found.tok_s is None]
    title = cells.cells[0].model if of_machines else cells.cells[0].machine
    made = table(columns, ran, title=title, caption=f"{cells.evaluations} settings were timed")
    limited = [Item(f"{name(cell)}: {cell.limited}.", 2) for cell in cells.fastest if cell.limited]
    return [made, *([f"nothing runs: {', '.join(cannot)}"] if cannot else []), *limited]


def _what_runs(found: WhatRuns, title: str, taken: Sequence[str], *, all_groups: bool) -> Iterator[Section]:
    """The models that run well, those that run slowly unless a speed was asked for, and how many others there are."""
    from flashmoe_sim.geometry.named import file_bytes
    from flashmoe_sim.report.first_screen import WIDE, likely, number, span_of
    from flashmoe_sim.report.strip import LEAST, axis_of, in_a_row, powers
    from flashmoe_sim.tune.runs_here import NO, SLOW, WELL

    well, slow, no = (found.of(how) for how in (WELL, SLOW, NO))
    spans = {one: span_of("", one.found, first=True) for one in (*well, *slow)}
    axis = axis_of(list(spans.values()), [])._replace(least=LEAST)
    columns: list[Column] = [
        ("model and file", "left", lambda one: one.model.name + "*" * _reads(one)),
        ("GB", "right", lambda one: f"{file_bytes(one.model) / 1e9:.1f}"),
        ("tok/s", "right", lambda one: number(one.found.tok_s)),
        ("likely", "right", lambda one: likely(one.found.tok_s_lo, one.found.tok_s_hi)),
    ]
    taken_up = (
        sum(max(len(head), *(len(cell(one)) for one in spans)) + GAP for head, _, cell in columns) if spans else 0
    )
    width = min(STRIP, WIDE - taken_up)
    columns.append((powers(axis, width), "left", lambda one: in_a_row(spans[one], axis, width)))
    at_least = f"{found.at_least_tok_s:g} tok/s"

    def shown(models: Sequence[RunsHere]) -> Part:
        return table(columns, models)

    first: Part = shown(well)
    if not well:
        fastest = max(slow, key=lambda one: one.found.tok_s or 0.0)
        first = f"None; the fastest is {fastest.model.name}, {speed(fastest.found.tok_s)} tok/s."
    yield Section(f"Runs well on {title}: likely {at_least} or more", (first,))
    if all_groups and slow:
        yield Section(f"Runs, but perhaps below {at_least}", (shown(slow),))
    is_starred = any(_reads(one) for one in (*well, *(slow if all_groups else ())))
    stars = " *: some experts are read from the SSD for most tokens." if is_starred else ""
    left = f"Does not run, or below a token a second: {len(no)} of {len(found.models)} models."
    if not all_groups:
        left = f"Slower, or does not run: {len(slow) + len(no)} of {len(found.models)} models."
    yield Section(
        "",
        (
            left,
            "The models with the most weights come first. GB: of the file, the largest usual one that likely reaches "
            f"{at_least} (in two of three draws), else the smallest. likely: nine of ten measured speeds should lie "
            f"there.{stars}",
            *taken,
            "`sim recommend MODEL` with this machine has the command line, and also tries forks.",
        ),
    )


def _reads(one: RunsHere) -> bool:
    """Whether experts are read from storage while it runs."""
    return (one.found.ms_per_token or {}).get("read", 0.0) > 0
