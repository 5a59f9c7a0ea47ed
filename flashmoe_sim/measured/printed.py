"""Lines that programs for chatting print below an answer: `ollama run --verbose`, and LM Studio."""

from __future__ import annotations

import re
from functools import partial

from flashmoe_sim.measured.dress import NUMBER, figure, two_meanings, undressed, whole
from flashmoe_sim.measured.llama_log import MOST_LINE
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of

_RATE = re.compile(rf"(prompt )?eval rate:\s*(?!\d+\.\d{{4}}){NUMBER} tokens/s")  # ktransformers prints more digits
_COUNT = re.compile(rf"(prompt )?eval count:\s*{NUMBER} token")
_RUN = re.compile(r"\bollama run\s+(?:-\S+\s+)*([^\s-]\S*)")
_PS = re.compile(r"^(\S+:\S+)\s+[0-9a-f]{12}\s.*?\s(\d+%(?:/\d+%)?) (GPU|CPU|CPU/GPU)\b")
_LM_STUDIO = re.compile(rf"{NUMBER} tok/sec\b\W*{NUMBER} tokens\b")


def detect_ollama(text: str) -> bool:
    return _RATE.search(text) is not None


def detect_lm_studio(text: str) -> bool:
    return _LM_STUDIO.search(text) is not None


def read_ollama(text: str, where: str) -> FoundSpeeds:
    """Each block of `ollama run --verbose`; a line of `ollama ps` says where the model is."""
    found, model, prompt_tokens, tokens = FoundSpeeds(), "", 0, 0
    system, unplaced = _processor(text)
    for number, line in enumerate(text.split("\n"), 1):
        if match := _RUN.search(line):
            model = match[1]
        elif match := _COUNT.search(line):
            count = min(whole(match[2]) or 0, MOST_TOKENS)
            prompt_tokens, tokens = (count, 0) if match[1] else (prompt_tokens, count)
        elif match := _RATE.search(line):
            prompt, place = bool(match[1]), f"{where}: line {number}"
            timed = prompt_tokens if prompt else tokens
            tok_s = figure(match[2])
            if tok_s is None:
                found.left_out.append(f"{place}: {two_meanings(match[2])}")
            elif found.enough(timed, place, prompt=prompt):
                one = partial(
                    Measured,
                    where=place,
                    engine="ollama",
                    system=system,
                    unplaced=unplaced,
                    model=model,
                    quant=quant_of(model),
                    depth=0 if prompt else prompt_tokens,
                    prompt=prompt,
                    tokens=timed,
                    tok_s=tok_s,
                )
                found.add(one)
    return found


def read_lm_studio(text: str, where: str) -> FoundSpeeds:
    """Each line such as `12.34 tok/sec • 512 tokens • 0.61s to first token`."""
    found = FoundSpeeds()
    for number, line in enumerate(text.split("\n"), 1):
        for match in _LM_STUDIO.finditer(line):
            place, tok_s, tokens = f"{where}: line {number}", figure(match[1]), whole(match[2])
            if tok_s is None or tokens is None or tokens > MOST_TOKENS:
                found.left_out.append(f"{place}: {two_meanings(match[1] if tok_s is None else match[2])}")
            elif found.enough(tokens, place, prompt=False):
                found.add(partial(Measured, where=place, engine="lmstudio", tokens=tokens, tok_s=tok_s))
    return found


def _processor(text: str) -> tuple[str, str]:
    """The system that the lines of `ollama ps` tell, if they agree, and else why there is none."""
    lines = [_PS.match(line[:MOST_LINE]) for line in undressed(text).split("\n")]
    placements = {(found[2], found[3]) for found in lines if found}
    if placements == {("100%", "GPU")}:
        return "all-gpu", ""
    if placements == {("100%", "CPU")}:
        return "cpu", ""
    if placements:
        return "", "has whole layers on the CPU, which no system does"
    return "", "does not say where the model was (`ollama ps` says it)"
