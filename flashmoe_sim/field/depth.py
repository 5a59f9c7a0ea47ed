"""How deep into its context a row decodes, and of which type the cache is."""

from __future__ import annotations

import re

from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.geometry.attention import DEFAULT_TYPE, Attention, LayerCache
from flashmoe_sim.systems.strata import CHOSEN

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
