"""Which known model a measurement's name means."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flashmoe_sim.geometry.named import meant, model_names

# What Ollama runs by a name without a size (ollama.com/library, tag `latest`).
OLLAMA = {
    "deepseek-coder-v2": "16b",
    "deepseek-r1": "8b",
    "deepseek-v2": "16b",
    "gpt-oss": "20b",
    "mixtral": "8x7b",
    "nemotron-3-nano": "30b",
    "qwen3-coder": "30b",
}
_HASHED = re.compile(r"(?:^|[/\\])(?:sha256-)?[0-9a-f]{12,64}$")
_ACTIVE = re.compile(r"(?:-a[\d.]+b)?")
_CACHED = re.compile(r"[-_]gguf_", re.IGNORECASE)


def known_model(name: str, engine: str = "") -> str:
    """The name of the known model that a file, a tag or a title means; empty if it means none.

    Files in the cache of llama.cpp begin with the name of their repository, others with their publisher's.
    """
    last = re.split(r"[/\\]", name)[-1]
    base, _, tag = last.lower().partition(":")
    if engine == "ollama" and tag in ("", "latest"):
        last = f"{base}:{OLLAMA.get(base, tag)}"
    last = _CACHED.split(last)[-1].replace(":", "-").removesuffix(".gguf")
    for text in (last, last.partition("_")[2], re.sub(r"^nvidia-", "", last, flags=re.IGNORECASE)):
        if (found := meant(text)) and not _too_short(text, found):
            return found
    return ""


def _too_short(text: str, model: str) -> bool:
    """Whether a text only begins the names of a model, without its size: `gemma-4` may be another member."""
    given = re.sub("[_ ]+", "-", text.lower()).rstrip("-")
    names = [name for name, of in model_names().items() if of == model]
    return not any(
        given.startswith(name) or (name.startswith(given) and _ACTIVE.fullmatch(name[len(given) :])) for name in names
    )


def likeliest(names: Iterable[str], engine: str = "") -> str:
    """The first name that means a known model, else the first one that is no hash; or empty."""
    given = [name for name in names if name]
    known = (name for name in given if known_model(name, engine))
    return next(known, "") or next((name for name in given if not _HASHED.search(name)), "")
