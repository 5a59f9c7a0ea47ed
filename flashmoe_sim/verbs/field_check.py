"""`sim field check`: rows of measured speeds, refused if they cannot be, else beside what is predicted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.cells import Column, table
from flashmoe_sim.io.errors import Conflict, SimError
from flashmoe_sim.io.sections import Item, Section
from flashmoe_sim.options import option, option_field
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    from flashmoe_sim.field.beside import Beside
    from flashmoe_sim.field.check import Problem


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """What is wrong with the rows of a file; or, if nothing is, each beside its prediction."""

    rows: int
    problems: tuple[Problem, ...]
    beside: tuple[Beside, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckRows(Verb[CheckedRows]):
    """Check rows of measured speeds, and put each beside its prediction."""

    help: ClassVar[str] = """Check a table of measured speeds, and put each beside what is predicted.

    FILE is a CSV with the columns of data/published/field.csv, as `sim field add` writes them. Refused, with the line,
    are wrong units, sizes that no such model has, speeds that no such memory gives, what the project has already, and a
    row without source or date. A speed outside of its 90% interval is named with the likeliest causes.

    \b
    Example: sim field check mine.csv
    """

    rows: Path = field(kw_only=False, metadata=option("FILE", "", positional=True))
    predict: bool = option_field(
        True, "", "Whether to predict each speed, a second or so for each.", flag="--predict/--no-predict"
    )

    def run(self, progress: Progress | None = None) -> CheckedRows:
        """Read the rows, check them, and predict them if nothing is wrong."""
        from flashmoe_sim.field.asked import Traces
        from flashmoe_sim.field.beside import Beside, beside
        from flashmoe_sim.field.check import problems, urls_of
        from flashmoe_sim.field.known import known_rows
        from flashmoe_sim.field.rows import read_rows

        rows = read_rows(self.rows)
        found = problems(rows, urls_of(self.rows), known_rows())
        if found or not self.predict:
            return CheckedRows(len(rows), tuple(found))
        traces, predicted = Traces(), list[Beside]()
        for row in rows:
            predicted.append(beside(row, traces))
            if progress is not None:
                progress(len(predicted), len(rows))
        return CheckedRows(len(rows), (), tuple(predicted))

    def document(self, found: CheckedRows) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "rows": found.rows,
            "problems": [one._asdict() for one in found.problems],
            "predicted": [_as_json(one) for one in found.beside],
        }

    def sections(self, found: CheckedRows) -> list[Section]:
        """A line for each row, and the causes of those outside; nothing if something is wrong."""
        if found.problems:
            return []
        if not found.beside:
            return [Section("", (f"{found.rows:,} rows, nothing wrong with them",))]
        outside = [one for one in found.beside if one.outside]
        return [
            Section("", (table(COLUMNS, found.beside, caption=CAPTION),)),
            *(
                [Section("Outside of the interval", tuple(Item(_explained(one), 2) for one in outside))]
                if outside
                else []
            ),
        ]

    def failures(self, found: CheckedRows) -> list[SimError]:
        """A line for each thing that is wrong."""
        return [Conflict(f"{one.where}: {one.id}: {one.says}") for one in found.problems]


CAPTION = "Below it: the share of what was likely that is slower than the measured speed."


def _predicted(one: Beside) -> str:
    from flashmoe_sim.report.first_screen import likely, number

    if one.tok_s is None:
        return "-"
    range_ = likely(one.lo, one.hi)
    return f"{number(one.tok_s)} ({range_})" if range_ else number(one.tok_s)


def _measured(one: Beside) -> str:
    from flashmoe_sim.report.first_screen import number

    return "-" if one.row.decode_tok_s is None else number(one.row.decode_tok_s)


COLUMNS: list[Column] = [
    ("row", "left", lambda one: one.row.id),
    ("measured", "right", _measured),
    ("predicted (90%)", "right", _predicted),
    ("below it", "right", lambda one: "-" if one.below is None else f"{one.below:.0%}"),
    ("", "left", lambda one: "outside" if one.outside else one.why_not),
]


def _explained(one: Beside) -> str:
    than = "faster" if (one.below or 0) > 0.5 else "slower"
    causes = "; or ".join(f"{cause.what} ({cause.tell})" for cause in one.causes)
    return f"{one.row.id}: {than} than likely" + (f"; perhaps {causes}" if causes else "")


def _as_json(one: Beside) -> dict[str, Any]:
    return {
        "id": one.row.id,
        "measured_tok_s": one.row.decode_tok_s,
        "tok_s": one.tok_s,
        "tok_s_lo": one.lo,
        "tok_s_hi": one.hi,
        "below": one.below,
        "outside": one.outside,
        "causes": [cause.what for cause in one.causes],
        "why_not": one.why_not,
    }
