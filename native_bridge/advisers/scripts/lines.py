"""What all programs beside this file share: questions as JSON lines on stdin, an answer or a refusal for each."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any


class Refused(Exception):
    """The program has no answer; the text says why."""


Question = dict[str, Any]


def _no_memory(question: Question) -> float:
    raise Refused("says nothing of a GPU's memory")


def answer_all(
    ask: Callable[[Question], tuple[float, float | None, float | None]],
    version: str,
    gpu_gib: Callable[[Question], float] = _no_memory,
) -> None:
    """Print the version, and an answer to each question: tok_s, lo and hi; gpu_gib if that is wanted; or why_not.

    One question never ends the others.
    """
    print(json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        answer: dict[str, Any] = {"id": question["id"]}
        try:
            if question.get("wants") == "gpu_gib":
                answer["gpu_gib"] = gpu_gib(question)
            else:
                answer |= dict(zip(("tok_s", "lo", "hi"), ask(question), strict=True))
        except Refused as error:
            answer["why_not"] = str(error)
        except Exception as error:  # of a foreign program: its failure is an answer, too
            answer["why_not"] = f"fails: {type(error).__name__}: {error}"[:200]
        print(json.dumps(answer), flush=True)


def nearest_quant(question: dict[str, Any], known: Mapping[str, float]) -> str:
    """The quantization with the question's name, or else the one nearest in bits. known: bits of each."""
    told = question["quant"].upper()
    if told in known:
        return told
    bits = question["file_gib"] * 2**30 * 8 / (question["total_b"] * 1e9)
    return min(known, key=lambda name: abs(math.log(known[name] / bits)))
