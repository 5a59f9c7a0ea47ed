"""A machine: its memory, storage, link and processors, with an interval and a source for each number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import hypot
from pathlib import Path

from flashmoe_sim.io.errors import Incomplete, OutOfRange, unknown_name
from flashmoe_sim.io.sizes import MIB, plain
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.normal_unknowns import Learnt
from flashmoe_sim.machines.reads import MeasuredRead, ReadTable

REFERENCE_BYTES = 4 * MIB
WIDE = 2.0  # times its lower end: an interval so wide that a speed from it needs a warning
APIS = ("cuda", "rocm", "metal", "sycl", "vulkan")
MAKERS = {"nvidia": "cuda", "amd": "rocm", "apple": "metal", "intel": "sycl"}  # of GPUs, each with its own api
SYSTEMS = ("linux", "windows", "macos", "android")
FEATURES = ("avx2", "avx512", "amx", "neon")
WEIGHT_BYTES = 0.56  # of one weight of 4.5 bits: `knee_tokens` is known for such models
SIZES = ("memory.ram_gib", "memory.reserve_gib", "gpu.memory_gib")  # settings of a machine, not measurements
GUESSED = 5.0  # times its lower end: the interval of a rate about which almost nothing is known


@dataclass(frozen=True)
class Quantity:
    """A number with where it is from; lo..hi is its 90% interval.

    condition: under which it holds. estimated: whether it was inferred rather than measured or specified, see `source`.
    guessed: whether it is estimated because the part that determines it was not named.
    """

    value: float
    lo: float
    hi: float
    source: str
    condition: str
    estimated: bool = False
    guessed: bool = False

    def times(self, factor: float) -> Quantity:
        """This quantity and its interval times a factor."""
        return replace(self, value=self.value * factor, lo=self.lo * factor, hi=self.hi * factor)


@dataclass(frozen=True)
class Memory:
    """RAM: its size, its bandwidth, and how much is in use.

    Two sockets have the size of both and the bandwidth of one; socket_link_gb_s: what one reads of the other's memory.
    """

    ram_gib: Quantity
    bandwidth_gb_s: Quantity
    copy_gb_s: Quantity
    reserve_gib: Quantity
    socket_link_gb_s: Quantity | None = None


@dataclass(frozen=True)
class Storage:
    """The SSD or flash that experts are read from.

    fault_kib, faults_in_flight: what one page fault of a mapped file reads, and how many are read at once; None if the
        machine's file does not say. faults_gb_s: what such faults read together, with what is around the pieces; None
        if it was not measured.
    around_windows: what they read around a piece of a mapped file. by_faults: whether experts are read by page faults,
        and not by an engine's own reads.
    """

    read_gb_s: Quantity
    request_us: Quantity
    lanes: Quantity
    hot_share: Quantity | None = None
    measured: tuple[MeasuredRead, ...] = ()
    fault_kib: Quantity | None = None
    faults_in_flight: Quantity | None = None
    faults_gb_s: Quantity | None = None
    around_windows: float = 0.0
    by_faults: bool = False

    def around_bytes(self, size_bytes: int) -> int:
        """What page faults read around a piece of a mapped file, beside its own bytes; 0 of other reads.

        On Linux the first fault of a piece reads half a window before it and half a window after that; three quarters
        into a window, reading goes on with the next one. So a quarter of a window costs one window, half of one two,
        and a larger piece itself and two windows: around_windows. Of other systems that is a guess.
        Source: Linux, mm/filemap.c, do_sync_mmap_readahead() and do_async_mmap_readahead(), and what it was seen to
        read (reports/paging). What lies around a piece may be in RAM already, which is left out.
        """
        if not self.by_faults or self.fault_kib is None:
            return 0
        window = self.fault_kib.value * 1024
        if size_bytes > window / 2:
            return round(self.around_windows * window)
        return round(window * (1 + (size_bytes > window / 4))) - size_bytes

    def chunk_s(self, size_bytes: int, depth: int, *, hot: bool = False) -> float:
        """Seconds of one read while `depth` reads of this size, itself included, are in flight.

        The reads in flight share the bandwidth, so each takes as long as all of them together: request_us, plus all
        their bytes at read_gb_s. With `measured` it is the table's time for this size and depth, which includes the
        cost of a request, scaled so that reads of 4 MiB with `lanes` in flight reach read_gb_s.
        Page faults read each of these pieces after the other, in windows of fault_kib, of which faults_in_flight are
        read at once where a piece has as many: a window takes request_us and its bytes at the rate of one reader, and
        all of them are no faster than the device; faults_gb_s is what was measured instead. They also read
        around_bytes.
        hot: at the bandwidth of a throttled device.
        Raises BadInput for a size or depth below 1, and for `hot` if hot_share is unknown.
        """
        if size_bytes < 1 or depth < 1:
            raise OutOfRange(f"a read of {size_bytes} bytes with {depth} in flight; expected at least 1 of each")
        bytes_s = self.read_gb_s.value * 1e9
        if hot:
            if self.hot_share is None:
                raise Incomplete("storage.hot_share is not known for this machine; add it to the machine's file")
            bytes_s *= self.hot_share.value
        if self.by_faults:
            return depth * (size_bytes + self.around_bytes(size_bytes)) * self._fault_s(size_bytes, bytes_s)
        if not self.measured:
            return self.request_us.value * 1e-6 + size_bytes * depth / bytes_s
        reference_s = REFERENCE_BYTES * self.lanes.value / bytes_s
        return self._table.read_s(size_bytes, depth) * (reference_s / self._reference_s)

    def _fault_s(self, size_bytes: int, bytes_s: float) -> float:
        """Seconds of a byte that page faults read of a piece of this size. bytes_s: what the device reads at most."""
        if self.faults_gb_s is not None:
            return self.read_gb_s.value / (self.faults_gb_s.value * bytes_s)
        assert self.fault_kib is not None
        assert self.faults_in_flight is not None
        window = self.fault_kib.value * 1024
        alone_s = self.request_us.value * 1e-6 + window / (estimate("storage.one_reader").value * bytes_s)
        at_once = min(self.faults_in_flight.value, max(size_bytes / window, 1.0))
        return hypot(alone_s / (at_once * window), 1 / bytes_s)

    @cached_property
    def _reference_s(self) -> float:
        return self._table.read_s(REFERENCE_BYTES, self.lanes.value)

    @cached_property
    def _table(self) -> ReadTable:
        return ReadTable(self.measured)


@dataclass(frozen=True)
class Link:
    """The connection from RAM to the GPU's own memory."""

    pinned_gb_s: Quantity
    pageable_gb_s: Quantity
    request_us: Quantity


