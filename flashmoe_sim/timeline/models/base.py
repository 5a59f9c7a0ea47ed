"""What an execution model says of itself: in which order a system reads, uploads and computes the experts of a call."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getdoc
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.ahead import read_and_upload
from flashmoe_sim.timeline.work import Work


class Call(NamedTuple):
    """One routed call, as the kernels of a model see it.

    number, row, n_tokens, requests, misses, warm, fills, installs: as in `Work`, whose `cold` are the first fills.
    ready: when its slots are known. expert_s, cold_expert_s: one of its experts, for its tokens, on the unit that
    computes and on the CPU beside a GPU. threshold: of the model.
    """

    number: int
    row: int
    n_tokens: int
    requests: int
    misses: int
    warm: int
    fills: int
    installs: int
    ready: float
    expert_s: float
    cold_expert_s: float
    threshold: int


@dataclass(frozen=True)
class ExecutionModel:
    """One order of events. The first paragraph of a model's docstring is its entry in docs/background/seconds.md.

    describes: the system that works this way.
    reads: whether a miss may be read; with every expert resident there is none.
    has_bank: whether what is read goes on into a slot; otherwise it is computed where it was read to.
    in_place: whether misses that RAM holds are used where they lie, so that only the others are read, from storage.
    from_ram: whether every expert was read into RAM before the run, and a miss is copied from there.
    experts_on_cpu: whether the bank is in RAM and the CPU computes its experts, beside a GPU that computes the rest.
    by_family: whether an expert is read one tensor family after another.
    beside_compute: whether experts are computed while others are read, which slows both if they share a memory.
    host_calls: the routed calls that the GPU stops for, until the host has done its part: `all`, those that are
        `missing` an expert, or `none`.
    reads_ahead: whether experts are read ahead at all. in_background: whether the calls that follow go on meanwhile.
    serve: serve(sim, call, parts) serves one `Call`: returns when its experts have been computed, and adds the time
        that passed to `parts`, f64 [N_PARTS].
    after: after(sim, number, time) reads the experts ahead that were issued after a call; returns when the next call
        may begin.
    Both are kernels, inlined into the loop of kernel.py.
    """

    name: ClassVar[str]
    describes: ClassVar[str]
    reads: ClassVar[bool] = True
    has_bank: ClassVar[bool] = True
    in_place: ClassVar[bool] = False
    from_ram: ClassVar[bool] = False
    experts_on_cpu: ClassVar[bool] = False
    by_family: ClassVar[bool] = False
    beside_compute: ClassVar[bool] = False
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "all"
    reads_ahead: ClassVar[bool] = True
    in_background: ClassVar[bool] = False
    serve: ClassVar[Any]
    after: ClassVar[Any] = read_and_upload

    @property
    def meaning(self) -> str:
        """One sentence."""
        return " ".join((getdoc(type(self)) or "").partition("\n\n")[0].split())

    @property
    def threshold(self) -> int:
        """Tokens or requests of a call from which a model serves it in another way, if it has such a limit."""
        return 0

    def check(self, machine: Machine, *, direct_io: bool) -> None:
        """Raise BadInput if the machine lacks what the model needs, or reads go past a page cache that it uses."""

    def link_rate(self, link: Link) -> Quantity:
        """How fast experts are uploaded over a link: from pinned buffers."""
        return link.pinned_gb_s

    def copies(self, machine: Machine) -> bool:
        """Whether an expert is copied within the memory before it is computed, if there is no link.

        A GPU that shares the memory has it copied into its bank. A CPU computes where the expert was read to.
        """
        return self.has_bank and machine.gpu is not None

    def brought_in(self, work: Work) -> NDArray[np.int32]:
        """How many of a call's misses are brought to where they are computed: i32 [calls]."""
        return work.misses * self.reads
