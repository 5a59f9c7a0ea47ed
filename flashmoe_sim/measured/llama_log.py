"""Logs of llama.cpp's and ik_llama.cpp's programs: llama-cli, llama-server and others that print the same timings.

Source: ggml-org/llama.cpp src/llama-context.cpp and tools/server; ikawrakow/ik_llama.cpp 8337e4cd3, src/llama.cpp,
src/llama-load-tensors.cpp and examples/server/server-context.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from flashmoe_sim.io.sizes import parse_size
from flashmoe_sim.measured.dress import NUMBER, figure, two_meanings
from flashmoe_sim.measured.log_state import DRAFTED, LoggedRequest, State, follow, note
from flashmoe_sim.measured.value import FEW_DECODED, FEW_PROMPT, MOST_TOKENS, FoundSpeeds, Measured, quant_of
from flashmoe_sim.systems.llama_flags import IK, system_of

MOST_LINE = 4000  # letters; a longer line is no line of a log
NO_SETTINGS = ("model", "file", "file_size", "name", "type", "n_layer", "n_ctx", "experts_reduced")
_N, _X = r"(\d{1,12})", r"(\d{1,12}(?:\.\d{1,12})?)"
_TIMING = re.compile(rf"(prompt )?eval time\s*=\s*{NUMBER} ms\s*/\s*{_N} (?:tokens|runs)\s*\(\s*{NUMBER} ms per token")
_SHORT = re.compile(rf"\[ Prompt: {NUMBER} t/s \| Generation: {NUMBER} t/s \]")
# What the lines of several programs, servers or containers begin with in one log.
_STREAM = re.compile(r"\[(\d{4,5})\] |([\w.-]+)\s+\| |[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S+ ([^\s:]+\[\d+\]):")
_RELEASE = re.compile(r"slot +release:|\brelease_slots\]")
_DRAFTS = re.compile(rf"draft acceptance(?: rate)? = {_X}")


def detect(text: str) -> bool:
    return _TIMING.search(text) is not None or _SHORT.search(text) is not None


@dataclass
class TimingLine:
    """One line of timings, with the settings in force. prompt_tokens, answer_tokens: timed of the same request."""

    line: int
    prompt: bool
    tokens: int | None
    tok_s: float | None
    request: LoggedRequest
    settings: dict[str, str]
    other_work: str = ""
    number: str = ""
    drafts: str = ""
    prompt_tokens: int = 0
    answer_tokens: int = 0


def read(text: str, where: str) -> FoundSpeeds:
    """Each timing of a request, with the settings that the log gave before it."""
    states, timings = {"": State()}, list[TimingLine]()
    lines = [line[:MOST_LINE] for line in text.split("\n")]
    for number, line in enumerate(lines, 1):
        match = _STREAM.match(line)
        stream = (match[1] or match[2] or match[3]) if match else ""
        state = states.setdefault(stream, State(command=dict(states[""].command)))
        note(state, line, lines, number)
        follow(state, line)
        for timing in _timed(state, line, number):
            previous = timings[-1] if timings else None
            if previous and previous.prompt and not timing.prompt and previous.request is timing.request:
                timing.prompt_tokens, previous.answer_tokens = previous.tokens or 0, timing.tokens or 0
            timings.append(timing)
        if (drafted := _DRAFTS.search(line)) and timings:
            timings[-1].drafts = drafted[1]
    if any(timing.tokens is not None for timing in timings):  # the short line says the same again
        timings = [timing for timing in timings if timing.tokens is not None]
    engine = IK if "ik_llama" in text or "fused_moe" in text else "llama.cpp"
    released = _RELEASE.search(text) is not None  # without these lines nobody knows what ran at once
    found = FoundSpeeds()
    for timing in timings:
        timing.request.at_once = timing.request.at_once and released
        _add(found, timing, f"{where}: line {timing.line}", engine)
    return found


def _timed(state: State, line: str, number: int) -> Iterator[TimingLine]:
    """The timings that the line has."""
    match, short = _TIMING.search(line), _SHORT.search(line)
    if match is None and short is None:
        return
    request, settings = state.requests.setdefault(state.task, LoggedRequest()), state.settings()
    state.timed = True
    if match is not None:
        ms, tokens = figure(match[2]), int(match[3])
        tok_s = None if ms is None else 1e3 * tokens / ms if ms else 0.0
        yield TimingLine(number, bool(match[1]), tokens, tok_s, request, settings, state.other_work, match[2])
        state.other_work = state.other_work if match[1] else ""  # the last line of a run
    elif short is not None:
        for prompt, speed in ((True, short[1]), (False, short[2])):
            yield TimingLine(number, prompt, None, figure(speed), request, settings, state.other_work, speed)


def _depth(timing: TimingLine) -> int:
    """Tokens in the context before the first timed one."""
    request, tokens = timing.request, timing.tokens or 0
    whole = request.prompt
    if timing.prompt:
        if request.cached is not None:
            return request.cached
        whole = whole or (request.end or 0) - timing.answer_tokens
        return max(whole - tokens, 0)
    if request.cached is not None and timing.prompt_tokens:
        return request.cached + timing.prompt_tokens
    if whole is not None:
        return whole
    if request.end is not None and request.end >= tokens:
        return request.end - tokens
    return timing.prompt_tokens


def _no_use(timing: TimingLine) -> str:
    """Why a timing is none of a whole model's answer to one prompt, or empty."""
    settings, tokens = timing.settings, timing.tokens or 0
    most, reduced = int(settings.get("n_ctx", 0)), settings.get("experts_reduced", "")
    if timing.other_work:
        return timing.other_work
    if timing.tok_s is None:
        return two_meanings(timing.number)
    if timing.tok_s == 0.0 and tokens >= (FEW_PROMPT if timing.prompt else FEW_DECODED):
        return f"the {'prompt' if timing.prompt else 'answer'} has no time; measure more tokens"
    if timing.request.at_once:
        return "this request shared the engine with others; measure one at a time"
    if timing.prompt and 0 < most < tokens:
        return f"{tokens:,} tokens in a context of {most:,} are not one prompt"
    if reduced and not reduced.startswith(("-", "0")):
        return f"computes fewer experts than the model (-ser {reduced})"
    return ""


def _add(found: FoundSpeeds, timing: TimingLine, where: str, engine: str) -> None:
    settings = timing.settings
    if why := _no_use(timing):
        found.left_out.append(f"{where}: {why}")
        return
    if timing.tok_s is None or (
        timing.tokens is not None and not found.enough(timing.tokens, where, prompt=timing.prompt)
    ):
        return
    if timing.drafts:
        settings = settings | {"drafts": timing.drafts, "elsewhere": f"{DRAFTED} ({timing.drafts} accepted)"}
    model = settings["model"]
    system, unplaced = system_of(settings, engine=engine, prompt=timing.prompt)
    found.measured.append(
        Measured(
            where=where,
            engine=engine,
            system=system,
            unplaced=unplaced,
            model=model,
            model_bytes=parse_size(settings["file_size"]) if "file_size" in settings else None,
            quant=quant_of(model, settings.get("type", "")),
            depth=min(_depth(timing), MOST_TOKENS),
            prompt=timing.prompt,
            tokens=timing.tokens,
            tok_s=timing.tok_s,
            settings={name: value for name, value in settings.items() if name not in NO_SETTINGS},
        )
    )
