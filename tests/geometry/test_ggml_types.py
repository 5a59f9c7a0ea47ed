"""The table of storage types, against the `gguf` package and by hand."""

from __future__ import annotations

import gguf
import pytest

from flashmoe_sim.geometry.ggml_types import BY_NAME, BY_NUMBER, tensor_bytes


def test_the_table_equals_the_gguf_package() -> None:
    ours = {number: (item.name, item.block_weights, item.block_bytes) for number, item in BY_NUMBER.items()}
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {number: ours.get(number) for number in theirs} == theirs


def test_a_matrix_by_hand() -> None:
    """2,048 x 768 weights in blocks of 256 are 6,144 blocks of 144 bytes."""
    assert tensor_bytes(BY_NAME["Q4_K"], (2048, 768)) == 6144 * 144 == 884_736
    assert tensor_bytes(BY_NAME["Q4_K"], (2048, 768, 128)) == 128 * 884_736


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="a row of 704 weights is not a whole number of Q4_K blocks"):
        tensor_bytes(BY_NAME["Q4_K"], (704, 2816))