@dataclass(frozen=True)
class Network:
    """The network between several machines: its rate, and what each machine after the first adds to a pass."""

    rate_gb_s: Quantity
    hop_us: Quantity


@dataclass(frozen=True, kw_only=True)
class Compute:
    """A GPU or a CPU, as decoding sees it. Only a GPU has memory_gib; a fitted machine may lack the rates."""

    memory_gib: Quantity | None = None
    weights_gb_s: Quantity | None = None
    attention_gb_s: Quantity | None = None
    layer_us: Quantity
    knee_tokens: Quantity

    @property
    def operations_s(self) -> float:
        """Multiplications and additions in a second; 0 if the rate of weights is not known."""
        rate = 0.0 if self.weights_gb_s is None else self.weights_gb_s.value * 1e9
        return self.knee_tokens.value * 2 / WEIGHT_BYTES * rate


@dataclass(frozen=True)
class Host:
    """The thread that manages the bank, and the system that allocates its memory."""

    call_us: Quantity
    install_us: Quantity
    resume_us: Quantity | None = None
    first_touch_gb_s: Quantity | None = None


@dataclass(frozen=True)
class Anchors:
    """What a machine was fitted on: the runs or rows, their model, the day, and the command of the fit.

    routed_bytes: of all experts of the model, by which it is recognised; None if the fit had no model.
    """

    runs: tuple[str, ...]
    model: str
    date: str
    command: str
    routed_bytes: int | None = None


@dataclass(frozen=True)
class Card:
    """One of several unlike GPUs: the rates of `gpu` and `link` as it has them itself."""

    name: str
    memory_gib: float
    weights_gb_s: float
    knee_tokens: float
    pinned_gb_s: float


