"""What ktransformers' local_chat prints below an answer: the words of Ollama, with seconds and all digits of a float.

Source: kvcache-ai/ktransformers ktransformers/util/utils.py.
"""

from __future__ import annotations

import re
from functools import partial

from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured

ENGINE = "ktransformers"
UNPLACED = "ktransformers does not print how many experts were on the GPU (--measured ktransformers:experts=N=TOK/S)"
_COUNT = re.compile(r"(prompt )?eval count:\s*(\d{1,9}) token")
_RATE = re.compile(r"(prompt )?eval rate:\s*(\d{1,12}\.\d{4,40}) tokens/s")


def detect(text: str) -> bool:
    return _RATE.search(text) is not None


def read(text: str, where: str) -> FoundSpeeds:
    """The decode speed of each answer, and the speed of its prompt, which has few tokens in a chat."""
    found, counts = FoundSpeeds(), {True: 0, False: 0}
    for number, line in enumerate(text.split("\n"), 1):
        if match := _COUNT.search(line):
            counts[bool(match[1])] = min(int(match[2]), MOST_TOKENS)
        elif match := _RATE.search(line):
            prompt, place = bool(match[1]), f"{where}: line {number}"
            if found.enough(counts[prompt], place, prompt=prompt):
                one = partial(Measured, where=place, engine=ENGINE, unplaced=UNPLACED, prompt=prompt)
                given = {"depth": 0 if prompt else counts[True], "tokens": counts[prompt], "tok_s": float(match[2])}
                found.add(partial(one, **given, settings={"elsewhere": UNPLACED}))
    return found
