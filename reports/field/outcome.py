"""A prediction as people get it: speeds, intervals and a note, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports.field.predict import Raw, raw_of
from reports.field.prompt_fit import Prompts, line_of
from reports.field.rows import FieldRow
from reports.field.tune import Tuned, layers_of, price_of


@dataclass(frozen=True)
class Outcome:
    """tok_s with its 90% interval, None if there is no prediction; why: the reason for that, or a note."""

    raw: Raw
    tok_s: float | None
    lo: float | None
    hi: float | None
    why: str | None

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints of a row."""
        rounded = map(_rounded, (self.tok_s, self.lo, self.hi))
        return {"id": self.raw.row.id, **dict(zip(("tok_s", "lo", "hi"), rounded, strict=True)), "why": self.why}


def outcome(raw: Raw, found: Tuned, *, blind: bool = False) -> Outcome:
    """The prediction of a priced row. blind: without the row's own hit rate."""
    if raw.blind is None:
        return Outcome(raw, None, None, None, raw.why)
    price = raw.blind if blind else price_of(raw)
    tok_s = 1 / found.cost(raw.row).seconds(price, layers_of(raw))
    return Outcome(raw, tok_s, *found.interval(raw.row, tok_s, price), "; ".join(raw.notes) or None)


def outcomes(rows: Sequence[FieldRow], found: Tuned) -> list[Outcome]:
    """The predictions of rows."""
    return [outcome(raw_of(row, found.curves), found) for row in rows]


def prompt_json(raw: Raw, found: Prompts) -> dict[str, float | None]:
    """What `--json` prints of a row's prompt: its speed with the 90% interval, or None without a price."""
    line = line_of(raw)
    speeds = (None, None, None) if line is None else (found.tok_s(line), *found.interval(line))
    return dict(zip(("prompt_tok_s", "prompt_lo", "prompt_hi"), map(_rounded, speeds), strict=True))


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
