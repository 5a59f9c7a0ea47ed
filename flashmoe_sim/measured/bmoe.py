"""BigMoeOnEdge: the lines below an answer, and its CSV with a row for each decoded token (`bmoe_metrics v1`).

Source: Helldez/BigMoeOnEdge 2d4f2b1, docs/bench-data. Its mean over the CSV's `wall_ms` is the speed that it prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from flashmoe_sim.measured.tables import csv_rows, real
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of

ENGINE, SYSTEM = "BigMoeOnEdge", "big-moe-on-edge"
COLUMNS = "step", "steps", "wall_ms", "io_ms", "compute_ms"
_X = r"(\d{1,9}(?:\.\d{1,9})?)"
_GENERATION = re.compile(rf"generation: (\d{{1,9}}) tokens, {_X} s/token \({_X} tok/s\)")
_PREFILL = re.compile(rf"prefill: (\d{{1,9}}) tokens, {_X} s \({_X} tok/s\)")
_BUDGET = re.compile(rf"(?:budget {_X} MiB|cache=(\d{{1,7}}) MiB|--cache-mb[ =](\d{{1,7}}))")
_RESIDENT = re.compile(rf"moe-cache: .*resident {_X} MiB")
_MODEL = re.compile(r"(?:-m|--model) +(\S+\.gguf)|\bmodel=(.+?\.gguf)")
_SETTING = re.compile(r"\b(n_expert_used|threads|moe_stream|cache_mb|cache_auto|overlap|prefetch)=(\d{1,9})\b")
NO_STREAM = "did not stream the experts"
NO_OVERLAP = "did not compute hits while it read (overlap)"
AHEAD = "prefetched experts, which the system big-moe-on-edge does not"


def detect_log(text: str) -> bool:
    return _GENERATION.search(text) is not None


def detect_csv(text: str) -> bool:
    return next(csv_rows(text, *COLUMNS), None) is not None


def read_log(text: str, where: str) -> FoundSpeeds:
    """Decode and prompt speed of each answer. What the engine says of an answer stands below its speed."""
    found, lines, model = FoundSpeeds(), text.split("\n"), ""
    begins = [number for number, line in enumerate(lines) if _GENERATION.search(line)]
    start = 0
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        before, below = lines[start:begin], lines[begin:end]
        budget = _last(_BUDGET, before) or _last(_BUDGET, below) or _last(_RESIDENT, below)
        model = _last(_MODEL, before) or model
        text_below = "\n".join(below)
        stream = {
            "moe_stream": int("moe-stream:" in text_below),
            "cache_mb": round(float(budget or 0)),
            "overlap": int("moe-overlap:" in text_below),
            "prefetch": int("moe-prefetch:" in text_below or "moe-spec-gate:" in text_below),
        }
        prefill = next(filter(None, map(_PREFILL.search, below)), None)
        match = _GENERATION.search(lines[begin])
        assert match is not None
        read_tokens = int(prefill[1]) if prefill else 0
        _add(found, f"{where}: line {begin + 1}", stream, model, tokens=int(match[1]), depth=read_tokens,
             tok_s=float(match[3]), prompt=False)  # fmt: skip
        if prefill:
            place = f"{where}: line {begin + 1 + next(n for n, line in enumerate(below) if _PREFILL.search(line))}"
            _add(found, place, stream, model, tokens=read_tokens, depth=0, tok_s=float(prefill[3]), prompt=True)
        start = begin + 1
    return found


def read_csv(text: str, where: str) -> FoundSpeeds:
    """The mean decode speed of each turn. How long the prompt was is not in the file: its depth counts as 0."""
    found, turns = FoundSpeeds(), dict[str, list[float]]()
    lines: dict[str, int] = {}
    for number, row in csv_rows(text, *COLUMNS):
        ms = real(row["wall_ms"])
        if ms is not None and ms > 0:
            turns.setdefault(row.get("turn", ""), []).append(ms)
            lines.setdefault(row.get("turn", ""), number)
    comments = "\n".join(line for line in text.split("\n") if line.startswith("#"))
    given = {name: int(value) for name, value in _SETTING.findall(comments)} or None
    if given and given.get("cache_auto"):
        given.pop("cache_mb", None)
    model = _last(_MODEL, comments.split("\n"))
    for turn, each_ms in turns.items():
        place, tok_s = f"{where}: line {lines[turn]}", 1e3 * len(each_ms) / sum(each_ms)
        _add(found, place, given, model, tokens=len(each_ms), depth=0, tok_s=tok_s, prompt=False)
    return found


def _add(
    found: FoundSpeeds,
    place: str,
    stream: Mapping[str, int] | None,
    model: str,
    *,
    tokens: int,
    depth: int,
    tok_s: float,
    prompt: bool,
) -> None:
    if found.enough(tokens, place, prompt=prompt):
        one = partial(Measured, where=place, engine=ENGINE, model=model, quant=quant_of(model), prompt=prompt)
        given = {"tokens": min(tokens, MOST_TOKENS), "depth": min(depth, MOST_TOKENS), "tok_s": tok_s}
        found.add(partial(one, **given, **_placed(stream)))


def _placed(stream: Mapping[str, int] | None) -> dict[str, Any]:
    """The system of a run, or why it is none. stream: how it read its experts; None if unknown."""
    if stream is None:
        return {"system": SYSTEM}
    threads = {"threads": str(stream["threads"])} if stream.get("threads") else {}
    why = ""
    if not stream.get("moe_stream"):
        why = NO_STREAM
    elif not stream.get("overlap", 1):
        why = NO_OVERLAP
    elif stream.get("prefetch"):
        why = AHEAD
    if why:
        return {"unplaced": why, "settings": {"elsewhere": why, **threads}}
    words = [SYSTEM, *([f"cache_mib={stream['cache_mb']}"] if stream.get("cache_mb") else [])]
    words += [f"top_k={stream['n_expert_used']}"] if stream.get("n_expert_used") else []
    return {"system": ":".join(words), "settings": threads}


def _last(pattern: re.Pattern[str], lines: list[str]) -> str:
    """The last text that a pattern finds in any of its groups; empty if it finds none."""
    for line in reversed(lines):
        if match := pattern.search(line):
            return next(filter(None, match.groups()), "")
    return ""
