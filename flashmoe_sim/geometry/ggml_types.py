"""The storage types of ggml tensors: how many weights make a block and how many bytes a block takes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple


class GgmlType(NamedTuple):
    """One storage type: its number in a GGUF file, its name, weights per block, bytes per block, bytes before a row."""

    number: int
    name: str
    block_weights: int
    block_bytes: int
    row_bytes: int = 0


_ALL = (
    GgmlType(0, "F32", 1, 4),
    GgmlType(1, "F16", 1, 2),
    GgmlType(2, "Q4_0", 32, 18),
    GgmlType(3, "Q4_1", 32, 20),
    GgmlType(6, "Q5_0", 32, 22),
    GgmlType(7, "Q5_1", 32, 24),
    GgmlType(8, "Q8_0", 32, 34),
    GgmlType(9, "Q8_1", 32, 40),
    GgmlType(10, "Q2_K", 256, 84),
    GgmlType(11, "Q3_K", 256, 110),
    GgmlType(12, "Q4_K", 256, 144),
    GgmlType(13, "Q5_K", 256, 176),
    GgmlType(14, "Q6_K", 256, 210),
    GgmlType(15, "Q8_K", 256, 292),
    GgmlType(16, "IQ2_XXS", 256, 66),
    GgmlType(17, "IQ2_XS", 256, 74),
    GgmlType(18, "IQ3_XXS", 256, 98),
    GgmlType(19, "IQ1_S", 256, 50),
    GgmlType(20, "IQ4_NL", 32, 18),
    GgmlType(21, "IQ3_S", 256, 110),
    GgmlType(22, "IQ2_S", 256, 82),
    GgmlType(23, "IQ4_XS", 256, 136),
    GgmlType(24, "I8", 1, 1),
    GgmlType(25, "I16", 1, 2),
    GgmlType(26, "I32", 1, 4),
    GgmlType(27, "I64", 1, 8),
    GgmlType(28, "F64", 1, 8),
    GgmlType(29, "IQ1_M", 256, 56),
    GgmlType(30, "BF16", 1, 2),
    GgmlType(34, "TQ1_0", 256, 54),
    GgmlType(35, "TQ2_0", 256, 66),
    GgmlType(39, "MXFP4", 32, 17),
    GgmlType(40, "NVFP4", 64, 36),
    GgmlType(41, "Q1_0", 128, 18),
    GgmlType(42, "Q2_0", 64, 18),  # ggml-org/llama.cpp pull request 24448
    # ik_llama.cpp's: gguf-py/gguf/constants.py; the scale of a row: row_meta_size in ggml/src/ggml.c.
    GgmlType(133, "Q6_0", 32, 26),
    GgmlType(137, "IQ2_K", 256, 76),
    GgmlType(138, "IQ3_K", 256, 110),
    GgmlType(139, "IQ4_K", 256, 144),
    GgmlType(140, "IQ5_K", 256, 176),
    GgmlType(141, "IQ6_K", 256, 212),
    GgmlType(144, "IQ4_KS", 256, 136, 4),
    GgmlType(145, "IQ2_KS", 256, 70, 2),
    GgmlType(146, "IQ4_KSS", 256, 128, 4),
    GgmlType(152, "IQ5_KS", 256, 168, 4),
    GgmlType(153, "IQ2_KT", 256, 68, 4),
    GgmlType(154, "IQ3_KT", 256, 100, 4),
    GgmlType(155, "IQ4_KT", 256, 128, 4),
    GgmlType(156, "IQ3_KS", 256, 102, 2),
    GgmlType(157, "IQ2_KL", 256, 86, 2),
    GgmlType(158, "IQ1_KT", 256, 56, 4),
    GgmlType(219, "IQ1_S_R4", 32, 6, 2),
    GgmlType(229, "IQ1_M_R4", 32, 7, 2),
)
BY_NUMBER = {item.number: item for item in _ALL}
BY_NAME = {item.name: item for item in _ALL}


def tensor_bytes(storage: GgmlType, ne: Sequence[int]) -> int:
    """Bytes of a tensor with `ne` weights in each dimension, the first being the contiguous one.

    Raises ValueError if the rows are not a whole number of blocks.
    """
    if ne[0] % storage.block_weights:
        raise ValueError(f"a row of {ne[0]} weights is not a whole number of {storage.name} blocks")
    return (storage.row_bytes + ne[0] // storage.block_weights * storage.block_bytes) * prod(ne[1:])
