"""The records of `llmfit bench`, as its community shares them.

Source: AlexsJones/llmfit 3f44fd30a, llmfit-core/data/community/schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from flashmoe_sim.measured.documents import NamedValues, rows_in
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, mlx_quant_of, quant_of

ENGINES = {"llamacpp": "llama.cpp"}
OLLAMA_MLX = "Ollama's MLX"  # an engine of its own
SAME = 0.02  # a rate this near to tokens over the whole time is that, and counts the prompt too


def detect(text: str) -> bool:
    return '"avgTps"' in text and '"hardware"' in text


def read(text: str, where: str) -> FoundSpeeds:
    """The mean decode speed of each model. The record says where the model was only if there is but one place."""
    records, torn = rows_in(text, where, _is_one, "record")
    found = FoundSpeeds([], [torn] if torn else [])
    for record in records:
        hardware = NamedValues(record.values["hardware"], record.where)
        for number, result in enumerate(record.values["results"], 1):
            if isinstance(result, dict):
                found.add(partial(_one, NamedValues(result, f"{where}: result {number}"), hardware))
    return found


def _is_one(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("hardware"), dict) and isinstance(value.get("results"), list)


def _one(result: NamedValues, hardware: NamedValues) -> Measured:
    tok_s, tokens, ms = result.needed("avgTps"), result.number("avgOutputTokens"), result.number("avgTotalMs")
    model, provider = result.text("model"), result.text("provider")
    engine = OLLAMA_MLX if (provider, model[-4:]) == ("ollama", "-mlx") else ENGINES.get(provider, provider)
    system, unplaced = _system(engine, hardware)
    if provider != "ollama" and tokens and ms and abs(1e3 * tokens / ms - tok_s) < SAME * tok_s:
        system, unplaced = "", "times the whole request, with its prompt"
    settings: dict[str, Any] = {"gpu": hardware.text("hardwareName"), "cpu": hardware.text("cpu")}
    return Measured(
        where=result.where,
        engine=engine,
        system=system,
        unplaced=unplaced,
        model=model,
        quant=mlx_quant_of(model) if engine == "mlx" else quant_of(model),
        tokens=round(tokens) if tokens and 0 < tokens < MOST_TOKENS else None,
        tok_s=tok_s,
        settings={name: value for name, value in settings.items() if value},
    )


def _system(engine: str, hardware: NamedValues) -> tuple[str, str]:
    if engine == "mlx":
        return "mlx", ""
    if engine not in ("llama.cpp", "ollama"):
        return "", f"ran {engine}, which is no system"
    if hardware.text("hwClass") == "CPU_ONLY":
        return "cpu", ""
    if hardware.text("unifiedMemory") == "1":
        return "all-gpu", ""
    return "", ""
