"""The page of the field report: whether a printed speed can be trusted, from residuals.csv and the tables beside it."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flashmoe_sim.tune.pays import Gains
from reports.field import gains
from reports.field.pairs import Pair
from reports.field.residuals import known, on_parts, score
from reports.pages import joined, table, wrapped

LEAST_ROWS, LARGEST = 3, 10
SOURCE, MACHINE = "without_source_", "without_machine_"
LEFT = ("median error", "without its source", "within 2x", "ends apart", "inside", "without its machine", "its source")
TENTHS = np.linspace(0, 1, 11)
BINS = (0.5, 0.6, 0.75, 0.9, 1.0)
CUTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
HEAD = """# Speeds that others measured

People publish how fast a mixture-of-experts model decodes on their own machines. Here the commands are asked for these
speeds: `sim compare` with the row's system and setting, on the machine of the row's parts, with the trace that the
commands take when they are given the model alone; and again on a preset with the row's GPU, if there is one. It uses
rows of confidence A and B from [field.csv](../../data/published/field.csv),
[field_2026_11.csv](../../data/published/field_2026_11.csv), and
[field_larger_than_ram.csv](../../data/published/field_larger_than_ram.csv), on which the rate of page faults was set.
[residuals.csv](residuals.csv) has every answer; `./dev report` makes it and this page again, and `python -m
reports.field FILE.csv` answers rows of your own.

What is fitted on the rows is how many times as fast as its parts say a system is, and how far from that its speeds
are. Each who published counts once, and a system that few people measured stays near its parts. So there are three
answers to a row: the printed one, *without its machine*, and *without its source*, the person or repository that
published it with all its machines. *inside* counts measured speeds in the 90% interval.
"""
ENGINES = """An engine without a system is answered as a plain one: all on the GPU, experts on the CPU, or streamed from
storage. People: who published, on however many machines.
"""
RELIABLE = """In which tenth of its interval's probability is a measured speed, if its source is left out? In each about
as many, if intervals are right; in the first are those that were far slower than predicted.
"""
WINS = """Two programs on one machine with one model: in how many of the shared draws is the one faster that is
predicted to be, and how often was it? `sim recommend` lets a fork lead from nine of ten on.
"""
PAIRS = """A pair is two rows of one machine, model, quantization and depth: one with an expert cache, and one without
of llama.cpp or ik_llama.cpp, or of the same program in the same series. How likely the cache is faster is fitted on the
predicted and measured gains of pairs ([gains.toml](../../flashmoe_sim/tune/gains.toml)), with levels by kind of cache
and engine, each drawn towards the common one; each pair is judged by the pairs of other sources. `sim recommend` and
`sim compare` print the mean of such probabilities over draws.
"""
LIMITS = """- **Engines that their authors alone measured** are too fast for others: a stranger's build, disk and text
differ in ways that no part here has.
- **Newer builds** may be faster than those whose rows are known: Strata's release pages name 3 to 19% on some cards,
but no trend over people is sure.
- **Disk streaming**: how a file's pages are kept and read decides by a factor of two to four, and no row says enough.
- **Old AMD server cards** (MI50, MI300X) reach half of what their bandwidth allows others.
- **Few threads**: rows that vary the threads of a CPU are answered as if all its cores computed.
- **Two sockets** are answered as the row says that it used them, else as threads and pages on both.
- **Drafts** are answered of Strata alone, with a window of four; other rows with drafts are answered without them.

