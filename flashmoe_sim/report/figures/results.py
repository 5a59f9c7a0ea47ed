"""`results.png`: what a sweep found, in one picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.report.figures.gains import gains
from flashmoe_sim.report.figures.hits import hit_curves
from flashmoe_sim.report.figures.save import SVG_SIZE, converter
from flashmoe_sim.report.figures.speed import speeds
from flashmoe_sim.report.figures.style import PALETTES, SVG_PADDING, Chart, altair_module
from flashmoe_sim.schema import frame
from flashmoe_sim.sweep.summary import yours_first

MOST_SPEEDS = 6
SPACING = 24

Row = dict[str, Any]


def missing() -> str:
    """Which package a picture needs that is not installed; empty if all are there."""
    try:
        altair_module(), converter()
    except BadInput as error:
        return str(error)
    return ""


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw results as a PNG: hit rates, points above LRU of several traces or many policies, and speeds on a machine.

    rows: of schema.RESULT_COLUMNS. Of banks in several units, those in the unit of the first row are drawn; of traces
        and machines, the first 6 pairs that have speeds.
    Raises BadInput without the extra `report`.
    """
    vl_convert = converter()
    unit = parse_bank(rows[0]["bank"]).unit
    charts = _charts([row for row in yours_first(rows) if parse_bank(row["bank"]).unit == unit])
    specs = [chart.to_dict() | {"padding": SVG_PADDING} for chart in charts]
    pictures = [vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]) for spec in specs]
    with atomic_writer(path, force=True) as stream:
        stream.write(vl_convert.svg_to_png(_stacked(pictures), scale=2))


def _charts(rows: Sequence[Row]) -> Iterator[Chart]:
    table = frame(rows)
    yield hit_curves(table)
    with suppress(BadInput):  # without lru, or few policies of one trace
        yield gains(table)
    of_pair: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["tok_s"] is not None:
            of_pair.setdefault((row["trace_id"], row["trace"], row["machine"]), []).append(row)
    for some in [*of_pair.values()][:MOST_SPEEDS]:
        yield speeds(frame(some))


def _stacked(pictures: Sequence[str]) -> str:
    """The SVG pictures below each other."""
    sizes = [(float(found[1]), float(found[2])) for picture in pictures if (found := SVG_SIZE.match(picture))]
    assert len(sizes) == len(pictures)
    width, height = max(width for width, _ in sizes), sum(height + SPACING for _, height in sizes) - SPACING
    parts, top = [], 0.0
    for picture, (_, tall) in zip(pictures, sizes, strict=True):
        parts.append(picture.replace("<svg ", f'<svg y="{top}" ', 1))
        top += tall + SPACING
    paper = f'<rect width="100%" height="100%" fill="{PALETTES["light"].paper}"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
    return f"{head}{paper}{''.join(parts)}</svg>"
