"""What a machine, a runtime, a model and its sidecar need to run together, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flashmoe_sim.budget import MemoryBudget
from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import size
from native_bridge import host
from native_bridge.cache import PROGRAM_BYTES
from native_bridge.engines.base import DoctorFinding, Runtime
from native_bridge.engines.table import ENGINES, UNNAMED, find_runtime
from native_bridge.page_cache import confined


def examine(
    *, runtime: str | None = None, model: Path | None = None, sidecar: Path | None = None, bank: int | None = None
) -> list[DoctorFinding]:
    """Everything that a run needs, checked one by one; a check that cannot be made is a finding too.

    model: a GGUF file, None for the small bundled one. bank: slots per layer that should fit into memory.
    """
    try:
        host.system_facts()
    except BadInput:  # nothing else can be looked at
        return [DoctorFinding("missing", "psutil", "a package that is not installed", host.INSTALL)]
    described = _described(runtime)
    found = None if isinstance(described, BadInput) else described
    engine = ENGINES[UNNAMED if found is None else found.engine]
    findings = [_missing("runtime", described)] if isinstance(described, BadInput) else []
    findings += [*engine.examine(found), *_amx()]
    if model is None and sidecar is not None:
        return [*findings, DoctorFinding("missing", "model", "a sidecar, but not its model", "give --model, too")]
    geometry: ModelGeometry | None = None
    try:
        if model is None:
            from native_bridge.fixture import bundled_model

            model = bundled_model()
        geometry = read_gguf(model)
    except BadInput as error:
        findings.append(_missing("model", error))
    if geometry is not None:
        assert model is not None
        findings += [_model(geometry), *_streamed(geometry), *_ram(geometry, bank)]
        if found is not None:
            findings += engine.examine_bank(found, geometry, bank)
        findings += _sidecar(geometry, model, sidecar)
    return [*findings, *_temperature(), _page_cache()]


def _described(given: str | None) -> Runtime | BadInput:
    try:
        return find_runtime(given, ready=False)
    except BadInput as error:
        return error


def _amx() -> Iterator[DoctorFinding]:
    if host.amx_trap():
        yield DoctorFinding(
            "warning",
            "processor",
            f"{host.cpu_name()}: announces AMX, and the system does not grant it",
            host.AMX_ADVICE,
        )
    else:
        yield DoctorFinding("ok", "processor", host.machine_name())


def _model(model: ModelGeometry) -> DoctorFinding:
    layers = list(model.layers.values())
    experts = _range([layer.n_experts for layer in layers])
    each = sorted({layer.expert_bytes for layer in layers})
    costs = size(each[0]) if len(each) == 1 else f"{size(each[0])} to {size(each[-1])}"
    found = (
        f"{model.name}: {model.arch}, {len(layers)} MoE layers of {experts} experts, top-{model.top_k}, {costs} each"
    )
    return DoctorFinding("ok", "model", found)


def _streamed(model: ModelGeometry) -> Iterator[DoctorFinding]:
    from flashmoe_sim.systems.slot_bank_flags import not_streamed

    if other := not_streamed(model.arch):
        yield DoctorFinding(
            "warning",
            "architecture",
            f"the slot bank of the verified build {other}",
            "run it all resident (stock, resident-bank), or record it with sim trace capture",
        )


def _ram(model: ModelGeometry, bank: int | None) -> Iterator[DoctorFinding]:
    free = host.free_ram_bytes()
    budget = MemoryBudget(ram_bytes=free, dense_bytes=model.dense_bytes or 0, buffers_bytes=PROGRAM_BYTES)
    rest, slot = budget.taken_bytes, model.bank_bytes(1)
    experts = max(layer.n_experts for layer in model.layers.values())
    fits = min(experts, int(budget.left_bytes // slot))
    if bank is None:
        if fits < model.top_k:
            yield _no_memory(free, rest + slot * model.top_k, f"a bank of {model.top_k}", "end other programs")
        else:
            yield DoctorFinding("ok", "memory", f"{size(free)} free: a bank of up to {fits} of {experts} slots fits")
        return
    needs = rest + model.bank_bytes(bank)
    if bank > experts:
        yield DoctorFinding(
            "missing", "memory", f"a bank of {bank}, but {experts} experts", f"give --bank up to {experts}"
        )
    elif bank < model.top_k:
        yield DoctorFinding(
            "missing", "memory", f"a bank of {bank} for top-{model.top_k}", f"give --bank {model.top_k} or more"
        )
    elif needs > free:
        yield _no_memory(
            free, needs, f"a bank of {bank}", f"give --bank {fits}" if fits >= model.top_k else "add memory"
        )
    else:
        yield DoctorFinding("ok", "memory", f"{size(free)} free: a bank of {bank} and the rest take {size(needs)}")


def _no_memory(free: int, needs: int, what: str, to_do: str) -> DoctorFinding:
    return DoctorFinding("missing", "memory", f"{size(free)} free: {what} and the rest take {size(needs)}", to_do)


def _sidecar(geometry: ModelGeometry, model: Path, sidecar: Path | None) -> Iterator[DoctorFinding]:
    if sidecar is None:
        free, needs = host.free_disk_bytes(Path.cwd()), geometry.routed_bytes
        found = f"none given: writing one here takes {size(needs)}; {size(free)} are free"
        if needs > free:
            yield DoctorFinding("missing", "sidecar", found, "free the disk, or write it to another one")
        else:
            yield DoctorFinding("ok", "sidecar", found)
        return
    from native_bridge.fixture.verify import verify_sidecar

    try:
        wrong = verify_sidecar(sidecar, model)
    except BadInput as error:
        yield _missing("sidecar", error)
        return
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        yield DoctorFinding(
            "missing", "sidecar", f"{sidecar}: {wrong[0]}{more}", "write it again: sim model make-sidecar"
        )
    else:
        yield DoctorFinding("ok", "sidecar", f"{sidecar}: holds the model's experts")


def _temperature() -> Iterator[DoctorFinding]:
    if found := host.temperature_c():
        yield DoctorFinding("ok", "temperature", ", ".join(f"{name} {value:.0f} °C" for name, value in found.items()))


def _page_cache() -> DoctorFinding:
    with confined(1 << 30) as group:
        if group is not None:
            return DoctorFinding("ok", "page cache", "cold runs can be confined to the memory they need")
    return DoctorFinding(
        "warning",
        "page cache",
        "cold runs cannot be confined: no cgroup may be made here",
        "they are refused where the page cache refills; run as root, or in a session of systemd",
    )


def _missing(name: str, error: BadInput) -> DoctorFinding:
    return DoctorFinding("missing", name, error.found, error.advice)


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
