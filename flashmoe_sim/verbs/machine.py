"""`sim machine list`, `show`, `parts`, `build` and `this`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.io.sections import Column, Command, Item, Part, Section, Table, Verbatim, table
from flashmoe_sim.io.sizes import plain
from flashmoe_sim.options import FORCE, MACHINE_OUT, option, option_field
from flashmoe_sim.verbs.base import Verb

if TYPE_CHECKING:
    from flashmoe_sim.machines.here.read import Here
    from flashmoe_sim.machines.machine import Machine, Quantity
    from flashmoe_sim.machines.parts import Part as MachinePart


@dataclass(frozen=True, kw_only=True)
class ListMachines(Verb["list[Machine]"]):
    """Find every machine that has a name."""

    help: ClassVar[str] = """List the machines known by name.

    --json gives every number; a section or number that a machine lacks is null.
    """

    def run(self) -> list[Machine]:
        """The presets."""
        from flashmoe_sim.machines.load import load_machine
        from flashmoe_sim.machines.table import PRESETS

        return [load_machine(name) for name in PRESETS]

    def document(self, found: list[Machine]) -> dict[str, Any]:
        """What `--json` prints."""
        return {"machines": [asdict(machine) for machine in found]}

    def sections(self, found: list[Machine]) -> list[Section]:
        """A row for each."""
        columns: list[Column] = [
            ("machine", "left", lambda one: one.name),
            ("what", "left", lambda one: one.title),
            ("RAM", "right", lambda one: _short(one.memory.ram_gib if one.memory else None)),
            ("read", "right", lambda one: _short(one.storage.read_gb_s)),
            ("link", "right", lambda one: _short(one.link.pinned_gb_s if one.link else None)),
            ("weights", "right", lambda one: _short(_decoding(one))),
        ]
        hint = (
            "RAM in GiB; GB/s of storage, of the link into the GPU's own memory, and of weights while decoding; "
            "~ estimated. The source of each number: sim machine show NAME"
        )
        return [Section("", (table(columns, found), hint))]


@dataclass(frozen=True, kw_only=True)
class ShowMachine(Verb["Machine"]):
    """Find one machine."""

    help: ClassVar[str] = """Show every number of MACHINE, with its 90% interval, source and condition.

    MACHINE is a name from `sim machine list`, the path of a TOML file of your own, parts, or this computer: this.

    \b
    Example: sim machine show m5-pro-48
             sim machine show "rtx-3060 + ryzen-5600 + 64GiB + nvme-gen4"
             sim machine show m5-max-128 --toml > mine.toml
    """

    machine: str = field(kw_only=False, metadata=option("MACHINE", "", positional=True))
    toml: bool = option_field(False, "", "Print a machine's file, to edit and give to --machine.")

    def run(self) -> Machine:
        """The machine."""
        from flashmoe_sim.machines.load import load_machine

        return load_machine(self.machine)

    def document(self, found: Machine) -> dict[str, Any]:
        """What `--json` prints."""
        if self.toml:
            raise Conflict("--toml and --json: give one of them")
        return asdict(found)

    def sections(self, found: Machine) -> Iterator[Section]:
        """What it is, each number under the name of its section, and what the numbers rest on; or its file."""
        if self.toml:
            from flashmoe_sim.machines.write import toml

            yield Section("", (Verbatim(toml(found)),))
            return
        shared = ["storage, link and GPU share the bandwidth of one memory"] if found.unified else []
        about = [f"{label}: {fact}" for label, fact in _facts(found)]
        yield Section("", (f"{found.name}: {found.title}", *shared, *about))
        of: dict[str, list[Part]] = {}
        for path, quantity in found.quantities():
            section, _, name = path.partition(".")
            parts = of.setdefault(section, [])
            parts += _quantity(name, quantity)
            if path == "storage.hot_share" or (path == "storage.lanes" and found.storage.hot_share is None):
                parts += _reads(found)
        yield from (Section(name, tuple(parts)) for name, parts in of.items())
        if found.learnt is not None:
            yield Section("learnt", tuple(Item(f"  {note}", 4) for note in found.learnt.notes))
        if found.anchors is not None:
            texts = {label: text for label, text in asdict(found.anchors).items() if text is not None}
            lines = [f"  {label}: {', '.join(text) if label == 'runs' else text}" for label, text in texts.items()]
            yield Section("anchors", tuple(Item(line, 4) for line in lines))


@dataclass(frozen=True, kw_only=True)
class ListParts(Verb["list[MachinePart]"]):
    """Find the parts of machines."""

    help: ClassVar[str] = """List the parts, or only the parts with WORD in their kind, name or title.

    --json gives every number with its source and condition.

    \b
    Example: sim machine parts 3090
             sim machine parts storage
    """

    word: str | None = field(default=None, kw_only=False, metadata=option("[WORD]", "", positional=True))

    def run(self) -> list[MachinePart]:
        """The parts in the order of the catalogue."""
        from flashmoe_sim.machines.parts import catalogue
        from flashmoe_sim.machines.written import matching

        return matching(self.word) if self.word else list(catalogue().values())

    def document(self, found: list[MachinePart]) -> dict[str, Any]:
        """What `--json` prints."""
        parts = [{"class" if key == "class_" else key: value for key, value in asdict(one).items()} for one in found]
        return {"parts": parts}

    def sections(self, found: list[MachinePart]) -> list[Section]:
        """A row for each."""
        columns: list[Column] = [
            ("part", "left", lambda part: part.name),
            ("kind", "left", lambda part: part.kind),
            ("what", "left", lambda part: part.title),
            ("GiB", "right", lambda part: _number(part, "memory_gib")),
            ("GB/s", "right", _rate),
        ]
        hint = (
            "GiB of a GPU's own memory; nominal GB/s of memory, a link or storage, and of the fastest memory that a "
            "CPU takes; ~ estimated. Put together: sim machine show 'rtx-3060 + ryzen-5600 + 64GiB + nvme-gen4'"
        )
        return [Section("", (table(columns, found), hint))]


@dataclass(frozen=True, kw_only=True)
class BuildMachine(Verb["Machine"]):
    """Put a machine together from parts."""

    help: ClassVar[str] = """Write the machine made of PARTS to a file for --machine.

    PARTS are names from `sim machine parts` and a size of RAM, joined by +, in any order; several equal GPUs are
    `2x rtx-3090`. The command prints the numbers that no part gives. They are estimates: measure them if you can.

    \b
    Example: sim machine build "rtx-3060 + ryzen-5600 + 64GiB" --out mine.toml
    """

    parts: str = field(kw_only=False, metadata=option("PARTS", "", positional=True))
    out: Path = field(metadata=MACHINE_OUT)
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> Machine:
        """The machine."""
        from flashmoe_sim.machines.compose import compose

        return compose(self.parts)

    def finish(self, found: Machine) -> Iterable[str]:
        """Write its file."""
        from flashmoe_sim.machines.write import write_machine

        write_machine(found, self.out, force=self.force)
        return ()

    def document(self, found: Machine) -> dict[str, Any]:
        """What `--json` prints."""
        return {"out": str(self.out), "machine": asdict(found), "notes": list(found.notes)}

    def sections(self, found: Machine) -> list[Section]:
        """Its estimates and notes."""
        rows = [
            (path, _about(quantity), _interval(quantity)) for path, quantity in found.quantities() if quantity.estimated
        ]
        estimates = Table([("estimated", "left"), ("", "right"), ("90%", "right")], rows)
        notes = [Item(f"note: {note}", 2) for note in found.notes]
        return [Section("", (f"{self.out}: {found.title}", estimates, *notes))]


def _facts(machine: Machine) -> list[tuple[str, str]]:
    """What is known of the system and the processors, beside numbers."""
    from flashmoe_sim.machines.sockets import IN_WORDS

    facts = [("operating system", machine.os), ("maker of the GPU", machine.gpu_maker)]
    facts += [
        ("compute capability", machine.gpu_compute),
        ("features of the CPU", ", ".join(machine.cpu_features or ())),
        ("cores of the CPU", str(machine.cpu_cores or "")),
        ("sockets", f"{machine.sockets}; RAM is of all, CPU and bandwidth of one" if machine.sockets > 1 else ""),
        ("how they are used", IN_WORDS.get(machine.socket_mode, "")),
    ]
    return [(label, fact) for label, fact in facts if fact]


def _quantity(name: str, quantity: Quantity) -> list[Part]:
    """A number, its condition and its source."""
    interval = "" if quantity.lo == quantity.hi else f"  ({_interval(quantity)})"
    return [
        f"  {name} {_about(quantity)}{interval}",
        Item(f"    condition: {quantity.condition}", 6),
        Item(f"    source: {quantity.source}", 6),
    ]


def _reads(machine: Machine) -> list[Part]:
    """The measured bandwidths, one line per read size."""
    by_size: dict[float, list[str]] = {}
    for point in machine.storage.measured:
        by_size.setdefault(point.size_kib, []).append(f"{point.lanes}: {point.gb_s:.3g}")
    sources = dict.fromkeys(point.source for point in machine.storage.measured)
    lines = [f"    {size_kib:g} KiB: {', '.join(points)}" for size_kib, points in by_size.items()]
    lines += [f"    source: {source}" for source in sources]
    head: list[Part] = ["  measured GB/s, by reads in flight"] if by_size else []
    return [*head, *(Item(line, 6) for line in lines)]


def _decoding(machine: Machine) -> Quantity | None:
    """The rate at which the computing unit streams weights."""
    unit = machine.gpu or machine.cpu
    return unit.weights_gb_s if unit else None


def _short(quantity: Quantity | None) -> str:
    if quantity is None:
        return "-"
    return f"{'~' if quantity.estimated else ''}{quantity.value:{'.0f' if quantity.value >= 100 else '.3g'}}"


def _interval(quantity: Quantity) -> str:
    return "-" if quantity.lo == quantity.hi else f"{plain(quantity.lo)} to {plain(quantity.hi)}"


def _rate(part: MachinePart) -> str:
    """The main rate of a part; a CPU's is its memory's."""
    from flashmoe_sim.machines.parts import catalogue

    of = catalogue()[part.memory] if part.memory else part
    rates = (_number(of, key) for key in ("bandwidth_gb_s", "gb_s", "read_gb_s"))
    return next((text for text in rates if text != "-"), "-")


def _number(part: MachinePart, key: str) -> str:
    quantity = part.numbers.get(key)
    return "-" if quantity is None else _about(quantity)


def _about(quantity: Quantity) -> str:
    return f"{'~' if quantity.estimated else ''}{plain(quantity.value)}"


@dataclass(frozen=True, kw_only=True)
class ThisMachine(Verb["Here"]):
    """Find the machine that this process runs on."""

    help: ClassVar[str] = """Show this computer as parts, to paste after --machine, and how each is known.

    It reads the system's files and asks the drivers' programs, at most two seconds; nothing is measured or sent. What
    cannot be seen is a guess, which is named with its effect. --machine this takes the same machine, and
    --machine "this + nvme-gen4" adds or changes a part.

    \b
    Example: sim machine this
             sim recommend gpt-oss-120b --machine this
    """

    def run(self) -> Here:
        """The machine."""
        from flashmoe_sim.machines.here.collect import here

        return here()

    def document(self, found: Here) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "parts": found.spelling,
            "seen": [asdict(one) for one in found.fields],
            "machine": asdict(found.machine),
        }

    def sections(self, found: Here) -> list[Section]:
        """Its parts in a line, what was seen and where, and what was not."""
        rows = [(one.name, one.value, one.source) for one in found.fields if one.value]
        table = Table([("seen", "left"), ("", "left"), ("by", "left")], rows)
        told = [Item(f"{one.name}: {one.effect}", 2) for one in found.fields if one.effect]
        return [Section("", (Command(found.spelling), table, *told))]
