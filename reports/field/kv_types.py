"""What 1,000 more tokens in the context cost with keys and values of each type, as published and as predicted.

`python -m reports.field.kv_types` prints the table. The constants of `flashmoe_sim.timeline.attention_cost` are set so
that the median of measured over predicted is about 1 for each backend and type; a series left out is predicted by the
median of the other sources.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from flashmoe_sim.geometry.model import DEFAULT_TYPE, Attention, LayerCache
from flashmoe_sim.machines.attention_rates import bare, with_attention
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.timeline.attention_cost import attention_cost
from reports.field.drafts import PUBLISHED
from reports.pages import table

TYPES = PUBLISHED / "kv_types.csv"


@dataclass(frozen=True)
class TypeSlope:
    """Microseconds that 1,000 tokens of depth add to a decoded token. notes: of the source's rows."""

    series: str
    source: str
    notes: str
    api: str
    kv_type: str
    measured_us: float
    predicted_us: float

    @property
    def times(self) -> float:
        """Measured over predicted."""
        return self.measured_us / self.predicted_us

    @property
    def group(self) -> tuple[str, bool]:
        """Series whose constants are one: of a backend, with 8 bits or fewer."""
        return self.api, self.kv_type == "q8_0"


def slopes() -> list[TypeSlope]:
    """Every series of every type that has two depths, or one depth at which 16 bits were measured, too."""
    with TYPES.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    at_16 = {(row["series"], row["depth"]): float(row["tok_s"]) for row in rows if row["kv_type"] == DEFAULT_TYPE}
    found = []
    for (series, kv_type), group in groupby(rows, key=lambda row: (row["series"], row["kv_type"])):
        ends = list(group)
        first, last = ends[0], ends[-1]
        depth = int(last["depth"])
        if len(ends) > 1:
            measured = _more_us(float(last["tok_s"]), float(first["tok_s"]), depth - int(first["depth"]))
        elif kv_type != DEFAULT_TYPE:
            more = _more_us(float(last["tok_s"]), at_16[series, last["depth"]], depth)
            measured = predicted_us(last, DEFAULT_TYPE) + more
        else:
            continue
        found.append(
            TypeSlope(
                series, first["source"], first["notes"], first["api"], kv_type, measured, predicted_us(last, kv_type)
            )
        )
    return found


def left_out(found: Sequence[TypeSlope]) -> dict[str, float]:
    """Measured over predicted of each quantized series, if the other sources of its group had set its constant.

    By series and type, without groups of a single source.
    """
    times = {}
    for one in found:
        others = [other.times for other in found if other.group == one.group and other.source != one.source]
        if one.kv_type != DEFAULT_TYPE and others:
            times[f"{one.series} {one.kv_type}"] = one.times / statistics.median(others)
    return times


def predicted_us(row: dict[str, str], kv_type: str) -> float:
    """Of a row's machine, backend and shape of attention, per 1,000 tokens."""
    machine = with_attention(bare(replace(load_machine(row["machine"]), api=row["api"])))
    heads, kv_heads = int(row["heads"]), int(row["kv_heads"])
    kept = kv_heads * int(row["head_size"])
    layers = (LayerCache(keys=kept, values=kept, heads=heads, kv_heads=kv_heads),) * int(row["layers"])
    assert machine.gpu is not None
    cost = attention_cost(Attention(layers), int(row["depth"]), machine.gpu, api=row["api"], kv_type=kv_type)
    return 1e9 * cost.read_s / int(row["depth"])


def _more_us(slower_tok_s: float, faster_tok_s: float, tokens: int) -> float:
    return 1e9 * (1 / slower_tok_s - 1 / faster_tok_s) / tokens


def main() -> None:
    """Print every slope, and its error with the constants of the other sources."""
    found = slopes()
    alone = left_out(found)
    cells = []
    for one in found:
        out = alone.get(f"{one.series} {one.kv_type}")
        figures = (f"{one.measured_us:.0f}", f"{one.predicted_us:.0f}", f"{one.times:.2f}")
        cells.append((one.series, one.api, one.kv_type, *figures, "" if out is None else f"{out:.2f}"))
    head = ("series", "backend", "type", "measured, us", "predicted, us", "times", "times, source left out")
    print(table(head, cells, left=(0, 1, 2)))


if __name__ == "__main__":
    main()
