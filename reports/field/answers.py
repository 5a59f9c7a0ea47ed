"""What the commands answer for the rows of a table, also after other speeds of their machines were measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from flashmoe_sim.field.asked import AskedRow, Traces, asked_of, asked_on, observation_of
from flashmoe_sim.field.machine import built_of
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.learning import Learner, Observation
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.measured.causes import Ran
from flashmoe_sim.measured.learn import Expected, Seen, in_turn
from flashmoe_sim.measured.value import Measured
from flashmoe_sim.systems.any_engine import Plain
from reports.field.prompt import prompt_of
from reports.field.prompts import prompt_answer

DIGITS = 4


@dataclass(frozen=True)
class Answer:
    """What the commands answer for a row, in tokens a second with 90% intervals; None for what they do not.

    system: None if no system is the row's engine, and a plain engine stands for it. why: there is no answer, or a note.
    """

    id: str
    system: str | None = None
    tok_s: float | None = None
    lo: float | None = None
    hi: float | None = None
    prompt_tok_s: float | None = None
    prompt_lo: float | None = None
    prompt_hi: float | None = None
    why: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Numbers with four digits."""
        return {name: _rounded(value) for name, value in asdict(self).items()}

    def as_text(self) -> str:
        """One line."""
        if self.tok_s is None:
            return f"{self.id}: no prediction; {self.why}"
        rounded = self.as_json()
        speed = "{tok_s:.3g} tok/s ({lo:.3g} to {hi:.3g})".format_map(rounded)
        if self.prompt_tok_s is not None:
            speed += ", prompts {prompt_tok_s:.3g} ({prompt_lo:.3g} to {prompt_hi:.3g})".format_map(rounded)
        return f"{self.id}: {self.system or 'any engine'}: {speed}" + (f"; {self.why}" if self.why else "")


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def answers(
    rows: Sequence[FieldRow],
    given: Sequence[FieldRow] = (),
    *,
    note: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    prompts: bool = True,
) -> list[Answer]:
    """The answer for each row, after the given rows of its machine (by `machine_id`) were measured.

    note: called with a line for each given row that teaches nothing, and why. prompts: whether prompts are timed, too.
    """
    asking = _Asking(given, note, prompts=prompts)
    found = []
    for row in rows:
        found.append(asking.answer(row))
        progress(len(found), len(rows))
    return found


class _Asking:
    """Answers with what was measured of their machines; notes are said once."""

    def __init__(self, given: Sequence[FieldRow], note: Callable[[str], None], *, prompts: bool) -> None:
        self.traces, self.prompts, self.said = Traces(), prompts, set[str]()
        self._note, self._learnt = note, dict[tuple[str, Machine], Machine]()
        self.of_machine = defaultdict[str, list[FieldRow]](list)
        for row in given:
            if why := _unused(row):
                self.note(f"not used: {row.where}: {why}")
            else:
                self.of_machine[row.machine_id].append(row)

    def note(self, line: str) -> None:
        if line not in self.said:
            self.said.add(line)
            self._note(line)

    def learnt(self, machine_id: str, machine: Machine) -> Machine:
        """The machine after the given rows of this name, learnt once for all rows on it."""
        if (key := (machine_id, machine)) not in self._learnt:
            given = self.of_machine.get(machine_id, ())
            self._learnt[key] = learnt_from(given, machine, self.traces, self.note)
        return self._learnt[key]

    def answer(self, row: FieldRow) -> Answer:
        try:
            asked = asked_of(row, self.traces)
            machine = self.learnt(row.machine_id, asked.case.machine)
            asked = replace(asked, case=replace(asked.case, machine=machine))
            found = asked.answer()
        except BadInput as error:
            return Answer(row.id, why=str(error).removeprefix(f"{row.where}: "))
        system = None if isinstance(asked.system, Plain) else asked.system.name
        if found.tok_s is None:
            return Answer(row.id, system, why=found.why_not)
        prompt = prompt_answer(asked, prompt_of(row)) if self.prompts else None
        return Answer(
            row.id,
            system,
            *(found.tok_s, found.tok_s_lo, found.tok_s_hi),
            *((None,) * 3 if prompt is None else (prompt.prompt_tok_s, prompt.prompt_tok_s_lo, prompt.prompt_tok_s_hi)),
            "; ".join(built_of(row).notes) or None,
        )


def _unused(row: FieldRow) -> str:
    lacks = [name for name in ("machine_id", "decode_tok_s") if not getattr(row, name)]
    return f"has no {' and no '.join(lacks)}" if lacks else ""


def learnt_from(rows: Iterable[FieldRow], machine: Machine, traces: Traces, note: Callable[[str], None]) -> Machine:
    """A machine after these rows were measured on it, as `--measured` learns; those that teach nothing are noted."""
    seen, learner = list[Seen](), Learner(machine)
    for row in rows:
        try:
            seen.append(_seen(row, machine, traces))
        except BadInput as error:
            note(f"not used: {row.where}: {str(error).removeprefix(f'{row.where}: ')}")
    used = list[Observation]()
    for turn in in_turn(seen, learner):
        one = turn.seen.measured
        if turn.doubted:
            note(f"not used: {one.where}: {one.tok_s:.4g} tok/s, and {turn.expected.in_words} is expected")
        else:
            used.append(turn.seen.observation)
    return learner.after(used) if used else machine


def _seen(row: FieldRow, machine: Machine, traces: Traces) -> Seen:
    """A row as a measurement on a machine. Raises BadInput if it cannot be asked there."""
    asked = asked_on(row, asked_of(row, traces).system, machine, traces)

    def on(machine: Machine) -> Expected:
        return _expected(replace(asked, case=replace(asked.case, machine=machine)))

    before = on(machine)
    measured = Measured(where=row.where, tok_s=row.decode_tok_s or math.nan)
    return Seen(measured, Ran(asked.system, asked.case, observation_of(asked)), on, before)


def _expected(asked: AskedRow) -> Expected:
    found = asked.answer()
    if found.tok_s is None or found.tok_s_lo is None or found.tok_s_hi is None:
        raise BadInput(found.why_not)
    return Expected(found.tok_s_lo, found.tok_s, found.tok_s_hi)
