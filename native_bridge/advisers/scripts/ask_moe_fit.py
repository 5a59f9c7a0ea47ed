"""Asks moe-fit, whose only speed is that of storage: where all fits into memory it says that compute decides.

It takes the index of a GGUF file and the sizes of memories, both given here as its own objects. Of a range that is
closed the geometric mean counts.
"""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any

from lines import Refused, answer_all
from moefit import gguf, machine, plan

CONTEXT = 8192
FREE_DISK = 1 << 62
KEYS = {"embedding_length": 2048, "attention.head_count": 16, "attention.head_count_kv": 2}  # of no row


def ask(question: dict[str, Any]) -> tuple[float, float | None, float | None]:
    of_gpu, ram_gib = (question["gpu_gib"] or 0.0) if question["gpu"] else 0.0, question["ram_gib"]
    rate = question["ssd_gb_s"]
    on = machine.Machine(round(of_gpu * 2**30), round(ram_gib * 2**30), FREE_DISK, "", rate * 1e9)
    found = plan.make(_model(question), on, context=CONTEXT)
    if not found.fits:
        raise Refused(f"will not run: {found.reason}")
    if found.streamed_per_token_gb == 0:
        raise Refused("runs from memory: compute decides the speed")
    low, high = found.tokens_per_second_estimate
    if math.isinf(high):
        raise Refused("a lower bound only")
    return math.sqrt(low * high), low, high


def _model(question: dict[str, Any]) -> Any:
    """The index: experts of equal layers, and the rest as one tensor."""
    size, share = question["file_gib"], question["top_k"] / question["experts"]
    routed = min(size, max(0.0, (size - question["active_gib"]) / (1 - share))) * 2**30
    layers = question["moe_layers"]
    tensors = [gguf.Tensor(f"blk.{n}.ffn_up_exps.weight", (), 0, 0, round(routed / layers)) for n in range(layers)]
    tensors.append(gguf.Tensor("output.weight", (), 0, 0, round(size * 2**30 - routed)))
    known = {"block_count": layers, "expert_count": question["experts"], "expert_used_count": question["top_k"], **KEYS}
    told = {"general.architecture": "row", "general.name": question["model"]}
    return gguf.Model("row.gguf", told | {f"row.{key}": value for key, value in known.items()}, tensors)


if __name__ == "__main__":
    answer_all(ask, version("moe-fit"))
