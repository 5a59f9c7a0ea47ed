"""Rows that the report does not judge yet, because of what they ran."""

from __future__ import annotations

import re

from reports.field.depth import depth_of
from reports.field.rows import FieldRow

# Attention counts as 4 times the bytes of its keys and values, for any engine and kind of GPU. Most rows that this was
# compared with have less in their context; at 32,768 tokens it gives 0.1 to 2.8 times the measured speeds.
MOST_DEPTH = 8192
DEEP = f"decodes at a depth of more than {MOST_DEPTH:,} tokens, which is not modelled yet"
DRAFTED = "drafts 2.4 to 3.2 tokens a pass, which is not modelled yet"
DRAFTING = ("Strata",)  # its reports, with drafts on: tokens a pass as told there
_FILLED = re.compile(r"\bfilled\b|\bat depth \d|-d \d", re.IGNORECASE)
_WHOLE = re.compile(r"\d+(?:\.0)?")


def why_not_judged(row: FieldRow) -> str:
    """Why a row is not judged; empty if it is."""
    if row.engine.startswith(DRAFTING):
        return DRAFTED
    return DEEP if filled(row) > MOST_DEPTH else ""


def filled(row: FieldRow) -> int:
    """Tokens in the context while decoding.

    As `depth_of`, which takes a large context for allocated; but not if the flags name the depth, or the rows of the
    series differ in it.
    """
    if _WHOLE.fullmatch(row.context) and (_FILLED.search(row.flags) or row.varies.startswith("context")):
        return int(float(row.context))
    return depth_of(row)
