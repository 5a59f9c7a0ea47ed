"""Whole layers of experts on the GPU, the others on the CPU."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.compute_buffers import OFFLOAD_TOKENS
from flashmoe_sim.geometry.families import ROUTED_FAMILIES
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, UnknownName, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Candidates
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.placed import Placed
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, gpu_left, gpu_weights, llama_words, no_room
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.split import Divided, besides, loads, of_other_gpus, parse_shares, written
from flashmoe_sim.systems.workloads import batched
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy

BATCH = 2048  # tokens that llama.cpp takes at once by default, and divides into micro-batches
MIN_BATCH = OFFLOAD_TOKENS


@dataclass(frozen=True)
class TheseLayers(Placed):
    """Like `placed`, with the layers named. rows: of the model's layers with experts, counted from 0."""

    rows: tuple[int, ...] = ()

    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        return [np.full(len(counts), row in self.rows) for row, counts in enumerate(candidates.counts)]


@dataclass(frozen=True, kw_only=True)
class PlacedLayers(Divided, program="llama-cpp", name="placed"):
    """Some layers keep their experts on the GPU, and the CPU computes the experts of the other layers; nothing moves.

    Several GPUs get whole layers in order, and --n-cpu-moe does not move the cuts between them, so that it empties the
    first GPU. Here all layers count the same dense weights, and the output counts as one more layer.

    cpu_layers: layers whose experts are on the CPU, from layer 0 on; left out: as few as leave room for the others.
        `--n-cpu-moe` counts layers without experts too. `--fit` fills the GPU from the low layers on.
    ot: an argument of `-ot` that decides instead, such as exps=CPU.
    ts: shares of the layers for several GPUs, as in `-ts`, such as 3/1; empty: the engine's default. Shares are of the
        number of layers, whatever their size. The default is equal shares for equal GPUs or, if they leave too little
        room, shares that leave more. Without cpu_layers, --fit decides.
    ubatch: tokens of a prompt that are computed together, as in `-ub`; left out: 512. The experts of a layer on the CPU
        are copied to the GPU once for all of them, and buffers grow with them.
    mmap: whether the files are mapped, yes or no; empty: no if RAM holds the files as a whole. What prompts copy to the
        GPU is pinned then: on an H200 beside a Xeon, prompts of 512 tokens were 6 times as fast.
    """

    prompt_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"ubatch": (None, 1024, 2048, 4096)}
    pins: ClassVar[bool] = True  # what it does not map

    cpu_layers: int | None = None
    ot: str = ""
    ts: str = ""
    ubatch: int | None = None
    mmap: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mmap not in ("", "yes", "no"):
            raise UnknownName(f"system {self.name}: mmap {self.mmap!r}; expected yes or no")
        if self.ot and self.cpu_layers is not None:
            raise Conflict(f"system {self.name}: cpu_layers and ot both place experts; give one")
        if self.ts and self.fits_itself:
            raise Incomplete(
                f"system {self.name}: ts without cpu_layers or ot, which --fit cuts by itself; give one too"
            )

    @property
    def fits_itself(self) -> bool:
        return self.cpu_layers is None and not self.ot

    def in_batches(self, case: Case) -> Case:
        """The case with this system's micro-batches, which decide the compute buffers."""
        return replace(case, micro_batch=self.ubatch) if self.ubatch else case

    def prepared(self, workload: Workload) -> Workload:
        return batched(workload, self.ubatch) if self.ubatch else workload

    def on_cpu(self, case: Case) -> list[int]:
        """The layers whose experts are on the CPU, ascending."""
        numbers = sorted(case.model.layers)
        if self.ot:
            return sorted(on_cpu(case.model, self.ot, gpus=case.machine.gpus))
        if self.cpu_layers is None:
            return self._that_do_not_fit(case, numbers)
        return [number for number in numbers if number < self.cpu_layers]

    def _that_do_not_fit(self, case: Case, order: Sequence[int]) -> list[int]:
        """The layers left over, from the first that does not fit, when the GPU is filled in this order."""
        left = gpu_left(self.in_batches(case))
        if left < 0:
            raise no_room("experts on the GPU", left)
        for place, number in enumerate(order):
            left -= case.experts_bytes([number])
            if left < 0:
                return sorted(order[place:])
        return []

    def sizes(self, case: Case) -> Sequence[int]:
        """From the fewest layers that leave the others room on the GPU up to all layers."""
        numbers = sorted(case.model.layers)
        off = self._that_do_not_fit(case, numbers[::-1])
        return sorted({self._first_that_fits(case, max(off, default=-1) + 1, numbers[-1] + 1), numbers[-1] + 1})

    def _first_that_fits(self, case: Case, least: int, most: int) -> int:
        """The least number of layers on the CPU with which every GPU has room, and not only all GPUs together."""
        each = range(least, most)
        fits = (layers for layers in each if replace(self, cpu_layers=layers).overflow(case, case.spare_bytes) is None)
        return next(fits, most)

    def sized(self, case: Case) -> Self:
        """With the fewest layers on the CPU that leave room, and in so many words, so that a command line says them."""
        self.on_cpu(case)
        return replace(self, cpu_layers=self.sizes(case)[0]) if self.fits_itself else self

    def shares(self, case: Case) -> tuple[float, ...]:
        """As given, else as the family has them."""
        return parse_shares(self.ts, case.machine.gpus) if self.ts else super().shares(case)

    def loads(self, case: Case, cut: Sequence[float]) -> tuple[list[int], list[int]]:
        return loads(self.in_batches(case), self.at(case))

    def at(self, case: Case) -> Mapping[int, str]:
        if self.ot:
            return overridden(case.model, self.ot, gpus=case.machine.gpus)
        return dict.fromkeys(self.on_cpu(case), "CPU")

    def otherwise(self, case: Case) -> str:
        fitting = self.fitting(case)
        return f"; give ts={written(fitting)}" if fitting else "; no ts that fits was found; put more layers on the CPU"

    def plan(self, case: Case) -> Plan:
        off = self.on_cpu(case)
        on = {row: number for row, number in enumerate(sorted(case.model.layers)) if number not in off}
        policy = TheseLayers(rows=tuple(on)) if on else Demand()
        bank = Bank(None, case.experts_bytes(on.values()) or 1)
        pinned = self.pins and self.loads_whole(case)
        execution = PrefillCopy(self.copy_from_tokens(case), pinned)
        return Plan(Setup(bank, policy, "atomic"), execution, self.machine_of(case))

    def copy_from_tokens(self, case: Case) -> int:
        """Tokens of a micro-batch from which its experts are copied to the GPU."""
        return MIN_BATCH

    def memory(self, case: Case) -> tuple[Share, ...]:
        in_ram = case.experts_bytes(self.on_cpu(case))
        shares = (
            Share("experts", "gpu", case.model.routed_bytes - in_ram),
            *gpu_weights(self.in_batches(case)),
            Share("experts of the CPU", "mapped", in_ram),
        )
        return shares if self.fits_itself else (*shares, *of_other_gpus(case, besides(self.in_batches(case))))

    def launch(self, case: Case) -> Launch:
        if self.fits_itself:
            return Launch(llama_words(case, *self.serving_words(case)))  # --fit is on
        placed = ("-ot", self.ot) if self.ot else ("--n-cpu-moe", str(self.cpu_layers))
        return Launch(llama_words(case, "-ngl", "99", *placed, *self.cut_words(case), *self.serving_words(case)))

    def cut_words(self, case: Case) -> tuple[str, ...]:
        return ("-ts", written(self.shares(case), ",")) if self.ts else super().cut_words(case)

    def serving_words(self, case: Case, *, maps: bool = True) -> tuple[str, ...]:
        batch = ("-b", str(self.ubatch)) if (self.ubatch or 0) > BATCH else ()
        words = super().serving_words(self.in_batches(case), maps=maps and self.mmap != "yes")
        loads = self.unmapped if self.mmap == "no" and self.unmapped[0] not in words else ()
        return (*words, *loads, *batch)

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        if run.strategy == "all_gpu":
            return cls(cpu_layers=0)
        layers = run.cpu_layers
        return cls(cpu_layers=None if layers is None else min(layers, len(run.model.layers)))


