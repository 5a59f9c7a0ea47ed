"""The rows of a folder that `sim sweep --out` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, unknown_name
from flashmoe_sim.residency.workload import Workload, find_geometry, prepare
from flashmoe_sim.schema import RESULT_COLUMNS, frame
from flashmoe_sim.sweep import ledger
from flashmoe_sim.sweep.summary import yours_first
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace

Row = dict[str, Any]
TABLE = "results.parquet"


def is_results(path: Path) -> bool:
    """Whether this is a folder of results."""
    return any((path / name).is_file() for name in (ledger.FILE, TABLE))


def read_results(folder: Path) -> tuple[list[Row], list[str]]:
    """The rows of the ledger, or of the table if there is no ledger, and what of it is left out.

    Raises BadInput if it cannot be read, for columns of another version, and without rows.
    """
    if (folder / ledger.FILE).is_file():
        with ledger.Ledger(folder, read_only=True) as kept:
            rows, notes = kept.rows(), kept.notes
    else:
        rows, notes = _of_table(folder / TABLE), []
    if not rows:
        raise Incomplete(f"{folder}: has no rows yet; run its `sim sweep` again, which goes on where it was")
    return yours_first(rows), notes


def of_traces(rows: Sequence[Row], only: str) -> list[Row]:
    """The rows of some traces. only: their names, with commas between them. Raises BadInput for one without rows."""
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if not any(row["trace"] == name for row in rows):
            raise unknown_name("trace of these results", name, {row["trace"] for row in rows})
    return [row for row in rows if row["trace"] in names]


def _of_table(path: Path) -> list[Row]:
    import polars

    try:
        table = polars.read_parquet(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise Malformed(f"{path}: cannot be read as a table of results ({error})") from None
    expected = frame([])
    if table.schema != expected.schema:
        names = [column.name for column in RESULT_COLUMNS]
        odd = sorted(set(table.columns) ^ set(names))
        what = f"other columns ({', '.join(odd[:3])})" if odd else "columns of other types"
        raise Malformed(f"{path}: {what} than a table of results; run `sim sweep --out` with this version")
    return table.to_dicts()


def bundled_traces(rows: Sequence[Row], model: str | None) -> list[Workload]:
    """The bundled traces behind rows: name and content are the same, and the model if there is one."""
    found = []
    for name, trace_id, of in dict.fromkeys((row["trace"], row["trace_id"], row["model"]) for row in rows):
        if name in catalog():
            workload = prepare(load_trace(name), find_geometry(name, model))
            if _is(workload, trace_id, of):
                found.append(workload)
    return found


def check_swept(rows: Sequence[Row], workloads: Sequence[Workload]) -> None:
    """Raise BadInput for a trace without rows."""
    for one in workloads:
        if not any(_is(one, row["trace_id"], row["model"]) for row in rows):
            names = ", ".join(dict.fromkeys(row["trace"] for row in rows))
            raise Conflict(
                f"{one.trace.name}: no row of the results is of this trace with this model, only of {names}; "
                "give the trace and the --model that were swept"
            )


def _is(workload: Workload, trace_id: str, model: str | None) -> bool:
    geometry = workload.geometry
    return workload.trace.content_id == trace_id and (None if geometry is None else geometry.name) == model
