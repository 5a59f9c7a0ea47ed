# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     notebook_metadata_filter: -jupytext.text_representation
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Under which contract should I count?
#
# A *contract* says when a bank is looked up and what may be evicted. A routed call requests several experts at once,
# and engines differ in what they do with that. There are four contracts; the same trace and bank give other counts
# under each. This notebook compares them with what a real engine counted.

# %%
import polars as pl

import flashmoe_sim.api as sim
from native_bridge.engines.read import read_run

sim.plain_tables()
CONTRACTS = ["sequential", "atomic", "protected", "runtime"]

# %% [markdown]
# ## Against a real engine
#
# Four runs of the patched llama.cpp runtime ship with the program, each with the log of the engine. What it counted
# as misses stands in the last column:

# %%
runs = sim.bundled_folder() / "data" / "runs-256"


def misses(name):
    run = read_run(runs / name)
    trace = sim.load_trace(runs / name / "trace.jsonl.gz", model=runs / "manifest.json")
    counted = {one: sim.replay(trace, bank=run.bank, contract=one)["misses"].item() for one in CONTRACTS}
    return {"slots": run.bank, **counted, "the engine's log": run.log.routed.misses}


pl.DataFrame([misses(f"prose-bank{slots}") for slots in (16, 32, 64, 128)])

# %% [markdown]
# Only `runtime` gives the engine's number, and it does so exactly: it has the engine's defect too. A slot may be
# given away although the same call still wants the expert in it; two experts then share a slot, and one of them is
# computed with the other's weights. `aliased_refs` counts these:

# %%
sim.replay(runs / "prose-bank16" / "trace.jsonl.gz", model=runs / "manifest.json", bank=16, contract="runtime").select(
    "requests", "hits", "misses", "aliased_refs"
)

# %% [markdown]
# ## What it changes when you choose a policy
#
# `sequential` looks up one expert after another, as simulators of ordinary caches do. A small bank then evicts, in
# the middle of a call, what the call is about to ask for. Hit rates in per cent, Qwen3-30B-A3B with 8 experts a
# token:

# %%
trace = sim.load_trace("qwen3-30b-mlx")
both = pl.concat(
    sim.sweep(trace, bank=[8, 16, 32, 64], policy="lru,lfu,fifo", contract=contract)
    for contract in ("sequential", "atomic")
)
rates = both.with_columns((pl.col("hit_rate") * 100).round(1))
rates.pivot(on="bank_slots", index=["contract", "policy"], values="hit_rate")

# %% [markdown]
# ## Answer
#
# - To predict the counters of the patched runtime, use `runtime`: all four runs are exact, and no other contract is.
# - To choose a bank or a policy, use `protected` (the default) or `atomic`, which also takes calls larger than the
#   bank. For LRU and calls of one token the two count the same: the first table has equal columns. They are a little
#   below the runtime, whose defect costs the difference.
# - `sequential` is for comparison with simulators of ordinary caches only. It takes hits from LRU, most in a bank of 8,
#   and it reorders policies: FIFO is behind LRU there, and even with it when whole calls are looked up.
