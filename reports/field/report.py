"""The report: every judged row priced, tuned, left out, and written down."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from flashmoe_sim.geometry.named import named_models
from flashmoe_sim.machines.machine import APIS
from reports.field import gains, given, prior, prompt_fit, prompt_page, prompt_printed, tune
from reports.field.pairs import both_ways
from reports.field.predict import Raw, raw_of
from reports.field.prior import KINDS, HitCurve
from reports.field.rows import FieldRow, read_rows
from reports.field.scores import Judged, all_tuned, counts, judged
from reports.field.tune import price_of
from reports.pages import joined

FOLDER = Path(__file__).parent
ROWS = FOLDER.parents[1] / "data" / "published" / "field.csv"
RESULTS = FOLDER / "results.csv"
_API = re.compile(rf"\b(?:{'|'.join(APIS)})\b", re.IGNORECASE)


def judged_rows() -> list[FieldRow]:
    """The rows that count."""
    return [row for row in read_rows(ROWS) if counts(row)]


def prompt_rows() -> list[FieldRow]:
    """The rows whose prompt speed counts: of confidence A or B without a note against their use."""
    return [row for row in read_rows(ROWS) if row.prompt_tok_s and counts(row, decode=False)]


def raws_with(curves: dict[str, HitCurve]) -> list[Raw]:
    """Every row that counts, priced."""
    return [raw_of(row, curves) for row in judged_rows()]


def write(*, tune_again: bool) -> None:
    """Write the page, its tables, its figures and the errors of engines; with `tune_again` also what is tuned."""
    from reports.field import errors, figures, page, printed_page
    from reports.field.printed import printed

    if tune_again:
        points = prior.all_points()
        curves = {kind: prior.fitted(points, kind) for kind in KINDS}
        tune.save(all_tuned(raws_with(curves), curves))
        prompt_page.tune([raw_of(row, curves) for row in prompt_rows()])
    found = tune.load()
    rows = judged(raws_with(found.curves), found.curves)
    if tune_again:
        given.save(given.tune(rows))
    frame(rows).write_csv(RESULTS)
    ran = [one for one in printed(judged_rows()) if one.found is not None]
    off = errors.fitted(ran)
    asked = printed_page.table(ran, off)
    asked.write_csv(printed_page.TABLE)
    pairs = printed_page.wins(ran, off)
    pairs.write_csv(printed_page.WINS)
    inside = printed_page.inside(asked)
    prompts, sd = prompt_printed.table(prompt_rows())
    prompts.write_csv(prompt_printed.TABLE)
    of_hits = errors.hits()
    errors.FILE.write_text(errors.text(off, of_hits, prompt_sd=sd, rows=len(asked), inside=inside))
    figures.draw(rows, FOLDER)
    gains.save(gains.with_score(gains.seen(both_ways([one.without_machine for one in rows])[1])))
    (FOLDER / "README.md").write_text(page.markdown(rows, found, sections(rows)), encoding="utf-8")
    print(f"field: wrote {FOLDER}", file=sys.stderr)


def sections(rows: Sequence[Judged]) -> dict[str, str]:
    """The parts of the page that are made from tables in this folder, by title."""
    from reports.field import borrowed, by_part, drafts, lent, printed_page, simulated, unseen

    printed, wins = (pl.read_csv(table) for table in (printed_page.TABLE, printed_page.WINS))
    choices, hits = (pl.read_csv(table) for table in (borrowed.TABLE, lent.TABLE))
    asked, timed, made = (pl.read_csv(table) for table in (prompt_page.TABLE, prompt_printed.TABLE, simulated.TABLE))
    return {
        "Predicted before they were used": unseen.section(
            pl.read_csv(unseen.TABLE), pl.read_csv(ROWS, infer_schema_length=None)
        ),
        "By part": by_part.section(rows, asked),
        "As the commands print it": printed_page.section(printed, wins),
        "Prompts": prompt_page.section(asked, timed, prompt_fit.load()),
        "Drafts": drafts.section(),
        "One measurement of your own": joined(given.section(rows, given.load()), simulated.section(made)),
        "Borrowed traces": joined(borrowed.section(choices), lent.section(hits)),
    }


def frame(rows: Sequence[Judged]) -> pl.DataFrame:
    """A row for each judged row: measured, predicted in sample, left out, from the parts alone, on paper, and why not.

    arch: llama.cpp's name of the architecture. api: the GPU's programming interface, empty for the CPU alone. Both are
    empty without a prediction. parts_alone: with no engine's cost, as `sim recommend` predicts.
    """
    table = []
    for one in rows:
        row, raw = one.row, one.in_sample.raw
        alone = None if raw.blind is None else price_of(raw)
        table.append(
            {
                "id": row.id,
                "strategy": row.strategy,
                "engine": row.engine,
                "machine_id": row.machine_id,
                "arch": arch_of(raw),
                "api": api_of(raw),
                "series": row.series,
                "measured_tok_s": row.decode_tok_s,
                "tok_s": one.in_sample.tok_s,
                "without_series_tok_s": one.without_series.tok_s,
                "without_machine_tok_s": one.without_machine.tok_s,
                "without_machine_lo": one.without_machine.lo,
                "without_machine_hi": one.without_machine.hi,
                "without_hit_rate_tok_s": one.blind.tok_s,
                "parts_alone_tok_s": None if alone is None else alone.tok_s,
                "parts_alone_lo": None if alone is None else alone.lo,
                "parts_alone_hi": None if alone is None else alone.hi,
                "on_paper_tok_s": one.naive,
                "why": one.in_sample.why,
            }
        )
    return pl.DataFrame(table, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))


def arch_of(raw: Raw) -> str:
    """The architecture of a priced row's model, as llama.cpp names it; empty without a price."""
    return "" if raw.way is None else named_models()[raw.way.name].arch


def api_of(raw: Raw) -> str:
    """The programming interface that a priced row's GPU ran: as the row says, else as the part has it.

    Empty if the CPU alone computed, and without a price.
    """
    if raw.way is None or raw.way.machine.gpu is None:
        return ""
    match = _API.search(f"{raw.row.engine} {raw.row.engine_version_or_pr} {raw.row.flags}")
    return match[0].lower() if match else raw.way.machine.api
