"""The small model as another architecture: one whose routed calls the runtime takes from a callback.

Only `qwen35moe` and `deepseek2` have their slots found within the graph. All others, of which `qwen3next` is one, write
a routed call without tokens for the last layer of every micro-batch that outputs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from native_bridge.fixture import bundled_model

ARCH = "qwen3next"
V_HEADS_PER_K_HEAD = 2


def write_qwen3next(target: Path) -> None:
    """The same weights; of the linear attention, alpha and beta stand together, by head of the keys."""
    import gguf

    source = gguf.GGUFReader(bundled_model())
    old = source.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, ARCH)
    for key, field in source.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            kind, *of = field.types
            writer.add_key_value(key.replace(old, ARCH), field.contents(), kind, of[-1] if of else None)
    beta: dict[str, Any] = {}
    for tensor in source.tensors:
        name, data = tensor.name, tensor.data
        if name.endswith("ssm_beta.weight"):
            beta[name] = data
            continue
        if name.endswith("ssm_alpha.weight"):
            halves = (beta[name.replace("alpha", "beta")], data)
            rows = [half.reshape(-1, V_HEADS_PER_K_HEAD, half.shape[-1]) for half in halves]
            name, data = name.replace("ssm_alpha", "ssm_ba"), np.concatenate(rows, 1).reshape(-1, data.shape[-1])
        writer.add_tensor(name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
