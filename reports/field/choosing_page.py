"""The part of the page on what choosing a setting as `sim recommend` does loses."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from reports.field.choosing import OTHERS, Choice, blind_speed, choices, ninth_decile, plain_speed
from reports.field.scores import Judged
from reports.pages import joined, table

FAR = 0.05
TURNED = "The parts of the machine alone give the right order. The costs of the two engines turn it round"
UNKNOWN_COST = f"{TURNED}: the one with the cache has too few rows on other machines, and gets that of its strategy."
# Why a choice loses more than FAR.
UNTOLD_LAYERS = (
    "How many layers' experts are on the CPU without the cache is not told; as many as fit are taken to be on the two "
    "GPUs, at 1.2 and 1.7 times the measured speed."
)
REASONS = {
    "lcpp27861-csant": UNKNOWN_COST,
    "moonie-tiers-K10": "RAM holds as many experts with the engine's tier as without, in the page cache, so both are "
    "predicted alike and the smaller is taken. The engine maps its file, and page faults are slower than priced.",
    "ds4-810": "The bigger cache takes its RAM from the page cache. The prediction takes a hit in the cache for "
    "cheaper than a read from the page cache; the three runs with 32 GB say the opposite, and differ by a third.",
    **dict.fromkeys(("neu-pf12k-Qwen3.8-Flash-Next", "neu-pf12k-GLM-5.3-Flash"), UNTOLD_LAYERS),
    "st-iq4xs64": "Five of the six ways to keep the file in RAM are predicted alike, and too slow: as if all of it "
    "took RAM.",
    "imp1375-cliff": "Such small banks hit nothing, with and without the cache; the engine's own time for it is not "
    "known, so both are predicted alike.",
    "warp37-cache": "Nearly all of a token's seconds are the engine's cost, so all sizes are predicted alike, and the "
    "smallest is taken.",
    "neu-policy": "No price knows the rule of eviction, so the mean of all rules counts.",
    **{f"ahhot-{card}-{model}": UNKNOWN_COST for card in ("2060", "3060") for model in ("q36", "q35-122b")},
}


def goals(found: Sequence[Choice]) -> str:
    """The goals of choosing, reached or not."""
    losses = [one.loss for one in found]
    return (
        f"On the {len(found)} series that vary one setting, choosing as `sim recommend` does loses "
        f"{statistics.median(losses):.1%} in the median (goal 3%) and at most {ninth_decile(losses):.1%} in nine of "
        "ten (goal 15%)."
    )


def section(rows: Sequence[Judged]) -> str:
    """How choosing does, why it fails if it does, and which series are left out."""
    found = sorted(choices(rows), key=lambda one: (-one.loss, one.series))
    mixed = choices(rows, mixed=True)
    worse = max(mixed, key=lambda one: one.loss - _loss(found, one.series))
    return joined(
        "`sim recommend` takes, of the settings within 3% of the fastest predicted, the one that keeps least in "
        "memory. Here it chooses among the rows of a series whose varied column is one setting, or one choice among "
        "systems, on one machine. Predictions are made without that machine; repeats of a setting are averaged, and of "
        "settings predicted alike with as much memory the mean counts. " + goals(choices(rows, plain_speed)),
        _ways(rows),
        "The first line has no costs of engines, as `sim recommend` has none. The others have them; the third does "
        "without published hit rates, and the last has rows of another program, too: "
        f"against `{worse.chosen.id}`, {worse.series} loses {worse.loss:.0%}.",
        "\n".join(_reasons(found)),
        _table(found),
        "Other series do not vary one setting:",
        _others(rows),
    )


def _reasons(found: Sequence[Choice]) -> list[str]:
    """Each reason once, with the series that have it; the worst first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for one in found:
        if one.loss > FAR:
            groups[REASONS[one.series]].append(f"**{one.series}** ({one.loss:.0%})")
    return [f"- {', '.join(series)}: {reason}" for reason, series in groups.items()]


def _ways(rows: Sequence[Judged]) -> str:
    ways = (
        ("with no engine's cost", choices(rows, plain_speed)),
        ("with costs, without the machine", choices(rows)),
        ("the same, ignoring published hit rates", choices(rows, blind_speed)),
        ("with costs, without the machine, whole series", choices(rows, mixed=True)),
    )
    cells = []
    for what, found in ways:
        losses = [one.loss for one in found]
        shares = (f"{share:.1%}" for share in (statistics.median(losses), ninth_decile(losses)))
        cells.append((what, len(losses), *shares, sum(loss > 0.15 for loss in losses)))
    head = ("predicted", "series", "median loss", "nine in ten lose at most", "over 15%")
    return table(head, cells, left=None)


def _table(found: Sequence[Choice]) -> str:
    cells = ((one.series, one.varies, one.settings, one.chosen.id, one.best.id, f"{one.loss:.0%}") for one in found)
    return table(("series", "varies", "settings", "chosen", "best measured", "loss"), cells, left=None)


def _others(rows: Sequence[Judged]) -> str:
    series = {(one.row.series, one.row.varies) for one in rows if one.row.series}
    number = Counter(varies for _, varies in series)
    return "".join(
        f"- {why} ({sum(number[varies] for varies in names)} series): {', '.join(names)}\n"
        for why, names in OTHERS.items()
    )


def _loss(found: Sequence[Choice], series: str) -> float:
    return next((one.loss for one in found if one.series == series), 0.0)
