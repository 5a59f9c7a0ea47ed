"""The repository of Hugging Face that a text names."""

from __future__ import annotations

import re
from typing import NamedTuple

from flashmoe_sim.geometry.names import OF_TRACES

_REPOSITORY = re.compile(
    r"(?:(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|hf://)?"
    r"(?P<repository>(?P<owner>[A-Za-z0-9][\w-]*)/(?!\.)[\w.-]+)"
    r"(?:/(?:blob|resolve|tree|raw)/(?P<revision>[\w.-]+))?"
    r"(?:/(?P<file>[^?#:@\\]+?))?/?(?:[?#][^:@]*)?"
    r"(?::(?P<tag>[\w.-]+)|@(?P<size>[^/:@]+))?",
    re.ASCII,
)
NOT_HUGGING_FACE = frozenset({"ai", "library"})  # owners of Docker's and Ollama's
_OTHER = frozenset({"models", "datasets", "spaces", "api"})  # folders of the hub, or here
_FILES = re.compile(r"\.(?:gguf|json)$", re.IGNORECASE)


class Place(NamedTuple):
    """What a text names: a repository; a file, a quantization or a size, or none of them."""

    repository: str
    revision: str = "main"
    file: str = ""
    tag: str = ""
    size: str = ""


def place_of(text: str) -> Place | None:
    """The repository that a text names, `owner/name` or its address; None for any other text."""
    found = _REPOSITORY.fullmatch(text.strip())
    if found is None or found["owner"].lower() in NOT_HUGGING_FACE | _OTHER or ".." in (found["file"] or "").split("/"):
        return None
    if _FILES.search(found["repository"]) or OF_TRACES.search(found["repository"]):
        return None
    return Place(**{name: value for name in Place._fields if (value := found[name])})
