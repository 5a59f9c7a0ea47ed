"""`sim referee`: every estimator of speeds at hand on the same measured rows."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Missing, shown
from flashmoe_sim.io.sections import Section, Table, pairs
from flashmoe_sim.options import option
from flashmoe_sim.verbs.base import Stages, Verb, stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars

    from flashmoe_sim.field.estimators import OneEstimate, Question
    from flashmoe_sim.field.rows import FieldRow
    from flashmoe_sim.field.scores import AnswerBeside

OURS, ON_PAPER, BYTES = "flashmoe-sim", "flashmoe-sim on paper", "bytes over bandwidth"
OWN = (OURS, ON_PAPER)


class JudgedRow(NamedTuple):
    """A row with what it is to estimators. question: None if no model or machine is known by its words.

    untold: why others cannot be told of it, or empty. like: the row of the project's own tables that it is, or empty.
    """

    row: FieldRow
    question: Question | None
    untold: str
    like: str


@dataclass(frozen=True, eq=False)
class JudgedEstimators:
    """What every estimator said of every row.

    answers: by the estimator's name, in the order of the rows. absent: names of advisers that are not installed.
    unmeasured: rows without a decode speed, which nobody is asked.
    """

    rows: tuple[JudgedRow, ...]
    answers: Mapping[str, Sequence[OneEstimate]]
    absent: tuple[str, ...]
    unmeasured: int

    def outcomes(self, *, seen: bool) -> dict[str, list[AnswerBeside]]:
        """Answers beside what was measured, of the rows that this program was set by, or of the others."""
        from flashmoe_sim.field.scores import AnswerBeside

        return {
            name: [
                AnswerBeside({"id": one.row.id, "strategy": one.row.strategy, "tok_s": one.row.decode_tok_s}, said)
                for one, said in zip(self.rows, each, strict=True)
                if bool(one.like) == seen
            ]
            for name, each in self.answers.items()
        }

    def refusals(self) -> dict[str, Counter[str]]:
        """How often each estimator refused, by its reasons."""
        return {name: Counter(one.why_not for one in each if one.value is None) for name, each in self.answers.items()}

    def table(self) -> polars.DataFrame:
        """A line for each answer."""
        import polars as pl

        lines = [
            {
                "estimator": name,
                "id": one.row.id,
                "strategy": one.row.strategy,
                "seen": bool(one.like),
                "measured_tok_s": one.row.decode_tok_s,
                "tok_s": said.value,
                "tok_s_lo": said.lo,
                "tok_s_hi": said.hi,
                "why_not": said.why_not,
            }
            for name, each in self.answers.items()
            for one, said in zip(self.rows, each, strict=True)
        ]
        return pl.DataFrame(lines, infer_schema_length=None)


def _commands(text: str) -> tuple[str, tuple[str, ...]]:
    """NAME=COMMAND. Raises BadInput for another text, and for a program that is not there."""
    name, equals, command = text.partition("=")
    try:
        words = tuple(shlex.split(command))
    except ValueError:
        words = ()
    if not name.strip() or not equals or not words:
        raise Incomplete(f"--estimator {shown(text)}: expected NAME=COMMAND, such as mine='python3 mine.py'")
    if shutil.which(words[0]) is None:
        raise Missing(f"--estimator {shown(text)}: no program {words[0]}; give its path")
    return name.strip(), words


@dataclass(frozen=True, kw_only=True)
class Referee(Verb[JudgedEstimators]):
    """Ask every estimator of speeds at hand about measured rows, and score them."""

    writes: ClassVar[bool] = True
    help: ClassVar[str] = """Ask every estimator of speeds at hand about the same measured rows, and score them.

    FILE is a CSV with the columns of data/published/field.csv, as `sim field add` writes it. This program answers as
    its commands do, and on paper: without what published speeds say of engines. Bytes over bandwidth is what most
    calculators do. llmfit, modelscout-llm, moe-fit and llm-checker answer if they are on the PATH. Rows that
    flashmoe-sim was set by are scored apart.

    A program of your own joins by --estimator. It reads a question as a line of JSON on its stdin, and prints for each
    {"id": ..., "tok_s": ...}, maybe with "lo" and "hi", or {"id": ..., "why_not": ...}. A program that hangs, crashes
    or prints something else refuses; the others go on.

    \b
    Example: sim referee mine.csv --estimator mine="python3 mine.py"
    """

    rows: Path = field(kw_only=False, metadata=option("FILE", "", positional=True))
    estimators: tuple[str, ...] = field(
        default=(),
        metadata=option(
            "NAME=COMMAND", "A program that answers questions, too; may be given several times.", flag="--estimator"
        ),
    )

    def run(self, stages: Stages | None = None) -> JudgedEstimators:
        """Read the rows, and ask everybody."""
        from flashmoe_sim.field.rows import read_rows
        from native_bridge.advisers.ask import installed

        commands = dict(map(_commands, self.estimators))
        if len(commands) < len(self.estimators):
            raise Conflict("two --estimator have one name; give each its own")
        there, absent = installed()
        if taken := commands.keys() & {*OWN, BYTES, *there}:
            raise Conflict(f"--estimator {min(taken)}: that name is taken; give another one")
        read = read_rows(self.rows)
        measured = [row for row in read if row.decode_tok_s]
        if not measured:
            raise Incomplete(f"{self.rows}: no row has a decode_tok_s; give the measured tokens a second there")
        rows, answers = _answered_here(measured, stages)
        for name, command in (there | commands).items():
            title, said = _answered_there(name, command, rows, stages)
            answers[title] = said
        return JudgedEstimators(tuple(rows), answers, tuple(absent), len(read) - len(measured))

    def document(self, found: JudgedEstimators) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.field.rows import WAYS
        from flashmoe_sim.field.scores import of_way, score

        unseen, seen = found.outcomes(seen=False), found.outcomes(seen=True)
        return {
            "rows": len(found.rows),
            "unmeasured": found.unmeasured,
            "not_installed": list(found.absent),
            "scores": [
                {"estimator": name, "rows": of, "way": way, **score(of_way(each, way) if way else each)._asdict()}
                for of, outcomes in (("unseen", unseen), ("seen", seen))
                for way in (None, *WAYS)
                for name, each in outcomes.items()
                if (of_way(each, way) if way else each)
            ],
            "refusals": {name: dict(reasons) for name, reasons in found.refusals().items()},
            "answers": found.table().to_dicts(),
        }

    def sections(self, found: JudgedEstimators) -> list[Section]:
        """Scores of all rows and by way; then who refused, and why."""
        return [*_scored(found), *_refused(found)]

    def notes(self, found: JudgedEstimators) -> list[str]:
        """Who is not installed, and which rows say nothing of a speed."""
        lines = []
        if found.absent:
            lines.append(f"not installed, and so not asked: {', '.join(found.absent)}")
        if found.unmeasured:
            are = "s without decode_tok_s are" if found.unmeasured > 1 else " without decode_tok_s is"
            lines.append(f"{found.unmeasured} row{are} left out")
        return lines


def _answered_here(
    measured: Sequence[FieldRow], stages: Stages | None
) -> tuple[list[JudgedRow], dict[str, Sequence[OneEstimate]]]:
    """The rows as questions, and what needs no other program."""
    from flashmoe_sim.field.asked import Traces, asked_of
    from flashmoe_sim.field.estimators import OneEstimate, bytes_over_bandwidth, ours, told, untold
    from flashmoe_sim.field.known import known_rows
    from flashmoe_sim.field.machine import machine_of
    from flashmoe_sim.field.model import model_of

    traces, known, progress = Traces(), known_rows(), stage(stages, OURS)
    rows, answers = list[JudgedRow](), {name: list[OneEstimate]() for name in (*OWN, BYTES)}
    for number, row in enumerate(measured, 1):
        asked = None
        try:
            asked = asked_of(row, traces)
            own = ours(asked)
        except BadInput as error:
            own = (OneEstimate(why_not=str(error).removeprefix(f"{row.where}: ")),) * 2
        try:
            machine = machine_of(row)
            drafts = asked is not None and bool(asked.case.drafts)
            question, why = told(row, model_of(row), machine), untold(row, machine, drafts=drafts)
        except BadInput as error:
            question, why = None, str(error).removeprefix(f"{row.where}: ")
        rows.append(JudgedRow(row, question, why, known.like(row)))
        by_bytes = bytes_over_bandwidth(question) if question and not why else OneEstimate(why_not=why)
        for name, said in zip(answers, (*own, by_bytes), strict=True):
            answers[name].append(said)
        if progress is not None:
            progress(number, len(measured))
    return rows, {**answers}


def _answered_there(
    name: str, command: Sequence[str], rows: Sequence[JudgedRow], stages: Stages | None
) -> tuple[str, list[OneEstimate]]:
    """The name of another program with its version, and what it answers."""
    from flashmoe_sim.field.estimators import OneEstimate
    from native_bridge.advisers.ask import advice

    asked = [one.question for one in rows if one.question is not None and not one.untold]
    said = advice(command, asked, progress=stage(stages, name))
    title = f"{name} {said.version}".strip()
    return title, [said.by_id.get(one.row.id, OneEstimate(why_not=one.untold)) for one in rows]


def _scored(found: JudgedEstimators) -> Iterable[Section]:
    from flashmoe_sim.field.rows import WAYS
    from flashmoe_sim.field.scores import MEANING, answered_by_all, of_way

    unseen, seen = found.outcomes(seen=False), found.outcomes(seen=True)
    if unseen[OURS]:
        rows = len(unseen[OURS])
        yield Section(f"{rows:,} rows" if rows > 1 else "One row", (_table(unseen, caption=" ".join(MEANING.split())),))
        answering = {name: each for name, each in unseen.items() if any(one.estimate.value for one in each)}
        together = answered_by_all(answering) if answering else {}
        common = len(next(iter(together.values()), ()))
        if 0 < common < rows:
            yield Section(f"The {common:,} that all of these answer", (_table(together),))
        ways = [way for way in WAYS if of_way(unseen[OURS], way)]
        for way in ways if len(ways) > 1 else ():
            of = {name: of_way(each, way) for name, each in unseen.items()}
            yield Section(f"{way[:1].upper()}{way[1:]}", (_table(of),))
    if seen[OURS]:
        what = f"{len(seen[OURS]):,} rows of the project's own tables, by which flashmoe-sim was set"
        yield Section("Seen before", (what, _table(seen)))


def _table(outcomes: Mapping[str, Sequence[AnswerBeside]], **more: Any) -> Table:
    from flashmoe_sim.field.scores import COLUMNS, cells, score

    sides = [(heading, "right" if number else "left") for number, heading in enumerate(COLUMNS)]
    return Table(sides, [(name, *cells(score(each))) for name, each in outcomes.items()], **more)


def _refused(found: JudgedEstimators) -> Iterable[Section]:
    rows = [
        (name, f"{times:,}", why) for name, reasons in found.refusals().items() for why, times in reasons.most_common()
    ]
    if rows:
        yield Section("Refused", (pairs(rows),))
