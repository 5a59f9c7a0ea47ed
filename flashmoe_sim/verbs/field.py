"""`sim field add` and `check`: rows of measured speeds for the project's tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, SimError
from flashmoe_sim.io.sections import Column, Command, Item, Section, Table, table
from flashmoe_sim.options import FORCE, option, option_field
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    from flashmoe_sim.field.add import Said
    from flashmoe_sim.field.check import Beside, Problem
    from flashmoe_sim.measured.value import Measured


Ask: TypeAlias = Callable[[str], str]  # takes what is asked for; gives what a user types


@dataclass(frozen=True, eq=False)
class AddedRow:
    """The rows that were made, by column, and their file. left_out: a line for each speed that is no use."""

    file: Path
    rows: tuple[dict[str, str], ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AddRow(Verb[AddedRow]):
    """Write a row of the project's tables for speeds that an engine printed."""

    help: ClassVar[str] = """Write a row for the project's tables from what an engine or a benchmark printed.

    FILE is anything that --measured takes: llama-bench's table, CSV, JSON or JSONL; the folder of `sim tune`; llmfit's
    record; Strata's matrix.json; logs and others; or a speed by hand, such as placed:cpu_layers=24=28.1. What it does
    not say is asked for on a terminal, and else the option that gives it is named. Each setting and depth is a row.
    The rows are checked as `sim field check` does; send their file as a pull request.

    \\b
    Example: sim field add bench.json --source me/my-pc \\\\
                 --machine "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB" \\\\
                 --url https://example.org/my-pc
    """

    measured: str = field(kw_only=False, metadata=option("FILE", "", positional=True))
    machine: str | None = option_field(None, "X", "The computer's parts, or `this`.")
    source: str | None = option_field(None, "WHO", "Who measured it: owner/repository or a name.")
    url: str | None = option_field(None, "URL", "The page where the speeds stand.")
    model: str | None = option_field(None, "SPEC", "The model, if FILE does not say it: gpt-oss-20b:mxfp4.")
    system: str | None = option_field(
        None, "S", "Where the experts were, if FILE does not say it: placed:cpu_layers=24."
    )
    engine: str | None = option_field(None, "NAME", "The program that ran, if FILE does not say it, or says another.")
    date: str | None = option_field(None, "DAY", "The day of the measurement; default: when FILE was written.")
    id: str | None = option_field(None, "ID", "The row's id; default: of source, model and computer.")
    remarks: str | None = option_field(None, "TEXT", "What else matters.", flag="--notes")
    out: Path | None = option_field(None, "FILE", "The table to write, a .csv; default: ID.csv.")
    force: bool = field(default=False, metadata=FORCE)

    def run(self, ask: Ask | None = None) -> AddedRow:
        """Read the speeds, ask for what is missing, check the rows, and write them."""
        from flashmoe_sim.field.add import Said, day_of, rows
        from flashmoe_sim.field.check import problems
        from flashmoe_sim.field.known import known_rows
        from flashmoe_sim.field.rows import row_of
        from flashmoe_sim.io.whole import atomic_writer, refuse_existing
        from flashmoe_sim.measured.read import read_with_notes
        from flashmoe_sim.measured.value import distinct

        if self.out is not None:
            if self.out.suffix != ".csv":
                raise Malformed(f"{self.out}: expected a name that ends in .csv")
            refuse_existing(self.out, force=self.force)
        read = read_with_notes(self.measured)
        measured = distinct(read.measured)
        if not measured:
            raise Malformed(read.left_out[0])
        names = ("machine", "source", "url", "model", "system", "engine", "date", "id")
        given = Said(notes=self.remarks or "", **{name: getattr(self, name) or "" for name in names})
        said = self._told(measured, given, ask)
        made, refused = rows(measured, said, day=day_of(self.measured))
        of_table = [row_of(self.measured, cells) for cells in made]
        found = problems(of_table, {cells["id"]: cells["source_url"] for cells in made}, known_rows())
        if found:
            more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
            raise Conflict(f"{self.measured}: {found[0].says}{more}; nothing was written")
        out = self.out or Path(f"{said.id or made[0]['series'] or made[0]['id']}.csv")
        with atomic_writer(out, force=self.force) as file:
            file.write(_csv(made))
        return AddedRow(out, tuple(made), (*read.left_out, *refused))

    def _told(self, measured: list[Measured], said: Said, ask: Ask | None) -> Said:
        """What the user said, with what was asked for. Raises BadInput that names the options that are missing."""
        from flashmoe_sim.field.add import NEEDED, hint, missing

        while lacking := missing(measured, said):
            if ask is None:
                options = "; ".join(f"--{name}: {NEEDED[name]}{hint(name, measured)}" for name in lacking)
                raise Incomplete(f"{self.measured}: give {options}")
            name = lacking[0]
            said = replace(said, **{name: ask(f"{name.capitalize()}: {NEEDED[name]}{hint(name, measured)}")})
        return said

    def document(self, found: AddedRow) -> dict[str, Any]:
        """What `--json` prints."""
        return {"file": str(found.file), "rows": list(found.rows), "left_out": list(found.left_out)}

    def sections(self, found: AddedRow) -> list[Section]:
        """What the first row says, how many others there are, and what to do with the file."""
        first, *others = found.rows
        said = Table([("", "left"), ("", "left")], [(name, value) for name, value in first.items() if value])
        more = [f"and {len(others)} more, which differ in {first['varies']} and speed"] if others else []
        check = Command(f"sim field check {found.file}")
        return [Section("", (said, *more)), Section("", ("Predict it, and send the file as a pull request:", check))]

    def notes(self, found: AddedRow) -> tuple[str, ...]:
        """What of the file is no use."""
        return found.left_out


def _csv(rows: list[dict[str, str]]) -> bytes:
    import csv
    from io import StringIO

    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


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
        from flashmoe_sim.field.check import Beside, beside, problems, urls_of
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
