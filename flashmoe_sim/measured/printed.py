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
_LMS = re.compile(rf"Tokens/Second: {NUMBER}\s+.{{0,80}}\s+Prompt Tokens: {NUMBER}\s*Predicted Tokens: {NUMBER}")


def detect_ollama(text: str) -> bool:
    return _RATE.search(text) is not None


def detect_lm_studio(text: str) -> bool:
    return bool(_LM_STUDIO.search(text) or _LMS.search(text))


def read_ollama(text: str, where: str) -> FoundSpeeds:
    """Each block of `ollama run --verbose`; a line of `ollama ps` says where the model is."""
    found, model, prompt_tokens = FoundSpeeds(), "", 0
    tokens: int | None = None  # not said
    of_prompt: int | None = None
    system, unplaced = _processor(text)
    for number, line in enumerate(text.split("\n"), 1):
        if match := _RUN.search(line):
            model = match[1]
        elif match := _COUNT.search(line):
            count = min(whole(match[2]) or 0, MOST_TOKENS)
            prompt_tokens, of_prompt, tokens = (count, count, None) if match[1] else (prompt_tokens, of_prompt, count)
        elif match := _RATE.search(line):
            prompt, place = bool(match[1]), f"{where}: line {number}"
            timed = of_prompt if prompt else tokens
            tok_s = figure(match[2])
            if tok_s is None:
                found.left_out.append(f"{place}: {two_meanings(match[2])}")
            elif timed is None or found.enough(timed, place, prompt=prompt):
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
    """Each text such as `12.34 tok/sec • 512 tokens • 0.61s to first token`, or block of `lms chat --stats`."""
    found, line, last = FoundSpeeds(), 1, 0
    for match in sorted([*_LM_STUDIO.finditer(text), *_LMS.finditer(text)], key=re.Match.start):
        line, last = line + text.count("\n", last, match.start()), match.start()
        speed, *counts = match.groups()  # the prompt's tokens, if they are said, and the answer's
        place, tok_s, tokens = f"{where}: line {line}", figure(speed), whole(counts[-1])
        if tok_s is None or tokens is None or tokens > MOST_TOKENS:
            found.left_out.append(f"{place}: {two_meanings(speed if tok_s is None else counts[-1])}")
        elif found.enough(tokens, place, prompt=False):
            depth = min(whole(counts[0]) or 0, MOST_TOKENS) if len(counts) > 1 else 0
            found.add(partial(Measured, where=place, engine="lmstudio", depth=depth, tokens=tokens, tok_s=tok_s))
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
