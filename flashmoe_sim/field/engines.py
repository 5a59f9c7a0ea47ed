"""Names of engines as people write them, and the program that each of them is."""

from __future__ import annotations

import re
from functools import cache

from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.systems.table import SYSTEMS

OLLAMA, OLLAMA_FITS = "Ollama", 30  # from 0.30 on llama.cpp's server is its engine: ollama/ollama pull request 16031
# Programs that serve with another one's code, and other spellings; in small letters.
SERVES = {
    **dict.fromkeys(("ollama", "lm studio", "llama-server", "llama-cpp-python", "koboldcpp", "llamafile"), "llama.cpp"),
    **dict.fromkeys(("mlx-lm", "mlx_lm", "mlx-vlm", "mlx_vlm", "vllm-mlx", "rapid-mlx", "omlx", "mtplx"), "MLX"),
    "ik_llama.cpp or llama.cpp": "ik_llama.cpp",
    "adrianhoehne/llama.cpp moe-hot-cache": "adrianhoehne/llama.cpp hot-cache",
}
_VERSION = re.compile(r" [0-9a-f]{6,}$| [vb]?\d[\w.]*$")
_BRACKETS = re.compile(r" ?\(([^)]*)\)")


def engine_of(row: FieldRow) -> str:
    """The program of a row; Ollama's own engine if it placed layers by itself, see `placed_by_fit`."""
    by_itself = row.strategy == "other" and row.engine.lower().startswith(OLLAMA.lower())
    return OLLAMA if by_itself and not placed_by_fit(row) else program(row.engine)


def placed_by_fit(row: FieldRow) -> bool:
    """Whether llama.cpp's --fit placed a row's experts, as it does in Ollama from 0.30 on."""
    minor = re.match(r"v?0\.(\d+)", row.engine_version_or_pr) if row.engine.lower().startswith(OLLAMA.lower()) else None
    return row.strategy == "other" and ("--fit on" in row.flags or (minor is not None and int(minor[1]) >= OLLAMA_FITS))


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
