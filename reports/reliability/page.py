"""The page of the reliability report, made of its two tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars

from reports.pages import table, wrapped

FOLDER = Path(__file__).parent
FAULTS, FUZZ, PAGE = FOLDER / "faults.csv", FOLDER / "fuzz.csv", FOLDER / "README.md"
COLUMNS = {
    "fault": "fault",
    "rounds": "rounds",
    "struck": "met a sweep at work",
    "kept": "rows kept by then",
    "lost": "rows lost",
    "double": "rows double",
    "wrong": "rows or tables wrong",
    "codes": "wrong exit codes",
}
DOORS = {
    "target": "door",
    "seconds": "seconds",
    "tried": "inputs",
    "accepted": "read",
    "refused": "refused",
    "slowest_s": "slowest (CPU s)",
    "most_mib": "most memory (MiB)",
    "findings": "findings",
}
Row = Mapping[str, Any]


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a table; none if it is not there."""
    return polars.read_csv(path).to_dicts() if path.exists() else []


def write(path: Path, rows: Sequence[Row], columns: Iterable[str]) -> None:
    """Keep the rows of a table."""
    polars.DataFrame(rows).select(*columns).write_csv(path)


def markdown(faults: Sequence[Row], doors: Sequence[Row]) -> str:
    """The text of README.md."""
    rounds, lost, double, wrong, codes = (
        sum(row[name] for row in faults) for name in ("rounds", "lost", "double", "wrong", "codes")
    )
    text = f"""
# What sweeps survive

In {rounds:,} rounds something was done to `sim sweep --out` or its ledger, mostly at a random moment. Rows lost:
{lost:,}; rows double: {double:,}; rows or tables that differ from those of a sweep that nothing disturbs: {wrong:,};
wrong exit codes: {codes:,}.

The sweep is of `python-256`: 15 bank sizes under four policies, on two threads, about a second long. Each round starts
with an empty folder in a process of its own, forked from one that has loaded the program. After the fault the same
command runs to its end. A row is lost if its line was whole in the ledger after the fault and is not there at the end;
the ledger's lines must be those of the undisturbed sweep, and results.parquet and .csv the same to the last byte.

{_table(COLUMNS, faults)}

- kill -9, Ctrl-C and SIGTERM come at a moment drawn evenly over the length of the sweep or, every other time, once a
random number of rows is kept; those that come after its end do not count as met. The exit codes are 130 and 143;
before the sweep has begun SIGTERM ends the process by itself,
which a shell gives as 143, too.
- Two sweeps into one folder share half of their rows, and the second starts at a random moment of the first. The tables
must have all rows at the end, in any order.
- Disk full is a small disk with 0 to 15 free pages; a file size limit stops a write in the middle of a row or a table.
- The memory limit is an address space of 900 to 1,500 MiB in a process started from nothing; compiled libraries of
others then end the process with signal 6 or 11, which counts as right. No memory in a pass must give exit code 2.
- Rows cut at each byte and flipped bits are faults of the ledger alone: tests/sweep/test_ledger.py has them.
- The fault that removes the folder takes its rows with it; they count neither as kept nor as lost.
- A killed `sim trace convert` or `sim recommend --save` leaves a whole file or none, and the next one tidies up.

`python -m reports.reliability` makes this page again (Linux; disk full and read-only disk need the right to mount);
`--fuzz SECONDS` feeds the doors of `tests.fuzz` and adds what came of it. A few rounds of each run with the tests.
"""
    if doors:
        tried, findings = (sum(row[name] for row in doors) for name in ("tried", "findings"))
        text += f"""
## Damaged inputs

{tried:,} inputs were fed to {len(doors)} doors; findings: {findings:,}. `python -m tests.fuzz` says what a finding is.

{_table(DOORS, doors)}
"""
    return wrapped(text)


def _table(columns: Mapping[str, str], rows: Sequence[Row]) -> str:
    return table(list(columns.values()), ([_shown(row[name]) for name in columns] for row in rows), left=None)


def _shown(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell:,.0f}" if cell == int(cell) else f"{cell:,.2f}"
