"""How llama.cpp distributes the layers of a model over several GPUs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from flashmoe_sim.budget import spare_bytes
from flashmoe_sim.io.errors import Conflict, Malformed, TooLarge
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.cards import by_memory, distributed
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case, Share, System, gpu_weights

MOST_MOVED = 3  # layers at a time


@dataclass(frozen=True, kw_only=True)
class Divided(System):
    """Every GPU has whole layers, in order, by its share of their number."""

    @property
    def fits_itself(self) -> bool:
        """Whether the engine's --fit decides."""
        return False

    def at(self, case: Case) -> Mapping[int, str]:
        """Where the experts of a layer are, if they are not on its GPU: CPU, or another GPU such as CUDA1."""
        return {}

    def loads(self, case: Case, cut: Sequence[float]) -> tuple[list[int], list[int]]:
        """Bytes of each layer and of the output that this cut distributes, and what each GPU holds beside them."""
        return loads(case, self.at(case), copies=False)

    def shares(self, case: Case) -> tuple[float, ...]:
        """The share of each GPU, of the first of `cuts` that leaves each room; the engine's own if it fits itself."""
        if case.machine.gpus == 1 or self.fits_itself:
            return default_shares(case.machine)
        return tuple(self.fitting(case) or next(iter(self.cuts(case))))

    def cuts(self, case: Case) -> Iterable[Sequence[float]]:
        """The cuts worth trying, best first: equal ones need no flag; of unlike GPUs, slow ones get few layers."""
        sizes, taken = self.loads(case, default_shares(case.machine))
        if case.machine.cards:
            return [fastest_first(case, sizes, taken)]
        return [default_shares(case.machine), evened(sizes, taken)]

    def fitting(self, case: Case) -> Sequence[float] | None:
        """The first cut that leaves every GPU its spare bytes, else that fits, else that may for all the plan's error.

        None if there is none.
        """
        known: list[tuple[Sequence[float], list[int]]] = []
        for cut in self.cuts(case):
            known.append((cut, self.held(case, cut)))
            if overflow(case, known[-1][1], case.spare_bytes) is None:
                return cut
        fits = (cut for spare in (0, -case.gpu_error_bytes) for cut, of in known if overflow(case, of, spare) is None)
        return next(fits, None)

    def held(self, case: Case, cut: Sequence[float]) -> list[int]:
        """Bytes of each GPU with this cut."""
        sizes, held = self.loads(case, cut)
        for gpu, size in zip(gpu_of_layers(cut, len(sizes) - 1), sizes, strict=True):
            held[gpu] += size
        return held

    def overflow(self, case: Case, spare_bytes: int = 0) -> tuple[int, int] | None:
        """The first GPU that cannot hold its layers, and their bytes; None if each can.

        spare_bytes: left free on all GPUs together; negative for the error of the plan.
        """
        return overflow(case, self.held(case, self.shares(case)), spare_bytes)

    def each_gpu(self, case: Case) -> list[int]:
        return [] if case.machine.gpus == 1 or self.fits_itself else self.held(case, self.shares(case))

    def machine_of(self, case: Case) -> Machine:
        return self.adapted(served(case, self.shares(case), self.at(case)) if case.machine.cards else case.machine)

    def check(self, case: Case) -> None:
        super().check(case)
        if found := overflow(case, self.each_gpu(case), -case.gpu_error_bytes):
            gpu, held = found
            over = held - rooms(case)[gpu]
            raise TooLarge(
                f"takes {held / GIB:.1f} GiB of GPU {gpu}, {over / GIB:.1f} more than it has{self.otherwise(case)}"
            )

    def otherwise(self, case: Case) -> str:
        """What to do if a GPU has too little room, after what it lacks."""
        return ", however layers are cut"

    def cut_words(self, case: Case) -> tuple[str, ...]:
        """The flag for the shares; none if they are equal."""
        shares = self.shares(case)
        return ("-ts", written(shares, ",")) if len(set(shares)) > 1 else ()


def parse_shares(text: str, gpus: int) -> tuple[float, ...]:
    """The share of each GPU from an argument of `-ts`, such as 3,1 or 3/1; GPUs that it does not name get none.

    Raises BadInput for anything but numbers from 0, for more shares than GPUs, and if all are 0.
    """
    words = re.split("[,/]+", text)
    try:
        shares = [float(word) for word in words]
    except ValueError:
        shares = []
    if not shares or not all(0 <= share < float("inf") for share in shares) or not any(shares):
        raise Malformed(f"ts {text!r}; expected shares from 0 with a / between them, such as 3/1")
    if len(shares) > gpus:
        raise Conflict(f"ts {text!r}: {len(shares)} shares; the machine has {gpus} GPU{'s' if gpus > 1 else ''}")
    return (*shares, *[0.0] * (gpus - len(shares)))


