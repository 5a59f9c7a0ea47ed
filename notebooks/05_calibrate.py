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
# # Can two runs on my machine predict the others?
#
# A preset knows your kind of machine; two runs of your own know yours. One run streams experts through a small bank,
# one never misses. From these two a machine is fitted, and then it must predict runs that it has not seen. The runs
# here are of the patched llama.cpp runtime on a virtual machine with two cores; they ship with the program. For your
# own: `sim bridge calibrate`, or folders with `run.json`, `log.txt` and `trace.jsonl.gz`.

# %%
import math

import altair
import polars as pl

import flashmoe_sim.api as sim
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.tune.grid import grid
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import SURE, Outcome
from native_bridge.engines.read import fit_runs, read_run

altair.renderers.enable("png", ppi=110)  # pictures that GitHub shows, too; without this line they are interactive
sim.plain_tables()
runs = sim.bundled_folder() / "data" / "runs-timed"

# %% [markdown]
# ## The anchors

# %%
anchors = [runs / "warm-bank12", runs / "warm-allhit"]
fitted = fit_runs(anchors, name="mine", command="")
pl.DataFrame(
    [
        (name, number.lo, number.value, number.hi)
        for name, number in fitted.machine.quantities()
        if number.source.startswith("fitted")
    ],
    schema=["number", "90% from", "fitted", "to"],
    orient="row",
)

# %% [markdown]
# A layer takes 3,416 µs, and reads come at 3.9 GB/s: from the page cache, since all these runs are warm. Cold runs are
# another machine; a fit of both is refused.
#
# ## Runs that took no part
#
# Each held-out run is replayed with its own bank and trace, on the fitted machine:


# %%
def predicted(name):
    run, trace = read_run(runs / name), runs / name / "trace.jsonl.gz"
    row = sim.replay(
        trace, model=runs / "manifest.json", bank=run.bank, contract="runtime", machine=fitted.machine
    ).row(0, named=True)
    return {
        "run": name,
        "slots": run.bank,
        "misses": row["misses"],
        "in the log": run.log.routed.misses,
        "tok/s": row["tok_s"],
        "90% from": row["tok_s_lo"],
        "to": row["tok_s_hi"],
        "measured": run.log.decode_tok_s,
        "error, %": (row["tok_s"] / run.log.decode_tok_s - 1) * 100,
    }


HELD_OUT = ["warm-bank24", "warm-bank48", "warm-bank64", "warm-bank64-rep2"]
checked = pl.DataFrame([predicted(name) for name in HELD_OUT])
checked.with_columns(pl.col(pl.Float64).round(1))

# %%
columns = {"measured": "measured_tok_s", "tok/s": "tok_s", "90% from": "tok_s_lo", "to": "tok_s_hi", "run": "source"}
sim.figures.predicted_measured(checked.rename(columns))

# %% [markdown]
# The same machine against the runs from a cold page cache, which it was not fitted for:

# %%
pl.DataFrame([predicted(name) for name in ("cold-bank12", "cold-bank48")]).with_columns(pl.col(pl.Float64).round(1))

# %% [markdown]
# ## Or let the engine itself run
#
# `sim tune model.gguf` needs no fit. It runs the real program at the setting that is predicted to be the fastest, lets
# the result change what is believed of all others, and runs the one that is then worth most. On such a machine every
# one of 16 settings of llama-server was measured twice, for a prompt of 640 tokens and an answer of 64; their medians
# answer a search here, in place of the program:

# %%
rounds = pl.read_csv(sim.bundled_folder() / "reports" / "tuning" / "real.csv").filter(what="grid")
measured = dict(rounds.group_by("setting").agg(pl.col("seconds").median()).iter_rows())
geometry = sim.load_model(runs / "manifest.json")
memory = MemoryOptions(dense="0.06GiB")
on = resolve(workload=None, model=geometry, machine=load_machine("vm-2core"), systems="cpu", memory=memory)
knobs = {"threads": ("1", "2"), "mmap": ("yes", "no"), "ubatch": ("512", "1024", "2048", "4096")}
goal = Objective(goal="both", prompt_tokens=640, answer_tokens=64)
search = grid(on.workload, on.case, on.systems, goal, knobs=knobs, borrowed=True).search()
ran = []
while search.sure < SURE and not search.is_even:
    place = search.next(lambda place: 1.0)
    setting, believed_s = search.trials[place].spec, math.exp(-search.now.mean[place])
    search.hear(place, Outcome(measured[setting]))
    ran.append((len(ran) + 1, setting, believed_s, measured[setting], 100 * search.sure))
pl.DataFrame(ran, schema=["run", "setting", "believed, s", "measured, s", "sure, %"], orient="row").with_columns(
    pl.col(pl.Float64).round(1)
)

# %% [markdown]
# The settings with two threads, and by how much each is slower than the fastest:

# %%
fastest_s = min(measured.values())
pl.DataFrame(
    [(name, seconds, 100 * (seconds / fastest_s - 1)) for name, seconds in measured.items() if "threads=2" in name],
    schema=["setting", "measured, s", "slower, %"],
    orient="row",
).sort("slower, %").with_columns(pl.col(pl.Float64).round(2))

# %% [markdown]
# ## Answer
#
# Yes, for runs of the same kind. Four runs with other banks come out within 2.4%, less than two runs of one
# configuration differ by (24.4 and 23.6 tokens a second with 64 slots), and all are inside their intervals. The
# misses are exact, so what is judged is the seconds alone.
#
# No, for another state of the machine: cold runs are far slower than the warm fit says. Fit on runs whose page cache
# is as it will be in use.
#
# If all that you want is the fastest flags, let `sim tune` run the engine: after seven runs, one of them a repeat, it
# names `threads=2 mmap=no ubatch=4096`, which is 2.4% slower than the fastest of all 16 settings. Runs of one setting
# differed by up to 12% here, so that it can tell no finer.
