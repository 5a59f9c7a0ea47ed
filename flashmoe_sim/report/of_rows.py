"""The sections on a sweep's rows: hit rates and decode speeds against the bank."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from flashmoe_sim.ceilings.speed import SpeedCeilings
from flashmoe_sim.io.cells import count, interval, percent, speed
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sections import Figure, Part, Section, Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.policies.bank import MEANING, parse_bank
from flashmoe_sim.report.cells import HITS, SPEEDS, Row, page_table, who
from flashmoe_sim.report.close import Close
from flashmoe_sim.report.figures import gains, hit_curves, speeds, waterfall
from flashmoe_sim.report.material import Material
from flashmoe_sim.schema import frame
from flashmoe_sim.sweep.summary import over_traces
from flashmoe_sim.timeline.names import PART_WORDS

MOST_TRACES = 4
MOST_MACHINES = 3


def hits(found: Material) -> Section:
    """A figure per trace, and one table over several traces."""
    machine = found.rows[0]["machine"]  # or None: the counts are the same on all
    rows = [row for row in found.rows if row["machine"] == machine]
    traces = _traces(rows)
    parts: list[Part] = []
    for number, some in enumerate(traces[:MOST_TRACES], start=1):
        name = "hit-curves" if len(traces) == 1 else f"hit-curves-{number}"
        caption = (
            f"{some[0]['trace']}: the share of requested experts that are in the bank already, against the bank "
            f"({_meaning(some)}). The dashed line is min, which knows every request to come: only experts that are "
            "loaded before the run or ahead of their use get above it. Memory is that of all banks together."
            if number == 1
            else f"{some[0]['trace']}, read as above."
        )
        parts.append(Figure(name, hit_curves(frame(some)), caption, page_table((*who(some), *HITS), some)))
    if more := traces[MOST_TRACES:]:
        parts.append(f"Without a figure: {', '.join(some[0]['trace'] for some in more)}.")
    with suppress(BadInput):  # without lru, or few policies of one trace
        caption = "How far each policy is above lru, where lines above lie on each other or are not drawn."
        parts.append(Figure("gains", gains(frame(rows)), caption))
    if len(traces) > 1:
        parts += ["All traces together: means, each trace counting the same.", _together(rows)]
    return Section("How often a bank hits", tuple(parts))


def seconds(found: Material) -> Section:
    """A figure per trace and machine, with the ceilings of the bank that is looked at closely."""
    timed = [row for row in found.rows if row["machine"] is not None]
    if not any(row["tok_s"] is not None for row in timed):
        return Section("", ())
    machines = list(dict.fromkeys(row["machine"] for row in timed))
    shown = [
        [row for row in some if row["machine"] == machine]
        for some in _traces(timed)[:MOST_TRACES]
        for machine in machines[:MOST_MACHINES]
    ]
    shown = [some for some in shown if any(row["tok_s"] is not None for row in some)]
    parts: list[Part] = []
    for number, some in enumerate(shown, start=1):
        first = some[0]
        limits = _limits(found.close, first)
        ceilings = "" if limits is None else f" Rules: what a bank of {limits.bank} could reach at best."
        caption = (
            f"{first['trace']} on {first['machine']}: decode speed against the bank ({_meaning(some)}), with its 90% "
            f"interval.{ceilings}"
        )
        chart = speeds(frame(some), ceilings=limits)
        name = "speeds" if len(shown) == 1 else f"speeds-{number}"
        parts.append(Figure(name, chart, caption, page_table((*who(some), *SPEEDS), some)))
    if (left := len(machines) - MOST_MACHINES) > 0:
        parts.append(f"{left} more machines have no figure.")
    close = found.close
    if close is not None and close.ceilings is not None:
        on = close.ceilings
        parts += [f"{on.policy} in a bank of {on.bank} on {on.machine}, and what could be:", _ceilings(on)]
    return Section("How fast it runs", tuple(parts))


def token(found: Material) -> Section:
    """The parts of a token's time in the bank that is looked at closely."""
    on = None if found.close is None else found.close.ceilings
    if on is None:
        return Section("", ())
    parts = {name: ms for name, ms in on.part_ms_per_token.items() if ms}
    total = sum(parts.values())
    caption = (
        f"A decoded token under {on.policy} in a bank of {on.bank} on {on.machine}, under the execution "
        f"model {on.execution}: what the unit that computes does or waits for, one after the other."
    )
    rows = tuple((PART_WORDS[name], three(ms), percent(ms / total)) for name, ms in parts.items())
    rows += (("all", three(total), percent(1.0)),)
    numbers = Table((("part", "left"), ("ms", "right"), ("%", "right")), rows)
    return Section("Where a token's time goes", (Figure("waterfall", waterfall(on), caption, numbers),))


def _traces(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each trace, by policy and ascending bank."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["trace_id"], row["trace"]), []).append(row)
    return [sorted(some, key=lambda row: parse_bank(row["bank"]).size) for some in found.values()]


def _meaning(rows: Sequence[Row]) -> str:
    banks = [parse_bank(row["bank"]) for row in rows]
    what = MEANING[banks[0].unit]
    return what + (", in one bank" if rows[0]["scope"] == "global" else "")


def _together(rows: Sequence[Row]) -> Table:
    means = sorted(over_traces(rows), key=lambda row: parse_bank(row["bank"]).size)
    columns = [
        *who(means),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("best %", "right", lambda row: percent(row["best_hit_rate"])),
        ("lowest %", "right", lambda row: percent(row["hit_rate_min"])),
        ("highest %", "right", lambda row: percent(row["hit_rate_max"])),
        ("wins", "right", lambda row: count(row["wins"])),
    ]
    return page_table(columns, means)


def _limits(close: Close | None, row: Row) -> SpeedCeilings | None:
    """The ceilings, if they are of this trace and machine."""
    if close is None or close.ceilings is None:
        return None
    own = (close.row["trace_id"], close.ceilings.machine)
    return close.ceilings if own == (row["trace_id"], row["machine"]) else None


def _ceilings(on: SpeedCeilings) -> Table:
    columns = [
        ("", "left", lambda row: row.name),
        ("hit %", "right", lambda row: percent(row.hit_rate)),
        ("read/tok", "right", lambda row: size(row.bytes_per_token)),
        ("tok/s", "right", lambda row: speed(row.tok_s)),
        ("90%", "right", lambda row: interval(row.tok_s_lo, row.tok_s_hi)),
        ("meaning", "left", lambda row: row.meaning),
    ]
    return page_table(columns, on.rows)
