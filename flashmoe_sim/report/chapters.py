"""The sections of a report on its rows, and on its trace: which layers miss, which experts are used, how soon again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from flashmoe_sim.ceilings.speed import SpeedCeilings
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sections import Figure, Part, Section, Table, count, interval, percent, speed
from flashmoe_sim.io.sizes import size, three
from flashmoe_sim.policies.bank import MEANING, parse_bank
from flashmoe_sim.report.cells import HITS, SPEEDS, Row, page_table, who
from flashmoe_sim.report.close import Close, Material
from flashmoe_sim.report.figures import (
    drift,
    gains,
    hit_curves,
    misses_by_layer,
    popularity,
    reuse_distances,
    speeds,
    waterfall,
)
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.schema import LAYER_COLUMNS, frame
from flashmoe_sim.sweep.summary import over_traces
from flashmoe_sim.timeline.names import PART_WORDS
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import count_layers, hot_set_drift

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


SHARES = (0.01, 0.05, 0.1, 0.25, 0.5)  # of the experts
POPULARITY = (
    "the share of the requests that the most requested experts get, by how many of them. The further a line bends "
    "left, the more a small bank of the right experts holds; on the diagonal all are alike."
)
DRIFT = (
    "how many of the experts that are hot in a part of the trace (the most requested tenth of each layer) were hot in "
    "its first part, and in the part before. Where lines fall, a bank that was filled once goes stale."
)
REUSE = (
    "how many other experts of the layer are requested before an expert comes back. A bank under LRU holds what comes "
    "back within its slots, so the line is its hit rate where calls are served as a whole (contract atomic)."
)


def layers(found: Material) -> Section:
    """Misses by layer and size, for the policy that is looked at closely."""
    if found.close is None or not found.close.layers:
        return Section("", ())
    rows, first = found.close.layers, found.close.layers[0]
    banks = list(dict.fromkeys(row["bank"] for row in rows))
    missed = {(row["layer"], row["bank"]): row["misses"] / max(row["requests"], 1) for row in rows}
    numbers = Table(
        (("layer", "right"), *((f"bank {bank}", "right") for bank in banks)),
        tuple(
            (str(layer), *(percent(missed.get((layer, bank))) for bank in banks))
            for layer in dict.fromkeys(row["layer"] for row in rows)
        ),
    )
    caption = f"{first['trace']}, {first['policy']}: the share of each layer's requests that miss, for every bank size."
    return Section(
        "Which layers miss", (Figure("misses-by-layer", misses_by_layer(frame(rows, LAYER_COLUMNS)), caption, numbers),)
    )


def use(found: Material) -> Section:
    """For each trace, the skew of expert use, and whether the same experts stay hot."""
    parts: list[Part] = []
    for end, workload in _shown(found):
        trace = workload.trace
        numbers = _popularity(workload)
        parts.append(Figure(f"popularity{end}", popularity(workload), _caption(trace, end, POPULARITY), numbers))
        if len(np.unique(trace.steps)) > 1:
            parts.append(Figure(f"drift{end}", drift(workload), _caption(trace, end, DRIFT), _drift(workload)))
    return Section("Which experts are used", (*parts, *_left_out(found)))


def reuse(found: Material) -> Section:
    """How soon experts come back, in each trace."""
    parts: list[Part] = []
    for end, workload in _shown(found):
        caption, numbers = _caption(workload.trace, end, REUSE), _reuse(workload)
        parts.append(Figure(f"reuse-distances{end}", reuse_distances(workload), caption, numbers))
    return Section("How soon experts come back", (*parts, *_left_out(found)))


def _caption(trace: RoutingTrace, end: str, reading: str) -> str:
    """How to read a figure, said once."""
    return f"{trace.name}: {reading}" if end in ("", "-1") else f"{trace.name}, read as above."


def _shown(found: Material) -> list[tuple[str, Workload]]:
    """The traces that have figures, each with the end of their names."""
    shown = list(found.workloads.values())[:MOST_TRACES]
    return [("" if len(shown) == 1 else f"-{number}", one) for number, one in enumerate(shown, start=1)]


def _left_out(found: Material) -> list[str]:
    names = [one.trace.name for one in found.workloads.values()][MOST_TRACES:]
    return [f"Without a figure: {', '.join(names)}."] if names else []


def _popularity(workload: Workload) -> Table:
    rows = []
    for one in count_layers(workload.trace):
        most = np.sort(one.requests)[::-1].cumsum()
        shares = [most[max(1, round(share * len(most))) - 1] / max(most[-1], 1) for share in SHARES]
        rows.append((str(one.layer), count(int(np.count_nonzero(one.requests))), *map(percent, shares)))
    heads = (("layer", "right"), ("experts used", "right"), *((f"top {share:.0%}", "right") for share in SHARES))
    return Table(heads, tuple(rows))


def _reuse(workload: Workload) -> Table:
    """The hits of an LRU bank by slots, at sizes that double."""
    counted = count_layers(workload.trace)
    distances = np.zeros(max(one.n_experts for one in counted), np.int64)
    for one in counted:
        distances[: one.n_experts] += one.reuse
    requests = sum(int(one.requests.sum()) for one in counted)
    upto = distances.cumsum()
    sizes = [2**power for power in range(len(upto).bit_length()) if 2**power < len(upto)] + [len(upto)]
    rows = [(count(slots), count(int(upto[slots - 1])), percent(upto[slots - 1] / requests)) for slots in sizes]
    firsts = sum(one.first_uses for one in counted)
    rows.append(("first uses", count(firsts), percent(firsts / requests)))
    return Table((("slots", "right"), ("requests that come back within", "right"), ("%", "right")), tuple(rows))


def _drift(workload: Workload) -> Table:
    found = hot_set_drift(workload.trace)
    parts = zip(found.first_step, found.last_step, found.of_previous, found.of_first, strict=True)
    rows = [(f"{first} to {last}", percent(before), percent(at_first)) for first, last, before, at_first in parts]
    rows.append(("by chance", percent(found.chance), percent(found.chance)))
    heads = (("steps", "left"), ("hot in the part before, %", "right"), ("hot in the first part, %", "right"))
    return Table(heads, tuple(rows))
