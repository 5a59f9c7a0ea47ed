"""The page of the field report, from the judged rows and what is tuned."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from reports.field import choosing, depth_page, pairs_page
from reports.field.choosing import choices, plain_speed
from reports.field.rows import FieldRow
from reports.field.scores import Judged, Ranked, Score, grouped, machine_id, naive_score, ranked, score
from reports.field.tune import Cost, Tuned, engine_of
from reports.pages import joined, table, wrapped

LEAST_ROWS = 3
WAYS = ("in_sample", "without_series", "without_machine")
HEAD = """# Speeds that others measured

People publish how fast a mixture-of-experts model decodes on their own machines. This page predicts those speeds
from the parts of the machine, the shape of the model and the settings alone, and compares them. The rows are
[field.csv](../../data/published/field.csv): those of confidence A and B without a note against their use.
`./dev report` makes the page, its figures and [results.csv](results.csv) again.

A few numbers are tuned on the same rows: one cost per engine. So there are three errors. *With all rows* is what to
expect for a new run of a known engine. *Without its series* and *without its machine* tune on the other rows only; the
last is what to expect for a machine that no one has measured. *On paper* divides the active bytes by the bandwidth of
their memory, and treats all experts as equally likely.
"""
HOW = """## How a row is predicted

Machine, model and settings become a way of serving tokens: which layers or which share of the experts are resident, who
computes the others, and what RAM serves of the reads. The timeline's execution models price it. If the row does not
state its hit rate, it comes from a curve: the odds of a hit are the odds of being resident to a power, times a
constant. It is
fitted on bundled traces and on [published hit rates](../../data/published/hit_curves.csv), not on speeds.
The interval combines the uncertainty of the machine and the curve with the errors of left-out rows of the engine.
"""
LIMITS = """## The largest errors, and why

- **Disk streaming** (`ssd_stream`, most of it colibri): rows of the engine's first builds take two to four times as
long as priced, rows of later ones about as long. No row says enough to separate the builds' costs, and published
hit rates do not help.
- **Depth**: how fast attention reads differs by the version of a backend (ROCm, and ik_llama.cpp on the CPU), and
ktransformers takes eight times as long as priced.
- **Paging** (`page_cache_mmap`): three rows, three to four times slower than priced. Page faults reach much less than
the drive's figure, and how much less is unknown.
- **An engine on one machine only**: without that machine nothing shows how slow the engine is. That is most of the
error of `other`, krasis and colibri qwen36 without the row's machine.
- **Order within a series**: many series vary what no model here has, such as a version, the kind of prompt or a warm
cache. The table above lists all with three rows.
- **A published hit rate** does not improve a prediction. Some rates include what RAM served, and some are for a
prompt.
- **Two sockets** count as 1.4 times one where the row names no rate; 0.9 to 2 times are published. It depends on NUMA
settings, which few rows state.
- **Several cards**: that a token passes from card to card costs nothing here. Two MI50 are 1.3 times slower than
predicted, four 1.4 times, and four V100 that share each layer more than twice.
- **RAM that just suffices**: a mapped model whose CPU part nearly fills the RAM is predicted to stay there, and can
page instead (curtis: three to four times slower).
- **Drafts** of rows (Strata, with 2.4 to 3.2 tokens a pass, and others) are not modelled; an engine's cost includes
their average gain. The table of drafts has pairs with and without them.
"""


def markdown(rows: Sequence[Judged], found: Tuned, sections: Mapping[str, str]) -> str:
    """README.md. sections: its parts that are made from tables, by title."""

    def section(title: str) -> tuple[str, str]:
        return f"## {title}", sections[title]

    series = ranked(rows)
    parts = [HEAD, "## In short", in_short(rows, series), overall(rows)]
    parts += ["![Predicted against measured speed](predicted.png)", HOW]
    for title, key in (("strategy", attrgetter("strategy")), ("engine", engine_of), ("machine", machine_id)):
        parts += [f"## By {title}", by_group(rows, key, title)]
        if title == "engine":
            parts.append("![Predicted over measured speed by engine](engines.png)")
    parts += [
        *section("By part"),
        *section("Predicted before they were used"),
        *section("As the commands print it"),
        "## The order of settings",
        order(series),
        "## Choosing a setting",
        choosing.section(rows),
        "## By depth",
        depth_page.section([one.in_sample.raw for one in rows]),
        *section("Prompts"),
        *section("Drafts"),
        *section("One measurement of your own"),
        "## With and without a cache",
        pairs_page.section(rows),
        *section("Borrowed traces"),
        LIMITS,
        "## What is tuned",
        tuned_table(found),
        unpredicted(rows),
    ]
    return wrapped(joined(*parts))


def in_short(rows: Sequence[Judged], series: Sequence[Ranked]) -> str:
    """The goals, reached or not."""
    known = [one for one in rows if one.in_sample.tok_s is not None]
    every, halves, left = (_scored(known, way) for way in WAYS)
    taus, regrets = [one.tau for one in series], [one.regret for one in series]
    tau, lost = statistics.median(taus), statistics.median(regrets)
    return (
        f"{len(known)} of {len(rows)} rows have a prediction ({len(known) / len(rows):.0%}; goal 70%). The median "
        f"error is {every.error:.0%} with all rows, {halves.error:.0%} without the row's series and {left.error:.0%} "
        f"without its machine (goal 20%). Within a factor of two are {every.within_2:.0%}, {halves.within_2:.0%} and "
        f"{left.within_2:.0%} (goal 90%). The 90% interval holds {halves.covered:.0%} of rows without their series "
        f"and {left.covered:.0%} without their machine. Over {len(series)} series the median of Kendall's tau is "
        f"{tau:.2f} (goal 0.8), and choosing the best predicted setting loses {lost:.1%} in the median (goal 3%) and "
        f"{statistics.fmean(regrets):.0%} on average. {choosing.goals(choices(rows, plain_speed))}"
    )


def overall(rows: Sequence[Judged]) -> str:
    """One line for each way to judge."""
    known = [one for one in rows if one.in_sample.tok_s is not None]
    informed = [one for one in known if one.in_sample.raw.informed is not None]
    ways = [
        ("with all rows", known, "in_sample"),
        ("without its series", known, "without_series"),
        ("without its machine", known, "without_machine"),
        ("the same, ignoring published hit rates", known, "blind"),
        ("rows with a published hit rate, used", informed, "without_machine"),
        ("rows with a published hit rate, ignored", informed, "blind"),
    ]
    scores = {what: _scored(of, way) for what, of, way in ways} | {"on paper": on_paper(known)}
    cells = [
        (what, one.rows, f"{one.error:.1%}", f"{one.within_2:.0%}", "" if one.covered is None else f"{one.covered:.0%}")
        for what, one in scores.items()
    ]
    return table(("tuned", "rows", "median error", "within 2x", "in the interval"), cells, left=None)


def by_group(rows: Sequence[Judged], key: Callable[[FieldRow], str], title: str) -> str:
    """A row for each strategy, engine or machine with at least three rows."""
    cells = []
    for name, group in grouped(rows, key).items():
        if len(group) < LEAST_ROWS:
            continue
        every, halves, left = (_scored(group, way) for way in WAYS)
        shares = (every.error, halves.error, left.error, left.within_2, left.covered, on_paper(group).error)
        cells.append((name, len(group), *(f"{share:.0%}" for share in shares)))
    head = ("rows", "with all rows", "without its series", "without its machine", "within 2x", "in the interval")
    return table((title, *head, "on paper"), cells, left=None)


def order(series: Sequence[Ranked]) -> str:
    """Kendall's tau and regret of every series."""
    cells = [
        (
            *(one.series, one.varies, one.rows, f"{one.tau:.2f}", f"{one.regret:.0%}"),
            *(f"{one.naive_tau:.2f}", f"{one.naive_regret:.0%}"),
        )
        for one in sorted(series, key=lambda one: (-one.tau, one.series))
    ]
    head = ("series", "varies", "rows", "tau", "regret", "tau on paper", "regret on paper")
    return table(head, cells, left=None)


