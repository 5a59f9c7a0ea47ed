"""Figures as files."""

from __future__ import annotations

from pathlib import Path

from flashmoe_sim.report.figures.style import Chart


def save(chart: Chart, path: str | Path) -> Path:
    """Write a figure as PNG (at twice its size), SVG or PDF, by the end of the path; no browser is needed.

    Raises BadInput for another ending, and without the extra `report`.
    """
    raise NotImplementedError