@dataclass(frozen=True)
class Machine:
    """Everything beside the model that affects the time of a run.

    unified: storage, link and GPU share the bandwidth of one memory. link: None if the computing unit reads the memory
    that storage is read into. gpu: None if the CPU computes. cpu: None if it computes nothing.
    memory: None if unknown; the page cache is then included in storage.read_gb_s.
    api: the GPU's programming interface, one of APIS, or empty if unknown or without a GPU.
    gpus: the number of GPUs in `gpu`, which has their total memory and the speed of one. cards: each of them, in the
    engine's order, if they are unlike; `gpu` and `link` have means, as if each served its share of the memory.
    machines: equal computers that `network` joins, of which memory, GPU and RAM are the total; None if there is one.
    os: the operating system, one of SYSTEMS, or empty if unknown. gpu_maker: one of MAKERS, or empty.
    gpu_compute: the compute capability of NVIDIA's GPU, such as 8.6, or empty. cpu_features: the CPU's, of FEATURES;
    None if unknown. cpu_cores: the CPU's physical cores, of unequal ones the fast ones; 0 if unknown. These five decide
    what can be installed and how it is started; no count and no time depends on them.
    sockets: of the CPU, 1 or 2; `cpu` and `cpu_cores` are of one. socket_mode: how every engine uses two, one of
    sockets.MODES; empty if each system does what suits it.
    learnt: what measurements on it taught, beside the numbers themselves; the unknown of a quantity has its path as
    name, the mean 0 and the variance 1.
    unseen: of the computer that the program runs on, what it may have and an answer is without; a clause each.
    """

    name: str
    title: str
    unified: bool
    storage: Storage
    host: Host
    memory: Memory | None = None
    link: Link | None = None
    gpu: Compute | None = None
    cpu: Compute | None = None
    anchors: Anchors | None = None
    api: str = ""
    gpus: int = 1
    cards: tuple[Card, ...] = ()
    machines: int = 1
    network: Network | None = None
    os: str = ""
    gpu_maker: str = ""
    gpu_compute: str = ""
    cpu_features: tuple[str, ...] | None = None
    cpu_cores: int = 0
    sockets: int = 1
    socket_mode: str = ""
    learnt: Learnt | None = None
    unseen: tuple[str, ...] = field(default=(), compare=False)

    def quantities(self) -> list[tuple[str, Quantity]]:
        """Every quantity by its path, such as `storage.read_gb_s`."""
        found = []
        for section in ("memory", "storage", "link", "network", "gpu", "cpu", "host"):
            part = getattr(self, section)
            for item in fields(part) if part is not None else ():
                if isinstance(quantity := getattr(part, item.name), Quantity):
                    found.append((f"{section}.{item.name}", quantity))
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user of this machine's seconds must know."""
        section = "cpu" if self.gpu is None else "gpu"
        unit = self.gpu or self.cpu
        rate = unit.weights_gb_s if unit is not None else None
        notes = [] if self.learnt is None else list(self.learnt.notes)
        if self.cards:
            order = ", ".join(f"{number} {card.name}" for number, card in enumerate(self.cards))
            notes.append(f"GPUs are counted as {order}; if the engine lists them otherwise, so do its flags")
        if self.sockets > 1:
            notes.append(
                f"{self.name}: RAM is of both sockets, memory channels and cores of one; what fits one socket's RAM "
                "runs bound to it, as the command says"
            )
        if rate is not None and rate.estimated and rate.hi > WIDE * rate.lo:
            notes.append(
                f"{self.name}: {section}.weights_gb_s, the speed of computing, is only an estimate: {_range(rate)}"
            )
        for path, quantity in self.quantities():
            guessed = quantity.estimated and quantity.hi > GUESSED * quantity.lo
            if guessed and path in ("storage.read_gb_s", "memory.bandwidth_gb_s"):
                notes.append(f"{self.name}: {path} is a guess: {_range(quantity)}")
        return tuple(notes)

    def varied(self, path: str, value: float) -> Machine:
        """This machine with another value of one quantity, whose interval and source do not change.

        Raises BadInput for a path without a quantity, listing the known paths.
        """
        section, _, key = path.partition(".")
        quantity = getattr(getattr(self, section, None), key, None)
        if not isinstance(quantity, Quantity):
            raise unknown_name(f"quantity of {self.name}", path, dict(self.quantities()))
        return self.with_quantity(path, replace(quantity, value=value))

    def with_values(self, values: Mapping[str, float]) -> Machine:
        """This machine with other values of the quantities at some paths, whose intervals and sources do not change."""
        sections: dict[str, dict[str, Quantity]] = {}
        for path, value in values.items():
            section, _, key = path.partition(".")
            now: Quantity = getattr(getattr(self, section), key)
            sections.setdefault(section, {})[key] = replace(now, value=value)
        return replace(self, **{name: replace(getattr(self, name), **changed) for name, changed in sections.items()})

    def scaled(self, factors: Mapping[str, float]) -> Machine:
        """This machine with some quantities, and their intervals, times a factor. factors: by path."""
        machine = self
        for path, factor in factors.items():
            section, _, key = path.partition(".")
            now: Quantity = getattr(getattr(machine, section), key)
            machine = machine.with_quantity(path, now.times(factor))
        return machine

    def with_quantity(self, path: str, quantity: Quantity) -> Machine:
        """This machine with another quantity at a path such as `gpu.weights_gb_s`."""
        section, _, key = path.partition(".")
        return replace(self, **{section: replace(getattr(self, section), **{key: quantity})})


def _range(rate: Quantity) -> str:
    return f"{plain(rate.value)} GB/s ({plain(rate.lo)} to {plain(rate.hi)})"


OneMachine = str | Path | Machine
