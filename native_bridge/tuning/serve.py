"""Start a llama-server, ask it for texts, print what it answered to each but the first as a list, and end it.

    python -m native_bridge.tuning.serve PROMPT_TOKENS TOKENS REPEATS DEPTH PROGRAM [FLAGS...]

The prompts begin with the same DEPTH tokens, which the server keeps, and go on with PROMPT_TOKENS others, at least
LEAST. Each goes on differently, so that no answer repeats another one's experts.
"""

from __future__ import annotations

import json
import sys
from itertools import count

from native_bridge.llama_server import NoAnswer, RunningServer, served

LEAST = 32
KEPT = ("model", "timings", "tokens_evaluated", "tokens_predicted", "truncated")
SPEEDS = ("prompt_per_second", "predicted_per_second")  # of a prompt and an answer
PLACES = ("harbour", "workshop", "orchard", "library", "station", "kitchen", "quarry")
EVENTS = (
    "the clock stopped at noon, and a letter came that nobody had expected",
    "two brothers argued about the price of a boat, then mended it together",
    "a child asked why iron rusts, and her aunt drew the answer on the wall",
    "the river rose by a metre, so the market moved uphill for a week",
    "an old map turned out to be right about the well behind the mill",
)


def text(about: int) -> str:
    """A paragraph, another one for each number."""
    where, event = PLACES[about % len(PLACES)], EVENTS[about % len(EVENTS)]
    return f"{about}. On day {about * 37 % 365} at the {where}, {event}. What happened next, and why?\n"


def tokens_of(server: RunningServer, number: int, first: int) -> list[int]:
    """So many tokens of text, from a paragraph on."""
    found: list[int] = []
    for about in count(first):
        if len(found) >= number:
            return found[:number]
        found += server.ask("tokenize", {"content": text(about)})["tokens"]
    raise AssertionError


def main(arguments: list[str]) -> int:
    asked, tokens, repeats, depth = map(int, arguments[:4])
    prompt, answers = max(asked, LEAST), []
    try:
        with served(arguments[4:]) as server:
            before = tokens_of(server, depth, 0)
            for number in range(repeats + 1):
                question = {"prompt": [*before, *tokens_of(server, prompt, (number + 1) * (depth + prompt))]}
                asking = {"n_predict": tokens, "ignore_eos": True, "cache_prompt": depth > 0}
                answers.append(server.ask("completion", question | asking))
    except NoAnswer as error:
        print(error, file=sys.stderr)
        return error.code
    for one in answers:
        for name, timed in zip(SPEEDS, (asked > 0, tokens > 1), strict=True):
            if not timed and isinstance(one.get("timings"), dict):
                one["timings"].pop(name, None)  # of too few tokens to say how fast it was
    print(json.dumps([{name: one[name] for name in KEPT if name in one} for one in answers[1:]], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
