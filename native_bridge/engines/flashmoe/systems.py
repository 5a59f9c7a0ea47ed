"""Systems that the simulator predicts, as runs of the runtime."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.slot_bank_flags import INSTALLS
from native_bridge.engines.base import RunRequest, Runtime


def request_of(system: System, model: ModelGeometry, runtime: Runtime, **options: Any) -> RunRequest:
    """The run that measures a system with its settings. options: fields of RunRequest.

    Raises BadInput for a system of another engine, for one that needs a GPU if the runtime finds none, and if the
    environment has a variable that chooses how misses are installed, which is a setting.
    """
    stock = RunRequest("stock", max(layer.n_experts for layer in model.layers.values()), **options)
    if type(system) is SlotBank:
        return _slot_bank(system, model, stock)
    if type(system) is Cpu:
        return replace(stock, gpu_layers="0")
    if type(system) is AllGpu:
        if not runtime.devices:
            raise BadInput(f"system all-gpu: {runtime.path} finds no GPU; leave it out, or give another runtime")
        return replace(stock, gpu_layers="99")
    raise BadInput(
        f"system {system.spec}: runs in {system.engine}; the patched llama-cli runs {SlotBank.name}, {Cpu.name} and "
        f"{AllGpu.name}; leave it out"
    )


def _slot_bank(system: SlotBank, model: ModelGeometry, stock: RunRequest) -> RunRequest:
    if system.mode != "slot-bank" or system.host_bank or system.ubatch > 1:
        raise BadInput(f"system {system.spec}: of its modes only slot-bank, with -ub 1, can be verified; leave it out")
    switches = {name for variables in INSTALLS.values() for name in variables}
    if there := sorted(switches & os.environ.keys()):
        raise BadInput(f"{there[0]} is set; how misses are installed is a setting of slot-bank; unset it")
    return replace(
        stock,
        mode="slot-bank",
        bank=system.slots or system.top_k or model.top_k,
        top_k=system.top_k,
        prefetch=None if system.prefetch == "none" else system.prefetch,
        io_split=system.io_split,
        environment=tuple(INSTALLS[system.install].items()),
    )
