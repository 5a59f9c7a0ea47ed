"""The line of timings that koboldcpp prints below an answer, in its forms of 2024 to 2026, and its `--benchmark`.

`CtxLimit:1234/8192, Amt:120/512, Init:0.01s, Process:5.43s (202.58T/s), Generate:12.32s (9.74T/s), Total:17.75s`
Source: LostRuins/koboldcpp gpttype_adapter.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from flashmoe_sim.io.sizes import decimal
from flashmoe_sim.measured.tables import MOST_LINE
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of
from flashmoe_sim.systems.llama_flags import system_of

ENGINE = "koboldcpp"
_X = r"(\d{1,9}(?:\.\d{1,9})?)"
_RATE = rf"\((?:{_X}ms/T)?(?: = )?(?:{_X}T/s)?\)"
_LINE = re.compile(
    rf"(?:CtxLimit|ContextLimit):\s*(\d{{1,9}})/\d+,(?: Amt:(\d{{1,9}})/\d+,)?(?: Init:{_X}s,)? "
    rf"Process(?:ing)?:\s*{_X}s {_RATE}, Generat(?:e|ion):\s*{_X}s {_RATE}"
)
_PROMPT = re.compile(r"Processing Prompt(?: \[\w+\])? \((\d{1,9}) / (\d{1,9}) tokens\)")
_OFFLOADED = re.compile(r"offloaded (\d{1,4})/(\d{1,4}) layers to GPU")
_MODEL = re.compile(r"Loading Text Model: (.+?)\s*$|--model[ =](\S+\.gguf)")
_MOE_CPU = re.compile(r"--moecpu(?:[ =](\d{1,4}))?")
_RESULT = re.compile(r"^(MaxCtx|GenAmount|Model|ProcessingSpeed|GenerationSpeed): +(.+?)(?:T/s)?\s*$")
_MOVED = re.compile(r"--overridetensors[ =]+[\"']?([^\s\"']+)")
SAME = 0.01  # relative; a prompt this near to the whole context was read from its beginning


def detect(text: str) -> bool:
    return _LINE.search(text) is not None or re.search(r"^GenerationSpeed: [\d.]+T/s", text, re.MULTILINE) is not None


def read(text: str, where: str) -> FoundSpeeds:
    """The speed of each answer and of its prompt, of which a part may have been read before."""
    found, settings, model, of_prompt = FoundSpeeds(), dict[str, str](), "", 0
    result: dict[str, str] = {}  # of --benchmark
    for number, line in enumerate((line[:MOST_LINE] for line in text.split("\n")), 1):
        if match := _MODEL.search(line):
            model = match[1] or match[2]
        if match := _MOE_CPU.search(line):
            settings |= {"n_cpu_moe": match[1]} if match[1] else {"overrides": "exps=CPU"}
        if match := _MOVED.search(line):
            settings["overrides"] = match[1]
        if match := _OFFLOADED.search(line):
            settings |= {"n_gpu_layers": match[1], "layers": match[2]}
        for match in _PROMPT.finditer(line):
            of_prompt = int(match[2])
        timed = list[tuple[bool, int, int, float]]()  # of a prompt, its tokens, those before it, tokens a second
        if match := _RESULT.match(line):
            result[match[1]] = match[2]
            model = result.get("Model", model)
            if match[1] == "GenerationSpeed":
                timed += _of_benchmark(result)
        for match in _LINE.finditer(line):
            context, tokens, _, read_s, read_ms, read_rate, made_s, made_ms, made_rate = match.groups()
            tok_s = _speed(made_ms, made_rate)
            made = int(tokens) if tokens else round(float(made_s) * tok_s)
            prompt_tok_s = _speed(read_ms, read_rate)
            prompt = of_prompt or round(float(read_s) * prompt_tok_s)
            whole = max(int(context) - made, 0)
            before = max(whole - prompt, 0) if abs(whole - prompt) > SAME * whole else 0
            of_prompt = 0
            timed += [(True, prompt, before, prompt_tok_s), (False, made, whole, tok_s)]
        for is_prompt, count, depth, speed in timed:
            place = f"{where}: line {number}"
            if found.enough(count, place, prompt=is_prompt):
                system, unplaced = system_of(settings, engine=ENGINE, prompt=is_prompt)
                one = partial(Measured, where=place, engine=ENGINE, system=system, unplaced=unplaced, model=model)
                given = {"depth": depth, "prompt": is_prompt, "tokens": count, "tok_s": speed}
                found.add(partial(one, **given, quant=quant_of(model), settings=dict(settings)))
    return found


def _of_benchmark(result: Mapping[str, str]) -> list[tuple[bool, int, int, float]]:
    """The prompt fills the context but for the answer."""
    names = ("MaxCtx", "GenAmount", "ProcessingSpeed", "GenerationSpeed")
    context, made, read_tok_s, tok_s = (decimal(result.get(name, "")) or 0.0 for name in names)
    prompt, tokens = (int(min(max(count, 0), MOST_TOKENS)) for count in (context - made, made))
    return [(True, prompt, 0, read_tok_s), (False, tokens, prompt, tok_s)]


def _speed(ms: str | None, rate: str | None) -> float:
    if rate is not None:
        return float(rate)
    return 1e3 / float(ms) if ms is not None and float(ms) > 0 else 0.0
