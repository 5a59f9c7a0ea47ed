"""Replay recorded routing of mixture-of-experts models against expert banks, policies and machines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.diagnose import diagnose
    from flashmoe_sim.errors import BadInput, SimError
    from flashmoe_sim.geometry.load import load_model
    from flashmoe_sim.policies.bank import Bank, parse_bank, parse_banks
    from flashmoe_sim.policies.table import parse_policy
    from flashmoe_sim.prefetchers.table import parse_prefetcher
    from flashmoe_sim.residency.curve import hit_curve
    from flashmoe_sim.residency.replay import replay
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.residency.workload import prepare
    from flashmoe_sim.trace.load import load_trace

# Imported when first used: `sim --help` must not wait for the compiler.
_WHERE = {
    "BadInput": "errors",
    "Bank": "policies.bank",
    "Setup": "residency.setup",
    "SimError": "errors",
    "diagnose": "ceilings.diagnose",
    "hit_curve": "residency.curve",
    "load_model": "geometry.load",
    "load_trace": "trace.load",
    "parse_bank": "policies.bank",
    "parse_banks": "policies.bank",
    "parse_policy": "policies.table",
    "parse_prefetcher": "prefetchers.table",
    "prepare": "residency.workload",
    "replay": "residency.replay",
}

__all__ = [
    "BadInput",
    "Bank",
    "Setup",
    "SimError",
    "diagnose",
    "hit_curve",
    "load_model",
    "load_trace",
    "parse_bank",
    "parse_banks",
    "parse_policy",
    "parse_prefetcher",
    "prepare",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
