"""What is tuned on the rows: a factor for each engine and strategy, and how far rows are from predictions."""

from __future__ import annotations

import math
import re
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from flashmoe_sim.machines.belief import SD_90
from reports.field.predict import Raw
from reports.field.price import Priced
from reports.field.prior import HitCurve
from reports.field.rows import FieldRow

FILE = Path(__file__).with_name("tuned.toml")
LEAST_ROWS = 3
SHRINK = 2  # a median of n rows counts n / (n + 2)
SPREAD_ROWS = 8  # how many rows the spread of all counts beside an engine's own
LEAST_PART = 0.1  # of a row's time: a smaller part cannot tell
LEAST_TELLING = 0.6  # of an engine's rows
LEAST_FACTOR = 0.2
_VERSION = re.compile(r" [0-9a-f]{6,}$| v?\d[\w.]*$")


@dataclass(frozen=True)
class Cost:
    """What an engine takes more or less time for than the machine alone would say.

    part: `all` of a token's time, or the part that is multiplied by value: `read`, `upload` or `cpu`; or `layer`, where
    value is the microseconds that every layer takes more.
    """

    part: str = "all"
    value: float = 1.0

    def seconds(self, price: Priced, layers: int) -> float:
        """Seconds a token."""
        seconds = 1 / price.tok_s
        if self.part == "layer":
            return seconds + 1e-6 * self.value * layers
        return seconds + (self.value - 1) * part_of(price, self.part)


PARTS = {
    "read": ("read", "late", "ahead"),
    "upload": ("upload",),
    "cpu": ("cold_lane",),
}


def part_of(price: Priced, part: str) -> float:
    """Seconds of a token that a cost multiplies."""
    return 1 / price.tok_s if part == "all" else sum(price.part_s.get(name, 0.0) for name in PARTS[part])


@dataclass(frozen=True)
class Tuned:
    """Everything that is tuned.

    curves: of hits, by kind. engines, strategies: their costs. spread: standard deviation of ln(measured / predicted)
    by engine; `all` of the others.
    """

    curves: dict[str, HitCurve]
    engines: dict[str, Cost] = field(default_factory=dict)
    strategies: dict[str, Cost] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=lambda: {"all": 0.4})

    def cost(self, row: FieldRow) -> Cost:
        """The cost of a row's engine, else of the one that it is a fork of, else of its strategy, else none."""
        engine = engine_of(row)
        names = (f"{name}{end}" for name in (engine, FORK_OF.get(engine, engine)) for end in (_end(row), ""))
        own = next((self.engines[name] for name in names if name in self.engines), None)
        return own or self.strategies.get(row.strategy) or Cost()

    def interval(self, row: FieldRow, tok_s: float, raw: Priced) -> tuple[float, float]:
        """The 90% interval: what machine and hits leave open, and how far engines are from predictions."""
        engine = engine_of(row)
        sd = self.spread.get(engine) or self.spread.get(FORK_OF.get(engine, "")) or self.spread["all"]
        below = math.hypot(MACHINE_PART * math.log(raw.tok_s / raw.lo), SD_90 * sd)
        above = math.hypot(MACHINE_PART * math.log(raw.hi / raw.tok_s), SD_90 * sd)
        return tok_s * math.exp(-below), tok_s * math.exp(above)


FORK_OF = {"Strata fork": "Strata", "qvac-fabric-llm.cpp": "llama.cpp"}  # the same way to serve a token
ALONE = ", all on the GPU"
SERVES = dict.fromkeys(("mlx_lm", "mlx_vlm", "vllm-mlx", "Rapid-MLX"), "MLX")
MACHINE_PART = 0.2  # of the logarithm of a machine's interval: the spread of rows has the rest in it


def engine_of(row: FieldRow) -> str:
    """The name of a row's engine without versions and remarks in brackets."""
    return program(row.engine)


@cache
def program(engine: str) -> str:
    """An engine's name without versions and remarks in brackets; programs that only serve another's have its name."""
    name = _VERSION.sub("", re.sub(r" ?\([^)]*\)", "", engine).strip()).strip()
    return SERVES.get(name, name)


def costs_of(raws: Sequence[Raw], curves: dict[str, HitCurve]) -> Tuned:
    """Costs of engines and strategies with at least LEAST_ROWS rows, by medians, shrunk towards none.

    Each machine counts once for its engine, and each engine once for its strategy, whose cost is for other engines.
    """
    engines, strategies = (
        {name: best_cost(group, each) for name, group in sorted(_by(raws, of).items()) if len(group) >= LEAST_ROWS}
        for of, each in ((costed, _machine_of), (_strategy_of, engine_of))
    )
    return Tuned(curves, engines, strategies)


def costed(row: FieldRow) -> str:
    """What has a cost of its own: an engine, and apart from it the same with all experts on the GPU."""
    return engine_of(row) + _end(row)


def _end(row: FieldRow) -> str:
    return ALONE if row.strategy == "all_gpu" else ""


