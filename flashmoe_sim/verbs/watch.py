"""`sim watch`: what banks would hit, while the trace is being written."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.cells import Column, count, decimals, percent, table
from flashmoe_sim.io.errors import Missing
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import LENIENT, MODEL, option, option_field
from flashmoe_sim.question import SIZES, SeveralOptions, bank_meaning
from flashmoe_sim.verbs.base import Live, LiveVerb

if TYPE_CHECKING:
    from flashmoe_sim.policies.bank import OneBank
    from flashmoe_sim.residency.counts import Counts
    from flashmoe_sim.sweep.watch import Look, Row, Watcher
    from flashmoe_sim.verbs.given import Model

SHARE = 0.02  # of a core, which looks may take from the watched program
LONGEST_PAUSE_S = 5.0
STILL_S = 10.0  # a trace that did not grow for so long is said to be still
DISPENSABLE = ("aliased", "read/tok", "last read", "miss/tok", "last miss")


@dataclass(frozen=True, kw_only=True)
class Watch(SeveralOptions, LiveVerb["Look"]):
    """Count what banks hit in a trace that is still being written.

    Raises BadInput for unknown words, and for a policy that needs the whole trace.
    """

    help: ClassVar[str] = """Follow TRACE while the patched runtime writes it (--moe-trace): what banks would hit.

    The counts equal those of `sim replay` for the same bytes. TRACE may be cut or replaced, or not be there yet.
    Ctrl-C prints the last table, with the exit code 0. Without a terminal it prints one line per look; with --json,
    one object.

    \b
    Examples:  sim watch trace.jsonl --model sidecar/
               sim watch trace.jsonl --bank 32,64 --policy lru,lfu --window 512
               sim watch trace.jsonl --json --every 10 >> hits.ndjson
    """

    trace: Path = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    bank: OneBank = field(default="16..256", metadata=SIZES)
    model: Model | None = field(default=None, metadata=MODEL)
    window: int = option_field(
        256, "N", "Also count the last N tokens (at most an eighth more) separately.", least=1, most=1_000_000
    )
    every_s: float = option_field(
        1.0,
        "SECONDS",
        "Look for new calls this often; less often if looking takes more than 2% of a core.",
        flag="--every",
        least=0.1,
        most=3600,
    )
    once: bool = option_field(False, "", "Print the present state, and stop.")
    lenient: bool = field(default=False, metadata=LENIENT)

    def run(self, live: Live | None = None) -> Look:
        """Look until it is stopped; or once, without `live` too."""
        watch = self._begun()
        if self.once or live is None:
            seen = watch.look(time.monotonic())
            if not seen.there:
                raise Missing(f"{self.trace}: no such file; give the path of a trace, or wait for it without --once")
            return seen
        first, stopped, pause_s = True, False, self.every_s
        with live:
            while not stopped:
                began_s = time.process_time()
                seen = watch.look(time.monotonic())
                live.show(seen, f"{self.trace}: {seen.event}" if seen.event else "")
                if first:  # this look loaded kernels, while more was written
                    watch.forget_rate()
                else:
                    pause_s = max(self.every_s, min((time.process_time() - began_s) / SHARE, LONGEST_PAUSE_S))
                first, stopped = False, live.pause(pause_s)
        return watch.look(time.monotonic())

    def _begun(self) -> Watcher:
        """A watcher that has not looked yet."""
        from flashmoe_sim.residency.growing import why_not_while_written
        from flashmoe_sim.sweep.plan import names_all, plan_sweep
        from flashmoe_sim.sweep.watch import Watcher
        from flashmoe_sim.verbs.given import model_of

        setups, _ = plan_sweep(self)
        if names_all(self.policy):
            setups = [setup for setup in setups if not why_not_while_written(setup)]
        geometry = model_of(self.model)
        return Watcher(self.trace, setups, geometry=geometry, window_tokens=self.window, lenient=self.lenient)

    def line(self, found: Look) -> str:
        """As much as fits a line: the hit rates, with the window's in brackets."""
        if found.head is None:
            return self._status(found)
        several = len({row.setup.policy for row in found.rows}) > 1
        rates = [
            f"{row.setup.bank}{f' {row.setup.policy.spec}' if several else ''} {_hits(row.whole)} ({_hits(row.window)})"
            for row in found.rows
            if row.whole is not None
        ]
        drift = f"; {_drift(found)}" if found.overlap is not None else ""
        hits = f"hit % (last {found.window_tokens:,} tokens): {', '.join(rates) or '-'}"
        return f"{self._status(found)}{drift}; {hits}"

    def sections(self, found: Look) -> list[Section]:
        """How long the trace is, and a row for each bank."""
        if found.head is None:
            return [Section("", (self._status(found),))]
        setup, several = found.rows[0].setup, len({row.setup.policy.spec for row in found.rows}) > 1
        policy = "" if several else f"{setup.policy.spec}, "
        what = f"{policy}bank: {bank_meaning(setup)}, contract {setup.contract}"
        return [Section("", (self._status(found), what, _banks(found)))]

    def document(self, found: Look) -> dict[str, Any]:
        """What `--json` prints of a look, with the columns of schema.COUNTS that a replay can fill."""
        return {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "trace": str(self.trace),
            "there": found.there,
            "event": found.event or None,
            "read_bytes": found.read_bytes,
            "tokens": found.tokens,
            "calls": found.calls,
            "layers": 0 if found.head is None else len(found.head.layers),
            "tokens_per_s": found.tokens_per_s,
            "still_s": found.still_s,
            "window_tokens": found.window_tokens,
            "overlap": found.overlap,
            "aliased_recorded": found.aliased,
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
                for row in found.rows
            ],
        }

    def _status(self, seen: Look) -> str:
        """How long the trace is and how fast it grows, or why there is none."""
        if seen.head is None:
            return f"{self.trace}: {'no routed calls in it yet' if seen.there else 'no such file yet: waiting for it'}"
        speed = "" if seen.tokens_per_s is None else f", {seen.tokens_per_s:.1f} tok/s"
        if seen.still_s >= STILL_S:
            speed += f", still for {seen.still_s:.0f} s"
        gone = "" if seen.there else ", and now gone: waiting for it"
        layers = len(seen.head.layers)
        counted = f"{seen.tokens:,} tokens, {seen.calls:,} calls, {layers} layer{'' if layers == 1 else 's'}"
        return f"{self.trace.name}: {counted}{speed}{gone}"


