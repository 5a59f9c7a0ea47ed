"""The table of llama-benchy, which measures any server through its API.

A request at depth D has D tokens before its prompt. Without a cache of prefixes the server reads both, and the speed is
of both: the time beside it, `est_ppt`, tells.
Source: eugr/llama-benchy; files of Gabe298/vLLM-llama-benchy-testing-result.
"""

from __future__ import annotations

import re
from functools import partial

from flashmoe_sim.measured.tables import real, tables
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of

COLUMNS = "model", "test", "t/s"
OWN = "peak t/s", "ttfr (ms)", "est_ppt (ms)", "e2e_ttft (ms)", "peak t/s (req)", "t/s (req)"
UNPLACED = "was measured through a server's API, and the table does not name the engine"
_TEST = re.compile(r"(ctx_)?(pp|tg)(\d{1,9})(?: @ d(\d{1,9}))?(?: \(c(\d{1,6})\))?")
_SPEED = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?: *(?:±|\+/?-) *(\d{1,9}(?:\.\d{1,9})?))?")
SAME = 0.03


def detect(text: str) -> bool:
    return any(set(OWN) & set(row) for _, row in tables(text, *("model", "test")) if "t/s" in row or "t/s (req)" in row)


def read(text: str, where: str) -> FoundSpeeds:
    """Prompt and decode speed of each row of one request at a time."""
    found, prompts = FoundSpeeds(), dict[tuple[str, int], int]()
    for number, row in tables(text, "model", "test"):
        place, test = f"{where}: line {number}", _TEST.fullmatch(row["test"])
        speed = _SPEED.fullmatch(row.get("t/s") or row.get("t/s (req)", ""))
        if test is None or speed is None:
            found.left_out.append(f"{place}: has no test such as pp2048 or tg128 @ d4096, or no speed")
            continue
        if int(test[5] or 1) != 1:
            found.left_out.append(f"{place}: {int(test[5])} requests at once; measure one at a time: --concurrency 1")
            continue
        tokens, depth, prompt = int(test[3]), int(test[4] or 0), test[2] == "pp"
        tok_s, sd = float(speed[1]), float(speed[2] or 0)
        if prompt and test[1]:
            tokens, depth = (depth or tokens), 0
        elif prompt:
            prompts[row["model"], depth] = tokens
            ms = real(row.get("est_ppt (ms)", "").partition("±")[0])
            if ms and abs(tok_s * ms / 1e3 - tokens - depth) < SAME * (tokens + depth):
                tokens, depth = tokens + depth, 0
        else:
            depth += prompts.get((row["model"], depth), 0)
        if found.enough(tokens, place, prompt=prompt):
            one = partial(Measured, where=place, unplaced=UNPLACED, model=row["model"], quant=quant_of(row["model"]))
            given = {"depth": min(depth, MOST_TOKENS), "tokens": min(tokens, MOST_TOKENS), "tok_s": tok_s}
            relative = {"sd": sd / tok_s if sd and tok_s else None, "settings": {"elsewhere": UNPLACED}}
            found.add(partial(one, prompt=prompt, **given, **relative))
    return found
