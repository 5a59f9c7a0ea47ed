"""Responses of servers: llama-server's `timings`, Ollama's counts and durations, and LM Studio's `stats`.

Source: ggml-org/llama.cpp tools/server; ollama docs/api.md; lmstudio.ai/docs/developer/rest and the SDK's
PredictionStats.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.measured.documents import NamedValues, rows_in
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, mlx_quant_of, quant_of

LM_STUDIO = ("tokens_per_second", "tokensPerSecond")
READ = ("prompt_tokens", "input_tokens", "promptTokensCount")
MADE = ("completion_tokens", "total_output_tokens", "predictedTokensCount")
NO_NAME = "gpt-3.5-turbo"  # of any model, if llama-server of 2024 was not given an alias


def detect(text: str) -> bool:
    return any(f'"{name}"' in text for name in ("predicted_per_second", "eval_duration")) or (
        '"stats"' in text and any(f'"{name}"' in text for name in LM_STUDIO)
    )


def read(text: str, where: str) -> FoundSpeeds:
    """Each response in the text, such as the lines that a server streams."""
    rows, torn = rows_in(text, where, _is_one)
    found = FoundSpeeds([], [torn] if torn else [])
    for response in rows:
        try:
            if "eval_duration" not in response.values and _of_lm_studio(response.values):
                _lm_studio(found, response)
            elif "eval_duration" in response.values:
                _ollama(found, response)
            elif isinstance(timings := response.values.get("timings"), dict):
                _llama_server(found, NamedValues(timings, response.where), response)
            else:
                _llama_server(found, response, response)
        except BadInput as error:
            found.left_out.append(str(error))
    return found


def _is_one(value: Mapping[str, Any]) -> bool:
    named = "eval_duration" in value or "predicted_per_second" in value or isinstance(value.get("timings"), dict)
    return named or _of_lm_studio(value)


def _of_lm_studio(value: Mapping[str, Any]) -> bool:
    stats = value.get("stats")
    return isinstance(stats, dict) and any(name in stats for name in LM_STUDIO)


def _lm_studio(found: FoundSpeeds, response: NamedValues) -> None:
    about = response.values.get("model_info")
    parts = [response.values["stats"], response.values.get("usage"), about]
    fields = {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}
    its = NamedValues(fields, response.where)
    prompt, tokens = (next(filter(None, map(its.count, names)), 0) for names in (READ, MADE))
    speed = next(its.needed(name) for name in LM_STUDIO if name in fields)
    if found.enough(tokens, response.where, prompt=False):
        model = _model(response)
        quant = its.text("quant") or quant_of(model)
        mlx = its.text("format") == "mlx"
        one = partial(Measured, where=response.where, engine="lmstudio", model=model, tok_s=speed)
        one = partial(one, system="mlx" if mlx else "", quant=mlx_quant_of(f"{model}-{quant}") if mlx else quant)
        found.add(partial(one, depth=min(prompt, MOST_TOKENS), tokens=min(tokens, MOST_TOKENS)))


def _llama_server(found: FoundSpeeds, timings: NamedValues, response: NamedValues) -> None:
    cached, prompt, tokens = (timings.count(name) or 0 for name in ("cache_n", "prompt_n", "predicted_n"))
    drafted = timings.count("draft_n") or 0
    share = (timings.count("draft_n_accepted") or 0) / drafted if drafted else 0.0
    drafts = f"was measured with drafts ({share:.2f} accepted)" if drafted else ""
    common = {"engine": "llama.cpp", "model": _model(response)}
    if "prompt_per_second" in timings.values:
        speed = timings.needed("prompt_per_second")
        _add(found, timings.where, prompt=True, tokens=prompt, depth=cached, tok_s=speed, **common)
    if "predicted_per_second" in timings.values:
        speed, depth = timings.needed("predicted_per_second"), cached + prompt
        _add(found, timings.where, prompt=False, tokens=tokens, depth=depth, tok_s=speed, unplaced=drafts, **common)


def _ollama(found: FoundSpeeds, response: NamedValues) -> None:
    common = {"engine": "ollama", "model": _model(response)}
    prompt, tokens = (response.count(name) or 0 for name in ("prompt_eval_count", "eval_count"))
    for name, timed, depth in (("prompt_eval_duration", prompt, 0), ("eval_duration", tokens, prompt)):
        nanoseconds = response.number(name)
        if nanoseconds is None:
            continue
        tok_s = 1e9 * timed / nanoseconds if nanoseconds > 0 else 0.0
        _add(found, response.where, prompt=name != "eval_duration", tokens=timed, depth=depth, tok_s=tok_s, **common)


def _model(response: NamedValues) -> str:
    name = response.text("model") or response.around.get("model", "")
    return "" if name == NO_NAME else name


def _add(found: FoundSpeeds, where: str, **values: Any) -> None:
    if not found.enough(values["tokens"], where, prompt=values["prompt"]):
        return
    values |= {name: min(values[name], MOST_TOKENS) for name in ("tokens", "depth")}
    found.add(partial(Measured, where=where, quant=quant_of(values["model"]), **values))