def _banks(seen: Look) -> Table:
    """A row for each bank that has counts."""
    counted = [row for row in seen.rows if row.whole is not None]
    columns: list[Column] = [
        ("bank", "right", lambda row: str(row[0].bank)),
        ("policy", "left", lambda row: row[0].policy.spec),
        ("hit %", "right", lambda row: percent(row[1]["hit_rate"])),
        ("last", "right", lambda row: percent(row[2]["hit_rate"])),
        ("miss/tok", "right", lambda row: decimals(row[1]["misses_per_token"])),
        ("last miss", "right", lambda row: decimals(row[2]["misses_per_token"])),
        ("read/tok", "right", lambda row: size(row[1]["bytes_per_token"])),
        ("last read", "right", lambda row: size(row[2]["bytes_per_token"])),
        ("aliased", "right", lambda row: count(row[1]["aliased_refs"])),
    ]
    unused = {"policy"} if len({row.setup.policy.spec for row in seen.rows}) == 1 else set()
    if not any(row.whole is not None and row.whole.expert_bytes for row in counted):
        unused |= {"read/tok", "last read"}
    if seen.rows[0].setup.contract != "runtime":
        unused.add("aliased")
    caption = [f"last: of the last {seen.window_tokens:,} tokens", _drift(seen)]
    if seen.aliased is not None:
        caption.append(f"aliased slots recorded: {seen.aliased:,}")
    caption += _left_out([row for row in seen.rows if row.whole is None])
    return table(
        [column for column in columns if column[0] not in unused],
        [
            (row.setup, row.whole.total(), row.window.total())
            for row in counted
            if row.whole is not None and row.window is not None
        ],
        caption="; ".join(filter(None, caption)),
        dispensable=DISPENSABLE,
    )


def _drift(seen: Look) -> str:
    return "" if seen.overlap is None else f"overlap with as many before {percent(seen.overlap)}%"


def _left_out(rows: list[Row]) -> list[str]:
    """The banks without counts, with the reason for the first."""
    if not rows:
        return []
    banks = list(dict.fromkeys(str(row.setup.bank) for row in rows))
    return [f"left out: {', '.join(banks)} ({rows[0].reason})"]


def _hits(counts: Counts | None) -> str:
    return percent(None if counts is None else counts.total()["hit_rate"])
