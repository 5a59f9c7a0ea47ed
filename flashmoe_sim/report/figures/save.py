"""Figures as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.report.figures.style import INSTALL, PALETTES, SVG_PADDING, Chart


def save(chart: Chart, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by the path's suffix; no browser is needed.

    A PNG has twice the pixels and a background in the theme's colour; the others are transparent.
    Raises BadInput for any other suffix, and without the extra `report`.
    """
    vl_convert = converter()
    path, spec = Path(path), chart.to_dict()
    if path.suffix == ".svg":
        drawn: bytes = vl_convert.vegalite_to_svg(spec | {"padding": SVG_PADDING}, allowed_base_urls=[]).encode()
    elif path.suffix == ".png":
        paper = PALETTES[spec["usermeta"]["theme"]].paper
        drawn = vl_convert.vegalite_to_png(spec | {"background": paper}, scale=2, allowed_base_urls=[])
    elif path.suffix == ".pdf":
        drawn = vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[])
    else:
        raise BadInput(f"{path}: a figure is saved as .png, .svg or .pdf; give it one of these endings")
    with atomic_writer(path, force=True) as stream:
        stream.write(drawn)
    return path


def converter() -> Any:
    """The package vl_convert. Raises BadInput if it is not installed."""
    try:
        import vl_convert
    except ImportError:
        raise BadInput(f"figures and pages need the package vl-convert-python: {INSTALL}") from None
    return vl_convert
