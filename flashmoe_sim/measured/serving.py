"""Results of benchmarks of servers: `vllm bench serve --save-result`, and sglang.bench_serving.

Source: vllm-project/vllm vllm/benchmarks/serve.py; sgl-project/sglang python/sglang/bench_serving.py.
"""

from __future__ import annotations

from flashmoe_sim.measured.documents import NamedValues, all_objects
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of


def detect(text: str) -> bool:
    return '"mean_tpot_ms"' in text and '"total_output_tokens"' in text


def read(text: str, where: str) -> FoundSpeeds:
    """The mean decode speed of each result, if its requests came one at a time."""
    found = FoundSpeeds()
    for result in all_objects(text, where):
        _add(found, result)
    return found


def _add(found: FoundSpeeds, result: NamedValues) -> None:
    at_once, requests = result.count("max_concurrency"), result.count("completed") or 0
    if requests != 1 and at_once != 1:
        several = "up to any number of" if at_once is None else f"{at_once}"
        found.left_out.append(f"{result.where}: {several} requests at once; measure one at a time: --max-concurrency 1")
        return
    ms, sd = result.needed("mean_tpot_ms"), result.number("std_tpot_ms")
    tokens, prompts = (result.count(name) or 0 for name in ("total_output_tokens", "total_input_tokens"))
    backend = result.text("backend")
    drafts = max(result.number(name) or 0.0 for name in ("accept_length", "spec_decode_acceptance_length"))
    found.measured.append(
        Measured(
            where=result.where,
            engine="sglang" if backend.startswith("sglang") else "vllm" if backend in ("vllm", "openai") else backend,
            unplaced=f"was measured with drafts ({drafts:.2f} tokens a pass)" if drafts > 1 else "",
            model=result.text("model_id"),
            quant=quant_of(result.text("model_id")),
            depth=min(prompts // max(requests, 1), MOST_TOKENS),
            tokens=min(tokens // max(requests, 1), MOST_TOKENS) or None,
            tok_s=1e3 / ms if ms > 0 else 0.0,
            sd=sd / ms if sd and ms > 0 and requests > 1 else None,
        )
    )
