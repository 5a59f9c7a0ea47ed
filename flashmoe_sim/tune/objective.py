"""What the user waits for: the reading of a prompt, the tokens of an answer, or both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashmoe_sim.io.errors import Incomplete, OutOfRange, unknown_name
from flashmoe_sim.machines.belief import DRAWS, Draws
from flashmoe_sim.systems.compare import Compared

GOALS = ("decode", "prompt", "both")
ANSWER_TOKENS = 500


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Seconds to minimise.

    goal: the seconds of a token (`decode`), of a prompt (`prompt`), or of a prompt and an answer (`both`).
    prompt_tokens: of the prompt. answer_tokens: of the answer.
    """

    goal: str = "decode"
    prompt_tokens: int = 0
    answer_tokens: int = ANSWER_TOKENS

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise unknown_name("objective", self.goal, GOALS)
        if self.goal != "decode" and self.prompt_tokens < 1:
            raise Incomplete(f"--objective {self.goal}: say how long the prompt is, such as --prompt-tokens 4000")
        if self.goal == "decode" and self.prompt_tokens:
            raise Incomplete("--prompt-tokens says how long a prompt to read; add --objective prompt or both")
        if self.answer_tokens < 1:
            raise OutOfRange(f"an answer of {self.answer_tokens} tokens; expected 1 or more")

    @property
    def tokens(self) -> int:
        """Of the prompt and the answer that the context must hold."""
        return self.prompt_tokens + (self.answer_tokens if self.goal == "both" else 0)

    def seconds(self, found: Compared) -> float | None:
        """Seconds of a system in a comparison; None if it cannot run, or its prompt was not timed."""
        if found.tok_s is None or (self.goal != "decode" and found.prompt_tok_s is None):
            return None
        return float(self._seconds(found.tok_s, found.prompt_tok_s))

    def draws_s(self, found: Compared) -> Draws:
        """Seconds of a system that runs, in every draw: f64 [512]; inf if its prompt was not timed."""
        assert found.draws is not None
        if self.goal != "decode" and found.prompt_draws is None:
            return np.full(DRAWS, np.inf)
        return np.asarray(self._seconds(found.draws, found.prompt_draws))

    def _seconds(self, tok_s: float | Draws, prompt_tok_s: float | Draws | None) -> float | Draws:
        token_s = 1 / tok_s
        if self.goal == "decode":
            return token_s
        assert prompt_tok_s is not None
        prompt_s = self.prompt_tokens / prompt_tok_s
        return prompt_s if self.goal == "prompt" else prompt_s + self.answer_tokens * token_s