def tuned_table(found: Tuned) -> str:
    """What tuned.toml has."""
    intro = (
        "[tuned.toml](tuned.toml) has it all; `python -m reports.field --tune` makes it. A cost multiplies a part of "
        "a token's time, or adds time to every layer: the one of them that leaves the smallest errors. It is a median "
        "over machines, shrunk by rows / (rows + 2). An engine with fewer than three rows gets the cost of its "
        "strategy."
    )
    costs = [
        (name, _cost(cost), f"{found.spread.get(name, found.spread['all']):.2f}")
        for name, cost in (*found.engines.items(), *found.strategies.items())
    ]
    hits = [
        (kind, *(f"{curve.hit_rate(share):.0%}" for share in (0.05, 0.1, 0.25, 0.5, 0.75)))
        for kind, curve in found.curves.items()
    ]
    return joined(
        intro,
        table(("engine or strategy", "cost", "spread"), costs, left=None),
        table(("curve of hits", "at 5%", "10%", "25%", "50%", "75% resident"), hits, left=None),
    )


def unpredicted(rows: Sequence[Judged]) -> str:
    """Why rows have no prediction."""
    why = Counter(one.in_sample.why for one in rows if one.in_sample.tok_s is None)
    lines = [f"- {reason} ({number})" for reason, number in why.most_common()]
    return joined("## Rows without a prediction", "\n".join(lines))


def _cost(cost: Cost) -> str:
    if cost.part == "layer":
        return f"{cost.value:.0f} us more a layer"
    return f"{cost.value:.2f} times {'all' if cost.part == 'all' else 'the ' + cost.part}"


def on_paper(rows: Sequence[Judged]) -> Score:
    """Errors of the model on paper."""
    return naive_score([(one.naive, one.row.decode_tok_s) for one in rows])


def _scored(rows: Sequence[Judged], way: str) -> Score:
    """Errors of one way to judge."""
    found = score([getattr(one, way) for one in rows])
    assert found is not None
    return found
