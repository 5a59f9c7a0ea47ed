"""`sim tune`: the fastest setting of a real engine, found by a handful of runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.cli.common import message
from flashmoe_sim.cli.progress import working
from flashmoe_sim.io.errors import BadInput, Interrupted, SimError, Unsupported, Unusable
from flashmoe_sim.io.sections import Column, Command, Part, Section, speed, table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import (
    ANSWER_TOKENS,
    FORCE,
    MEASURED,
    OBJECTIVE,
    PROMPT_TOKENS,
    MemoryOptions,
    Several,
    option,
    option_field,
)
from flashmoe_sim.verbs.base import Verb
from native_bridge.verbs.base import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashmoe_sim.machines.machine import Machine, OneMachine
    from flashmoe_sim.systems.base import Case, Launch, System
    from flashmoe_sim.tune.grid import Grid
    from flashmoe_sim.tune.objective import Objective
    from flashmoe_sim.tune.trials import Trial
    from native_bridge.tuning.program import Program
    from native_bridge.tuning.session import Session, TunedRun

MACHINE = "machine.toml"  # in the folder
FIRST = 6  # settings that --dry-run shows
SPILLED = "much slower than with less in the GPU's memory, which is likely full"
UNSTEADY = 0.1  # of a speed: runs alike that differ by more are told


@dataclass(frozen=True, eq=False)
class Tuned:
    """A search after its runs, or before them. ended: why nothing more is run: sure, even, time, all or failed."""

    session: Session
    ended: str
    dry: bool = False
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Trial | None:
        """The fastest setting; None if none ran."""
        place = self.session.search.best
        return None if place is None else self.session.grid.trials[place]

    @property
    def best_seconds(self) -> float | None:
        """Of the objective, the median of its runs."""
        from statistics import median

        runs = [] if self.best is None else [run for run in self.session.runs if run.trial == self.best]
        return median(run.outcome.seconds for run in runs if run.outcome.seconds) if runs else None

    @property
    def launch(self) -> Launch | None:
        """What starts the engine with the fastest setting."""
        place = self.session.search.best
        return None if place is None else self.session.launch(place)


@dataclass(frozen=True, kw_only=True)
class Tune(MemoryOptions, Verb[Tuned]):
    """Find the fastest setting of a real engine by running it, like `sim tune`."""

    keeps: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("engine", "minutes", "objective", "machine", "systems", "dry_run")
    help: ClassVar[
        str
    ] = """Find the fastest setting of an engine on this machine: run it at a few, and let each run say which is next.

    MODEL is a GGUF file. llama-bench and llama-server are part of llama.cpp and of ik_llama.cpp. Tried are layers on
    the CPU, cuts between GPUs, threads and pinning, loading and, if the prompt counts, micro-batches; with a
    llama-server that has it, the cache of experts, and up to --draft drafted tokens; with the patched llama-cli slots,
    prefetch and how misses are read; and with --system a fork's own settings. Nothing changes the text without
    --may-change-text. It ends when nothing else is likely more than 3% faster, or when the time is up.
    Every run is kept in the folder of --out; the same command goes on.

    \b
    Examples:  sim tune gpt-oss-20b.gguf
               sim tune gpt-oss-20b.gguf --engine bin/llama-bench \\
                   --objective both --prompt-tokens 4000 --minutes 20
    """

    model: Path = field(kw_only=False, metadata=option("MODEL", "", positional=True))
    engine: str | None = option_field(
        None,
        "PROGRAM",
        "The llama-bench, llama-server or patched llama-cli to run; default: on the PATH.",
        on_command_line=True,
    )
    sidecar: Path | None = option_field(
        None,
        "DIR",
        "The model's sidecar for the patched llama-cli; default: written beside the runs.",
        on_command_line=True,
    )
    out: Path | None = option_field(None, "DIR", "The folder of the runs; default: tune-MODEL.")
    minutes: float = option_field(10.0, "M", "Time for all runs.", above=0)
    objective: str = field(default="decode", metadata=OBJECTIVE)
    prompt_tokens: int | None = field(default=None, metadata=PROMPT_TOKENS)
    answer_tokens: int = field(default=500, metadata=ANSWER_TOKENS)
    machine: OneMachine = option_field("this", "X", "This machine; default: as `sim machine this` sees it.")
    systems: str | None = option_field(
        None,
        "S,S",
        "Only these systems, with settings: placed:ubatch=2048; default: all that it runs.",
        flag="--system",
    )
    measured: Several = field(default=(), metadata=MEASURED)
    may_change_text: bool = option_field(
        False, "", "Also try what changes the text: quantized keys and values, fewer experts a token."
    )
    dry_run: bool = option_field(False, "", "Only say what it would run, and for how long.", on_command_line=True)
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> Tuned:
        """Run settings until the fastest is known."""
        session, notes = self.session()
        if self.dry_run:
            return Tuned(session, "", dry=True, notes=notes)
        session.open(force=self.force)
        grid, folder = session.grid, session.folder
        count = f"{len(grid.trials)} settings of {session.program.path.name} with {grid.case.model.name}"
        message(f"{count}, {self.minutes:g} minutes at most; runs are kept in {folder}")
        if session.runs:
            message(f"going on after the {len(session.runs)} runs in {folder}; --force starts again")
        try:
            run_all(session)
        except KeyboardInterrupt as stop:
            kept = f"{len(session.runs)} runs are kept in {folder}; the same command goes on from there"
            raise Interrupted(f"interrupted; {kept}", stop) from None
        return Tuned(session, session.ended(), notes=notes)

    def session(self) -> tuple[Session, tuple[str, ...]]:
        """The search before any run, and notes on its predictions."""
        from flashmoe_sim.drafts import MTP, NGRAM
        from native_bridge.tuning.llama_programs import find_program, with_sidecar
        from native_bridge.tuning.session import Session

        folder = self.out or Path(f"tune-{self.model.stem}")
        program = with_sidecar(find_program(self.engine), self.model, self.sidecar, folder)
        program.check(self._goal(), self.depth or 0)
        if self.draft and not program.drafts:
            raise Unsupported(f"--draft: {program.name} drafts nothing; leave it out, or give --engine llama-server")
        if self.drafter not in (None, MTP, NGRAM):
            raise Unsupported(f"--drafter {self.drafter}: runs draft by {MTP} or {NGRAM}; give one of them")
        grid, notes = self._grid(program)
        return Session(grid, program, self.model.absolute(), folder, self.minutes), notes

    def _goal(self) -> Objective:
        from flashmoe_sim.tune.objective import Objective

        return Objective(goal=self.objective, prompt_tokens=self.prompt_tokens or 0, answer_tokens=self.answer_tokens)

    def _grid(self, program: Program) -> tuple[Grid, tuple[str, ...]]:
        """The settings that the engine has, with their predictions."""
        from flashmoe_sim.geometry.load import load_model
        from flashmoe_sim.systems.resolve import resolve
        from flashmoe_sim.tune.grid import grid
        from flashmoe_sim.verbs.given import learnt_machine
        from native_bridge.tuning.launch import cases, of_build, values

        goal = self._goal()
        model = load_model(str(self.model))
        machine = learnt_machine(self.machine, self.measured, workload=None, model=model)
        context = self.context or max((self.depth or 0) + goal.tokens + 256, 4096)
        on = resolve(
            workload=None,
            model=model,
            machine=machine,
            systems=self._systems(program),
            memory=replace(self, context=context),
        )
        assert on.workload is not None
        case = replace(on.case, model=replace(on.case.model, gguf=str(self.model)))
        knobs = values(program, case.machine, goal)
        with working("predicting") as progress:
            found = grid(
                on.workload,
                case,
                self._texts(on.systems, case),
                goal,
                knobs=knobs,
                others=cases(case, may_change_text=self.may_change_text),
                borrowed=bool(on.borrowed),
                progress=progress,
            )
        return of_build(found, program), on.notes

    def _texts(self, systems: Sequence[System], case: Case) -> list[System]:
        """Those that may be tried. Raises BadInput if all change the text, which must not change."""
        from native_bridge.tuning.launch import with_fewer_experts

        if self.may_change_text:
            return [one for system in systems for one in with_fewer_experts(system, case)]
        found = [one for one in systems if not one.changes_text(case)]
        if not found:
            one = systems[0]
            raise Unsupported(
                f"--system {one.spec}: changes the text: {one.changes_text(case)}", advice="add --may-change-text"
            )
        return found

    def _systems(self, program: Program) -> list[System]:
        """Those to try. Raises BadInput for one that the engine does not run."""
        from flashmoe_sim.systems.resolve import parse_systems

        found, runs = parse_systems(self.systems or program.systems), program.systems
        if others := [one.name for one in found if one.name not in runs and not program.any_system]:
            raise Unsupported(
                f"--system {others[0]}: {program.name} does not run it", advice=f"it runs {', '.join(runs)}"
            )
        return found

    def document(self, found: Tuned) -> dict[str, Any]:
        """What `--json` prints."""
        session = found.session
        return {
            "model": session.grid.case.model.name,
            "machine": session.grid.case.machine.name,
            "engine": str(session.program.path),
            "build": session.program.version,
            "folder": str(session.folder),
            "settings": len(session.grid.trials),
            "ended": found.ended,
            "best": None if found.best is None else found.best.spec,
            "seconds": found.best_seconds,
            "sure": session.search.sure,
            "minutes": session.spent_minutes,
            "command": None if found.launch is None else found.launch.line,
            "runs": [
                {"setting": run.trial.spec, **run.outcome._asdict(), **run.memory._asdict(), "note": run.note}
                for run in session.runs
            ],
        }

    def sections(self, found: Tuned) -> list[Section]:
        """What was predicted and measured, the fastest setting, and its line."""
        return _planned(found) if found.dry else [runs_table(found), *_answer(found)]

    def notes(self, found: Tuned) -> Sequence[str]:
        return found.notes

    def finish(self, found: Tuned) -> Iterator[str]:
        """Write what the runs taught of the machine, and a page of them, into their folder."""
        if found.dry or found.best is None:
            return
        from flashmoe_sim.io.provenance import program, today
        from flashmoe_sim.io.sections import markdown
        from flashmoe_sim.io.whole import atomic_writer
        from flashmoe_sim.machines.normal_unknowns import LEARNT
        from flashmoe_sim.machines.write import write_machine
        from flashmoe_sim.report.page import check_installed, html

        session = found.session
        case, folder = session.grid.case, session.folder
        with working("learning from the runs"):
            taught, said = _taught(session, self.machine, self.measured)
        yield from (line for line in said if not line.startswith(LEARNT))
        if any(line.startswith(LEARNT) for line in said):
            write_machine(taught, folder / MACHINE, force=True)
            yield f"wrote {folder / MACHINE}"
        of = f"{case.model.name} on {case.machine.title}"
        by = f"{today()}, {program()}; {session.program.name} {session.program.version}".rstrip()
        answer = [part for section in _answer(found) for part in section.parts]
        content = [Section(of, (by, *answer)), replace(runs_table(found), title="Runs")]
        try:
            check_installed()
            page, text = folder / "page.html", html(of, content)
        except BadInput:  # without the extra `report`
            page, text = folder / "page.md", markdown(content)
        with atomic_writer(page, force=True) as file:
            file.write(text.encode())
        yield f"wrote {page}"

    def failures(self, found: Tuned) -> list[SimError]:
        if found.dry or found.best is not None:
            return []
        last = found.session.runs[-1].outcome.failed if found.session.runs else "nothing ran"
        return [Unusable(f"no setting gave a speed; the last run {last}", advice=f"see {found.session.folder}")]


def _taught(session: Session, machine: OneMachine, measured: Several) -> tuple[Machine, list[str]]:
    """The machine after the runs of a search, and what is said of each. machine, measured: as they were given."""
    from flashmoe_sim.verbs.given import learnt_machine, machine_of

    before = machine_of(machine)
    given = [measured] if isinstance(measured, str | Path) else [*measured]
    try:
        found = learnt_machine(before, [*given, session.folder], model=session.grid.case.model)
    except BadInput as error:  # none is of use
        return before, [str(error)]
    known = len(before.learnt.notes) if before.learnt else 0
    return replace(found, name=session.folder.name), list(found.learnt.notes[known:]) if found.learnt else []


def run_all(session: Session, first: int | None = None) -> None:
    """Run settings until the fastest is known, and say what each gave. first: the place of the one to begin with."""
    with one_line() as show:

        def watch(trial: Trial, seconds: float) -> None:
            if show is not None:
                show(f"run {len(session.runs) + 1}: {trial.spec}, {seconds:.0f} s")

        def tell() -> None:
            run = session.runs[-1]
            note = f" ({run.note})" if run.note else ""
            message(
                f"{run.trial.spec}: {run.outcome.failed or reached(run.outcome.seconds, session.grid.objective)}{note}"
            )

        if first is not None and not session.runs:
            session.measure(first, watch)
            tell()
        for _ in session.run(watch):
            tell()


def reached(seconds: float | None, goal: Objective) -> str:
    """A measured time of the objective as people say it."""
    if seconds is None:
        return "-"
    if goal.goal == "both":
        return f"{seconds:.3g} s"
    return f"{speed((goal.prompt_tokens or 1) / seconds)} tok/s"


def _predicted(found: Tuned, place: int) -> str:
    import numpy as np

    from flashmoe_sim.machines.belief import ENDS_OF_90

    goal = found.session.grid.objective
    draws_s = goal.draws_s(found.session.grid.predicted(place))
    lo, hi = (reached(float(end), goal) for end in np.quantile(draws_s, ENDS_OF_90)[::-1])
    return f"{lo.removesuffix(' tok/s')} to {hi}"


def runs_table(found: Tuned) -> Section:
    """A row for each run, predicted and measured."""
    grid, spilled = found.session.grid, found.session.search.spilled
    places = {trial: place for place, trial in enumerate(grid.trials)}

    def odd(run: TunedRun) -> str:
        return run.outcome.failed or run.note or (SPILLED if places[run.trial] in spilled else "")

    columns: list[Column] = [
        ("run", "right", lambda row: str(row[0])),
        ("setting", "left", lambda row: row[1].trial.spec),
        ("predicted, 90%", "right", lambda row: _predicted(found, places[row[1].trial])),
        ("measured", "right", lambda row: reached(row[1].outcome.seconds, grid.objective)),
        ("", "left", lambda row: odd(row[1])),
    ]
    return Section("", (table(columns, list(enumerate(found.session.runs, 1))),))


def _answer(found: Tuned) -> list[Section]:
    session = found.session
    if found.best is None or found.launch is None:
        return []
    runs, minutes = len(session.runs), session.spent_minutes
    every = sum(session.minutes_of(place) for place in range(len(session.grid.trials)))
    best = f"{found.best.spec}: {reached(found.best_seconds, session.grid.objective)} measured"
    sure = f"nothing else is more than 3% faster, with {session.search.sure:.0%}"
    if not session.search.sure:
        sure = "it ran only once"
    took = (
        f"{runs} run{'s' * (runs > 1)} in {minutes:.1f} minutes; all {len(session.grid.trials)} settings: {every:.0f}"
    )
    parts: list[Part] = [f"{best}; {sure}", took]
    if changed := _changes(found.best, session.grid.case):
        parts.append(f"It changes the text: {changed}.")
    if used := _used(found):
        parts.append(used)
    if found.ended == "time":
        parts.append("The time was up; the same command with more --minutes goes on.")
    spread = session.search.repeat_sd
    if spread is not None and spread > UNSTEADY:
        parts.append(f"Runs alike differ by {spread:.0%}: something else slows this machine now and then.")
    learnt = session.folder / MACHINE
    known = Command(shlex.join(["sim", "recommend", session.grid.case.gguf, "--machine", str(learnt)]))
    return [
        Section("", tuple(parts)),
        Section("", (found.launch.command(),)),
        *([Section("", ("Later answers for this machine are sharper with", known))] if learnt.is_file() else []),
    ]


def _changes(best: Trial, case: Case) -> str:
    """How a setting changes the text; empty if it does not."""
    from native_bridge.tuning.program import KV

    kv_type = dict(best.knobs).get(KV)
    return "; ".join(filter(None, [best.system.changes_text(case), kv_type and f"keys and values in {kv_type}"]))


def _used(found: Tuned) -> str:
    """The memory of the last run of the fastest setting; empty if it is not known."""
    used = next(run.memory for run in reversed(found.session.runs) if run.trial == found.best and run.outcome.seconds)
    parts = [f"{size(used.ram_bytes)} of RAM, mapped files included"] if used.ram_bytes else []
    parts += [f"{size(used.gpu_bytes)} of GPU memory"] if used.gpu_bytes else []
    return f"It used {' and '.join(parts)}." if parts else ""


def _planned(found: Tuned) -> list[Section]:
    session = found.session
    places = range(len(session.grid.trials))
    order = sorted(places, key=lambda place: -session.search.now.mean[place])
    columns: list[Column] = [
        ("setting", "left", lambda place: session.grid.trials[place].spec),
        ("predicted, 90%", "right", lambda place: _predicted(found, place)),
        ("minutes", "right", lambda place: f"{session.minutes_of(place):.1f}"),
    ]
    every = sum(session.minutes_of(place) for place in places)
    first = session.search.next(session.minutes_of)
    assert first is not None
    parts: list[Part] = [
        f"{len(places)} settings, {every:.0f} minutes for all; first {session.grid.trials[first].spec}, then what that "
        f"makes worth a run, for {session.minutes:g} minutes at most",
        table(columns, order[:FIRST]),
    ]
    return [Section("", tuple(parts))]
