"""The style of all figures: colours, fonts, light and dark themes, and foreign texts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from flashmoe_sim.io.errors import Conflict, Malformed, Missing, shortened
from flashmoe_sim.io.printable import UNPRINTABLE

if TYPE_CHECKING:
    import altair
    import polars


Chart: TypeAlias = "altair.LayerChart | altair.ConcatChart"
Theme = Literal["light", "dark"]
Row = dict[str, Any]

INSTALL = "pip install '.[report]'"
FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
FONT_SIZE = 12
HEIGHT = 300
NAME = 16  # pixels from one name at the end of a line to the next
LEAST_HEIGHT = 120
WIDTH = 640
NARROW = 480  # below this width, panels and legend entries are stacked
AXIS = 56  # pixels left of the axes, where the title of one panel begins
PHONE = 320  # the width that a title must fit if the real one is unknown
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right", "triangle-left")
DASHES: tuple[list[int], ...] = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3], [10, 4], [6, 2, 2, 2, 2, 2])
MOST_LETTERS = 28  # of a name in a figure
TITLE_LETTERS = 90  # of a machine in a title
# Pixels around an SVG; on the right for letters that a viewer draws wider than the layout does.
SVG_PADDING = {"left": 8, "top": 8, "right": 36, "bottom": 8}


class Palette(NamedTuple):
    """lines: the colours of Okabe and Ito, some lighter in the dark theme; the first four differ for all readers.

    quiet: for secondary text. paper: the background of a PNG; vl-convert draws translucent marks on a transparent one
    with wrong colours.
    """

    paper: str
    text: str
    quiet: str
    grid: str
    other: str
    lines: tuple[str, ...]


PALETTES: dict[Theme, Palette] = {
    "light": Palette(
        "#ffffff",
        "#1b1b1b",
        "#5c5c5c",
        "#e4e4e4",
        "#b4b4b4",
        ("#0072b2", "#d55e00", "#009e73", "#56b4e9", "#e69f00", "#cc79a7", "#7f5539", "#7a7a7a"),
    ),
    "dark": Palette(
        "#181818",
        "#ececec",
        "#b0b0b0",
        "#3a3a3a",
        "#6a6a6a",
        ("#3d9be0", "#f27d2e", "#1fb78d", "#a9dcf8", "#f0b429", "#dd97bd", "#b98a68", "#a5a5a5"),
    ),
}


def altair_module() -> Any:
    """The package altair. Raises BadInput if it is not installed."""
    try:
        import altair
    except ImportError:
        raise Missing(f"figures need the package altair: {INSTALL}") from None
    return altair


def need(rows: polars.DataFrame, columns: Sequence[str], figure: str, verb: str) -> None:
    """Raise BadInput for a table without one of these columns. verb: whose table has them."""
    if missing := [name for name in columns if name not in rows.columns]:
        raise Malformed(f"{figure}: the table has no column {missing[0]}; give the table of {verb}")


def styled(
    chart: Chart,
    *,
    theme: Theme = "light",
    width: int | Literal["container"] = WIDTH,
    height: int | None = None,
    title: bool = True,
    font: str = FONT,
    font_size: float = FONT_SIZE,
) -> Chart:
    """The chart in a theme, with a width: pixels of all panels together, or `container` for the width of its element.

    height: of each panel's axes, in pixels; None as it is, or less for lines that are narrow. title: False for a figure
    whose caption stands in a paper. font: names as in CSS. font_size: of texts in the figure, in pixels; others follow.
    A page that switches themes embeds `chart.to_dict()` without its `config`, and passes `config(theme)` to vega-embed.
    Raises BadInput for panels of several traces in a container: give pixels, or make a chart for each trace.
    """
    import altair

    shown = chart.copy(deep=False)
    if isinstance(shown, altair.ConcatChart):
        if width == "container":
            raise Conflict('width="container" needs a single trace; give a width in pixels')
        shown.columns = 1 if width < NARROW else 2
        panel = width // shown.columns - 75
        size = {"width": panel} | ({} if height is None else {"height": height})
        shown.concat = [one.properties(**size) for one in shown.concat]
    else:
        shown.width = width
        if height is None and width != "container" and width < WIDTH and shown.height == HEIGHT:
            height = max(round(HEIGHT * width / WIDTH), LEAST_HEIGHT)
        if height is not None:
            shown.height = height
        shown.autosize = altair.AutoSizeParams(type="fit-x", contains="padding")
        shown.layer = _with_names_apart(shown.layer, shown.height, font_size / FONT_SIZE)
    pixels = PHONE if width == "container" else width
    is_narrow = width != "container" and width < NARROW and not isinstance(shown, altair.ConcatChart)
    letters = (pixels - AXIS if is_narrow else pixels) * FONT_SIZE / font_size
    shown.title = altair.Undefined
    if title:
        texts = chart.title
        shown.title = altair.TitleParams(
            text=_wrapped(texts.text, letters / 8.2), subtitle=_wrapped(texts.subtitle, letters / 6.3)
        )
    settings = _scaled(config(theme) | {"font": font}, font_size / FONT_SIZE)
    if pixels < NARROW:
        settings["legend"]["columns"] = 2
    shown.config = altair.Config(**settings)
    shown.usermeta = {"theme": theme}
    return shown


def _scaled(value: Any, times: float, name: str = "") -> Any:
    """A setting, and all within it, with every size of a font multiplied."""
    if isinstance(value, dict):
        return {key: _scaled(one, times, key) for key, one in value.items()}
    return value * times if name.lower().endswith("fontsize") else value


def _wrapped(text: str | list[str], letters: float) -> list[str]:
    return textwrap.wrap(text if isinstance(text, str) else " ".join(text), int(letters), break_on_hyphens=False)


def config(theme: Theme) -> dict[str, Any]:
    """The Vega-Lite configuration of a theme: all colours except heat maps, on a transparent background."""
    _, text, quiet, grid, other, lines = PALETTES[theme]
    ruled = {"color": text, "strokeWidth": 1.2, "strokeDash": [5, 3]}
    return {
        "background": "transparent",
        "font": FONT,
        "padding": 8,
        "view": {"stroke": None},
        "mark": {"tooltip": None},
        "title": {
            "anchor": "start",
            "frame": "group",
            "color": text,
            "fontSize": 15,
            "fontWeight": 600,
            "subtitleColor": quiet,
            "subtitleFontSize": 12,
            "subtitlePadding": 4,
            "offset": 12,
        },
        "axis": {
            "labelColor": quiet,
            "titleColor": text,
            "titleFontWeight": "normal",
            "titleFontSize": 12,
            "labelFontSize": 11,
            "gridColor": grid,
            "domainColor": quiet,
            "tickColor": quiet,
            "titlePadding": 8,
        },
        "axisX": {"grid": False, "tickCount": 8, "labelOverlap": "greedy", "labelSeparation": 4},
        "axisY": {"domain": False, "ticks": False, "labelPadding": 8, "tickCount": 5},
        "legend": {
            "orient": "top",
            "title": None,
            "columns": 4,
            "labelColor": text,
            "titleColor": text,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "titleFontSize": 11,
            "labelLimit": 200,
            "symbolStrokeWidth": 0,
            "symbolSize": 90,
        },
        "line": {"strokeWidth": 2},
        "point": {"size": 45, "filled": True, "opacity": 1},
        "text": {"color": text, "fontSize": 12},
        "rule": {"color": quiet},
        "range": {"category": list(lines), "symbol": list(SHAPES)},
        "style": {
            "ceiling": ruled,
            "shade": {"color": quiet, "opacity": 0.12},
            "band": {"opacity": 0.18},
            "other": {"color": other, "strokeWidth": 1, "opacity": 0.7},
            "note": {"color": quiet, "fontSize": 11},
            "named": {"color": text, "fontSize": 12},
            "strong": {"color": text, "strokeWidth": 3},
        },
    }


def titled(chart: Chart, title: str, subtitle: str, description: str) -> Chart:
    """The chart with its texts, in the light theme; description: for screen readers, with the main number."""
    import altair

    named = altair.TitleParams(text=cleaned(title), subtitle=cleaned(subtitle))
    return styled(chart.properties(title=named, description=cleaned(description)))


def values(rows: Iterable[Row]) -> Any:
    """Rows as the data of a chart."""
    import altair

    return altair.InlineData(values=list(rows))


def cleaned(text: str) -> str:
    """The text in one line, without invisible characters."""
    return " ".join(UNPRINTABLE.sub("", text.replace("\n", " ").replace("\t", " ")).split())


def label(text: str, letters: int = MOST_LETTERS) -> str:
    """A foreign name in the form a figure shows it."""
    return shortened(cleaned(text), letters) or "-"


def labels(texts: Sequence[str], letters: int = MOST_LETTERS) -> dict[str, str]:
    """The label of each text; texts that become equal when shortened get numbers."""
    found: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        name, number = label(text, letters), 1
        while name in found.values():
            number += 1
            name = f"{label(text, letters - 4)} ({number})"
        found[text] = name
    return found


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places, moved as little as possible to be `gap` apart and within `low` to `high`, in the same order.

    If there is too little room, they are as far apart as possible.
    """
    order = sorted(range(len(places)), key=lambda one: places[one])
    gap = min(gap, (high - low) / max(len(places) - 1, 1))
    moved = [0.0] * len(places)
    floor = low
    for rank, one in enumerate(order):
        ceiling = high - gap * (len(order) - 1 - rank)
        moved[one] = min(max(places[one], floor), ceiling)
        floor = moved[one] + gap
    return moved


