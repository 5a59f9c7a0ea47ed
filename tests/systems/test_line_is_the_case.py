"""The command line of a system asks for what was priced: the context and the layers."""

from __future__ import annotations

import re

import pytest

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.systems.table import SYSTEMS

MACHINES = (
    "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB",
    "rtx-4090 + xeon-8480 + 256GiB + linux",
    "2x rtx-5090 + 96GiB + linux",
    "rx-9070-xt + 64GiB",
    "rtx-5090 + 128GiB",
    "strix-halo-128",
    "m4-max-128",
    "m2-16",
)
MODELS = (
    "gpt-oss-120b",
    "qwen3-30b-a3b",
    "qwen3.5-35b-a3b:q5_k_m",
    "qwen3.8-flash-next",
    "qwen3.8-flash-next:mlx-4bit",
    "glm-4.5-air:fp8",
    "deepseek-v2-lite",
    "deepseek-v4-flash",
    "gemma-4-26b-a4b:mlx-4bit",
    "qwen3.5-397b-a17b:mlx-4bit",
)
CONTEXT = 8192
UNASKED = {"flash-moe", "mlx"}  # have no option for the length of a context


def priced(system: System, name: str, machine: str) -> tuple[Case, System] | None:
    """The case and the setting that are priced for a system; None if it does not run there."""
    memory = MemoryOptions(context=CONTEXT)
    try:
        of = resolve(
            workload=None,
            model=named_model(name),
            machine=load_machine(machine),
            systems=[system],
            memory=memory,
            may_borrow=False,
        ).case
        if system.why_not(of):
            return None
        sized = system.sized(of)
        sized.check(of)
    except BadInput:
        return None
    return of, sized


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_line_asks_for_the_case_that_was_priced(name: str) -> None:
    system, seen = SYSTEMS[name](), 0
    for machine in MACHINES:
        for model in MODELS:
            if (found := priced(system, model, machine)) is None:
                continue
            case, sized = found
            seen += 1
            line = sized.launch(case).line
            assert str(CONTEXT) in re.split("[ =]", line) or name in UNASKED, line
            check_layers(line, sized, case)
    assert seen or name == "slot-remap"  # of which no output is known to be right on these machines


def check_layers(line: str, system: System, case: Case) -> None:
    """The layers on the CPU, where a system keeps whole layers there."""
    layers = getattr(system, "cpu_layers", None)
    on_cpu = re.search(r"(?:--n-cpu-moe|-ncmoe) (\d+)", line)
    if layers is not None and layers >= 0 and on_cpu:
        assert int(on_cpu[1]) - layers in (0, min(case.model.layers)), line
