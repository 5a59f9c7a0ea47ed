"""The history of runs that neurall's fork of llama.cpp keeps: a CSV with a row for each run.

Source: neurall/llama.cpp 04be905d, tools/bench/run-history.csv.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

from flashmoe_sim.measured.tables import csv_rows, real, whole
from flashmoe_sim.measured.value import FoundSpeeds, Measured, quant_of
from flashmoe_sim.systems.llama_flags import settings_of_command, system_of

COLUMNS = "ts", "commit", "tps", "pp", "hit", "model", "test", "ok"
AUTO = re.compile(r"--moe-expert-cache -1\b")
CACHE = re.compile(r"--moe-expert-cache\b")
_PROMPT = re.compile(r"\bprompt_n=(\d{1,9})\b")
PERPLEXITY = re.compile(r"^ppl")


def detect(text: str) -> bool:
    return next(csv_rows(text, *COLUMNS), None) is not None


def read(text: str, where: str) -> FoundSpeeds:
    """The decode speed of each run that succeeded, and its prompt's if the note says how long that was."""
    found, left = FoundSpeeds(), Counter[str]()
    for number, row in csv_rows(text, *COLUMNS):
        place, tok_s = f"{where}: line {number}", real(row["tps"])
        if row["ok"] != "1" or tok_s is None:
            left["failed"] += 1
        elif PERPLEXITY.match(row["test"]):
            left["are of perplexity, which reads text one token at a time"] += 1
        elif (whole(row.get("pl", "")) or 1) != 1:
            left["are of several requests at once; measure one at a time"] += 1
        else:
            _add(found, row, place, tok_s)
    found.left_out.extend(f"{where}: {count:,} of its runs {why}" for why, count in left.items())
    return found


def _add(found: FoundSpeeds, row: dict[str, str], place: str, tok_s: float) -> None:
    model, note = row["model"], _PROMPT.search(row.get("note", ""))
    prompt, tokens = int(note[1]) if note else 0, whole(row.get("n_gen", ""))
    for is_prompt, count, depth, speed in ((True, prompt, 0, real(row["pp"])), (False, tokens, prompt, tok_s)):
        if speed is None or (is_prompt and not prompt):
            continue
        if count is None or found.enough(count, place, prompt=is_prompt):
            system, unplaced, settings = _placed(row, prompt=is_prompt)
            one = partial(Measured, where=place, engine="llama.cpp, neurall's fork", system=system, unplaced=unplaced)
            given = {"model": model, "quant": quant_of(model), "depth": depth, "tokens": count or None}
            found.add(partial(one, prompt=is_prompt, tok_s=speed, settings=settings, **given))


def _placed(row: dict[str, str], *, prompt: bool) -> tuple[str, str, dict[str, str]]:
    """The system, why there is none, and the settings of a run's command."""
    command, environment = f"{row.get('cmd', '')} {row.get('args', '')}", row.get("env", "").strip()
    settings = settings_of_command(command)
    settings.pop("model", None)
    if environment and environment != "{}" and CACHE.search(command):
        why = "has settings of the cache in its environment"
    elif AUTO.search(command):
        return "neurall", "", settings
    elif CACHE.search(command):
        why = "has a cache of a size that the row does not tell in slots"
    else:
        system, why = system_of(settings, engine="llama.cpp", prompt=prompt)
        return system, why, settings
    return "", why, settings | {"elsewhere": why}
