"""What an execution model declares: in which order a system reads, uploads and computes the experts of a call."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getdoc
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.ahead import read_and_upload
from flashmoe_sim.timeline.work import Work

NEVER = 2**31 - 1  # more than a call has


class Call(NamedTuple):
    """One routed call, as a model's kernels see it.

    number, row, n_tokens, requests, misses, warm, fills, installs: as in `Work`; `fills` is its `cold`.
    ready: when its slots are known. expert_s, cold_expert_s: seconds of one expert for its tokens, on the computing
    unit and on the CPU beside a GPU. threshold, copies_from, padded: of the model.
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
    copies_from: int
    padded: bool


@dataclass(frozen=True)
class ExecutionModel:
    """One order of events. The first paragraph of a model's docstring is its entry in docs/background/seconds.md.

    describes: the system that works this way.
    reads: whether a miss may be read; False if every expert is resident.
    has_bank: whether a read expert goes into a slot; otherwise it is computed where it was read to.
    in_place: whether misses in RAM are used in place, so that only the others are read, from storage.
    from_ram: whether every expert was read into RAM before the run, and a miss is copied from there.
    experts_on_cpu: whether the bank is in RAM and the CPU computes its experts, while a GPU computes the rest.
    by_family: whether an expert is read one tensor family after another.
    beside_compute: whether experts are computed while others are read, which slows both if they share a memory.
    host_calls: the routed calls at which the GPU stops until the host has done its part: `all`, those that are
        `missing` an expert, or `none`.
    padded: whether a GPU that computes hits also computes an empty expert for each miss.
    waits_for_installs: whether a call waits for the experts that it installs.
    reads_ahead: whether experts are read ahead at all. in_background: whether following calls go on meanwhile.
    serve: serve(sim, call, parts) serves one `Call`: it returns the time when its experts are computed, and adds the
        time that passed to `parts`, f64 [N_PARTS].
    after: after(sim, number, time) reads ahead the experts that were issued after a call; it returns the time when the
        next call may begin.
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
    padded: ClassVar[bool] = False
    waits_for_installs: ClassVar[bool] = True
    reads_ahead: ClassVar[bool] = True
    in_background: ClassVar[bool] = False
    serve: ClassVar[Any]
    after: ClassVar[Any] = read_and_upload

    @property
    def meaning(self) -> str:
        """The model in one sentence."""
        return " ".join((getdoc(type(self)) or "").partition("\n\n")[0].split())

    @property
    def threshold(self) -> int:
        """Requests of a call from which a model serves it in another way, or a share, if it has such a limit."""
        return 0

    @property
    def copies_from(self) -> int:
        """The fewest tokens of a call whose misses are copied to the GPU, if the CPU computes those of others."""
        return NEVER

    def check(self, machine: Machine, *, direct_io: bool) -> None:
        """Raise BadInput if the machine lacks what the model needs, or if reads bypass a page cache that it uses."""

    def link_rate(self, link: Link) -> Quantity:
        """The rate of uploads over a link: from pinned buffers."""
        return link.pinned_gb_s

    def copies(self, machine: Machine) -> bool:
        """Whether an expert is copied within the memory before it is computed, on a machine without a link.

        For a GPU that shares the memory, it is copied into the bank. A CPU computes it where it was read to.
        """
        return self.has_bank and machine.gpu is not None

    def brought_in(self, work: Work) -> NDArray[np.int32]:
        """How many of a call's misses are brought to where they are computed: i32 [calls]."""
        return work.misses * self.reads
