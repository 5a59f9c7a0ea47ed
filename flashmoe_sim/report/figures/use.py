"""The use of experts (by rank, over time, how soon they recur), and which layers miss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flashmoe_sim.io.errors import Conflict, Incomplete
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.report.figures.style import HEIGHT, Chart, Row, altair_module, label, need, titled, values
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import check_asked, count_layers, hot_set_drift

if TYPE_CHECKING:
    import polars


MOST_RANKS = 32
HOT = "share of the hot set, %"


def popularity(trace: RoutingTrace | Workload) -> Chart:
    """Share of the requests that go to the most requested experts, by their number: a faint line per layer, and the
    mean.

    The mean weights each layer by its requests. Up to 32 ranks per layer are drawn, including the top tenth.
    Raises BadInput for a trace without calls.
    """
    altair = altair_module()
    trace = _routing(trace)
    check_asked(trace.name, trace.calls, ())
    counted = [one for one in count_layers(trace) if one.requests.any()]
    fewest = min((one.n_experts for one in counted), default=1)
    ranks = np.unique([*np.geomspace(1, fewest, MOST_RANKS).round().astype(int), -(-fewest // 10), fewest])
    shares = ranks / fewest
    taken = np.zeros((len(counted), len(ranks)))
    for one, row in zip(counted, taken, strict=True):
        upto = np.cumsum(np.sort(one.requests)[::-1]) / one.requests.sum()
        row[:] = upto[np.ceil(shares * one.n_experts - 1e-9).astype(int) - 1]
    mean = np.average(taken, axis=0, weights=[one.requests.sum() for one in counted])
    x = altair.X("experts:Q", axis=altair.Axis(title="experts of a layer, the most requested first, %"))
    y = altair.Y("requests:Q", axis=altair.Axis(title="share of the requests, %"), scale=altair.Scale(domain=(0, 100)))
    faint = [
        {"layer": one.layer, "experts": 100 * share, "requests": 100 * value}
        for one, row in zip(counted, taken.tolist(), strict=True)
        for share, value in zip(shares.tolist(), row, strict=True)
    ]
    strong = [
        {"experts": 100 * share, "requests": 100 * value}
        for share, value in zip(shares.tolist(), mean.tolist(), strict=True)
    ]
    tooltip = [altair.Tooltip("experts:Q", title="experts, %", format=".1f")]
    tooltip += [altair.Tooltip("requests:Q", title="requests, %", format=".1f")]
    drawn = altair.Chart(values(strong)).encode(x=x, y=y, tooltip=tooltip)
    even = [{"experts": 0, "requests": 0}, {"experts": 100, "requests": 100}]
    layers = [
        altair.Chart(values(faint)).mark_line(style="other").encode(x=x, y=y, detail="layer:O", tooltip="layer:O"),
        altair.Chart(values(even)).mark_line(style="ceiling").encode(x=x, y=y),
        drawn.mark_line(style="strong"),
        drawn.mark_point(style="named", size=20),
    ]
    tenth = mean[np.searchsorted(ranks, -(-fewest // 10))]
    subtitle = (
        f"{label(trace.name, 40)}: the most requested tenth of the experts takes {tenth:.1%} of the requests. Strong: "
        "the mean of all layers; faint: each layer; dashed: if all experts were requested alike."
    )
    title = "How unevenly experts are used"
    return titled(altair.layer(*layers).properties(height=HEIGHT), title, subtitle, f"{title}. {subtitle}")


def drift(trace: RoutingTrace | Workload, *, windows: int = 20) -> Chart:
    """How much of each part's hot set was hot in the first part, and in the part before.

    The hot set is the tenth of each layer's experts that the part requests most. windows: number of parts, with equal
    numbers of steps.
    Raises BadInput for fewer than 2 windows, and for a trace of fewer than 2 steps.
    """
    altair = altair_module()
    trace = _routing(trace)
    found = hot_set_drift(trace, windows=windows)
    middles = (found.first_step + found.last_step) / 2
    named = {"that was hot in the part before": found.of_previous, "that was hot in the first part": found.of_first}
    rows = [
        {"what": what, "step": middle, "share": 100 * share}
        for what, shares in named.items()
        for middle, share in list(zip(middles.tolist(), shares.tolist(), strict=True))[1:]
    ]
    last = int(found.last_step[-1])
    x = altair.X(
        "step:Q", axis=altair.Axis(title="step of the model"), scale=altair.Scale(domain=(0, last), nice=False)
    )
    y = altair.Y("share:Q", axis=altair.Axis(title=HOT), scale=altair.Scale(domain=(0, 100)))
    legend = altair.Legend(title=None, columns=1, labelLimit=300)
    colour = altair.Color("what:N", scale=altair.Scale(domain=list(named)), legend=legend)
    shape = altair.Shape("what:N", scale=altair.Scale(domain=list(named), range=["circle", "square"]), legend=legend)
    drawn = altair.Chart(values(rows)).encode(x=x, y=y, color=colour)
    tooltip = [
        altair.Tooltip("what:N", title="experts"),
        altair.Tooltip("step:Q", format=".0f"),
        altair.Tooltip("share:Q", title=HOT, format=".1f"),
    ]
    chance = altair.Chart(values([{"share": 100 * found.chance, "step": 0, "text": "by chance"}]))
    layers = [
        chance.mark_rule(style="ceiling").encode(y=y),
        chance.mark_text(style="note", align="left", baseline="bottom", dx=3, dy=-3).encode(x=x, y=y, text="text:N"),
        drawn.mark_line(),
        drawn.mark_point().encode(shape=shape, tooltip=tooltip),
    ]
    subtitle = (
        f"{label(trace.name, 40)}: of the experts that are hot in the last of {len(middles)} parts, "
        f"{found.of_first[-1]:.1%} were hot in the first, and {found.of_previous[-1]:.1%} in the part before. "
        "Hot: the tenth of a layer's experts that the part requests most."
    )
    title = "Whether the hot experts stay hot"
    return titled(altair.layer(*layers).properties(height=HEIGHT), title, subtitle, f"{title}. {subtitle}")


def reuse_distances(trace: RoutingTrace | Workload) -> Chart:
    """How many slots each request needs to hit under LRU, and the hit rate with that many slots.

    A request needs one slot more than its LRU stack distance: the bars are shares of all requests by octaves of it; the
    line is their sum, the hit rate under `atomic` in a bank of that many slots per layer.
    Raises BadInput for a trace without calls.
    """
    altair = altair_module()
    trace = _routing(trace)
    check_asked(trace.name, trace.calls, ())
    counted = count_layers(trace)
    reuse = np.zeros(max(one.n_experts for one in counted), np.int64)
    for one in counted:
        reuse[: len(one.reuse)] += one.reuse
    first_uses = sum(one.first_uses for one in counted)
    requests = max(int(reuse.sum()) + first_uses, 1)
    hits = 100 * np.cumsum(reuse) / requests
    octaves = [1 << power for power in range(int(len(reuse) - 1).bit_length() + 1)]
    bars, line = [], []
    for slots in octaves:
        upto, below = hits[min(slots, len(reuse)) - 1], hits[min(slots // 2, len(reuse)) - 1] if slots > 1 else 0.0
        between = "1" if slots == 1 else str(slots) if slots == 2 else f"{slots // 2 + 1} to {slots}"
        bars.append({"from": slots / 2, "slots": slots, "share": float(upto - below), "needs": between})
        line.append({"slots": slots, "share": float(upto)})
    x_scale = altair.Scale(type="log", base=2, domain=(0.5, octaves[-1]), nice=False)
    x_axis = altair.Axis(
        title="slots of each layer that a request needs to hit", values=octaves, tickCount=len(octaves), format="d"
    )
    y = altair.Y("share:Q", axis=altair.Axis(title="share of the requests, %"), scale=altair.Scale(domain=(0, 100)))
    drawn = altair.Chart(values(line)).encode(x=altair.X("slots:Q", scale=x_scale, axis=x_axis), y=y)
    tooltip = [altair.Tooltip("slots:Q"), altair.Tooltip("share:Q", title="hit rate, %", format=".1f")]
    needs = [
        altair.Tooltip("needs:N", title="slots needed"),
        altair.Tooltip("share:Q", title="requests, %", format=".1f"),
    ]
    bar = altair.Chart(values(bars)).mark_rect(opacity=0.6, xOffset=0.5, x2Offset=-0.5)
    layers = [
        bar.encode(
            x=altair.X("from:Q", scale=x_scale, axis=x_axis), x2="slots:Q", y=y, y2=altair.datum(0), tooltip=needs
        ),
        drawn.mark_line(style="strong"),
        drawn.mark_point(style="named").encode(tooltip=tooltip),
    ]
    half = int(np.searchsorted(hits, 50)) + 1
    half_text = (
        f"half of the requests hit with {half} slots" if half <= len(reuse) else "no bank hits half of the requests"
    )
    subtitle = (
        f"{label(trace.name, 40)}: {half_text}, under LRU; {first_uses / requests:.1%} are first uses. "
        "Bars: requests by the slots they need; line: the hit rate of a bank of so many."
    )
    title = "How soon experts come back"
    return titled(altair.layer(*layers).properties(height=HEIGHT), title, subtitle, f"{title}. {subtitle}")


def _routing(trace: RoutingTrace | Workload) -> RoutingTrace:
    return trace.trace if isinstance(trace, Workload) else trace


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
