"""What the commands print for published rows, and how often the printed interval holds."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from flashmoe_sim.machines.belief import ANY, Draws, ends
from reports.field.errors import Errors, draws_of, without_machine
from reports.field.model import name_of
from reports.field.printed import Printed
from reports.pages import joined
from reports.pages import table as as_table

TABLE = Path(__file__).with_name("printed.csv")
WINS = Path(__file__).with_name("wins.csv")
LEAST_ROWS = 3
BINS = (0.5, 0.6, 0.75, 0.9, 1.0)
SAID_OF_WINS = """Two programs on one machine with one model: in how many of the shared draws is the one faster that is
predicted to be, and how often was it? `sim recommend` lets a fork lead from nine of ten on.
"""
INTRO = """These rows are asked as a user would: `sim compare` with the row's system and setting, on the machine of its
parts, and again on a preset with its GPU if there is one; the trace is the one that the commands take when they are
given the model alone. *inside* counts the measured speeds in the interval that is printed, *left out* those in the
interval that is printed if nothing is known of the row's machine. [printed.csv](printed.csv) has every row.
"""


def table(ran: Sequence[Printed], found: Errors) -> pl.DataFrame:
    """A row for each prediction: lo and hi as printed, left_out_lo and left_out_hi without the row's machine."""
    without = without_machine(ran, found.shares)
    rows = []
    for one in ran:
        assert one.found is not None
        name, tok_s = one.found.system.name, one.found.tok_s or math.nan
        machine_id = one.row.machine_id or one.row.id
        left = [ends(tok_s, _draws(one, found, sd)) for sd in (found.sd, without[machine_id])]
        rows.append(
            {
                "id": one.row.id,
                "machine_id": machine_id,
                "setting": one.found.system.spec,
                "system": name,
                "machine": one.machine,
                "measured_tok_s": one.row.decode_tok_s,
                "tok_s": tok_s,
                "lo": left[0][0],
                "hi": left[0][1],
                "left_out_lo": left[1][0],
                "left_out_hi": left[1][1],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))


def wins(ran: Sequence[Printed], found: Errors) -> pl.DataFrame:
    """A row for each pair of programs on one machine with one model: the share of draws in which `faster` wins."""
    groups = defaultdict(list)
    for one in ran:
        assert one.found is not None
        draws = math.log(one.found.tok_s or math.nan) + _draws(one, found, found.sd)
        groups[one.row.machine_id or one.row.id, one.machine, name_of(one.row)].append((one, draws))
    rows = []
    for (machine_id, _, _), group in groups.items():
        for (one, mine), (other, theirs) in itertools.combinations(group, 2):
            if _program(one) == _program(other):
                continue
            share = float(np.mean(mine > theirs))
            faster, slower, share = (one, other, share) if share >= 0.5 else (other, one, 1 - share)
            held = (faster.row.decode_tok_s or 0.0) > (slower.row.decode_tok_s or 0.0)
            rows.append((machine_id, faster.row.id, slower.row.id, round(share, 4), held))
    return pl.DataFrame(rows, ("machine_id", "faster", "slower", "share", "held"), orient="row")


def section(rows: pl.DataFrame, pairs: pl.DataFrame) -> str:
    """How often the interval holds, by system, on parts and on presets, and how often what should be faster is."""
    groups = {
        "all": rows,
        "on parts": rows.filter(pl.col("machine") == "parts"),
        "on presets": rows.filter(pl.col("machine") != "parts"),
    }
    for name, number in Counter[str](rows["system"].to_list()).most_common():
        if number >= LEAST_ROWS:
            groups[f"`{name}`"] = rows.filter(pl.col("system") == name)
    shares = []
    for least, most in itertools.pairwise(BINS):
        some = pairs.filter(pl.col("share").is_between(least, most, closed="both" if most == 1 else "left"))
        means = (f"{np.mean(some[name].to_numpy()):.0%}" for name in ("share", "held"))
        shares.append((f"{least:.0%} to {most:.0%}", len(some), some["machine_id"].n_unique(), *means))
    head = ("asked", "rows", "machines", "median error", "ends apart", "inside", "left out")
    of_wins = ("share of draws", "pairs", "machines", "predicted", "was faster")
    asked = as_table(head, (_cells(what, some) for what, some in groups.items()), left=None)
    return joined(INTRO, asked, SAID_OF_WINS, as_table(of_wins, shares, left=None))


def _draws(one: Printed, found: Errors, sd: dict[str, float]) -> Draws:
    """Draws of the logarithm of a speed over the predicted one. sd: of engines' errors, by system."""
    assert one.found is not None
    assert one.of_machine is not None
    return one.of_machine + sd.get(one.whose.system, sd[ANY]) * draws_of(one.whose, found.shares)


def _program(one: Printed) -> str:
    assert one.found is not None
    return one.found.system.program


def inside(rows: pl.DataFrame, prefix: str = "") -> float:
    """The share of measured speeds in an interval."""
    return statistics.fmean(
        rows.select(pl.col("measured_tok_s").is_between(pl.col(f"{prefix}lo"), pl.col(f"{prefix}hi"))).to_series()
    )


def _cells(what: str, rows: pl.DataFrame) -> tuple[object, ...]:
    off = np.median((rows["tok_s"] / rows["measured_tok_s"] - 1).abs().to_numpy())
    apart = np.median((rows["hi"] / rows["lo"]).to_numpy())
    held = (f"{inside(rows, prefix):.0%}" for prefix in ("", "left_out_"))
    return what, len(rows), rows["machine_id"].n_unique(), f"{off:.0%}", f"{apart:.1f}x", *held
