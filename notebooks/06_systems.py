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
# # Which engine is fastest on my machine, and why?
#
# Engines differ in what they keep on the GPU, in who computes a miss, and in what they move. `compare` replays one
# trace through each real system, with the setting that its own rule takes. Put in your machine: `sim machine list`
# has names, and parts do as well ("rtx-3060 + ryzen-5600 + 64GiB + nvme-gen4").

# %%
import altair
import polars as pl

import flashmoe_sim.api as sim

altair.renderers.enable("png", ppi=80)  # pictures that GitHub shows, too; without this line they are interactive
sim.plain_tables()
PARTS = ["read_ms", "upload_ms", "cpu_ms", "compute_ms", "host_ms"]

# %% [markdown]
# gpt-oss-120b does not fit the memory of an RTX 4090; the RAM beside it holds the whole model:

# %%
table = sim.compare("gpt-oss-120b", machine="rtx-4090", context=4096)
ran = table.filter(pl.col("tok_s").is_not_null())
ran.select(
    "setting",
    (pl.col("hit_rate") * 100).round(1).alias("hit %"),
    pl.col("tok_s", "tok_s_lo", "tok_s_hi").round(1),
)

# %% [markdown]
# As a picture, with what a token waits for and what cannot run:

# %%
sim.figures.systems(table)

# %% [markdown]
# What a token's time goes to, in milliseconds. Parts overlap in some engines, so they may be more than the token
# takes:

# %%
ran.select("system", (1000 / pl.col("tok_s")).round(1).alias("token, ms"), pl.col(PARTS).round(1))

# %% [markdown]
# A Mac with 128 GB holds the whole model, so there is nothing to choose:

# %%
mac = sim.compare("gpt-oss-120b", machine="m4-max-128", context=4096, systems="all-gpu,cpu,big-moe-on-edge")
mac.select(
    "setting", (pl.col("hit_rate") * 100).round(1).alias("hit %"), pl.col("tok_s", "tok_s_lo", "tok_s_hi").round(1)
)

# %% [markdown]
# ## Answer
#
# On the 4090 six caches of experts lead: FreeToken's (`freetoken`), llama.cpp's own (`cached`), and those of forks.
# Their intervals overlap, so choose by other things than speed, too: `cached` needs no fork and no other engine; `crow`
# runs on Windows only, and nobody has published its speed with this model, nor FreeToken's. They get there differently:
# `freetoken`, `cached` and `crow` hit most and upload the rest, `hot-cache` and `moe-cache` hit less and let the CPU
# compute their misses. Other engines take the memory for a cache that the graph of gpt-oss never uses, and are refused
# with that reason.
#
# Placing whole layers (`placed`, plain llama.cpp) is far behind, because the CPU computes two of three layers. `nvmoe`
# hits as often as the best and reads from the SSD what others have in RAM. On the Mac the model fits, and plain
# llama.cpp on the GPU is fastest; a cache would only cost.
