"""`sim verify`; and `sim recommend`, which can also run what it recommends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.cli.common import message
from flashmoe_sim.io.errors import Conflict, Incomplete, Interrupted, SimError, Unsupported
from flashmoe_sim.io.sections import Command, Part, Section
from flashmoe_sim.options import option_field
from flashmoe_sim.verbs.recommend import Recommend
from native_bridge.verbs.base import refuse_given

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.systems.compare import Compared
    from flashmoe_sim.tune.grid import Grid
    from flashmoe_sim.tune.many import Cells
    from flashmoe_sim.tune.recommend import Recommendation
    from flashmoe_sim.tune.runs_here import WhatRuns
    from flashmoe_sim.verbs.base import Progress
    from flashmoe_sim.verbs.given import Read
    from native_bridge.tuning.program import Program
    from native_bridge.tuning.session import Session
    from native_bridge.verified import Verified


MINUTES = 3.0


@dataclass(frozen=True, kw_only=True)
class MayVerify:
    """`--verify` itself, which the help shows before its options."""

    verify: bool = option_field(
        False, "", "Run its line, and what may be faster: a short `sim tune`.", on_command_line=True
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(MayVerify):
    """The options of --verify, which all say what they do without a value: without --verify none may have one."""

    group: ClassVar[str] = "With --verify"

    engine: str | None = option_field(
        None, "PROGRAM", "The program to run; default: as `sim tune` finds it.", on_command_line=True
    )
    sidecar: Path | None = option_field(
        None, "DIR", "The sidecar for the patched llama-cli; default: written.", on_command_line=True
    )
    gguf: Path | None = option_field(None, "FILE", "The file to run, if --model names none.", on_command_line=True)
    runs: Path | None = option_field(None, "DIR", "Folder for the runs; default: not kept.", on_command_line=True)
    minutes: float | None = option_field(None, "M", "Time for all runs; default: 3.", above=0, on_command_line=True)

    def verified(self, found: Recommendation, *, force: bool = False) -> Verified:
        """Run the recommended line, then what may be faster, until the fastest is known or the time is up.

        Raises BadInput, before any run, for a line that the program does not run.
        """
        from native_bridge.verbs.tune import run_all
        from native_bridge.verified import Verified

        with nullcontext(str(self.runs)) if self.runs else TemporaryDirectory(prefix="flashmoe-verify-") as folder:
            session, place = self._begun(found, Path(folder))
            session.open(force=force)
            kept = f"kept in {self.runs}" if self.runs else "not kept"
            of = f"{session.program.path.name} with {session.grid.case.model.name}"
            message(f"{session.grid.trials[place].spec} and {len(session.grid.trials) - 1} others of {of}; {kept}")
            try:
                run_all(session, place)
            except KeyboardInterrupt as stop:
                raise Interrupted(f"interrupted; {len(session.runs)} runs are {kept}", stop) from None
            return Verified(session, place)

    def _begun(self, found: Recommendation, folder: Path) -> tuple[Session, int]:
        """The search before any run, and the place of the recommended line in it."""
        from native_bridge.tuning.llama_programs import find_program, with_sidecar
        from native_bridge.tuning.session import Session

        assert self.gguf is not None
        best = found.best.best
        if best.launch is None:
            raise Unsupported(f"--verify: nothing is recommended: {best.why_not}")
        program = with_sidecar(find_program(self.engine), self.gguf, self.sidecar, folder)
        program.check(found.objective, found.case.depth)
        if found.case.drafts is not None and not program.drafts:
            raise Unsupported(f"--draft: {program.name} drafts nothing; leave it out, or give --engine llama-server")
        grid, place = _beside(_grid(found, program, self.gguf), best, program)
        return Session(grid, program, self.gguf.absolute(), folder, self.minutes or MINUTES), place


def _grid(found: Recommendation, program: Program, gguf: Path) -> Grid:
    """The recommended setting, and those of the systems in question that the program runs.

    Raises BadInput if it does not run the recommended one.
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.systems.resolve import parse_systems
    from flashmoe_sim.tune.grid import grid
    from flashmoe_sim.tune.trials import Trial
    from native_bridge.tuning.launch import of_build, values, why_not

    best = found.best.best
    assert best.launch is not None
    runs = best.system.name in program.systems or program.any_system
    reason = why_not(Trial(best.system), best.launch, program) if runs else f"{program.name} does not run it"
    if reason:
        raise Unsupported(f"--verify {best.system.spec}: {reason}", advice="give the program of its line with --engine")
    case = replace(found.case, model=replace(found.case.model, gguf=str(gguf)))
    asked = {one.best.system.name for one in found.found.systems}
    others = [one for one in parse_systems(program.systems) if one.name in asked and not one.changes_text(case)]
    knobs = values(program, case.machine, found.objective)
    with working("predicting") as progress:
        every = grid(
            found.workload,
            case,
            [best.system, *others],
            found.objective,
            knobs=knobs,
            borrowed=found.borrowed,
            progress=progress,
        )
    return of_build(every, program)


