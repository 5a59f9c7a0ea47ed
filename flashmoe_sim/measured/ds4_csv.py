"""The CSV of ds4-bench: a row for each depth, whose prompt goes on from the row before.

Source: antirez/ds4 speed-bench/README.md.
"""

from __future__ import annotations

from functools import partial

from flashmoe_sim.measured.tables import csv_rows, real, whole
from flashmoe_sim.measured.value import FoundSpeeds, Measured

ENGINE = SYSTEM = "ds4"
COLUMNS = "ctx_tokens", "prefill_tps", "gen_tps"


def detect(text: str) -> bool:
    return next(csv_rows(text, *COLUMNS), None) is not None


def read(text: str, where: str) -> FoundSpeeds:
    """Prompt and decode speed of each row: ctx_tokens are in the context after the prompt."""
    found, before = FoundSpeeds(), 0
    for number, row in csv_rows(text, *COLUMNS):
        place, context = f"{where}: line {number}", whole(row["ctx_tokens"])
        if context is None:
            found.left_out.append(f"{place}: has no ctx_tokens")
            continue
        prompt = whole(row.get("prefill_tokens", "")) or max(context - before, 0)
        tokens = whole(row.get("gen_tokens", ""))
        before = context
        for is_prompt, count, depth, name in (
            (True, prompt, max(context - prompt, 0), "prefill_tps"),
            (False, tokens, context, "gen_tps"),
        ):
            tok_s = real(row[name])
            if tok_s is None:
                found.left_out.append(f"{place}: has no {name}")
            elif count is None or found.enough(count, place, prompt=is_prompt):
                one = partial(Measured, where=place, engine=ENGINE, system=SYSTEM, prompt=is_prompt, depth=depth)
                found.add(partial(one, tokens=count, tok_s=tok_s))
    return found
