"""What people hand in to Rapid-MLX's community benchmarks: a JSON document with a bucket for each length of prompt.

Source: raullenchai/Rapid-MLX community-benchmarks/schema.json.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from flashmoe_sim.measured.documents import rows_in
from flashmoe_sim.measured.tables import real, whole
from flashmoe_sim.measured.value import FoundSpeeds, Measured, mlx_quant_of

KEYS = "buckets", "model", "software"


def detect(text: str) -> bool:
    return '"rapid_mlx"' in text and '"buckets"' in text


def read(text: str, where: str) -> FoundSpeeds:
    """The median prompt and decode speed of each bucket."""
    found = FoundSpeeds()
    rows, torn = rows_in(text, where, lambda one: set(KEYS) <= set(one))
    found.left_out.extend([torn] if torn else [])
    for record in (row.values for row in rows):
        model, specs = _object(record["model"]), _object(_object(record.get("config")).get("buckets_spec"))
        name = str(model.get("hf_path") or model.get("alias") or "")
        for bucket, speeds in _object(record["buckets"]).items():
            spec = _object(specs.get(bucket))
            prompt, most = whole(spec.get("prompt_tokens")) or 0, whole(spec.get("max_tokens")) or 0
            for key, is_prompt, count, depth in (("prefill_tps", True, prompt, 0), ("decode_tps", False, most, prompt)):
                place, of = f"{where}: bucket {bucket}", _object(_object(speeds).get(key))
                tok_s, sd = real(of.get("median")), real(of.get("stddev")) or 0.0
                if tok_s is None:
                    found.left_out.append(f"{place}: has no {key}")
                elif found.enough(count, place, prompt=is_prompt):
                    one = partial(Measured, where=place, engine="Rapid-MLX", system="mlx", model=name)
                    given = {"quant": mlx_quant_of(name), "depth": depth, "prompt": is_prompt, "tokens": count}
                    found.add(partial(one, tok_s=tok_s, sd=sd / tok_s if sd and tok_s > 0 else None, **given))
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