def routed_tensors(model: ModelGeometry) -> dict[int, list[str]]:
    """The names of the routed weights of each layer, such as blk.3.ffn_up_exps.weight.

    Raises BadInput for a model whose tensor families are not known by GGUF's names.
    """
    names = {}
    for number, layer in model.layers.items():
        if unknown := [family for family in layer.family_bytes if family not in ROUTED_FAMILIES]:
            raise Unsupported(
                f"{model.name}: the tensor {unknown[0]!r} has no name in GGUF; give a GGUF file or a named model"
            )
        names[number] = [f"blk.{number}.{family}.weight" for family in layer.family_bytes]
    return names


def on_cpu(model: ModelGeometry, overrides: str, *, gpus: int = 1) -> set[int]:
    """The layers whose experts an argument of `-ot` puts on the CPU; see `overridden`."""
    return {layer for layer, buffer in overridden(model, overrides, gpus=gpus).items() if buffer == "CPU"}


def overridden(model: ModelGeometry, overrides: str, *, gpus: int = 1) -> dict[int, str]:
    """Where an argument of `-ot` puts the experts of each layer: CPU, CUDA0, CUDA1 ..., or empty if it does not say.

    Commas separate the overrides, and the first `=` separates pattern and buffer; the first pattern found in a name
    decides, and a tensor that matches none stays on the GPU of its layer, which is CUDA0 if there is only one.
    Raises BadInput for an invalid pattern, a buffer that the machine does not have, and a layer that is split.
    Source: llama.cpp 0eca4d490, common/arg.cpp:248 and src/llama-model-loader.cpp:1161. Patterns are ECMAScript's there
    and Python's here; the ones people write mean the same in both.
    """
    rules, cards = [], [f"CUDA{gpu}" for gpu in range(gpus)]
    for override in overrides.split(","):
        pattern, equals, buffer = override.partition("=")
        if not equals or buffer not in ("CPU", *cards):
            raise Malformed(f"-ot {override!r}: expected a pattern, = and CPU or {' or '.join(cards)}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # about syntax that a later Python may read differently
                rules.append((re.compile(pattern, re.ASCII), buffer))
        except (re.error, OverflowError, RecursionError) as error:
            raise Malformed(f"-ot {override!r}: is not a pattern ({error}); write for example exps=CPU") from None
    found = {}
    otherwise = cards[0] if gpus == 1 else ""
    for number, names in routed_tensors(model).items():
        buffers = {next((buffer for rule, buffer in rules if rule.search(name)), otherwise) for name in names}
        if len(buffers) > 1:
            where = "on the CPU" if "CPU" in buffers else "on one GPU"
            part = f"puts only a part of the experts of layer {number} {where}"
            raise Unsupported(f"-ot {overrides!r}: {part}; name all of them or none")
        found[number] = buffers.pop()
    return found
