"""Strata's log, and the `matrix.json` of its benchmark.

Source: Niko1221/Strata serve/server.py, and bench/results.
"""

from __future__ import annotations

import re
from functools import partial

from flashmoe_sim.measured.documents import rows_in
from flashmoe_sim.measured.tables import real, whole
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured

ENGINE = "Strata"
KEYS = "prompt_tokens", "output_tokens", "decode_tok_s"
_DONE = re.compile(r"\[strata\] done: (\d{1,9}) tokens in \d+ s \((\d{1,9}(?:\.\d{1,6})?) tok/s\)(?: \((\w+))?")
_PROMPT = re.compile(r"\[strata\] reading the prompt: [\d,]+ of ([\d,]+) tokens")
_EXPERTS = re.compile(r"filling the GPU's expert cache \((\d{1,9}) experts")
_SPLIT = re.compile(r"layer split across GPUs \[\d+, ")
SEVERAL = "ran on several GPUs, which the system strata does not"


def detect_log(text: str) -> bool:
    return _DONE.search(text) is not None


def detect_matrix(text: str) -> bool:
    return all(f'"{key}"' in text for key in KEYS)


def read_log(text: str, where: str) -> FoundSpeeds:
    """The decode speed of each answer; the seconds of prompts are too coarse for their speed."""
    found, system, split, depth = FoundSpeeds(), "strata", False, 0
    for number, line in enumerate(text.split("\n"), 1):
        if match := _EXPERTS.search(line):
            system = f"strata:experts={match[1]}"
        elif _SPLIT.search(line):
            split = True
        elif match := _PROMPT.search(line):
            depth = min(int(match[1].replace(",", "") or 0), MOST_TOKENS)
        elif match := _DONE.search(line):
            place, tokens = f"{where}: line {number}", int(match[1])
            if match[3] == "error":
                found.left_out.append(f"{place}: the engine reported an error")
            elif found.enough(tokens, place, prompt=False):
                one = partial(Measured, where=place, engine=ENGINE, depth=depth, tokens=tokens, tok_s=float(match[2]))
                placed = {"unplaced": SEVERAL, "settings": {"elsewhere": SEVERAL}} if split else {"system": system}
                found.add(partial(one, **placed))
            depth = 0
    return found


def read_matrix(text: str, where: str) -> FoundSpeeds:
    """Prompt and decode speed of each row, of which a part of the prompt may have been kept from before."""
    found = FoundSpeeds()
    rows, torn = rows_in(text, where, lambda one: set(KEYS) <= set(one), "row")
    found.left_out.extend([torn] if torn else [])
    for place, row in ((one.where, one.values) for one in rows):
        prompt, kept, tokens = (whole(row.get(name)) or 0 for name in ("prompt_tokens", "reused", "output_tokens"))
        kept = min(kept, prompt)
        for is_prompt, count, depth, name in (
            (True, prompt - kept, kept, "prompt_tok_s"),
            (False, tokens, prompt, "decode_tok_s"),
        ):
            tok_s = real(row.get(name))
            if tok_s is None:
                found.left_out.append(f"{place}: has no {name}")
            elif found.enough(count, place, prompt=is_prompt):
                one = partial(Measured, where=place, engine=ENGINE, system="strata", prompt=is_prompt, depth=depth)
                found.add(partial(one, tokens=count, tok_s=tok_s))
    return found
