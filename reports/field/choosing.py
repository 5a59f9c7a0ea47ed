"""What choosing a setting as `sim recommend` does loses, on the series that vary one setting of a system."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import kept_bytes, pick
from reports.field.rows import FieldRow
from reports.field.scores import Judged
from reports.field.tune import price_of

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
        "SSD",
    ),
    "another model or quantization, so another text": ("model", "quant", "quant (slab bytes)"),
    "other work": ("concurrent requests", "context", "run length"),
    "another program, or another version of it": ("build", "decode loop", "engine", "engine version", "optimisations"),
    "what earlier runs left": ("cold/warm", "history/pin"),
    "a setting that no prediction here knows": ("context window", "CPU threads", "predictor", "prompt chunk", "ubatch"),
    "several at once": (
        "cache knobs",
        "cache settings",
        "context window and KV kept in VRAM",
        "GPUs / heat",
        "placement / cache",
        "quant / n-cpu-moe / engine",
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
