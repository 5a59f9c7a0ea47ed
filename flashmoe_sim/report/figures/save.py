"""Figures as files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import Malformed, Missing
from flashmoe_sim.io.tables import as_csv
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.report.figures.style import INSTALL, PALETTES, SVG_PADDING, Chart

GENERIC_FONTS = ("serif", "sans-serif", "monospace")
SVG_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"')


def save(chart: Chart, path: str | Path, *, in_points: bool = False) -> Path:
    """Write a figure as PNG, SVG or PDF, or its data as CSV, by the path's suffix; no browser is needed.

    A PNG has twice the pixels and a background in the theme's colour; the others are transparent. The CSV has a row for
    each thing that is drawn, and what draws it in the column `mark`.
    in_points: a pixel of the chart is 1/72 inch in an SVG, too, as it is in a PDF.
    Raises BadInput for any other suffix, for a PNG or PDF in a font that is not installed, and without the extra
    `report`.
    """
    path, spec = Path(path), chart.to_dict()
    content = _data(spec) if path.suffix == ".csv" else _picture(spec, path, in_points=in_points)
    with atomic_writer(path, force=True) as stream:
        stream.write(content)
    return path


def _picture(spec: dict[str, Any], path: Path, *, in_points: bool) -> bytes:
    vl_convert = converter()
    drawn: bytes
    if path.suffix == ".svg":
        text: str = vl_convert.vegalite_to_svg(spec | {"padding": SVG_PADDING}, allowed_base_urls=[])
        if in_points and (size := SVG_SIZE.match(text)):
            text = f'{text[: size.start(1)]}{size[1]}pt" height="{size[2]}pt{text[size.end(2) :]}'
        return text.encode()
    if path.suffix in (".png", ".pdf"):
        _check_font(spec["config"]["font"])
    if path.suffix == ".png":
        paper = PALETTES[spec["usermeta"]["theme"]].paper
        drawn = vl_convert.vegalite_to_png(spec | {"background": paper}, scale=2, allowed_base_urls=[])
    elif path.suffix == ".pdf":
        drawn = vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[])
    else:
        raise Malformed(f"{path}: a figure is saved as .png, .svg, .pdf or .csv; give it one of these endings")
    return drawn


def _data(spec: Mapping[str, Any]) -> bytes:
    """What a figure draws, as CSV."""
    import polars as pl

    rows: list[dict[str, Any]] = []
    panels = spec.get("concat", [spec])
    for panel in panels:
        for layer in panel.get("layer", [panel]):
            mark = layer["mark"] if isinstance(layer["mark"], str) else layer["mark"]["type"]
            for row in spec["datasets"].get(layer.get("data", panel.get("data", {})).get("name"), ()):
                rows.append(({"panel": _text(panel["title"])} if len(panels) > 1 else {}) | {"mark": mark} | row)
    return as_csv(pl.DataFrame(rows, infer_schema_length=None))


def _text(title: Any) -> str:
    text = title["text"] if isinstance(title, Mapping) else title
    return text if isinstance(text, str) else " ".join(text)


def _check_font(font: str) -> None:
    """Raise BadInput if none of the fonts, named as in CSS, is installed: texts would be left out."""
    names = [name.strip().strip("'\"") for name in font.split(",")]
    if not any(name in GENERIC_FONTS or has_font(name) for name in names):
        raise Missing(f"font {font!r}: is not installed, so .png and .pdf would have no text; name another one")


def has_font(name: str) -> bool:
    """Whether PNG and PDF can be drawn in a font: a text in one that is not installed is left out."""
    from xml.sax.saxutils import quoteattr

    family = quoteattr(f"'{name}'")
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{}</svg>'
    drawn = (f'<text y="15" font-family={family}>Hit</text>', "")
    with_text, without = (converter().svg_to_png(svg.format(text)) for text in drawn)
    return bool(with_text != without)


def converter() -> Any:
    """The package vl_convert. Raises BadInput if it is not installed."""
    try:
        import vl_convert
    except ImportError:
        raise Missing(f"figures and pages need the package vl-convert-python: {INSTALL}") from None
    return vl_convert
