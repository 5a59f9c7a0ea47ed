"""The tokens that end a text, as the runtime finds them in a header."""

import struct
from pathlib import Path

import pytest

from native_bridge.engines.flashmoe.end_tokens import end_tokens
from native_bridge.engines.flashmoe.engine import FlashMoe
from tests.geometry.conftest import gguf, key, text
from tests.native_bridge.conftest import MODEL

U32, STRING, ARRAY = 4, 8, 9


def strings(name: str, values: list[str]) -> bytes:
    return key(name, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def model(folder: Path, tokens: list[str], *, kind: str = "gpt2", **ids: int) -> Path:
    keys = [key("tokenizer.ggml.model", STRING, text(kind)), strings("tokenizer.ggml.tokens", tokens)]
    keys += [key(f"tokenizer.ggml.{name}_token_id", U32, struct.pack("<I", number)) for name, number in ids.items()]
    path = folder / "m.gguf"
    path.write_bytes(gguf(keys, []))
    return path


def test_the_small_model() -> None:
    assert FlashMoe().go_on_flags(MODEL) == ("--logit-bias", "0-inf")


@pytest.mark.parametrize(
    ("tokens", "ids", "found"),
    [
        (["a", "b", "c"], {"eos": 1}, (1,)),
        (["a", "b", "c"], {"eos": 2, "eot": 0, "eom": 1}, (0, 1, 2)),
        (["a", "<|im_end|>", "<|endoftext|>", "<|file_sep|>", "<|im_start|>"], {"eos": 1}, (1, 2, 3)),
        (["a", "<end_of_turn>", "<eos>"], {"eos": 2, "bos": 0, "padding": 0, "fim_pad": 0}, (0, 1, 2)),
        (["a", "b"], {"eos": 9}, ()),  # not a token: the runtime takes the tokenizer's usual one
        (["a", "<|end|>", "b"], {"eos": 2}, (1, 2)),
        (["a", "<|end|>", "<|return|>", "<|call|>"], {"eos": 2}, (2, 3)),
        (["a", "<|end|>", "<|flush|>", "<|calls|>"], {"eos": 2}, (2, 3)),
        (["a", "<|end|>", "<|return|>", "<|flush|>"], {"eos": 2}, (1, 2, 3)),
    ],
)
def test_by_number_and_by_text(tmp_path: Path, tokens: list[str], ids: dict[str, int], found: tuple[int, ...]) -> None:
    assert end_tokens(model(tmp_path, tokens, **ids)) == found


@pytest.mark.parametrize(("kind", "found"), [("llama", (2,)), ("gpt2", (11,)), ("t5", (1,)), ("rwkv", ())])
def test_a_model_that_names_none(tmp_path: Path, kind: str, found: tuple[int, ...]) -> None:
    assert end_tokens(model(tmp_path, [f"t{number}" for number in range(20)], kind=kind)) == found


def test_a_header_without_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf([key("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2))], []))
    assert FlashMoe().go_on_flags(tmp_path / "m.gguf") == ()
