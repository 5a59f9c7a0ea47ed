"""Results of benchmarks of servers: `vllm bench serve --save-result`, and sglang.bench_serving.

Source: vllm-project/vllm vllm/benchmarks/serve.py; sgl-project/sglang python/sglang/bench_serving.py.
"""

from __future__ import annotations

from functools import partial

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.measured.documents import NamedValues, rows_in
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of


def detect(text: str) -> bool:
    return '"mean_tpot_ms"' in text and '"total_output_tokens"' in text


def read(text: str, where: str) -> FoundSpeeds:
    """The mean decode speed of each result, if its requests came one at a time."""
    rows, torn = rows_in(text, where, lambda one: "mean_tpot_ms" in one and "total_output_tokens" in one, "result")
    found = FoundSpeeds([], [torn] if torn else [])
    for result in rows:
        found.add(partial(_one, result))
    return found


def _one(result: NamedValues) -> Measured:
    at_once, requests = result.count("max_concurrency"), result.count("completed") or 0
    if requests != 1 and at_once != 1:
        several = "up to any number of" if at_once is None else f"{at_once}"
        raise Unsupported(
            f"{several} requests at once", where=result.where, advice="measure one at a time: --max-concurrency 1"
        )
    ms, sd = result.needed("mean_tpot_ms"), result.number("std_tpot_ms")
    tokens, prompts = (result.count(name) or 0 for name in ("total_output_tokens", "total_input_tokens"))
    backend = result.text("backend")
    drafts = max(result.number(name) or 0.0 for name in ("accept_length", "spec_decode_acceptance_length"))
    return Measured(
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