def _beside(grid: Grid, best: Compared, program: Program) -> tuple[Grid, int]:
    """The recommended line and the settings that may be faster, and its place among them."""
    from flashmoe_sim.tune.trials import Trial
    from native_bridge.host import physical_cores
    from native_bridge.tuning.launch import with_knobs

    assert best.launch is not None
    named = [*with_knobs(Trial(best.system), best.launch, program).words]
    named += [] if "-t" in named else ["-t", str(physical_cores())]  # as llama.cpp does by itself

    def differing(trial: Trial) -> int:
        launch = grid.of(trial).launch
        assert launch is not None
        return len({*named} ^ {*with_knobs(trial, launch, program).words})

    recommended = min(grid.trials, key=differing)
    may = grid.search().prior.may_be_faster(grid.trials.index(recommended))
    kept = tuple(one for place, one in enumerate(grid.trials) if one is recommended or may[place])
    return replace(grid, trials=kept), kept.index(recommended)


def file_of(gguf: Path | None, named: str | None) -> Path:
    """The GGUF file to run: the one of --gguf, which must be the recommendation's model, or of --model."""
    from flashmoe_sim.geometry.gguf import read_gguf
    from flashmoe_sim.geometry.load import load_model

    file = gguf or Path(named or "")
    if gguf is None and (not file.is_file() or file.suffix != ".gguf"):
        raise Incomplete(f"--verify runs a GGUF file; found --model {named or 'not given'}; give the file with --gguf")
    ours = _shape(read_gguf(file))
    if gguf is not None and named is not None and ours != (theirs := _shape(load_model(named))):
        raise Conflict(f"--gguf {gguf}: has {ours}; --model {named} has {theirs}; give the same model twice")
    return file


def _shape(model: ModelGeometry) -> str:
    experts = max(layer.n_experts for layer in model.layers.values())
    return f"{len(model.layers)} layers of {experts} experts, top-{model.top_k}"


def sections(verified: Verified) -> list[Section]:
    """A row for each run, the verdict, and the line of the fastest if it is not the recommended one."""
    from native_bridge.verbs.tune import Tuned, runs_table

    session = verified.session
    found: list[Section] = [runs_table(Tuned(session, "")), Section("", (verified.in_short(),))]
    fastest = session.search.best
    if fastest is not None and fastest != verified.place:
        found.append(Section("", ("The line of the fastest:", session.launch(fastest).command())))
    if options := verified.measured_options:
        command: Sequence[Part] = (Command(" ".join(f"--measured {value}" for value in options)),)
        found.append(Section("", ("Later predictions for this machine and model are sharper with", *command)))
    return found


@dataclass(frozen=True, kw_only=True)
class RecommendAndVerify(VerifyOptions, Recommend):
    """Recommend, and with --verify run the line for real, and what may be faster, once the advice is printed."""

    def check(self) -> None:
        """Raise BadInput also for options of --verify without it, for a table, and for files that cannot be run."""
        if not self.verify:
            names = [item.name for item in fields(VerifyOptions)]
            refuse_given(self, names, "without --verify: nothing is run; add --verify")
        super().check()
        if self.verify:
            from native_bridge.tuning.llama_programs import find_program

            self._file()
            find_program(self.engine)

    def _makes_a_table(self) -> bool:
        return super()._makes_a_table() and not self.verify

    def _file(self) -> Path:
        """The GGUF file to run."""
        from flashmoe_sim.verbs.given import trace_and_model

        _, model = trace_and_model(self.trace, self.model)
        return file_of(self.gguf, None if model is None else str(model))

    def run(self, progress: Progress | None = None, read: Read | None = None) -> Recommendation | Cells | WhatRuns:
        """The advice; its runs are made when they are first shown."""
        found = super().run(progress, read)
        if not self.verify:
            return found
        from native_bridge.verified import VerifiedAdvice

        verify = partial(replace(self, gguf=self._file()).verified, force=self.force)
        return VerifiedAdvice(**{item.name: getattr(found, item.name) for item in fields(found)}, verify=verify)

    def document(self, found: Recommendation | Cells | WhatRuns) -> dict[str, Any]:
        """The advice, with its runs."""
        document = super().document(found)
        if not self.verify:
            return document
        from native_bridge.verified import VerifiedAdvice, as_json

        assert isinstance(found, VerifiedAdvice)
        return document | {"verified": as_json(found.verified)}

    def sections(self, found: Recommendation | Cells | WhatRuns) -> Iterator[Section]:
        """The advice, and then its runs."""
        yield from super().sections(found)
        if self.verify:
            from native_bridge.verified import VerifiedAdvice

            assert isinstance(found, VerifiedAdvice)
            yield from sections(found.verified)

    def failures(self, found: Recommendation | Cells | WhatRuns) -> list[SimError]:
        """Why the recommended line did not run."""
        if not self.verify:
            return []
        from native_bridge.verified import VerifiedAdvice

        assert isinstance(found, VerifiedAdvice)
        return [SimError(line) for line in found.verified.failed]
