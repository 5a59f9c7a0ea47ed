"""Hit rate against speed of a hot set on the GPU (adrianhoehne/llama.cpp, docs/moe-hot-cache)."""

from __future__ import annotations

from functools import cache
from itertools import combinations

from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from reports.fidelity.from_table import TableRun, fit, fitted, predicted, table, table_run
from reports.fidelity.prediction import Group, prose

GROUP = "hot set on the GPU"
MODEL, TOP_K, GOAL = "qwen3.6-35b-a3b:ud-q6_k_xl", 8, 0.02
# The page does not name the GPU. Its rate moves no prediction by more than 0.2%: the CPU is the slower lane of nearly
# every call.
MACHINE = "rtx-3060"
UNKNOWN = ("gpu.layer_us", "cpu.weights_gb_s")


def runs() -> dict[TableRun, float]:
    """The rows, ascending by hit rate, with their speeds; what is not an expert is in gpu.layer_us."""
    return {
        table_run(
            MODEL,
            "hot-cold",
            top_k=TOP_K,
            misses_per_call=TOP_K * (1 - float(row["hit_pct"]) / 100),
            page_cache_share=1.0,  # the CPU computes from RAM, which holds the whole model
            dense_bytes=0,
        ): float(row["tok_s"])
        for row in table("hot_cache_hit_vs_tok_s")
    }


def errors(rows: dict[TableRun, float], first: int, second: int) -> tuple[Machine, list[float]]:
    """The machine fitted on two rows, and the signed error of each row."""
    keys = list(rows)
    machine = fitted(load_machine(MACHINE), UNKNOWN, {keys[i]: rows[keys[i]] for i in (first, second)})
    return machine, [run.tok_s(machine) / tok_s - 1 for run, tok_s in rows.items()]


@cache
def group() -> Group:
    rows = runs()
    hits = [f"{row['hit_pct']}%" for row in table("hot_cache_hit_vs_tok_s")]
    last = len(rows) - 1
    keys = list(rows)
    ends = fit(load_machine(MACHINE), UNKNOWN, {keys[i]: rows[keys[i]] for i in (0, last)})
    machine = ends.machine
    fitted_on = f"hit rates {hits[0]} and {hits[last]}"
    predictions = tuple(
        predicted(GROUP, f"hit rate {hit}", fitted_on, tok_s, ends.speed(run))
        for i, (hit, (run, tok_s)) in enumerate(zip(hits, rows.items(), strict=True))
        if i not in (0, last)
    )
    pairs = list(combinations(range(len(rows)), 2))
    worst = {pair: max(map(abs, errors(rows, *pair)[1])) for pair in pairs}
    good = sum(error <= GOAL for error in worst.values())
    cpu, gpu = machine.cpu, machine.gpu
    assert cpu is not None
    assert cpu.weights_gb_s is not None
    assert gpu is not None
    wide = [error for (first, second), error in worst.items() if second - first >= last // 2]
    explanation = prose(f"""\
Fitted: the time of a routed call beside its experts ({gpu.layer_us.value:.0f} us) and the rate at which the CPU
streams experts ({cpu.weights_gb_s.value:.1f} GB/s), on the two ends of the table; the six rows between are
predicted by the `hot-cold` timeline. Of all {len(pairs)} pairs of rows, {good} predict the other six within
{GOAL:.0%} each; of the {len(wide)} pairs that are at least {last // 2} rows apart the worst is off by
{max(wide):.1%}. Pairs of neighbours carry the noise of two readings into the slope: the worst of them is off by
{max(worst.values()):.1%}.""")
    return Group("Hit rate to speed, a hot set on the GPU beside the CPU", predictions, explanation)
