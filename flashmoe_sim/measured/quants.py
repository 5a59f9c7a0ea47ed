"""Names of quantizations in the names of files and in what llama.cpp calls a model."""

from __future__ import annotations

import re

_IN_FILE = re.compile(
    r"(?<![a-z0-9])(?:UD-)?(?:I?Q[1-8](?:_[a-z0-9]+)+|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32)(?![a-z0-9])",
    re.IGNORECASE | re.ASCII,
)
_IN_TYPE = re.compile(r"(?<!\S)(I?Q[1-8]_\w+|TQ[12]_0|MXFP4|NVFP4|BF16|F16|F32)(?: - (Small|Medium|Large))?", re.ASCII)


def quant_of(file: str, model_type: str = "") -> str:
    """The quantization that a file's name says, else llama.cpp's description of the model; empty if neither does."""
    if found := _IN_FILE.findall(re.split(r"[/\\]", file)[-1]):
        return str(found[-1]).upper()
    match = _IN_TYPE.search(model_type)
    if match is None:
        named = _IN_FILE.search(model_type)
        return named[0].upper() if named else ""
    if not match[2] or (match[1], match[2]) == ("Q2_K", "Medium"):  # as llama.cpp calls Q2_K
        return match[1]
    return f"{match[1]}_{match[2][0]}"
