"""What `sim watch` shows: a table, a line, or a document."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.cells import percent
from flashmoe_sim.io.printable import printable
from flashmoe_sim.io.sizes import size
from flashmoe_sim.question import bank_meaning

if TYPE_CHECKING:
    from flashmoe_sim.residency.counts import Counts
    from flashmoe_sim.sweep.watch import Row, Seen

STILL_S = 10.0  # a trace that did not grow for so long is said to be still
DISPENSABLE = ("aliased", "read/tok", "last read", "miss/tok", "last miss")


def _status(trace: Path, seen: Seen) -> str:
    """How long the trace is and how fast it grows, or why there is none."""
    if seen.head is None:
        return f"{trace}: {'no routed calls in it yet' if seen.there else 'no such file yet: waiting for it'}"
    speed = "" if seen.tokens_per_s is None else f", {seen.tokens_per_s:.1f} tok/s"
    if seen.still_s >= STILL_S:
        speed += f", still for {seen.still_s:.0f} s"
    gone = "" if seen.there else ", and now gone: waiting for it"
    layers = len(seen.head.layers)
    counted = f"{seen.tokens:,} tokens, {seen.calls:,} calls, {layers} layer{'' if layers == 1 else 's'}"
    return f"{trace.name}: {counted}{speed}{gone}"


def _drift(seen: Seen) -> str:
    return "" if seen.overlap is None else f"overlap with as many before {percent(seen.overlap)}%"


def as_line(trace: Path, seen: Seen) -> str:
    """As much as fits a line: the hit rates, with the window's in brackets."""
    if seen.head is None:
        return _status(trace, seen)
    several = len({row.setup.policy for row in seen.rows}) > 1
    rates = [
        f"{row.setup.bank}{f' {row.setup.policy.spec}' if several else ''} {_rate(row.whole)} ({_rate(row.window)})"
        for row in seen.rows
        if row.whole is not None
    ]
    drift = f"; {_drift(seen)}" if seen.overlap is not None else ""
    return f"{_status(trace, seen)}{drift}; hit % (last {seen.window_tokens:,} tokens): {', '.join(rates) or '-'}"


def as_lines(trace: Path, seen: Seen, *, width: int, height: int | None = None, event: str = "") -> list[str]:
    """The table in `width` columns, with fewer rows if it would exceed `height` lines."""
    if seen.head is None:
        return _wrapped([_status(trace, seen), event], width)
    counted = [row for row in seen.rows if row.whole is not None]
    shown = counted
    while True:
        lines = _table(trace, seen, shown, event, width)
        if height is None or len(lines) <= height or len(shown) < 2:
            return lines
        keep = max(len(shown) - (len(lines) - height), 1)
        shown = [counted[number * (len(counted) - 1) // max(keep - 1, 1)] for number in range(keep)]


def _table(trace: Path, seen: Seen, rows: list[Row], event: str, width: int) -> list[str]:
    counted = [row for row in seen.rows if row.whole is not None]
    setup, policies = seen.rows[0].setup, {row.setup.policy.spec for row in seen.rows}
    headings = ["bank", "policy", "hit %", "last", "miss/tok", "last miss", "read/tok", "last read", "aliased"]
    unused = {"policy"} if len(policies) == 1 else set()
    if not any(row.whole is not None and row.whole.expert_bytes for row in counted):
        unused |= {"read/tok", "last read"}
    if setup.contract != "runtime":
        unused.add("aliased")
    cells = [dict(zip(headings, _cells(row), strict=True)) for row in rows]
    kept = [heading for heading in headings if heading not in unused]
    too_wide = []
    while True:
        widths = {name: max(len(name), *(len(row[name]) for row in cells), 0) for name in kept}
        rest = [name for name in DISPENSABLE if name in kept]
        if sum(widths.values()) + 2 * (len(kept) - 1) <= width or not rest:
            break
        kept.remove(rest[0])
        too_wide.append(rest[0])
    body = [
        "  ".join(row[name].ljust(widths[name]) if name == "policy" else row[name].rjust(widths[name]) for name in kept)
        for row in [dict(zip(headings, headings, strict=True)), *cells]
    ]
    caption = [f"last: of the last {seen.window_tokens:,} tokens", _drift(seen)]
    if seen.aliased is not None:
        caption.append(f"aliased slots recorded: {seen.aliased:,}")
    if len(rows) < len(counted):
        caption.append(f"{len(rows)} of {len(counted)} rows fit here, --json has all")
    if too_wide:
        caption.append(f"too wide for here: {', '.join(too_wide)}")
    caption += _left_out([row for row in seen.rows if row.whole is None])
    policy = f"{setup.policy.spec}, " if len(policies) == 1 else ""
    title = [_status(trace, seen), f"{policy}bank: {bank_meaning(setup)}, contract {setup.contract}", event]
    rule = "─" * (sum(widths.values()) + 2 * (len(kept) - 1))
    return [*_wrapped(title, width), body[0], rule, *body[1:], *_wrapped(["; ".join(filter(None, caption))], width)]


def _cells(row: Row) -> tuple[str, ...]:
    assert row.whole is not None
    assert row.window is not None
    whole, window = row.whole.total(), row.window.total()
    return (
        str(row.setup.bank),
        row.setup.policy.spec,
        percent(whole["hit_rate"]),
        percent(window["hit_rate"]),
        _each(whole["misses_per_token"]),
        _each(window["misses_per_token"]),
        size(whole["bytes_per_token"]),
        size(window["bytes_per_token"]),
        f"{whole['aliased_refs']:,}",
    )


def _wrapped(texts: list[str], width: int) -> list[str]:
    return [line for text in filter(None, texts) for line in textwrap.wrap(printable(text), width)]


def _left_out(rows: list[Row]) -> list[str]:
    """The banks without counts, with the reason for the first."""
    if not rows:
        return []
    banks = list(dict.fromkeys(str(row.setup.bank) for row in rows))
    return [f"left out: {', '.join(banks)} ({rows[0].reason})"]


def _rate(counts: Counts | None) -> str:
    return "-" if counts is None else percent(counts.total()["hit_rate"])


def _each(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def as_document(trace: Path, seen: Seen) -> dict[str, Any]:
    """The document of `--json`, with the columns of schema.COUNTS that a replay can fill."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "trace": str(trace),
        "there": seen.there,
        "event": seen.event or None,
        "read_bytes": seen.read_bytes,
        "tokens": seen.tokens,
        "calls": seen.calls,
        "layers": 0 if seen.head is None else len(seen.head.layers),
        "tokens_per_s": seen.tokens_per_s,
        "still_s": seen.still_s,
        "window_tokens": seen.window_tokens,
        "overlap": seen.overlap,
        "aliased_recorded": seen.aliased,
        "rows": [
            {
                "bank": str(row.setup.bank),
                "policy": row.setup.policy.spec,
                "contract": row.setup.contract,
                "scope": row.setup.scope,
                "left_out": row.reason or None,
                "whole": None if row.whole is None else row.whole.total(),
                "window": None if row.window is None else row.window.total(),
            }
            for row in seen.rows
        ],
    }
