"""The tokens at which the runtime ends a text.

Source: llama.cpp at 64e25509b, `llama_vocab::impl::load` in src/llama-vocab.cpp.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard

from flashmoe_sim.geometry.gguf_header import read_header

KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
# The end-of-text token of a kind of tokenizer, if the model names none.
DEFAULT_EOS = {"llama": 2, "gpt2": 11, "t5": 1, "plamo2": 2}
TEXTS = frozenset(
    (
        *("</s>", "[EOS]", "<|endoftext|>", "<|end_of_text|>", "<|end|>", "<|im_end|>", "<end_of_utterance>"),
        *("<|eot_id|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "<end_of_turn>", "<turn|>"),
        *("<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<｜end▁of▁sentence｜>"),  # noqa: RUF001  the model's own characters
        *("<|fim_pad|>", "<fim-pad>", "<PAD>", "[PAD]"),
        *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
        "<|file_sep|>",
    )
)
# With either, `<|end|>` ends a part of an answer, not the answer.
OF_PARTS = (
    {"<|return|>", "<|call|>"},
    {"<|return|>", "<|calls|>"},
    {"<|call|>", "<|flush|>"},
    {"<|calls|>", "<|flush|>"},
)


def end_tokens(model: Path) -> tuple[int, ...]:
    """The tokens of a GGUF model that end a text, ascending; a split model has them in its first file.

    If several texts can mark one end, the runtime uses one of them; here all are included.
    Raises BadInput for a file that cannot be read.
    """
    header = read_header(model, strings_of="tokenizer.ggml.tokens")
    place = {text: number for number, text in enumerate(header.strings)}
    named = {name: header.keys.get(f"tokenizer.ggml.{name}_token_id") for name in KEYS}
    if not _is_token(named["eos"], header.strings):
        named["eos"] = DEFAULT_EOS.get(str(header.keys.get("tokenizer.ggml.model")))
    found = {token for token in named.values() if _is_token(token, header.strings)}
    found |= {place[text] for text in TEXTS if text in place}
    texts = {header.strings[token] for token in found}
    if any(both <= texts for both in OF_PARTS):
        found -= {place["<|end|>"]} if "<|end|>" in place else set()
    return tuple(sorted(found))


def _is_token(value: object, tokens: tuple[str, ...]) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < len(tokens)