def names_apart(rows: Sequence[Row], low: float, top: float, *, gap: float = NAME / HEIGHT) -> list[Row]:
    """Names right of a figure from `low` to `top`, moved in `y` so that none overlap.

    rows: each with the value at which its line ends, `ends_at`. gap: between two names, of the figure's height.
    """
    heights = spread([row["ends_at"] for row in rows], gap * (top - low), low, top)
    return [row | {"y": height} for row, height in zip(rows, heights, strict=True)]


def _with_names_apart(layers: Sequence[Any], height: float, times: float) -> list[Any]:
    """The layers of a figure of another height, with letters that many times as large as usual."""
    rows = {number: found for number, layer in enumerate(layers) if (found := _names(layer))}
    if not rows:
        return list(layers)
    low, top = layers[next(iter(rows))].encoding.y["scale"]["domain"]
    each = {row["line"]: row for some in rows.values() for row in some}
    moved = {row["line"]: row for row in names_apart(list(each.values()), low, top, gap=NAME * times / height)}
    drawn = list(layers)
    for number, some in rows.items():
        drawn[number] = layers[number].copy(deep=False)
        drawn[number].data = values(moved[row["line"]] for row in some)
    return drawn


def _names(layer: Any) -> list[Row]:
    """The rows of a layer of names at the ends of lines; of another: none."""
    rows = getattr(layer.data, "values", [])
    return rows if rows and "ends_at" in rows[0] else []


LINE, BAR, ROW = 15, 12, 40  # pixels: a line of text, a bar, and both with the room below


def y(field: str, height: int) -> Any:
    """The channel for a place in pixels from the top of a figure."""
    import altair

    return altair.Y(f"{field}:Q", scale=altair.Scale(domain=(height, 0), nice=False, zero=False), axis=None)


def place(top: float) -> dict[str, float]:
    """The places of a row's parts, in pixels: its text, the upper and lower end of its bar, and the middle."""
    upper = top + LINE
    return {"text_y": top, "upper": upper, "middle": upper + BAR / 2, "lower": upper + BAR}
