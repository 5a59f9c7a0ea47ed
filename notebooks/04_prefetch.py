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
# # What must a prefetch predictor do to pay?
#
# A predictor names experts before they are requested, and they are read ahead. What it gets right saves a read that
# the token would wait for; what it gets wrong costs a read, and a slot. Being right often is not the same as being
# worth it.

# %%
import polars as pl

import flashmoe_sim.api as sim

sim.plain_tables()
PREDICTORS = "none,markov,next-layer,eam,oracle-1"

# %% [markdown]
# Qwen3-30B-A3B, 32 of the 128 experts of each layer in the bank. `oracle-1` knows the next call; the others learn
# while the trace runs. *worth* is how many misses a read ahead saves:

# %%
table = sim.sweep("qwen3-30b-mlx", bank=32, prefetch=PREDICTORS, contract="atomic")
misses = table.filter(pl.col("prefetch") == "none")["misses"].item()
table.select(
    "prefetch",
    (pl.col("prefetch_precision", "prefetch_recall") * 100).round(1).name.suffix(", %"),
    pl.col("misses"),
    pl.col("prefetch_issued").alias("read ahead"),
    ((misses - pl.col("misses")) / pl.col("prefetch_issued")).round(2).fill_nan(None).alias("worth"),
)

# %% [markdown]
# Whether that is faster depends on the engine. `parallel-install` reads what was named and waits for it before it
# goes on; `overlap-prefetch` reads it while the GPU computes. Tokens a second on an M2 with 16 GB, and what they
# gain:

# %%
speeds = pl.concat(
    sim.sweep(
        "qwen3-30b-mlx", bank=32, prefetch=PREDICTORS, contract="atomic", machine="m2-16", execution=execution
    ).select("prefetch", "execution", "tok_s", "bottleneck")
    for execution in ("parallel-install", "overlap-prefetch")
)
alone = speeds.filter(pl.col("prefetch") == "none").select("execution", pl.col("tok_s").alias("none"))
gains = speeds.join(alone, on="execution").with_columns(
    pl.col("tok_s").round(2), ((pl.col("tok_s") / pl.col("none") - 1) * 100).round(1).alias("gain, %")
)
gains.select("execution", "prefetch", "tok_s", "gain, %", "bottleneck")

# %% [markdown]
# Why does `markov`, which saves no miss, gain anything? What it reads ahead for nothing stays in the system's page
# cache, and later misses find it there. With reads past the page cache nothing of that is left:

# %%
direct = sim.sweep(
    "qwen3-30b-mlx",
    bank=32,
    prefetch=PREDICTORS,
    contract="atomic",
    machine="m2-16",
    execution="overlap-prefetch",
    direct_io=True,
)
gain = (pl.col("tok_s") / pl.col("tok_s").first() - 1) * 100
direct.select("prefetch", pl.col("tok_s").round(2), gain.round(1).alias("gain, %"))

# %% [markdown]
# And what would slots have done instead? A larger bank without a predictor, with overlapped reads:

# %%
larger = sim.sweep(
    "qwen3-30b-mlx", bank=[32, 36, 40, 48], contract="atomic", machine="m2-16", execution="overlap-prefetch"
)
larger.select(
    "bank_slots",
    (pl.col("resident_bytes") / 2**30).round(1).alias("bank, GiB"),
    (pl.col("hit_rate") * 100).round(1).alias("hit %"),
    pl.col("tok_s").round(2),
    gain.round(1).alias("gain, %"),
)

# %% [markdown]
# ## Answer
#
# It must be right nearly always, and its reads must overlap with compute. Predictors that learn are right half of the
# time here, and a read ahead saves a fifth of a miss or none, since what they name is often in the bank already. If
# the engine waits for what was named, each of them costs speed, up to 13%, and even the perfect one gains nothing:
# the SSD is busy all the time. With overlap they gain 1 to 3%, through the page cache; past it they lose speed.
# The perfect one gains 12 to 13%: that is the ceiling.
#
# 16 more slots gain 7%, more than any predictor that learns, and guess nothing; 4 more gain nothing. On a machine with
# room, buy slots first. `sim prefetch judge` says how right a predictor must be on your own trace.
