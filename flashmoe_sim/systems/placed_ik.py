"""Whole layers of experts on the GPU and the others on the CPU, as ik_llama.cpp counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from flashmoe_sim.systems.base import Case, Launch
from flashmoe_sim.systems.placed import MIN_BATCH, PlacedLayers
from flashmoe_sim.systems.split import eased, gpu_of_layers, loads, rooms, shared_out


@dataclass(frozen=True, kw_only=True)
class PlacedIk(PlacedLayers, program="ik_llama-cpp", name="placed-ik"):
    """As `placed`, in ik_llama.cpp: its --n-cpu-moe counts layers with experts from the last one on.

    With several GPUs, each gives up its last layers, in proportion to its share of all layers.

    cpu_layers: layers whose experts are on the CPU, from the last on; left out: as few as leave the others room. The
        engine's `--n-cpu-moe` has counted this way since August 2026, and its --fit is off by default.
    ot: an argument of `-ot` that decides instead.
    ts: as for `placed`.
    ubatch: as for `placed`.
    mmap: as for `placed`; what prompts copy is not pinned either way.
    """

    def on_cpu(self, case: Case) -> list[int]:
        if self.ot or self.cpu_layers is None:
            return super().on_cpu(case)
        numbers = sorted(case.model.layers)
        if case.machine.gpus == 1:
            return numbers[len(numbers) - min(self.cpu_layers, len(numbers)) :]
        return self._given_up(case, self.shares(case))

    def _given_up(self, case: Case, cut: Sequence[float]) -> list[int]:
        """The layers whose experts several GPUs with this cut leave to the CPU, ascending."""
        numbers = sorted(case.model.layers)
        gpu_of = gpu_of_layers(cut, numbers[-1] + 1)[:-1]  # without the output
        left = shared_out(self.chosen, [gpu_of.count(gpu) for gpu in range(case.machine.gpus)])
        off = []
        for number in reversed(range(numbers[-1] + 1)):
            if left[gpu_of[number]]:
                left[gpu_of[number]] -= 1
                off.append(number)  # a layer without experts counts too
        return [number for number in numbers if number in off]

    def loads(self, case: Case, cut: Sequence[float]) -> tuple[list[int], list[int]]:
        if self.ot or self.cpu_layers is None or case.machine.gpus == 1:
            return super().loads(case, cut)
        return loads(self.in_batches(case), dict.fromkeys(self._given_up(case, cut), "CPU"))

    def cuts(self, case: Case) -> Iterator[Sequence[float]]:
        """As for `placed`; then one found step by step, since a cut decides which layers are on the CPU."""
        tried, free = [*super().cuts(case)], rooms(case)
        yield from tried

        def excess(counts: Sequence[float]) -> list[int]:
            return [held - room for held, room in zip(self.held(case, counts), free, strict=True)]

        layers = max(case.model.layers) + 1
        for cut in (*tried, free):
            gpu_of = gpu_of_layers(cut, layers)
            yield eased([gpu_of.count(gpu) for gpu in range(len(free))], excess)

    def sizes(self, case: Case) -> Sequence[int]:
        return sorted({self._fewest(case), self._counted(case)})

    def sized(self, case: Case) -> Self:
        return replace(self, cpu_layers=self._fewest(case)) if self.cpu_layers is None and not self.ot else self

    def _fewest(self, case: Case) -> int:
        order = sorted(case.model.layers)
        if case.machine.gpus > 1:  # which ones stay depends on the cut: at most as many as of the smallest
            order.sort(key=lambda number: case.experts_bytes([number]))
        return self._first_that_fits(case, len(self._that_do_not_fit(case, order)), self._counted(case))

    def _counted(self, case: Case) -> int:
        """How many layers its flag counts: those without experts too, if there are several GPUs."""
        return len(case.model.layers) if case.machine.gpus == 1 else max(case.model.layers) + 1

    def launch(self, case: Case) -> Launch:
        """With the model's own chat template, which llama.cpp uses by default and ik_llama.cpp does not."""
        return Launch((*super().launch(case).words, "--jinja"))

    def copy_from_tokens(self, case: Case) -> int:
        """Tokens from which copying starts: tokens x used experts must also reach 32 x experts."""
        return max(MIN_BATCH, -(-MIN_BATCH * case.n_experts // max(case.model.top_k, 1)))