What did not help: one model of all errors, with spreads for parts, engines, interfaces, machines, models and sources
together, and its expectation as the answer. It was nearer on new rows, farther off on the others, and its intervals
were no narrower. An engine's middle, drawn towards its parts, is what stays right for people who are left out.
"""


def markdown(lines: pl.DataFrame, sections: Mapping[str, str], pairs: Sequence[Pair]) -> str:
    """README.md. lines: residuals.csv. sections: parts that are made from other tables, by title. pairs: answered."""

    def section(title: str) -> tuple[str, str]:
        return f"## {title}", sections[title]

    parts = on_parts(lines)
    return wrapped(
        joined(
            HEAD,
            "## In short",
            in_short(lines),
            "![Predicted against measured speed](predicted.png)",
            "## By engine",
            ENGINES,
            by_system(parts),
            "![Predicted over measured speed by engine](engines.png)",
            "## Are the intervals right?",
            RELIABLE,
            tenths(known(parts)),
            *section("Answered before they were used"),
            "## Which is faster?",
            WINS,
            sections["Shared draws"],
            PAIRS,
            caches(pairs),
            *section("By depth"),
            *section("Prompts"),
            *section("Drafts"),
            *section("One measurement of your own"),
            *section("Borrowed traces"),
            *section("By age"),
            "## The largest errors",
            largest(known(parts)),
            LIMITS,
        )
    )


def in_short(lines: pl.DataFrame) -> str:
    """A line for all answers of systems, on parts and on presets, and for plain engines."""
    systems, plain = known(lines), on_parts(lines).filter(pl.col("system").is_null())
    groups = {
        "all": systems,
        "on parts": on_parts(systems),
        "on presets": systems.filter(pl.col("machine") != "parts"),
        "engines without a system": plain,
    }
    head = ("asked", "rows", "machines", *LEFT)
    cells = [(name, len(some), *_machines(some), *_cells(some)) for name, some in groups.items()]
    return joined(table(head, cells), unmeasured(systems))


def unmeasured(systems: pl.DataFrame) -> str:
    """What an engine that nobody measured can expect: the answers of systems without their engine, in a line."""
    of = score(systems, "without_engine_")
    each = statistics.fmean(score(some, "without_engine_").inside for _, some in systems.group_by("system"))
    errors = (
        f"median error {of.error:.0%}, {of.within_2:.0%} within 2x, {of.inside:.0%} inside, ends {of.apart:.1f}x apart"
    )
    return (
        f"Without its engine, as for one that nobody measured: {errors}; if each system counts once, {each:.0%} inside."
    )


def by_system(parts: pl.DataFrame) -> str:
    """A line for each system with some rows, and for each way of plain engines."""
    named = parts.with_columns(
        pl.when(pl.col("system").is_null())
        .then("any, " + pl.col("way"))
        .otherwise("`" + pl.col("system") + "`")
        .alias("of")
    )
    groups = sorted(named.group_by("of"), key=lambda item: (item[0][0].startswith("any"), -len(item[1]), item[0]))
    cells = [
        (name, len(some), some["source"].n_unique(), *_machines(some), *_cells(some))
        for (name,), some in groups
        if len(some) >= LEAST_ROWS
    ]
    head = ("system", "rows", "people", "machines", *LEFT)
    return table(head, cells)


def _machines(some: pl.DataFrame) -> tuple[int]:
    return (some["machine_id"].n_unique(),)


def _cells(some: pl.DataFrame) -> tuple[str, ...]:
    printed, machine, source = (score(some, prefix) for prefix in ("", MACHINE, SOURCE))
    inside = (f"{one.inside:.0%}" for one in (printed, machine, source))
    errors = (f"{share:.0%}" for share in (printed.error, source.error, source.within_2))
    return *errors, f"{source.apart:.1f}x", *inside


def tenths(parts: pl.DataFrame) -> str:
    """How many rows are in each tenth of their distribution, taken as normal on either side of the prediction."""
    place = quantiles(parts)
    counts, _ = np.histogram(place, TENTHS)
    names = [f"{lo:.0%} to {hi:.0%}" for lo, hi in itertools.pairwise(TENTHS)]
    return table(
        ("tenth", "rows", "share"), [(n, c, f"{c / len(place):.0%}") for n, c in zip(names, counts, strict=True)]
    )


def quantiles(parts: pl.DataFrame) -> NDArray[np.float64]:
    """The probability of a slower speed than each measured one, if its source is left out: f64 [rows]."""
    tok_s = parts[f"{SOURCE}tok_s"]
    off = np.log((parts["measured_tok_s"] / tok_s).to_numpy())
    lo, hi = (np.log((parts[f"{SOURCE}{end}"] / tok_s).to_numpy()) for end in ("lo", "hi"))
    sd = np.maximum(np.where(off < 0, -lo, hi), 1e-6) / 1.645
    return np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in off / sd])


def shared_draws(wins: pl.DataFrame) -> str:
    """How often what is faster in so many draws was. wins: wins.csv."""
    cells = []
    for least, most in itertools.pairwise(BINS):
        some = wins.filter(pl.col("share").is_between(least, most, closed="both" if most == 1 else "left"))
        if len(some):
            means = (f"{np.mean(some[name].to_numpy()):.0%}" for name in ("share", "held"))
            cells.append((f"{least:.0%} to {most:.0%}", len(some), some["source"].n_unique(), *means))
    return table(("share of draws", "pairs", "people", "predicted", "was faster"), cells)


def caches(pairs: Sequence[Pair]) -> str:
    """How good the probabilities that a cache is faster are, and what happened beside what was likely."""
    every = gains.seen(pairs)
    likely = gains.left_out(every)
    faster = [one.measured > 0 for one in every]
    brier = statistics.fmean((p - won) ** 2 for p, won in zip(likely, faster, strict=True))
    right = statistics.fmean((p > 0.5) == won for p, won in zip(likely, faster, strict=True))
    order = statistics.fmean((one.predicted > 0) == won for one, won in zip(every, faster, strict=True))
    cells = []
    for lo, hi in itertools.pairwise(CUTS):
        some = [(p, won, one) for p, won, one in zip(likely, faster, every, strict=True) if lo <= p < hi]
        if some:
            means = statistics.fmean(p for p, _, _ in some), statistics.fmean(won for _, won, _ in some)
            people = len({one.source for _, _, one in some})
            cells.append((f"{lo:.0%} to {hi:.0%}", len(some), people, *(f"{mean:.0%}" for mean in means)))
    people, machines = (len({getattr(one, name) for one in every}) for name in ("source", "machine"))
    summary = (
        f"Of {len(every)} pairs of {people} people on {machines} machines, {right:.0%} are named rightly, with a Brier "
        f"score of {brier:.3f}; the faster of the two predicted speeds names {order:.0%}."
    )
    return joined(
        summary, table(("probability", "pairs", "people", "mean", "was faster"), cells), levels(gains.fitted(every))
    )


def levels(found: Gains) -> str:
    """How fast caches are if they are predicted to gain nothing."""
    kinds = ", ".join(f"{name} {math.exp(level):.2f}" for name, (level, _) in found.kinds.items())
    return f"A predicted gain has a weight of {found.weight:.2f}. If it is 1, the expected one is by kind: {kinds}."


def largest(parts: pl.DataFrame) -> str:
    """The rows that are farthest off, one of each source and system."""
    ratio = pl.col("measured_tok_s") / pl.col("tok_s")
    ordered = parts.with_columns(ratio.alias("ratio")).sort(pl.col("ratio").log().abs(), descending=True)
    worst = ordered.unique(["source", "system"], keep="first", maintain_order=True).head(LARGEST)
    return "\n".join(
        f"- `{one['id']}` ({one['source']}): `{one['setting']}`, predicted at {one['tok_s']:.3g} tok/s, was measured "
        f"at {one['measured_tok_s']:.3g}, {_times(one['ratio'])}."
        for one in worst.iter_rows(named=True)
    )


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times as fast" if ratio > 1 else f"{1 / ratio:.1f} times as slow"
