"""Names of engines as people write them, and the program that each of them is."""

from __future__ import annotations

import re
from functools import cache

from reports.field.rows import FieldRow

# Programs that serve with another one's code; in small letters.
SERVES = {
    **dict.fromkeys(("ollama", "lm studio", "llama-server", "llama-cpp-python", "koboldcpp", "llamafile"), "llama.cpp"),
    **dict.fromkeys(("mlx", "mlx-lm", "mlx_lm", "mlx_vlm", "vllm-mlx", "rapid-mlx"), "MLX"),
    "ik_llama.cpp or llama.cpp fork": "ik_llama.cpp",
    "adrianhoehne/llama.cpp moe-hot-cache": "adrianhoehne/llama.cpp hot-cache",
    "llama.cpp fork": "llama.cpp",
    "strata fork": "Strata",
    "ds4 fork": "ds4",
}
# What names one of these in brackets is built on it, and serves tokens like it: `igllama (llama.cpp)`.
WITHIN = re.compile(r"^(llama\.cpp|ik_llama\.cpp|TurboFieldfare|Strata|ds4|mlx-lm|MLX)(?! patch)\b", re.IGNORECASE)
_VERSION = re.compile(r" [0-9a-f]{6,}$| [vb]?\d[\w.]*$")
_BRACKETS = re.compile(r" ?\(([^)]*)\)")


def engine_of(row: FieldRow) -> str:
    """The program of a row."""
    return program(row.engine)


@cache
def program(engine: str) -> str:
    """The program of an engine's name, without versions and remarks in brackets.

    What serves another program's code has that one's name: `LM Studio` and `igllama (llama.cpp)` are llama.cpp.
    """
    name = _VERSION.sub("", _BRACKETS.sub("", engine).strip()).strip()
    within = next((match[1] for remark in _BRACKETS.findall(engine) if (match := WITHIN.match(remark))), name)
    return SERVES.get(within.lower(), within)


def is_fork(row: FieldRow) -> bool:
    """Whether a changed copy of its program ran, which may keep experts in a way of its own."""
    return "fork" in row.engine.lower()
