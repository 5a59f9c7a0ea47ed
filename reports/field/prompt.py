"""How a row reads its prompt: tokens, micro-batch and depth, from what its flags and notes say."""

from __future__ import annotations

import re
from typing import NamedTuple

from flashmoe_sim.field.engines import named_context
from flashmoe_sim.field.rows import FieldRow

MICRO_BATCH = 512
WHOLE_CHUNKS = 16_384  # of engines that bring one layer after another to the GPU
CHUNKS = {
    "Strata fork": WHOLE_CHUNKS,
    "Strata": 8192,
    "ds4": 4096,
    "krasis": WHOLE_CHUNKS,
    "ktransformers kt-kernel": WHOLE_CHUNKS,
    **dict.fromkeys(("mlx", "vllm-mlx", "Rapid-MLX"), 2048),  # mlx-lm's prefill_step_size
}
SHORT, CHAT = 128, 24  # tokens of a prompt said to be short; of one that streams from storage and says nothing
FILLED_BELOW = 60_000  # a larger context was allocated, if nothing else is said
_TOKENS = re.compile(r"([\d.,]+)(K?)(?:-[\d.]+K?)?-token prompt")
_ABOUT = re.compile(r"prompt of about (\d+) tokens in two turns")
_RANGE = re.compile(r"prompts (\d+)K-")
_COUNTED = re.compile(r"(\d+) prompt \+")
_BENCH = re.compile(r"llama-bench|sweep-bench|-n 128|-c \d+ -t \d+")
_PP = re.compile(r"\bpp(\d+)|(?<!\w)-p (\d+)")
_UBATCH = re.compile(r"/(\d+)")
_UB = re.compile(r"\bub (\d+)")
_CHUNK = re.compile(r"\bchunk (\d+)")


class Prompt(NamedTuple):
    """A prompt of `tokens`, read in batches of `batch`, after `depth` tokens; length_given: whether the row says it."""

    tokens: int
    batch: int
    depth: int
    length_given: bool


def prompt_of(row: FieldRow) -> Prompt:
    """The prompt that a row's speed is of; a length that is not told is what such runs usually have."""
    text = f"{row.flags}; {row.notes}"
    context = named_context(row)
    bench = _BENCH.search(row.flags) is not None
    tokens = _length(row, text, context, bench=bench)
    length_given = tokens is not None
    batch = _batch(row)
    if tokens is None:
        streams = row.strategy in ("slot_bank_ssd", "ssd_stream") and not context and "long" not in text
        tokens = CHAT if streams else max(MICRO_BATCH, batch if _UB.search(row.flags) else 0)
    return Prompt(tokens, min(batch, tokens), context if bench else 0, length_given)


def _length(row: FieldRow, text: str, context: int, *, bench: bool) -> int | None:
    if match := _TOKENS.search(text):
        return int(float(match[1].replace(",", "")) * (1000 if match[2] else 1))
    if match := _ABOUT.search(text):
        return int(match[1]) // 2
    if match := _RANGE.search(text):
        return 2000 * int(match[1])
    if match := _COUNTED.search(text):
        return int(match[1])
    if (match := _PP.search(text)) and int(match[1] or match[2]):
        return int(match[1] or match[2])
    if bench:
        return _batch(row) if "sweep-bench" in row.flags else MICRO_BATCH
    if "short" in text:
        return SHORT
    filled = row.varies.startswith("context") or row.engine.startswith(tuple(CHUNKS))
    if context and (filled or context <= 8 or (MICRO_BATCH // 4 < context < FILLED_BELOW and "allocated" not in text)):
        return context
    return None


def _batch(row: FieldRow) -> int:
    for pattern, text in (
        (_UBATCH, row.batch_ubatch),
        (_UB, row.flags),
        (_CHUNK, row.slots_per_layer_or_cache_gib),
    ):
        if match := pattern.search(text):
            return int(match[1])
    return next((chunk for engine, chunk in CHUNKS.items() if row.engine.startswith(engine)), MICRO_BATCH)
