"""Which change of the machine would help most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flashmoe_sim.ceilings.bottleneck import speed_with
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.timeline.assemble import Conditions, costs_of, page_cache_bytes, work_of
from flashmoe_sim.timeline.work import Work, decoded

TWICE, HALF = 2.0, 0.5
RAM = "memory.ram_gib"


class Change(NamedTuple):
    """A change of the machine: in words, by what it multiplies the machine's quantities, and which kinds of
    `bottleneck.FREED` it makes cheaper."""

    words: str
    factors: Mapping[str, float]
    kinds: tuple[str, ...]


CHANGES = {
    "twice storage.read_gb_s": Change(
        "storage that is twice as fast", {"storage.read_gb_s": TWICE, "storage.request_us": HALF}, ("read",)
    ),
    "twice memory.copy_gb_s": Change("copying within RAM twice as fast", {"memory.copy_gb_s": TWICE}, ("read",)),
    "twice memory.ram_gib": Change("twice the RAM", {RAM: TWICE}, ("read",)),
    "twice link.pinned_gb_s": Change(
        "a link to the GPU that is twice as fast", {"link.pinned_gb_s": TWICE}, ("upload",)
    ),
    "twice link.pageable_gb_s": Change(
        "copies from pageable RAM to the GPU twice as fast", {"link.pageable_gb_s": TWICE}, ("upload",)
    ),
    "twice gpu.weights_gb_s": Change("GPU memory that is twice as fast", {"gpu.weights_gb_s": TWICE}, ("compute",)),
    "half gpu.layer_us": Change("half the GPU's fixed time per layer", {"gpu.layer_us": HALF}, ("compute",)),
    "twice cpu.weights_gb_s": Change(
        "a CPU that reads weights twice as fast", {"cpu.weights_gb_s": TWICE}, ("cpu", "compute")
    ),
    "half cpu.layer_us": Change("half the CPU's fixed time per layer", {"cpu.layer_us": HALF}, ("cpu", "compute")),
    "half host.call_us": Change("half the host's time per call", {"host.call_us": HALF}, ("compute",)),
    "half host.install_us": Change("half the host's time per install", {"host.install_us": HALF}, ("upload",)),
}


@dataclass(frozen=True)
class Move:
    """The speed after a change. gain: over the speed of the given setup, 0.1 for 10%."""

    name: str
    tok_s: float
    gain: float


def hardware_moves(
    workload: Workload, own: Replayed, work: Work, machine: Machine, conditions: Conditions
) -> tuple[Move, ...]:
    """The speed of `own` with each single change of CHANGES that the machine has the quantities for, the best first.

    Storage with twice the bandwidth also takes half the time per request. Additional memory becomes page cache.
    work: of the replay on this machine.
    """
    setup = own.setup

    def speed(work: Work, machine: Machine) -> float:
        return speed_with(decoded(work), costs_of(workload, setup, machine, conditions), conditions.execution)

    before, moves = speed(work, machine), []
    has = dict(machine.quantities()).keys()
    for name, (_, factors, _) in CHANGES.items():
        if not has >= factors.keys():
            continue
        other, its_work = machine.scaled(factors), work
        if RAM in factors:
            room = page_cache_bytes(workload, setup, own, other, conditions)
            its_work = work_of(workload, own, page_cache_bytes=room, loaded=conditions.execution.in_place)
        after = speed(its_work, other)
        moves.append(Move(name, after, after / before - 1))
    return tuple(sorted(moves, key=lambda move: -move.tok_s))
