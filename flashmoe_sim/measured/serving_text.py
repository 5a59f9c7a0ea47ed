"""The block `Serving Benchmark Result` that vLLM's, SGLang's and TensorRT-LLM's benchmarks of servers print.

Source: vllm-project/vllm vllm/benchmarks/serve.py; sgl-project/sglang python/sglang/bench_serving.py.
"""

from __future__ import annotations

import re
from functools import partial

from flashmoe_sim.measured.tables import real, whole
from flashmoe_sim.measured.value import FoundSpeeds, Measured, quant_of

TITLE = "Serving Benchmark Result"
_ENDS = re.compile(r"={40,}")
_VALUE = re.compile(r"([A-Z][A-Za-z() .0-9%/]*?):\s+(\S+)\s*$")
_MODEL = re.compile(r"(?:--model|--model-path)[ =]+(\S+)|\bmodel(?:_id)?='([^']+)'")
AT_ONCE = "Maximum request concurrency", "Max request concurrency"
DRAFTS = "Accept length", "Acceptance length"
TEXTS = {"vllm": "vllm", "openai": "vllm", "openai-chat": "vllm"}


def detect(text: str) -> bool:
    return TITLE in text and "TPOT (ms):" in text


def read(text: str, where: str) -> FoundSpeeds:
    """The mean decode speed of each block, if its requests came one at a time."""
    found, model = FoundSpeeds(), ""
    block: dict[str, str] | None = None
    begin = 0
    for number, line in enumerate(text.split("\n"), 1):
        if TITLE in line:
            if block is not None:
                _add(found, block, f"{where}: line {begin}", model)
            block, begin = {}, number
        elif block is not None and _ENDS.search(line):
            _add(found, block, f"{where}: line {begin}", model)
            block = None
        elif block is not None and (match := _VALUE.search(line)):
            block.setdefault(match[1], match[2])
        elif block is None and (match := _MODEL.search(line)):
            model = (match[1] or match[2]).strip("\"'\\,")
    if block is not None:
        _add(found, block, f"{where}: line {begin}", model)
    return found


def _add(found: FoundSpeeds, block: dict[str, str], place: str, model: str) -> None:
    at_once = next((whole(block[name]) for name in AT_ONCE if name in block), None)
    requests, ms = whole(block.get("Successful requests")) or 0, real(block.get("Mean TPOT (ms)"))
    if requests != 1 and at_once != 1:
        several = "up to any number of" if at_once is None else f"{at_once}"
        found.left_out.append(f"{place}: {several} requests at once; measure one at a time: --max-concurrency 1")
        return
    if not requests or not ms:
        found.left_out.append(f"{place}: has no {'Mean TPOT (ms)' if requests else 'successful request'}")
        return
    prompts, tokens = (whole(block.get(f"Total {name} tokens")) or 0 for name in ("input", "generated"))
    engine = TEXTS.get(block.get("Backend", "vllm"), block.get("Backend", "vllm"))
    drafts = max((real(block.get(name)) or 0.0 for name in DRAFTS), default=0.0)
    unplaced = f"ran {engine}, which is no system"
    if drafts > 1:
        unplaced = f"was measured with drafts ({drafts:.2f} tokens a pass)"
    if found.enough(tokens // requests, place, prompt=False):
        one = partial(Measured, where=place, engine=engine, unplaced=unplaced, model=model, quant=quant_of(model))
        found.add(
            partial(
                one,
                depth=prompts // requests,
                tokens=tokens // requests,
                tok_s=1e3 / ms,
                settings={"elsewhere": unplaced},
            )
        )
