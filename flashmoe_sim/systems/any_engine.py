"""Any engine, in place of one without a system: all on the GPU, experts on the CPU, or streamed from storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from flashmoe_sim.machines.belief import Whose
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.big_moe_on_edge import BigMoeOnEdge
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.table import NOT_MODELLED

NAME = "any engine"
ON_GPU, ON_CPU, STREAMED = "gpu", "cpu", "streamed"
WAYS = {  # in the order in which they are tried
    "all_gpu": (ON_GPU, ON_CPU, STREAMED),
    **dict.fromkeys(("slot_bank_ssd", "ssd_stream", "page_cache_mmap"), (STREAMED, ON_GPU, ON_CPU)),
}


class Plain(System):
    """Any engine: it reads every format of every model, and has the error of engines that nobody here knows."""

    program: ClassVar[str] = ""
    has_command: ClassVar[bool] = False
    way: ClassVar[str]

    def whose(self, model: str) -> Whose:
        return Whose(f"{NAME}, {self.way}", NAME, self.spec, model)


@dataclass(frozen=True, kw_only=True)
class PlainGpu(Plain, AllGpu):
    """All weights are in GPU memory."""

    way: ClassVar[str] = ON_GPU


@dataclass(frozen=True, kw_only=True)
class PlainPlaced(Plain, PlacedLayers):
    """Experts of layers that do not fit the GPU are computed on the CPU."""

    way: ClassVar[str] = ON_CPU


@dataclass(frozen=True, kw_only=True)
class PlainCpu(Plain, Cpu):
    """The CPU computes everything from the mapped file."""

    way: ClassVar[str] = ON_CPU


@dataclass(frozen=True, kw_only=True)
class PlainStream(Plain, BigMoeOnEdge):
    """RAM has the experts used last, and storage the others."""

    way: ClassVar[str] = STREAMED


def plain_engines(run: PublishedRun) -> Iterator[Plain]:
    """Plain engines that it may have been, the likeliest first."""
    for way in WAYS.get(run.strategy, (ON_CPU, STREAMED)):
        if way == ON_GPU:
            yield PlainGpu()
        elif way == STREAMED:
            yield PlainStream()
        else:
            if run.cpu_layers is not None:
                yield PlainPlaced(cpu_layers=run.cpu_layers)
            yield PlainPlaced()
            yield PlainCpu()


@cache
def ways_of(name: str) -> tuple[Plain, ...]:
    """The ways of any engine under the name of one that is not modelled."""
    title = NOT_MODELLED[name]
    kinds = {"gpu": PlainGpu, "layers": PlainPlaced, "cpu": PlainCpu, "streamed": PlainStream}
    return tuple(
        type(kind.__name__, (kind,), {"name": f"{name}-{way}", "title": title, "engine": title})()
        for way, kind in kinds.items()
    )
