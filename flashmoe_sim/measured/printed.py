"""Lines that programs for chatting print below an answer: `ollama run --verbose`, and LM Studio."""

from __future__ import annotations

import re

from flashmoe_sim.measured.llama_log import MOST_LINE
from flashmoe_sim.measured.value import FoundSpeeds, Measured, quant_of

_X = r"(\d{1,12}(?:\.\d{1,12})?)"
_RATE = re.compile(rf"(prompt )?eval rate:\s*{_X} tokens/s")
_COUNT = re.compile(r"(prompt )?eval count:\s*(\d{1,9}) token")
_RUN = re.compile(r"\bollama run\s+(?:-\S+\s+)*([^\s-]\S*)")
_PS = re.compile(r"^(\S+:\S+)\s+[0-9a-f]{12}\s.*?\s(\d+%(?:/\d+%)?) (GPU|CPU|CPU/GPU)\b")
_LM_STUDIO = re.compile(rf"{_X} tok/sec\b\W*(\d{{1,9}}) tokens\b(?:\W*{_X}s to first token)?")


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
            prompt_tokens, tokens = (int(match[2]), 0) if match[1] else (prompt_tokens, int(match[2]))
        elif match := _RATE.search(line):
            prompt, place = bool(match[1]), f"{where}: line {number}"
            timed = prompt_tokens if prompt else tokens
            if not found.enough(timed, place, prompt=prompt):
                continue
            found.measured.append(
                Measured(
                    where=place,
                    engine="ollama",
                    system=system,
                    unplaced=unplaced,
                    model=model,
                    quant=quant_of(model),
                    depth=0 if prompt else prompt_tokens,
                    prompt=prompt,
                    tokens=timed,
                    tok_s=float(match[2]),
                )
            )
    return found


def read_lm_studio(text: str, where: str) -> FoundSpeeds:
    """Each line such as `12.34 tok/sec • 512 tokens • 0.61s to first token`."""
    found = FoundSpeeds()
    for number, line in enumerate(text.split("\n"), 1):
        for match in _LM_STUDIO.finditer(line):
            place, tokens = f"{where}: line {number}", int(match[2])
            if found.enough(tokens, place, prompt=False):
                found.measured.append(Measured(where=place, engine="lmstudio", tokens=tokens, tok_s=float(match[1])))
    return found


def _processor(text: str) -> tuple[str, str]:
    """The system that the lines of `ollama ps` tell, if they agree, and else why there is none."""
    placements = {(found[2], found[3]) for found in (_PS.match(line[:MOST_LINE]) for line in text.split("\n")) if found}
    if placements == {("100%", "GPU")}:
        return "all-gpu", ""
    if placements == {("100%", "CPU")}:
        return "cpu", ""
    if placements:
        return "", "has whole layers on the CPU, which no system does"
    return "", "does not say where the model was (`ollama ps` says it)"