def _machine_of(row: FieldRow) -> str:
    return row.machine_id


def _strategy_of(row: FieldRow) -> str:
    return row.strategy


def _by(raws: Sequence[Raw], of: Callable[[FieldRow], str]) -> dict[str, tuple[Raw, ...]]:
    groups = defaultdict(list)
    for raw in raws:
        groups[of(raw.row)].append(raw)
    return {name: tuple(group) for name, group in groups.items()}


def with_spread(found: Tuned, known: Sequence[tuple[str, float]], unknown: Sequence[float]) -> Tuned:
    """With the spread of left-out errors: of rows whose engine has a cost, by engine, and of others."""
    of_engine = defaultdict(list)
    for engine, error in known:
        of_engine[engine].append(error)
    middle_sd = _sd([error for _, error in known])
    spread = {"all": _sd(unknown)}
    for engine, of in of_engine.items():
        if (n := len(of)) < LEAST_ROWS:
            continue
        sd = _sd(of)
        spread[engine] = math.sqrt((n * sd * sd + SPREAD_ROWS * middle_sd**2) / (n + SPREAD_ROWS))
    return replace(found, spread=spread)


def _sd(errors: Sequence[float]) -> float:
    """Standard deviation by the size that 9 of 10 errors stay below, so that a few wild ones do not count."""
    return float(np.quantile(np.abs(errors), 0.9)) / SD_90 if len(errors) else 0.0


@cache
def best_cost(raws: tuple[Raw, ...], each: Callable[[FieldRow], str] = _machine_of) -> Cost:
    """The cost that leaves the smallest errors, of one for each part; shrunk towards none by the number of rows.

    each: the groups of rows that count once. To leave out a machine changes few engines' rows: the others are known.
    """
    weight = len(raws) / (len(raws) + SHRINK)
    extra = [_measured_s(raw) - 1 / price_of(raw).tok_s for raw in raws]
    a_layer = [1e6 * more / layers_of(raw) for raw, more in zip(raws, extra, strict=True)]
    found = [Cost("layer", max(weight * middle(raws, a_layer, each), 0.0))]
    for part in ("all", *PARTS):
        telling = [raw for raw in raws if part_of(price_of(raw), part) >= LEAST_PART / price_of(raw).tok_s]
        if len(telling) >= max(LEAST_ROWS, LEAST_TELLING * len(raws)):
            more = {id(raw): size for raw, size in zip(raws, extra, strict=True)}
            ratios = [math.log(max(1 + more[id(raw)] / part_of(price_of(raw), part), LEAST_FACTOR)) for raw in telling]
            found.append(Cost(part, math.exp(weight * middle(telling, ratios, each))))
    return min(found, key=lambda cost: statistics.fmean(abs(residual(raw, cost)) for raw in raws))


def middle(raws: Sequence[Raw], values: Sequence[float], each: Callable[[FieldRow], str]) -> float:
    """The median over groups of each group's median."""
    of_group = defaultdict(list)
    for raw, value in zip(raws, values, strict=True):
        of_group[each(raw.row)].append(value)
    return statistics.median(statistics.median(of) for of in of_group.values())


def residual(raw: Raw, cost: Cost) -> float:
    """ln(measured / predicted)."""
    return math.log(cost.seconds(price_of(raw), layers_of(raw)) / _measured_s(raw))


def price_of(raw: Raw) -> Priced:
    """The price with the row's own hit rate, if it says one."""
    price = raw.informed or raw.blind
    assert price is not None
    return price


def layers_of(raw: Raw) -> int:
    """Layers with experts."""
    assert raw.way is not None
    return len(raw.way.model.layers)


def _measured_s(raw: Raw) -> float:
    assert raw.row.decode_tok_s is not None
    return 1 / raw.row.decode_tok_s


def save(found: Tuned, path: Path = FILE) -> None:
    """Write what is tuned as a file that people can read."""
    lines = ["# Made by `python -m reports.field --tune`; the page says what each number means."]
    for kind, curve in found.curves.items():
        lines += ["", f'[curves."{kind}"]']
        lines += [f"{name} = {getattr(curve, name):.3g}" for name in ("level", "slope", "sd", "known_sd")]
        offsets = ", ".join(f'"{name}" = {value:.3g}' for name, value in curve.offsets.items())
        lines.append(f"offsets = {{ {offsets} }}")
    for table in ("engines", "strategies"):
        lines += ["", f"[{table}]"]
        for name, cost in getattr(found, table).items():
            lines.append(f'"{name}" = {{ part = "{cost.part}", value = {cost.value:.4g} }}')
    lines += ["", "[spread]", *(f'"{name}" = {value:.3g}' for name, value in found.spread.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def load(path: Path = FILE) -> Tuned:
    """What the file has."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return Tuned(
        {kind: HitCurve(**curve) for kind, curve in document["curves"].items()},
        {name: Cost(**cost) for name, cost in document["engines"].items()},
        {name: Cost(**cost) for name, cost in document["strategies"].items()},
        document["spread"],
    )
