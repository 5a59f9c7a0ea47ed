"""Which layers miss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Conflict, Incomplete
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.report.figures.style import Chart, Row, altair_module, label, need, titled, values

if TYPE_CHECKING:
    import polars

MOST_BANKS = 24
BANK_PIXELS = 18
ONE_BANK_PIXELS = 220
TITLE = "misses, % of a layer's requests"


def misses_by_layer(rows: polars.DataFrame) -> Chart:
    """The share of each layer's requests that miss, by layer and bank: a heat map, or bars for one bank.

    rows: schema.LAYER_COLUMNS of one trace and policy, as returned by `replay(..., by="layer")`, for one or several
        banks. It reads trace, policy, bank, layer, requests, misses and misses_per_token; others may be missing. If
        there are more than 24 banks, 24 are shown.
    Raises BadInput without rows, and for several traces or policies.
    """
    altair_module()
    need(rows, ("trace", "policy", "bank", "layer", "requests", "misses"), "misses by layer", 'replay(..., by="layer")')
    known = rows.filter(rows["requests"] > 0).to_dicts()
    if not known:
        raise Incomplete("misses by layer: no layer was asked for anything; give the rows of replays by layer")
    for name in ("trace", "policy"):
        if len(several := {row[name] for row in known}) > 1:
            raise Conflict(f"misses by layer: {len(several)} {name} values; give the rows of one")
    banks = sorted(dict.fromkeys(row["bank"] for row in known), key=lambda bank: parse_bank(bank).size)
    if len(banks) > MOST_BANKS:
        banks = [banks[round(one * (len(banks) - 1) / (MOST_BANKS - 1))] for one in range(MOST_BANKS)]
    data = [
        {
            "layer": row["layer"],
            "bank": label(row["bank"]),
            "missed": 100 * row["misses"] / row["requests"],
            "misses_per_token": row["misses_per_token"],
        }
        for row in known
        if row["bank"] in banks
    ]
    shown = [label(bank) for bank in banks]
    smallest = [row for row in data if row["bank"] == shown[0]]
    worst = max(smallest, key=lambda row: row["missed"])
    subtitle = (
        f"{label(known[0]['trace'], 40)}, {label(known[0]['policy'])}. At a bank of {shown[0]}, layer {worst['layer']} "
        f"misses most: {worst['missed']:.1f}% of its requests."
    )
    chart = _bars(data) if len(banks) == 1 else _heat_map(data, shown)
    return titled(chart, "Misses by layer", subtitle, f"Share of each layer's requests that miss. {subtitle}")


def _layers() -> Any:
    import altair

    return altair.X("layer:O", axis=altair.Axis(title="layer", labelAngle=0, labelOverlap="parity", labelSeparation=2))


def _tooltip() -> list[Any]:
    import altair

    return [
        altair.Tooltip("layer:O"),
        altair.Tooltip("bank:N"),
        altair.Tooltip("missed:Q", title=TITLE, format=".1f"),
        altair.Tooltip("misses_per_token:Q", title="misses per token", format=".3g"),
    ]


def _heat_map(data: list[Row], banks: list[str]) -> Any:
    import altair

    map_ = (
        altair.Chart(values(data))
        .mark_rect()
        .encode(
            x=_layers(),
            y=altair.Y("bank:N", sort=banks[::-1], axis=altair.Axis(title="bank", domain=False, ticks=False)),
            color=altair.Color(
                "missed:Q",
                scale=altair.Scale(scheme="cividis", domainMin=0),
                legend=altair.Legend(title=TITLE, gradientLength=180, gradientThickness=10, titleLimit=220),
            ),
            tooltip=_tooltip(),
        )
    )
    return altair.layer(map_).properties(height=BANK_PIXELS * len(banks))


def _bars(data: list[Row]) -> Any:
    import altair

    y = altair.Y("missed:Q", axis=altair.Axis(title=TITLE, tickCount=5), scale=altair.Scale(domainMin=0))
    bars = altair.Chart(values(data)).mark_bar().encode(x=_layers(), y=y, tooltip=_tooltip())
    return altair.layer(bars).properties(height=ONE_BANK_PIXELS)
