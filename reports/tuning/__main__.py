"""Play the published grids, and write the table and the page."""

from __future__ import annotations

import polars as pl

from flashmoe_sim.cli.progress import working
from reports.tuning.grids import PublishedGrid, grid_named, names
from reports.tuning.page import PAGE, REAL, RUNS, markdown


def line(one: PublishedGrid) -> dict[str, object]:
    """The runs of each search on a grid."""
    runs, missed = one.runs()
    return {
        "grid": one.name,
        "who": one.who,
        "objective": one.grid.objective.goal,
        "model": one.grid.case.model.name,
        "machine": one.grid.case.machine.name,
        "settings": len(one.outcomes),
        "within_3": len(one.good),
        "known": one.is_known,
        "runs": round(runs, 2),
        "missed": missed,
        "in_order": one.in_order(),
        "at_random": round(one.at_random(), 2),
        "tpe": round(one.by_tpe(), 2),
    }


if __name__ == "__main__":
    lines, known = list[dict[str, object]](), names()
    with working("searching") as progress:
        for number, name in enumerate(known, 1):
            if (found := grid_named(name)) is not None:
                lines.append(line(found))
            progress(number, len(known))
    table = pl.DataFrame(lines)
    table.write_csv(RUNS)
    PAGE.write_text(markdown(table, pl.read_csv(REAL)), encoding="utf-8")
