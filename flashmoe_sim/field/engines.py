"""What a row says of its engine, and of its context: how deep, and of which type the cache is."""

from __future__ import annotations

import re
from functools import cache

from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.geometry.model import DEFAULT_TYPE, Attention, LayerCache
from flashmoe_sim.systems.strata import CHOSEN
from flashmoe_sim.systems.table import SERVES, SYSTEMS

OLLAMA, OLLAMA_FITS = "Ollama", 30  # from 0.30 on llama.cpp's server is its engine: ollama/ollama pull request 16031
LM_STUDIO = "lm studio"
_MLX = re.compile(r"\bmlx\b", re.IGNORECASE)
_VERSION = re.compile(r" [0-9a-f]{6,}$| [vb]?\d[\w.]*$")
_BRACKETS = re.compile(r" ?\(([^)]*)\)")


def engine_of(row: FieldRow) -> str:
    """The program of a row; Ollama's own engine if it placed layers by itself, see `placed_by_fit`.

    LM Studio runs files of MLX with MLX, and others with llama.cpp.
    """
    if row.engine.lower().startswith(LM_STUDIO) and _MLX.search(f"{row.model} {row.quant}"):
        return "MLX"
    by_itself = row.strategy == "other" and row.engine.lower().startswith(OLLAMA.lower())
    return OLLAMA if by_itself and not placed_by_fit(row) else program(row.engine)


def placed_by_fit(row: FieldRow) -> bool:
    """Whether llama.cpp's --fit placed a row's experts, as it does in Ollama from 0.30 on."""
    minor = re.match(r"v?0\.(\d+)", row.engine_version_or_pr) if row.engine.lower().startswith(OLLAMA.lower()) else None
    return row.strategy == "other" and ("--fit on" in row.flags or (minor is not None and int(minor[1]) >= OLLAMA_FITS))


def reads_gguf(engine: str) -> bool:
    """Whether a program surely ran a GGUF file; LM Studio runs MLX's too if nothing says which."""
    return program(engine) in ("llama.cpp", "ik_llama.cpp") and engine.lower() != LM_STUDIO


@cache
def program(engine: str) -> str:
    """The program of an engine's name, without versions and remarks in brackets.

    What serves another program's code has that one's name: `LM Studio` and `igllama (llama.cpp)` are llama.cpp.
    """
    name = _VERSION.sub("", _BRACKETS.sub("", engine).strip()).strip()
    names, built_on = _known()
    within = next((match[1] for remark in _BRACKETS.findall(engine) if (match := built_on.match(remark))), name)
    return names.get(within.lower().removesuffix(" fork"), within)


@cache
def _known() -> tuple[dict[str, str], re.Pattern[str]]:
    """Programs by names in small letters, and what matches one at the start of a remark in brackets."""
    names = {name.lower(): name for kind in SYSTEMS.values() for name in kind.ran_as} | SERVES
    longest_first = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return names, re.compile(rf"({longest_first})(?! patch)\b", re.IGNORECASE)


# Stands for models whose attention is not known: about the slopes of DeepSeek-V4-Flash on two machines.
ASSUMED = Attention((LayerCache(19_200, 19_200),))
SPARSE = ("Strata",)  # engines that read only the tokens that an indexer chooses
ALLOCATED_FROM = 60_000  # a context of so many tokens is what was allocated, unless the row says that it was filled
_ALLOCATED = re.compile(r"allocated", re.IGNORECASE)
_FILLED = re.compile(r"\bfilled\b|\bat depth \d|-d \d", re.IGNORECASE)
_WHOLE = re.compile(r"\d+(?:\.0)?")
_CACHE = re.compile(r"(?:-ctk|--cache-type-k|\bKV|--kv) (q8_0|q4_0|q4_1|q5_0|q5_1|iq4_nl|int8)\b", re.IGNORECASE)


def named_context(row: FieldRow) -> int:
    """Tokens that the row names as its context; 0 if it names no number."""
    return int(float(row.context)) if _WHOLE.fullmatch(row.context) else 0


def depth_of(row: FieldRow) -> int:
    """Tokens in the context while decoding; 0 if the row says none, or only what was allocated.

    A large context was only allocated, unless the flags say that it was filled, or the rows of the series differ in it.
    """
    depth = named_context(row)
    if _FILLED.search(row.flags) or row.varies.startswith("context"):
        return depth
    as_flag = re.search(rf"(?:-c|--ctx-size|ctx) {depth}\b", row.flags) is not None
    if depth >= ALLOCATED_FROM or as_flag or _ALLOCATED.search(row.notes):
        return 0
    return depth


def attended(row: FieldRow) -> int:
    """Tokens whose keys and values a decoded token reads."""
    return min(depth_of(row), CHOSEN) if row.engine.startswith(SPARSE) else depth_of(row)


def kv_type_of(row: FieldRow) -> str:
    """The type of keys and values that the flags name; 16 bits if they name none."""
    if (match := _CACHE.search(row.flags)) is None:
        return DEFAULT_TYPE
    return "q8_0" if match[1] == "int8" else match[1].lower()