def written(shares: Sequence[float], between: str = "/") -> str:
    """Shares as an argument of `-ts`."""
    return between.join(f"{share:g}" for share in shares)


def gpu_of_layers(shares: Sequence[float], layers: int) -> list[int]:
    """The GPU of each layer, then of the output, for a model that is fully offloaded.

    The shares are of the number of layers, with the output as one more, whatever their size.
    Source: llama.cpp 0eca4d490, src/llama-model.cpp:1250-1290, whose numbers are 32-bit floats.
    """
    upto = np.cumsum(np.array(shares, np.float32), dtype=np.float32)
    place = np.arange(layers + 1, dtype=np.float32) / np.float32(layers + 1)
    found: list[int] = np.searchsorted(upto / upto[-1], place, side="right").tolist()
    return found


def loads(case: Case, at: Mapping[int, str], *, copies: bool = True) -> tuple[list[int], list[int]]:
    """Bytes of each layer, then of the output, that the cuts distribute, and what each GPU holds beside them.

    at: where the experts of a layer are, CPU or a GPU such as CUDA1; on the GPU of their layer if it does not say.
    copies: as in `base.gpu_weights`. Dense weights count as equal in all layers and the output, the context as equal in
    all layers.
    """
    model, weights = case.model, {share.what: share.size_bytes for share in gpu_weights(case)}
    layers = max(model.layers) + 1
    dense = weights["dense weights"] // (layers + 1)
    sizes = [dense + weights["context"] // layers for _ in range(layers)]
    held = [besides(case, copies=copies)] * case.machine.gpus
    held[-1] += case.drafter_bytes
    for number, layer in model.layers.items():
        where, of_experts = at.get(number, ""), layer.expert_bytes * layer.n_experts
        if where.startswith("CUDA"):
            held[int(where.removeprefix("CUDA"))] += of_experts
        elif where != "CPU":
            sizes[number] += of_experts
    return [*sizes, dense], held


def besides(case: Case, *, copies: bool = True) -> int:
    """Bytes that every GPU holds beside its layers."""
    of_one = ("dense weights", "context", "drafter")
    return sum(share.size_bytes for share in gpu_weights(case, copies=copies) if share.what not in of_one)


def room_of_each(case: Case, spare_bytes: int = 0) -> int:
    """Bytes that each GPU has for a cache, beside its layers' other weights, the context and buffers.

    spare_bytes: left free on all GPUs together.
    """
    weights = (case.gpu_dense_bytes + case.kv_bytes + case.drafter_bytes) // case.machine.gpus
    return min(rooms(case, spare_bytes)) - weights - besides(case)


def of_other_gpus(case: Case, buffers_bytes: int) -> tuple[Share, ...]:
    """The compute buffers of all GPUs but the first, which has its own among `gpu_weights`. buffers_bytes: of one."""
    others = (case.machine.gpus - 1) * buffers_bytes
    return (Share("compute buffers of the other GPUs", "gpu", others),) if others else ()


def overflow(case: Case, held: Sequence[int], spare_bytes: int = 0) -> tuple[int, int] | None:
    """The first GPU without room for the bytes that it holds, and these bytes; None if each has, or none is listed.

    spare_bytes: left free on all GPUs together; negative for the error of the plan.
    """
    each = zip(held, rooms(case, spare_bytes), strict=True) if held else ()
    return next(((gpu, size) for gpu, (size, room) in enumerate(each) if size > room), None)


def default_shares(machine: Machine) -> tuple[float, ...]:
    """The shares of an engine that is not told any: by the memory of each GPU."""
    return tuple(by_memory(machine.cards)) if machine.cards else (1.0,) * machine.gpus


def eased(counts: Sequence[float], excess: Callable[[Sequence[float]], list[int]]) -> list[float]:
    """The numbers of layers after moving some from GPU to GPU, as long as the fullest GPUs get emptier.

    excess: by how many bytes each GPU with so many layers exceeds its room, negative if it has some left.
    """
    found, worst = [*counts], sorted(excess(counts), reverse=True)
    while True:
        tried = []
        for source, target in permutations(range(len(found)), 2):
            for moved in range(1, min(MOST_MOVED, int(found[source])) + 1):
                other = [*found]
                other[source] -= moved
                other[target] += moved
                tried.append((sorted(excess(other), reverse=True), other))
        if not tried or min(tried)[0] >= worst:
            return found
        worst, found = min(tried)


def evened(sizes: Sequence[int], taken: Sequence[int]) -> list[int]:
    """How many of the layers, in order, each GPU gets, so that the load of the fullest GPU is minimal.

    sizes: bytes of each layer. taken: other bytes that each GPU holds. Given to `-ts`, these numbers yield the same
        cut.
    """

    def by_most(most: int) -> list[int]:
        return filled(sizes, [most - already for already in taken])

    all_on_one = sum(sizes) + max(taken)
    return by_most(bisect_left(range(all_on_one), len(sizes), key=lambda most: sum(by_most(most))))


def filled(sizes: Sequence[int], free: Sequence[int]) -> list[int]:
    """How many of the layers, in order, each GPU gets if it takes as many as its free bytes hold."""
    counts, place = [], 0
    for room in free:
        first, left = place, room
        while place < len(sizes) and sizes[place] <= left:
            left -= sizes[place]
            place += 1
        counts.append(place - first)
    return counts


def rooms(case: Case, spare_bytes: int = 0) -> list[int]:
    """Bytes of each GPU for a model. spare_bytes: left free on all GPUs together."""
    machine = case.machine
    if not machine.cards:
        return [(case.gpu_bytes - spare_bytes) // machine.gpus] * machine.gpus
    total_gib = sum(card.memory_gib for card in machine.cards)
    return [int(case.gpu_bytes * card.memory_gib / total_gib) - spare_bytes // machine.gpus for card in machine.cards]


def fastest_first(case: Case, sizes: Sequence[int], taken: Sequence[int]) -> list[int]:
    """How many of the layers, in order, each of several unlike GPUs gets, so that slow ones get as few as they can.

    If not all layers fit, each gets its share by memory. sizes, taken: as for `evened`.
    """
    cards = case.machine.cards
    free = [room - already for room, already in zip(rooms(case, spare_bytes(case.machine)), taken, strict=True)]
    if sum(filled(sizes, free)) < len(sizes):
        return evened(sizes, [-room for room in free])
    for slow in sorted(range(len(cards)), key=lambda gpu: (cards[gpu].weights_gb_s, -gpu)):

        def fits(most: int, gpu: int = slow) -> bool:
            return sum(filled(sizes, [*free[:gpu], most, *free[gpu + 1 :]])) == len(sizes)

        free[slow] = bisect_left(range(max(free[slow], 0)), True, key=fits)
    return filled(sizes, free)


def served(case: Case, shares: Sequence[float], at: Mapping[int, str]) -> Machine:
    """The machine whose unlike GPUs serve the layers that they get by these shares. at: as for `loads`."""
    model, layers = case.model, max(case.model.layers) + 1
    gpu_of = gpu_of_layers(shares, layers)
    read, attended, copied = ([0.0] * len(shares) for _ in range(3))
    for number, gpu in enumerate(gpu_of):
        read[gpu] += case.gpu_dense_bytes / (layers + 1)
        attended[gpu] += number < layers
        if (layer := model.layers.get(number)) is None:
            continue
        where, used_bytes = at.get(number, ""), layer.expert_bytes * model.top_k
        if where == "CPU":
            copied[gpu] += used_bytes
        else:
            read[int(where.removeprefix("CUDA") or gpu)] += used_bytes
    return distributed(case.machine, read=read, attended=attended, copied=copied)


def shared_out(number: int, counts: Sequence[int]) -> list[int]:
    """`number` of the layers distributed over GPUs that have `counts` of them each, with ik_llama.cpp's rounding.

    Source: ik_llama.cpp 00a9fd32c, src/llama-load-tensors.cpp, split mode layer.
    """
    total = sum(counts)
    number = min(number, total)
    exact = [count * number / total for count in counts]
    shares = [int(share + 0.5) for share in exact]
    while sum(shares) > number:
        shares[max((gpu for gpu, share in enumerate(shares) if share), key=lambda gpu: shares[gpu] - exact[gpu])] -= 1
    while sum(shares) < number:
        free = [gpu for gpu, share in enumerate(shares) if share < counts[gpu]]
        shares[min(free, key=lambda gpu: shares[gpu] - exact[gpu])] += 1
    return shares
