"""A row's predicted speed, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flashmoe_sim.io.errors import BadInput
from reports.field.depth import ASSUMED, attended, kv_type_of
from reports.field.machine import built_of
from reports.field.model import model_of
from reports.field.naive import naive_tok_s
from reports.field.price import Context, Priced, priced
from reports.field.prior import HitCurve
from reports.field.rows import FieldRow
from reports.field.serving import RowParts, Way, way_of
from reports.field.settings import settings_of


@dataclass(frozen=True, eq=False)
class Raw:
    """A row priced before any factor; why: there is no price, if so.

    informed: the price with the row's own hit rate; None if it says none that counts.
    """

    row: FieldRow
    way: Way | None = None
    informed: Priced | None = None
    blind: Priced | None = None
    naive: float | None = None
    naive_informed: float | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


def raw_of(row: FieldRow, curves: dict[str, HitCurve]) -> Raw:
    """A row priced with its machine's own numbers."""
    try:
        model, built = model_of(row), built_of(row)
        model = replace(model, attention=model.attention or ASSUMED)
        settings = settings_of(row, moe_layers=len(model.layers))
        way = way_of(RowParts(row, model, built.machine, settings))
        context = Context(attended(row), kv_type_of(row))
        blind = priced(way, curves, hit_rate=None, context=context)
        informed = None
        if settings.hit_rate is not None and way.kind not in ("none", "uniform"):
            informed = priced(way, curves, hit_rate=settings.hit_rate, context=context)
        return Raw(
            row,
            way,
            informed,
            blind,
            naive_tok_s(row, way, hit_rate=None),
            None if informed is None else naive_tok_s(row, way, hit_rate=settings.hit_rate),
            notes=built.notes,
        )
    except BadInput as error:
        return Raw(row, why=str(error).removeprefix(f"{row.where}: "))
