"""What is lost by choosing a setting by its predicted speed, as `sim recommend` does, and the page's part on that."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import kept_bytes, pick
from reports.field.rows import FieldRow
from reports.field.scores import Judged
from reports.field.tune import price_of
from reports.pages import joined, table

# What a series varies: one setting of a system, or one choice among systems on the same machine.
SETTINGS = (
    "cache GB",
    "cache MiB",
    "cache experts",
    "cache on/off",
    "cache slots",
    "eviction policy",
    "host RAM tier",
    "hot store",
    "LRU slots per layer",
    "RAM budget",
    "memory target",
    "n-cpu-moe",
    "placement",
    "policy",
    "RAM slots",
    "read workers",
    "residency",
    "share of experts on GPU",
    "slots per layer",
    "tiers",
    "where experts lie",
)
# Why choosing among the rows of other series is no choice of a setting.
OTHERS = {
    "another machine": (
        "CPU governor",
        "GPU",
        "host behind the same GPU",
        "machine",
        "machine (same prompts, seeds)",
        "number of SSDs",
        "sockets",
        "SSD",
    ),
    "another model or quantization, so another text": ("model", "quant", "quant (slab bytes)"),
    "other work": ("concurrent requests", "context", "run length", "text"),
    "another program, or another version of it": ("build", "decode loop", "engine", "engine version", "optimisations"),
    "what earlier runs left": ("cold/warm", "history/pin"),
    "a setting that no prediction here knows": ("context window", "CPU threads", "predictor", "prompt chunk", "ubatch"),
    "several at once": (
        "cache knobs",
        "cache settings",
        "cards and text",
        "context and layers on CPU",
        "context window and KV kept in VRAM",
        "GPUs / heat",
        "GPUs and cache",
        "layers on CPU and cards",
        "layers on CPU and context",
        "layers on CPU and mapping",
        "layers on CPU and window",
        "layers on CPU, KV and window",
        "Metal / direct reads",
        "placement / cache",
        "placement and quantization",
        "placement, engine and quantization",
        "quant / n-cpu-moe / engine",
        "quantization and prompt",
        "quantization and repacking",
        "quantization and vision",
        "RAM budget / Metal",
        "sockets / experts used",
        "strategy / version",
        "trunk placement / heat",
        "ubatch / n-cpu-moe",
        "version / target",
        "VRAM target / context",
    ),
}
ALIKE = 1e-3
Speed = Callable[[Judged], float]
FAR = 0.05
TURNED = (
    "The parts of the machine alone give the right order. The costs of the two engines reverse it: the one with the "
    "cache has too few rows on other machines, so the cost of its strategy is used."
)
# Why a choice loses more than FAR.
REASONS = {
    "coli-m5max48": "The engine's first build computes an expert on the CPU six times as slowly as priced, and with "
    "Metal three times; the two are predicted alike.",
    **dict.fromkeys(("neu-vsim-2x24", "lcpp26563-sycl"), TURNED),
    "moonie-tiers-K10": "RAM holds as many experts with the engine's tier as without, in the page cache, so both are "
    "predicted alike and the smaller is taken. The engine maps its file, and page faults are slower than priced.",
    "st-iq4xs64": "Five of the six ways to keep the file in RAM are predicted alike, and too slow: as if all of it "
    "took RAM.",
    "warp37-cache": "Nearly all of a token's seconds are the engine's cost, so all sizes are predicted alike, and the "
    "smallest is taken.",
    "spark-ring": "The last slots raise hits from 98% to nearly all, so three sizes are predicted alike to within 3%, "
    "and the smallest is taken. They are worth 10% there.",
    "neu-policy": "No price knows the rule of eviction, so the mean of all rules counts.",
}


@dataclass(frozen=True)
class Choice:
    """A series, its best row, the row that is chosen, and what rows predicted as the chosen one lose on average.

    settings: how many differ.
    """

    series: str
    varies: str
    settings: int
    best: FieldRow
    chosen: FieldRow
    loss: float


def tuned_speed(one: Judged) -> float:
    """Without the row's machine."""
    return one.without_machine.tok_s or 0.0


def blind_speed(one: Judged) -> float:
    """Without the row's machine, and without its own hit rate."""
    return one.blind.tok_s or 0.0


def plain_speed(one: Judged) -> float:
    """Without any cost of an engine, as `sim recommend` predicts."""
    return price_of(one.without_machine.raw).tok_s


def choices(rows: Sequence[Judged], speed: Speed = tuned_speed, *, mixed: bool = False) -> list[Choice]:
    """The choice in every series with two predicted settings or more.

    mixed: with the rows of a series that vary something else than its first row does.
    """
    groups: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    first: dict[str, str] = {}
    for one in rows:
        varies = first.setdefault(one.row.series, one.row.varies) if mixed else one.row.varies
        if one.row.series and varies in SETTINGS and one.without_machine.tok_s is not None:
            groups[one.row.series, varies].append(one)
    found = [_choice(series, varies, group, speed) for (series, varies), group in groups.items()]
    return [one for one in found if one.settings > 1]


def _choice(series: str, varies: str, group: Sequence[Judged], speed: Speed) -> Choice:
    repeats: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for one in group:
        repeats[_setting(one.row)].append(one)
    settings = list(repeats.values())
    real = [statistics.fmean(one.row.decode_tok_s or 0.0 for one in same) for same in settings]
    tried = [
        Compared(
            AllGpu(),  # what it is does not matter to `pick`
            gpu_bytes=bank_bytes(same[0]),
            ram_bytes=tier_bytes(same[0]),
            tok_s=statistics.fmean(map(speed, same)),
        )
        for same in settings
    ]
    chosen = pick(tried, Objective())
    assert chosen is not None
    alike = [tok_s for one, tok_s in zip(tried, real, strict=True) if _same(one, chosen)]
    best = real.index(max(real))
    return Choice(
        series,
        varies,
        len(settings),
        settings[best][0].row,
        settings[tried.index(chosen)][0].row,
        1 - statistics.fmean(alike) / real[best],
    )


def _setting(row: FieldRow) -> tuple[str, ...]:
    return row.strategy, row.slots_per_layer_or_cache_gib, row.experts_on_cpu_layers, row.flags


def _same(one: Compared, other: Compared) -> bool:
    """Whether a prediction cannot tell two settings apart."""
    speeds = (one.tok_s or 0.0, other.tok_s or 0.0)
    return kept_bytes(one) == kept_bytes(other) and math.isclose(*speeds, rel_tol=ALIKE)


def bank_bytes(one: Judged) -> int:
    """Experts that the bank, the hot set or the layers on the GPU keep."""
    way = one.without_machine.raw.way
    assert way is not None
    far_share = way.far_layers / len(way.model.layers)
    return round((1 - far_share * (1 - way.share)) * way.model.routed_bytes)


def tier_bytes(one: Judged) -> int:
    """Experts that a tier in RAM keeps beside it."""
    way = one.without_machine.raw.way
    assert way is not None
    return round(way.tier_bytes)


def ninth_decile(losses: Sequence[float]) -> float:
    """What nine in ten do not exceed."""
    return sorted(losses)[math.ceil(0.9 * len(losses)) - 1]


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
