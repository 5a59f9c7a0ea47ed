"""Layers placed on CPU and GPU, and a hot window (ParmesanParty/llama.cpp, README), as `sim compare` predicts them."""

from __future__ import annotations

from functools import cache

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.verbs.compare import Compare
from reports.fidelity.from_table import Speed, column, predicted
from reports.fidelity.prediction import Group, prose

GROUP = "hot window"
MODEL, MACHINE, KV_BYTES = "qwen3.5-122b-a10b:q4_k_l", "rtx-4090", GIB
LAYERS = len(load_model(MODEL).layers)
SYSTEMS = {
    "K=0, experts on CPU": f"placed:cpu_layers={LAYERS}",
    "8 layers on GPU (n-cpu-moe 40)": "placed:cpu_layers=40",
    "hot K=44, rebalance 60": "hot-window:slots=44:interval=60",
}
# The fork's README has 48% of hits at 32 slots and 60% at 64, of the same model on another machine.
HOT, HITS = "hot K=44, rebalance 60", 0.48 + (44 - 32) / (64 - 32) * (0.60 - 0.48)


def speed(system: str, hit_rate: float | None = None) -> tuple[Speed, float]:
    """What `sim compare` predicts, and the share of hits; without one, the trace is borrowed."""
    (row,) = Compare(model=MODEL, machine=MACHINE, systems=system, hit_rate=hit_rate, kv=KV_BYTES).run().rows
    assert row.tok_s is not None
    assert row.tok_s_lo is not None
    assert row.tok_s_hi is not None
    assert row.hit_rate is not None
    return Speed(row.tok_s, row.tok_s_lo, row.tok_s_hi), row.hit_rate


@cache
def group() -> Group:
    measured = column("hot_window_122b", "config", "tok_s")
    found = {name: speed(system) for name, system in SYSTEMS.items()}
    with_hits, _ = speed(SYSTEMS[HOT], HITS)
    predictions = (
        *(predicted(GROUP, name, "nothing", measured[name], value) for name, (value, _) in found.items()),
        predicted(
            GROUP, f"{HOT}, its hits", "nothing", measured[HOT], with_hits, note=f"{HITS:.1%} hits, as published"
        ),
    )
    explanation = prose(f"""\
Nothing is fitted: the systems are `placed` and `hot-window`, the machine is the preset {MACHINE}, and the trace is
borrowed from another model. Experts placed by layer come out within a few per cent. The hot window does not: the
borrowed trace hits {found[HOT][1]:.1%} of the time, where the fork's README has {HITS:.1%} between its points at 32
and 64 slots. With these hits the prediction is still too fast: the program exchanges experts between two decodes, and
every call of the CPU waits at four barriers, which no model here has.""")
    return Group("A hot window beside experts on the CPU, nothing fitted", predictions, explanation)
