"""The runtime's modes, and what each is given."""

from __future__ import annotations

TRACED = ("resident-slot-bank", "slot-bank")
BANKED = (*TRACED, "oracle-prefetch")
ORACLES = ("oracle-all-hit", "oracle-prefetch")
MODES = ("stock", "resident-bank", *TRACED, *ORACLES)
PREFETCH = {
    "temporal": "--moe-prefetch-temporal",
    "predict-prev": "--moe-predict-prev-token",
    "predict-top1": "--moe-predict-top1-prev",
}
