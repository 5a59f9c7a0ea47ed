"""A llama.cpp run that printed layers on the GPU without saying of how many."""

from __future__ import annotations

from dataclasses import replace

from flashmoe_sim.measured.value import Measured
from flashmoe_sim.systems.llama_flags import UNSURE, system_of


def with_layers(measured: Measured, layers: int) -> Measured:
    """The measurement with its system, if only the number of the model's layers was missing."""
    if not measured.unplaced.endswith(UNSURE):
        return measured
    system, why = system_of(measured.settings, engine=measured.engine, prompt=measured.prompt, layers=layers)
    return replace(measured, system=system, unplaced=why)
