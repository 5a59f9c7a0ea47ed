"""The report: every row that counts asked, the errors of engines fitted, and all of it written down."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from flashmoe_sim.cli.progress import working
from flashmoe_sim.field import known
from flashmoe_sim.field.rows import FieldRow, counts, read_rows
from reports.pages import joined

FOLDER = Path(__file__).parent
PUBLISHED = FOLDER.parents[1] / "data" / "published"
TABLES = ("field.csv", "field_2026_11.csv", "field_larger_than_ram.csv")
WINS = FOLDER / "wins.csv"


def all_rows() -> list[FieldRow]:
    """Every row of the tables."""
    return [row for table in TABLES for row in read_rows(PUBLISHED / table)]


def judged_rows() -> list[FieldRow]:
    """The rows that count."""
    return [row for row in all_rows() if counts(row)]


def prompt_rows() -> list[FieldRow]:
    """The rows whose prompt speed counts: of confidence A or B without a note against their use."""
    return [row for row in all_rows() if row.prompt_tok_s and counts(row, decode=False)]


def write() -> None:
    """Write the page, its tables, its figures, what is fitted, and which rows were seen."""
    from reports.field import errors, figures, gains, page, prompts, residuals
    from reports.field.asked import answered

    with working("asking") as progress:
        ran = answered(judged_rows(), progress=progress)
    off = errors.fitted(ran)
    lines = residuals.table(ran, off)
    lines.write_csv(residuals.TABLE)
    residuals.wins(ran, off).write_csv(WINS)
    asked, sd = prompts.table(prompt_rows())
    asked.write_csv(prompts.TABLE)
    checked = residuals.checked(residuals.known(lines))
    errors.FILE.write_text(errors.text(off, errors.hits(), prompt_sd=sd, checked=checked))
    figures.draw(lines, FOLDER)
    pairs = gains.pairs_of(judged_rows(), lines)
    gains.save(gains.with_score(gains.seen(pairs)))
    known.write(all_rows())
    (FOLDER / "README.md").write_text(page.markdown(lines, sections(lines), pairs), encoding="utf-8")
    print(f"field: wrote {FOLDER}", file=sys.stderr)


def sections(lines: pl.DataFrame) -> dict[str, str]:
    """The parts of the page that other tables in this folder are in, by title. lines: residuals.csv."""
    from reports.field import (
        age,
        borrowed,
        depth_page,
        drafts,
        first,
        given,
        lent,
        page,
        prompts,
        residuals,
        simulated,
    )

    choices, hits = (pl.read_csv(table) for table in (borrowed.TABLE, lent.TABLE))
    timed, made, taught = (pl.read_csv(table) for table in (prompts.TABLE, simulated.TABLE, given.TABLE))
    parts = residuals.on_parts(lines)
    printed, of_parts = depth_page.timed(judged_rows(), residuals.known(parts))
    return {
        "Answered before they were used": first.section(all_rows(), pl.read_csv(first.TABLE), parts),
        "Shared draws": page.shared_draws(pl.read_csv(WINS)),
        "By depth": depth_page.section(printed, of_parts),
        "Prompts": prompts.section(timed),
        "Drafts": drafts.section(),
        "One measurement of your own": joined(given.section(taught), simulated.section(made)),
        "Borrowed traces": joined(borrowed.section(choices), lent.section(hits)),
        "By age": age.section(judged_rows(), residuals.known(parts)),
    }
