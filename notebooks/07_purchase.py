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
# # What should I buy to run gpt-oss-120b faster?
#
# Memory, a faster SSD or another card: each changes what fits and what a token waits for. A machine is written as its
# parts, so that one part can be exchanged at a time.

# %%
import polars as pl

import flashmoe_sim.api as sim

sim.plain_tables()
SYSTEMS = "hot-cache,placed,all-gpu,cpu"
trace = sim.load_trace("gpt-oss-120b")


def machine(gpu="rtx-3060", ram="32GiB", ssd="nvme-gen4"):
    return f"{gpu} + ryzen-5600 + ddr4-3200x2 + {ram} + pcie4x16 + {ssd}"


def fastest(what, parts):
    table = sim.compare(trace, machine=parts, systems=SYSTEMS, context=4096)
    row = table.row(0, named=True)
    wait = max(["read_ms", "upload_ms", "cpu_ms", "compute_ms"], key=lambda part: row[part])
    return {"what": what, **{name: row[name] for name in ("setting", "tok_s", "tok_s_lo", "tok_s_hi")}, "most": wait}


# %% [markdown]
# The machine as it is, and one change at a time. `most` is what takes most of a token's time, and
# `times` compares the speed with the machine as it is:

# %%
single = pl.DataFrame(
    [
        fastest("as it is", machine()),
        fastest("SSD of PCIe 5.0", machine(ssd="nvme-gen5")),
        fastest("64 GiB of RAM", machine(ram="64GiB")),
        fastest("128 GiB of RAM", machine(ram="128GiB")),
        fastest("RTX 3090", machine(gpu="rtx-3090")),
    ]
)
times = (pl.col("tok_s") / single["tok_s"][0]).alias("times")
single.with_columns(times).with_columns(pl.col(pl.Float64).round(1))

# %% [markdown]
# And two changes together:

# %%
double = pl.DataFrame(
    [
        fastest("64 GiB of RAM and SSD of PCIe 5.0", machine(ram="64GiB", ssd="nvme-gen5")),
        fastest("64 GiB of RAM and RTX 3090", machine(gpu="rtx-3090", ram="64GiB")),
    ]
)
double.with_columns(times).with_columns(pl.col(pl.Float64).round(1))

# %% [markdown]
# ## Answer
#
# More RAM or a larger card, best both. The machine reads experts from the SSD, because 32 GiB hold half of the model.
# With 64 GiB nothing is read any more, and it is about twice as fast; a faster SSD gains little, and nothing once the
# RAM is there. An RTX 3090 alone brings about as much as the RAM, and is still waiting for reads; the two together make
# it 3.5 times as fast.
#
# The intervals are wide, since these machines are estimated from their parts' data sheets: the order of purchases whose
# intervals overlap, as RAM's and the card's do, is not certain. `sim recommend gpt-oss-120b --machine "..." --buy
# --target 30` searches the catalogue: cards of each maker and generation, RAM, drives and processors.
