"""What an execution model declares: in which order a system reads, uploads and computes the experts of a call."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getdoc
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.calls import CallSteps
from flashmoe_sim.timeline.names import UPLOADS, Uploads
from flashmoe_sim.timeline.serve import serve
from flashmoe_sim.timeline.work import Work

NEVER = 2**31 - 1  # more than a call has


@dataclass(frozen=True)
class ExecutionModel:
    """One order of events. The first paragraph of a model's docstring is its entry in docs/background/seconds.md.

    describes: the system that works this way.
    reads: whether a miss may be read; False if every expert is resident.
    has_bank: whether a read expert goes into a slot; otherwise it is computed where it was read to.
    in_place: whether misses in RAM are used in place, so that only the others are read, from storage.
    from_ram: whether every expert was read into RAM before the run, and a miss is copied from there.
    experts_on_cpu: whether the bank is in RAM and the CPU computes its experts, while a GPU computes the rest.
    one_by_one: whether each miss is read, uploaded and installed before the next is read; if not, all are read as one
        batch.
    by_family: whether an expert is then read one tensor family after another.
    by_chunk: whether a chunk of an expert is uploaded as soon as it is read, not a whole expert.
    uploads: what is uploaded and installed, and when: `nothing`; misses `in-turn`, after their reads; misses `as-read`,
        each when it arrives, which computing waits for or goes on beside (`while-computing`); misses `beside-reads` of
        the next; or `everything` that a call computes, after its reads.
    beside_compute: whether experts are computed while others are read, which slows both if they share a memory.
    host_calls: the routed calls at which the GPU stops until the host has done its part: `all`, those that are
        `missing` an expert, or `none`.
    padded: whether a GPU that computes hits also computes an empty expert for each miss.
    waits_for_installs: whether a call waits for the experts that it installs.
    installs_on_gpu: of the misses that the CPU would compute, whether the GPU computes those that the call installs.
    reads_ahead: whether experts are read ahead at all. in_background: whether following calls go on meanwhile.
    serve: serve(sim, call, parts) serves one `Call`: it returns the time when its experts are computed, and adds the
        time that passed to `parts`, f64 [N_PARTS]. A model that these steps cannot describe has a kernel of its own.
    """

    name: ClassVar[str]
    describes: ClassVar[str]
    reads: ClassVar[bool] = True
    has_bank: ClassVar[bool] = True
    in_place: ClassVar[bool] = False
    from_ram: ClassVar[bool] = False
    experts_on_cpu: ClassVar[bool] = False
    one_by_one: ClassVar[bool] = False
    by_family: ClassVar[bool] = False
    by_chunk: ClassVar[bool] = False
    uploads: ClassVar[Uploads] = "in-turn"
    beside_compute: ClassVar[bool] = False
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "all"
    padded: ClassVar[bool] = False
    waits_for_installs: ClassVar[bool] = True
    installs_on_gpu: ClassVar[bool] = False
    reads_ahead: ClassVar[bool] = True
    in_background: ClassVar[bool] = False
    serve: ClassVar[Any] = serve

    @property
    def steps(self) -> CallSteps:
        """What the loop reads of the model."""
        return CallSteps(
            uploads=UPLOADS.index(self.uploads),
            reads=self.reads,
            one_by_one=self.one_by_one,
            by_family=self.by_family,
            by_chunk=self.by_chunk,
            in_background=self.in_background,
            in_place=self.in_place,
            beside_compute=self.beside_compute,
            two_lanes=self.in_place and self.has_bank,
            installs_on_gpu=self.installs_on_gpu,
            padded=self.padded,
            resumes=not (self.in_place or self.in_background),
            threshold=self.threshold,
            copies_from=self.copies_from,
            share=self.uploaded_share,
        )

    @property
    def meaning(self) -> str:
        """The model in one sentence."""
        return " ".join((getdoc(type(self)) or "").partition("\n\n")[0].split())

    @property
    def threshold(self) -> int:
        """Requests of a call from which a model serves it in another way, if it has such a limit."""
        return 0

    @property
    def copies_from(self) -> int:
        """The fewest tokens of a call whose misses are copied to the GPU, if the CPU computes those of others."""
        return NEVER

    @property
    def uploaded_share(self) -> int:
        """Of the misses that the CPU would compute, the share that is uploaded for the GPU, in parts of names.WHOLE."""
        return 0

    @property
    def few_as_one(self) -> bool:
        """Whether a call of a few tokens is computed by the kernels of one, for each token by itself."""
        return False

    def computed(self, work: Work) -> Work:
        """The work with the experts that each call computes as its requests, if they are not its distinct ones."""
        return work

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
