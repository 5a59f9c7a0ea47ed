"""What is common to the models in which the CPU computes misses in RAM, beside a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Conflict, Unsupported
from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.timeline.models.base import NEVER, ExecutionModel
from flashmoe_sim.timeline.names import Uploads
from flashmoe_sim.timeline.work import Work


@dataclass(frozen=True)
class InRam(ExecutionModel):
    """Misses are in RAM, and experts read ahead are only uploaded.

    copy_from_tokens: the fewest tokens of a call whose misses are copied to the GPU; the CPU computes smaller calls'.
    pinned: whether what is uploaded is in pinned buffers, as llama.cpp has it without mmap, and not in a mapped file.
    """

    in_place: ClassVar[bool] = True
    uploads: ClassVar[Uploads] = "as-read"
    in_background: ClassVar[bool] = True

    copy_from_tokens: int = NEVER
    pinned: bool = True

    @property
    def copies_from(self) -> int:
        return self.copy_from_tokens

    def link_rate(self, link: Link) -> Quantity:
        return link.pinned_gb_s if self.pinned else link.pageable_gb_s

    def check(self, machine: Machine, *, direct_io: bool) -> None:
        if machine.gpu is None or machine.cpu is None or machine.cpu.weights_gb_s is None or machine.memory is None:
            raise Unsupported(
                f"machine {machine.name}: {self.name} computes on a GPU and a CPU and needs [gpu], "
                "[cpu] with weights_gb_s, and [memory]; choose another --execution or another machine"
            )
        if direct_io:
            raise Conflict(
                f"--direct-io: {self.name} uses experts where they lie in RAM, which is the page cache; "
                "leave it out, or choose another --execution"
            )

    def brought_in(self, work: Work) -> NDArray[np.int32]:
        """The misses that are read into RAM, uploaded into a slot, or both."""
        brought = np.maximum(work.misses - work.warm, work.installs)
        return np.where(work.n_tokens >= self.copies_from, work.misses, brought).astype(np.int32)
