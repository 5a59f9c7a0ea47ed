"""`sim machine next`: what to measure next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Column, Command, Part, Section, table
from flashmoe_sim.options import MEASURED, MODEL, MemoryOptions, Several, option, option_field
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.systems.resolve import OneSystem
    from flashmoe_sim.tune.next_run import Next, SuggestedRun
    from flashmoe_sim.verbs.given import Model, Trace

MOST = 3  # runs whose command line is printed


@dataclass(frozen=True, kw_only=True)
class NextRun(MemoryOptions, Verb["Next"]):
    """Say which run would narrow the answer of `sim recommend` most, like `sim machine next`.

    Raises BadInput for unknown words, and if nothing can run.
    """

    help: ClassVar[str] = """Say which run to measure next on a machine: what it would narrow, and what it would decide.

    TRACE is a file or a name from `sim trace catalog`; without one, or with a model's name in its place, a trace is
    made for that model. Give the run's output to --measured.

    \b
    Example: sim machine next gpt-oss-120b --machine "rtx-3060 + 64GiB"
    """

    trace: Trace | None = field(default=None, kw_only=False, metadata=option("[TRACE]", "", positional=True))
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine = field(
        metadata=option("X", "This machine: a name from `sim machine list`, a file, parts, or this.")
    )
    systems: OneSystem | Iterable[OneSystem] = option_field(
        "all", "S,S", "Only runs of these systems; see `sim system list`.", flag="--system"
    )
    measured: Several = field(default=(), metadata=MEASURED)

    def run(self, progress: Progress | None = None) -> Next:
        """Search each system's best setting, and say what measuring it would tell."""
        from flashmoe_sim.systems.fits import nothing_runs
        from flashmoe_sim.systems.resolve import resolve
        from flashmoe_sim.tune.next_run import next_runs
        from flashmoe_sim.tune.search import search
        from flashmoe_sim.verbs.given import learnt_machine, names_no_quantization, workload_and_model

        workload, model = workload_and_model(self.trace, self.model)
        machine = learnt_machine(self.machine, self.measured, workload=workload, model=model, dense=self.dense)
        on = resolve(
            workload=workload,
            model=model,
            machine=machine,
            systems=self.systems,
            memory=self,
            any_file=names_no_quantization(self.trace, self.model),
        )
        assert on.workload is not None
        tried = search(on.workload, on.case, on.systems, borrowed=bool(on.borrowed), progress=progress)
        best = [one.best for one in tried.systems]
        found = next_runs(best, on.case)
        if found is None:
            raise nothing_runs(on.case, [(one.system, one.why_not) for one in best])
        return replace(found, notes=on.notes)

    def document(self, found: Next) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "model": found.case.model.name,
            "machine": found.case.machine.name,
            "first": found.choice.system.spec,
            "rival": None if found.rival is None else found.rival.system.spec,
            "rival_wins": None if found.rival is None else found.wins,
            "notes": list(found.notes),
            "runs": [_row(run) for run in found.runs],
        }

    def sections(self, found: Next) -> list[Section]:
        """The first choice and its rival, a row for each run, and the first command lines."""
        from flashmoe_sim.tune.speeds import speed as in_words

        choice, rival, learnt = found.choice, found.rival, found.case.machine.learnt
        name = f"{found.case.model.name} on {found.case.machine.name}"
        parts: list[Part] = [f"{name}: {choice.system.spec} first, {in_words(choice)}"]
        columns: list[Column] = [
            ("run", "left", lambda run: run.setting.system.spec),
            ("minutes", "right", lambda run: f"{run.minutes:.0f}"),
            ("narrows", "right", lambda run: f"{run.narrows:.0%}"),
        ]
        caption = "narrows: how much of the width of the first choice's interval goes"
        if rival is not None:
            parts.append(f"{rival.system.spec} is faster in {found.wins:.0%} of the draws: {in_words(rival)}")
            columns.append(("decides", "right", lambda run: f"{run.decides:.0%}"))
            both = f"{choice.system.name} and {rival.system.name}"
            caption += f"; decides: how much of the doubt between {both} goes"
        parts += [*(() if learnt is None else learnt.notes), table(columns, found.runs, caption=caption)]
        named = [
            (
                run.setting.system.labelled(found.case.machine),
                Command(run.line, whole=found.case.machine.os == "windows"),
            )
            for run in found.runs[:MOST]
        ]
        commands = [Section("", parts) for parts in named]
        return [Section("", tuple(parts)), *commands]

    def notes(self, found: Next) -> list[str]:
        """Which file of the model is meant, and what its trace was made from."""
        return list(found.notes)


def _row(run: SuggestedRun) -> dict[str, object]:
    return {
        "setting": run.setting.system.spec,
        "tok_s": run.setting.tok_s,
        "command": run.line,
        "minutes": run.minutes,
        "narrows": run.narrows,
        "decides": run.decides,
    }
