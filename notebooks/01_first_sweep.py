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
# # How large must the expert bank be?
#
# A mixture-of-experts model that does not fit into memory keeps a *bank* of experts for each layer and reads the
# others when the router requests them. A larger bank reads less. This notebook counts how much less, on a recorded
# trace of gpt-oss-120b: four workloads, decoded token by token. Put in the name of another trace (`sim.catalog()`) or
# the path of your own, and run it again.

# %%
import altair
import polars as pl

import flashmoe_sim.api as sim

altair.renderers.enable("png", ppi=110)  # pictures that GitHub shows, too; without this line they are interactive
sim.plain_tables()

trace = sim.load_trace("gpt-oss-120b")
about = sim.inspect(trace)
trace

# %% [markdown]
# Two things make a bank work. The same experts are requested again soon, and some are requested far more than others:

# %%
expert_mib = trace.expert_bytes[0] / 2**20
pl.DataFrame(
    {
        "of a token's experts, the one before it used": [f"{about.overlap:.0%}"],
        "of all requests, for the most popular tenth": [f"{about.top_decile_share:.0%}"],
        "one expert, MiB": [round(expert_mib, 1)],
        "all experts, GiB": [round(expert_mib * sum(trace.n_experts) / 1024, 1)],
    }
)

# %% [markdown]
# One call sweeps bank sizes and policies. `lru` is what most engines do: evict the expert whose last use is oldest.
# `min` knows the future, and no policy without a predictor hits more. The result is a polars table with the columns
# of `docs/reference/columns.md`.

# %%
table = sim.sweep(trace, bank=[8, 16, 32, 64, 128], policy="lru,min", contract="atomic")
hits = table.pivot(on="policy", index="bank_slots", values="hit_rate")
reads = table.filter(pl.col("policy") == "lru").select(
    "bank_slots",
    (pl.col("resident_bytes") / 2**30).round(1).alias("bank, GiB"),
    (pl.col("bytes_per_token") / 2**20).round().alias("lru reads, MiB a token"),
)
percent = (pl.col("lru", "min") * 100).round(1).name.suffix(", hit %")
room = ((pl.col("min") - pl.col("lru")) * 100).round(1).alias("room, points")
hits.join(reads, on="bank_slots").select("bank_slots", "bank, GiB", percent, room, "lru reads, MiB a token")

# %% [markdown]
# The same as a picture:

# %%
sim.figures.hit_curves(table)

# %% [markdown]
# `curve` counts every size in one pass, so it finds the bank for a hit rate that you want:

# %%
curves = {policy: sim.curve(trace, policy=policy) for policy in ("lru", "min")}
pl.DataFrame(
    {
        "hit rate": ["80%", "90%", "95%"],
        **{
            f"{policy} needs slots": [
                curve.filter(pl.col("hit_rate") >= wanted)["bank_slots"].min() for wanted in (0.8, 0.9, 0.95)
            ]
            for policy, curve in curves.items()
        },
    }
)

# %% [markdown]
# Does that hold for other models? All bundled traces, with a quarter of each layer's experts in the bank:

# %%
found = []
for name in sim.catalog():
    other = sim.load_trace(name)
    found.append(sim.sweep(other, bank=max(other.n_experts) // 4, policy="lru,min", contract="atomic"))
everywhere = pl.concat(found).pivot(on="policy", index=["trace", "tokens", "bank_slots"], values="hit_rate")
everywhere.with_columns((pl.col("lru", "min") * 100).round(1)).sort("lru")

# %% [markdown]
# ## Answer
#
# For gpt-oss-120b 39 slots of each layer's 128 give LRU a hit rate of 90%, and 65 give 95%. From 8 slots to 32 the
# bytes read per token fall to a third; from 64 to 128 the bank doubles and saves little, and what is left are
# first reads, which no bank saves. A perfect policy would need 23 slots for 90%: the room above LRU is large in
# small banks (13 points at 8 slots) and nearly gone at 64 (2 points).
#
# It does *not* carry over as a number. A quarter of the experts gives LRU between 44% and 92%, depending on the
# model and on the text: record your own trace (`sim trace capture`). And a hit rate is not yet a speed: 05 to 07 go
# on there.
