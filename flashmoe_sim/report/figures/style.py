"""How every figure looks: colours, fonts, light and dark, and what text of others may show in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import altair

    Chart: TypeAlias = altair.Chart | altair.LayerChart | altair.VConcatChart | altair.ConcatChart

Theme = Literal["light", "dark"]


def styled(chart: Chart, *, theme: Theme = "light", width: int | Literal["container"] = 640) -> Chart:
    """The chart in a theme, as wide as asked: pixels of all panels together, or `container` as wide as its element.

    Panels of several traces cannot be `container`: give pixels, or make a chart for each trace.
    A page that switches themes embeds `chart.to_dict()` without its `config`, and gives vega-embed `config(theme)`.
    """
    raise NotImplementedError


def config(theme: Theme) -> dict[str, Any]:
    """The Vega-Lite configuration of a theme: all colours but those of heat maps, on a transparent background."""
    raise NotImplementedError
