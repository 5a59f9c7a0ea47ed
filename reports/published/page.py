"""The page of published tables that were replayed."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from reports.pages import joined, table, wrapped
from reports.published import conformance
from reports.published.tables import ENGINE, LINES, SEEDS, Line, as_printed, over_seeds, shown

PAGE = Path(__file__).with_name("README.md")
HEAD = """# Tables of others, replayed

Others published hit rates of expert caches together with the routing behind them. Here are their figures beside this
program's replay of the same traces: `python -m reports.published`. One cache holds experts of all layers, and every
reference is looked up by itself.

| trace | from | licence |
|---|---|---|
| `switch-base-8`: 215 tokens, 6 layers of 8 experts, top 1 | stratamoe-lab at 08bfd806 | Apache-2.0 |
| `warp-olmoe-299`: 299 tokens, 16 layers of 64, top 8 | warp at 7f1fbba3 | Apache-2.0 |
| `warp-kimi-300`: 300 tokens, 26 layers of 256, top 8 | warp at 7f1fbba3 | Apache-2.0 |

They are of [Labeeb2339/stratamoe-lab](https://github.com/Labeeb2339/stratamoe-lab) and
[sqliteai/warp](https://github.com/sqliteai/warp), as stores of this program; nothing of them was changed.
"""
NOTES = {
    "stratamoe-lab, switch-base-8": "Both counts are exact.",
    "warp, gate 0, OLMoE": """The rule of its script of July 2026: of 32 residents drawn at random the least used goes,
uses counted over the whole run. Its draws are Python's, ours are not, so that the last digit may differ.""",
    "warp, gate 2, Kimi-Linear": """The same rule. LRU is at a cliff: a token uses 208 experts, so that it hits nothing
in 201 slots and a quarter in 208; the 5.1% are of some 206.""",
    "warp, measured in the engine": """What the engine measured, of which the table before was the promise. Its rule is
another: 16 draws, and a use counts from the install on. That rule explains the fall at 201 slots from 29.4% to 13.2%:
over {seeds} seeds it hits {lo:.1f} to {hi:.1f}%. The other figures are higher than either rule on this trace: the
engine ran another, longer text. A simulator of another cache's rule is worse than none.""",
}


def markdown() -> str:
    """The page."""
    parts = [HEAD]
    for name, lines in groupby(LINES, key=lambda line: line.table):
        rows = [(line.what, _said(line), _ours(line), "yes" if as_printed(line) else "no") for line in lines]
        note = NOTES[name]
        if name == "warp, measured in the engine":
            lo, hi = over_seeds(next(line for line in LINES if line.policy == ENGINE))
            note = note.format(seeds=len(SEEDS), lo=lo, hi=hi)
        parts += [f"## {name}", table(("what", "published", "replayed", "as printed"), rows), note]
    return wrapped(joined(*parts, conformance.section()))


def _said(line: Line) -> str:
    return f"{line.said:,.{line.digits}f}" if line.is_count else f"{line.said:.{line.digits}f}%"


def _ours(line: Line) -> str:
    return f"{shown(line):,.0f}" if line.is_count else f"{shown(line):.1f}%"


def write() -> None:
    PAGE.write_text(markdown(), encoding="utf-8")
