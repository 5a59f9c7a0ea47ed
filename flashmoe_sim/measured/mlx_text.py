"""What mlx_lm.benchmark and mlx_lm.generate print.

Source: ml-explore/mlx-lm mlx_lm/benchmark.py and mlx_lm/generate.py.
"""

from __future__ import annotations

import re
from functools import partial
from statistics import mean, stdev
from typing import NamedTuple

from flashmoe_sim.measured.value import FoundSpeeds, Measured, mlx_quant_of

_X = r"(\d{1,9}(?:\.\d{1,20})?)"
_TIMING = re.compile(r"Timing with prompt_tokens=(\d{1,9}), generation_tokens=(\d{1,9}), batch_size=(\d{1,6})")
_SPEEDS = re.compile(rf"(Trial \d+|Averages):\s*prompt_tps={_X},? generation_tps={_X}")
_GENERATE = re.compile(rf"(Prompt|Generation): (\d{{1,9}}) tokens?, {_X} tokens-per-sec")
_MODEL = re.compile(r"mlx_(?:lm|vlm)\S*\s.*?--model[ =]+(\S+)")
_DRAFTS = re.compile(r"mlx_(?:lm|vlm)\S*\s.*--draft-model")


class _Timed(NamedTuple):
    """Tokens that were timed, at a depth, and their speed. sd: relative; None of a single timing."""

    prompt: bool
    tokens: int
    depth: int
    tok_s: float
    sd: float | None = None


def detect(text: str) -> bool:
    return _SPEEDS.search(text) is not None or _GENERATE.search(text) is not None


def read(text: str, where: str) -> FoundSpeeds:
    """Prompt and decode speed of each average, or of the trials before one that is missing; and of each answer."""
    found, model = FoundSpeeds(), ""
    add = partial(_add, found, drafts=_DRAFTS.search(text) is not None)
    timing, trials = (0, 0, 1), list[tuple[float, float]]()
    begin = last = prompt = 0

    def averaged(line: int, speeds: tuple[float, float]) -> None:
        nonlocal trials
        place = f"{where}: line {line}"
        if timing[2] != 1:
            found.left_out.append(f"{place}: {timing[2]} prompts at once; measure one at a time: --batch-size 1")
        else:
            for number, (tokens, depth) in enumerate(((timing[0], 0), (timing[1], timing[0]))):
                of_trials = [trial[number] for trial in trials]
                sd = stdev(of_trials) / mean(of_trials) if len(trials) > 1 else None
                add(place, model, _Timed(not number, tokens, depth, speeds[number], sd))
        trials = []

    for number, line in enumerate(text.split("\n"), 1):
        if match := _MODEL.search(line):
            model = match[1].strip("\"'\\")
        if match := _TIMING.search(line):
            if trials:
                averaged(last, (mean(one[0] for one in trials), mean(one[1] for one in trials)))
            timing, begin = (int(match[1]), int(match[2]), int(match[3])), number
        elif match := _SPEEDS.search(line):
            speeds = float(match[2]), float(match[3])
            if match[1] != "Averages":
                trials.append(speeds)
                last = number
            elif begin:
                averaged(number, speeds)
            else:
                above = "give the line above it too, `Timing with …`, which says how many tokens were timed"
                found.left_out.append(f"{where}: line {number}: {above}")
        elif match := _GENERATE.search(line):
            tokens, its_prompt = int(match[2]), match[1] == "Prompt"
            prompt = tokens if its_prompt else prompt
            depth = 0 if its_prompt else prompt
            place = f"{where}: line {number}"
            add(place, model, _Timed(its_prompt, tokens, depth, float(match[3])))
    if trials and begin:
        averaged(last, (mean(one[0] for one in trials), mean(one[1] for one in trials)))
    return found


def _add(found: FoundSpeeds, place: str, model: str, timed: _Timed, *, drafts: bool) -> None:
    if found.enough(timed.tokens, place, prompt=timed.prompt):
        unplaced = "was measured with drafts" if drafts and not timed.prompt else ""
        one = partial(Measured, where=place, engine="mlx", system="" if unplaced else "mlx", unplaced=unplaced)
        of = partial(one, model=model, quant=mlx_quant_of(model), prompt=timed.prompt, depth=timed.depth)
        found.add(partial(of, tokens=timed.tokens, tok_s=timed.tok_s, sd=timed.sd or None))
