"""llama-server, of llama.cpp and of its forks: started with exactly the line that is recommended, and asked for texts.

Source: ggml-org/llama.cpp tools/server/README.md: /completion, /tokenize and `timings`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar

from flashmoe_sim.io.errors import Unusable
from native_bridge.tuning.program import Printed, Program, Wanted, place_of_server

CACHE = "--moe-cache-mib"
ASKS = [sys.executable, "-P", "-m", "native_bridge.tuning.serve"]
FEWER = 0.05  # of the tokens that were asked for


class TextProgram(Program):
    """A program that is run with the line that is named, and gives times as llama-server does."""

    def asked(self, wanted: Wanted) -> list[str]:
        """What its runner is given before the line."""
        tokens = wanted.tokens if wanted.decodes else 1
        return [str(each) for each in (wanted.prompt_tokens, tokens, wanted.repeats, wanted.depth)]

    def with_model(self, words: Sequence[str], model: Path) -> list[str]:
        """The line with the model's file."""
        line = list(words)
        line[line.index("-m") + 1] = str(model)
        return line

    def read(self, text: str, words: Sequence[str], wanted: Wanted, *, model_bytes: int) -> Printed:
        repeats = [_Repeat.of(one, wanted) for one in _responses(text)]
        if not repeats:
            raise Unusable("printed no speed")
        totals = [one.prompt_s + one.answer_s for one in repeats]
        return Printed(
            fmean(totals),
            stdev(totals) / fmean(totals) / len(totals) ** 0.5 if len(totals) > 1 else 0.0,
            sum(one.timed_s for one in repeats),
            totals[0] / totals[-1],
        )


class LlamaServer(TextProgram):
    """A llama-server. It also runs any other system whose flags it has, if that is named."""

    name = "llama-server"
    maps: ClassVar[frozenset[str]] = frozenset({"-lm", "--load-mode", "--no-mmap"})
    any_system = True
    drafts = True

    @property
    def is_ik(self) -> bool:
        return bool({"-rtr", "--run-time-repack"} & self.flags)

    @property
    def systems(self) -> tuple[str, ...]:
        return (*super().systems, *(["cached"] if CACHE in self.flags and not self.is_ik else []))

    def lacking(self, words: Sequence[str]) -> str:
        at = place_of_server(words)
        if at is None:
            return self.name
        return next((word for word in words[at + 1 :] if word.startswith("-") and word not in self.flags), "")

    def command(self, words: Sequence[str], model: Path, wanted: Wanted) -> list[str]:
        return [*ASKS, *self.asked(wanted), *self.with_model(words, model)]


@dataclass(frozen=True)
class _Repeat:
    """Seconds of the objective's prompt and answer; timed_s: of the tokens that were computed."""

    prompt_s: float
    answer_s: float
    timed_s: float

    @classmethod
    def of(cls, timings: Mapping[str, Any], wanted: Wanted) -> _Repeat:
        goal, asked = wanted.objective, wanted.prompt_tokens
        prompt_ms, prompt_n = _timed(timings, "prompt")
        answer_ms, answer_n = _timed(timings, "predicted")
        if asked and abs(prompt_n - asked) > max(FEWER * asked, 1):
            why = f"computed {prompt_n:,} tokens of a prompt where {asked:,} were asked"
            raise Unusable(f"{why}: it does not keep the context before; llama-bench measures at a depth")
        if wanted.decodes and answer_n < (1 - FEWER) * wanted.tokens:
            raise Unusable(f"generated {answer_n:,} tokens where {wanted.tokens:,} were asked")
        answer_tokens = (1 if goal.goal == "decode" else goal.answer_tokens) if wanted.decodes else 0
        return cls(
            asked * prompt_ms / prompt_n / 1e3,
            answer_tokens * answer_ms / answer_n / 1e3,
            (prompt_ms + answer_ms) / 1e3,
        )


def _timed(timings: Mapping[str, Any], part: str) -> tuple[float, int]:
    """The milliseconds of the prompt or the answer, and its tokens."""
    ms, tokens = timings.get(f"{part}_ms"), timings.get(f"{part}_n")
    if not isinstance(ms, (int, float)) or not isinstance(tokens, int) or not (ms > 0 and tokens > 0):
        raise Unusable(f"printed no speed: {part}_ms {ms!r} and {part}_n {tokens!r}")
    return float(ms), tokens


def _responses(text: str) -> list[Mapping[str, Any]]:
    """The timings of each response."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return []
    timings = [one.get("timings") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [one for one in timings if isinstance(one, dict)]
