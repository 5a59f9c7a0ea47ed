"""What each part of a prediction is worth: the rows that it concerns, predicted without it and with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from reports.field import drafts, tune
from reports.field.depth import attended, kv_type_of
from reports.field.predict import Raw, raw_of
from reports.field.price import Context, priced
from reports.field.prior import HitCurve
from reports.field.scores import Judged, naive_score
from reports.field.serving import Way
from reports.field.settings import settings_of
from reports.field.tune import price_of
from reports.pages import joined, table

Without = Callable[[Raw, dict[str, HitCurve]], float | None]
Pairs = Sequence[tuple[float | None, float | None]]

DEEP = 8192  # tokens in the context from which on a row is of its depth
LEAST_CHANGE = 0.02  # of a speed: a part that changes it by less does not concern the row
HEAD = """Each line has the rows that a part concerns, predicted from the parts of the machine alone, without it and
with it. The last two are with what is tuned without the row's machine.
"""


def section(rows: Sequence[Judged], prompts: pl.DataFrame) -> str:
    """The table. prompts: prompts.csv."""
    curves = tune.load().curves
    known = [one for one in rows if one.in_sample.raw.blind is not None]
    cells = [_cells(name, *_pairs(known, without, curves)) for name, without in PARTS.items()]
    gains = [(one.predicted, one.measured) for one in drafts.pairs()]
    cells.append(_cells("drafts: the gain of a pair", [(1.0, measured) for _, measured in gains], gains))
    alone = [(price_of(one.in_sample.raw).tok_s, one.row.decode_tok_s) for one in known]
    cells.append(
        _cells("engines' own time", alone, [(one.without_machine.tok_s, one.row.decode_tok_s) for one in known])
    )
    measured = prompts["measured_tok_s"]
    on_paper, fitted = (
        list(zip(prompts[column], measured, strict=True)) for column in ("on_paper_tok_s", "without_machine_tok_s")
    )
    cells.append(_cells("prompts: rates that are fitted", on_paper, fitted))
    head = ("part", "rows", "median error without", "with", "within 2x without", "with")
    return joined(HEAD, table(head, cells, left=None))


def _pairs(known: Sequence[Judged], without: Without, curves: dict[str, HitCurve]) -> tuple[Pairs, Pairs]:
    """Predicted and measured speeds without a part and with it, of the rows that it changes."""
    before, after = list[tuple[float | None, float | None]](), list[tuple[float | None, float | None]]()
    for one in known:
        raw = one.in_sample.raw
        with_it, without_it = price_of(raw).tok_s, without(raw, curves)
        if without_it is not None and abs(without_it / with_it - 1) > LEAST_CHANGE:
            before.append((without_it, one.row.decode_tok_s))
            after.append((with_it, one.row.decode_tok_s))
    return before, after


def _cells(name: str, before: Pairs, after: Pairs) -> tuple[object, ...]:
    one, other = naive_score(before), naive_score(after)
    errors, shares = (f"{part.error:.0%}" for part in (one, other)), (f"{part.within_2:.0%}" for part in (one, other))
    return name, other.rows, *errors, *shares


def _empty(raw: Raw, curves: dict[str, HitCurve]) -> float | None:
    if attended(raw.row) < DEEP:
        return None
    return _priced(raw, curves, _way(raw), depth=0)


def _like_the_first(raw: Raw, curves: dict[str, HitCurve]) -> float | None:
    cards = raw.row.gpu.split(" + ")
    if len(set(cards)) == 1 or not _way(raw).machine.cards:
        return None
    alike = raw_of(replace(raw.row, gpu=f"{len(cards)}x {cards[0]}"), curves)
    return None if alike.blind is None else price_of(alike).tok_s


def _without_kernels(raw: Raw, curves: dict[str, HitCurve]) -> float | None:
    return _priced(raw, curves, replace(_way(raw), program=""))


def _all_in_ram(raw: Raw, curves: dict[str, HitCurve]) -> float | None:
    return _priced(raw, curves, replace(_way(raw), ram_share=1.0)) if _way(raw).ram_share < 1 else None


PARTS: dict[str, Without] = {
    f"depth, from {DEEP:,} tokens on": _empty,
    "unlike GPUs, each at its own speed": _like_the_first,
    "kernels: a CPU's arithmetic, small steps of a layer": _without_kernels,
    "RAM: what it cannot hold is read": _all_in_ram,
}


def _way(raw: Raw) -> Way:
    assert raw.way is not None
    return raw.way


def _priced(raw: Raw, curves: dict[str, HitCurve], way: Way, *, depth: int | None = None) -> float:
    """The speed of a row served in another way, with its own hit rate if its price has it."""
    hit_rate = None
    if raw.informed is not None:
        hit_rate = settings_of(raw.row, moe_layers=len(way.model.layers)).hit_rate
    context = Context(attended(raw.row) if depth is None else depth, kv_type_of(raw.row))
    return priced(way, curves, hit_rate=hit_rate, context=context).tok_s
