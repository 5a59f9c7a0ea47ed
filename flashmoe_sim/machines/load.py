"""A machine from a preset's name, a TOML file or parts, with one-line errors."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import (
    BadInput,
    Malformed,
    Missing,
    OutOfRange,
    TooLarge,
    UnknownName,
    Unusable,
    did_you_mean,
    shown,
)
from flashmoe_sim.io.files import as_utf8
from flashmoe_sim.machines.attention_rates import with_attention
from flashmoe_sim.machines.compose import compose_parts, system_of
from flashmoe_sim.machines.keys import LANES, REQUIRED_SECTIONS, SECTIONS, Key, default_interval
from flashmoe_sim.machines.machine import (
    APIS,
    FEATURES,
    MAKERS,
    SYSTEMS,
    Anchors,
    Card,
    Compute,
    Host,
    Link,
    Machine,
    Memory,
    Network,
    Quantity,
    Storage,
)
from flashmoe_sim.machines.network import joined, several_in
from flashmoe_sim.machines.normal_unknowns import Learnt
from flashmoe_sim.machines.parts import MOST_CORES, MOST_GPUS, MOST_SOCKETS, TITLES, Part, Parts
from flashmoe_sim.machines.reads import MeasuredRead
from flashmoe_sim.machines.said import as_parts, is_path
from flashmoe_sim.machines.sockets import MODES
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.written import (
    UnknownPart,
    any_of,
    chips_as_sold,
    is_part,
    left_over,
    nearest,
    parse_parts,
    plain,
    system_in,
    words,
)

THIS = ("this", "thismachine", "thispc", "thiscomputer")  # in the normal form
MAX_BYTES = 2**18
MOST_DOTS = 16
LEAST_VARIANCE = 1e-6
CARDS_GIB = 0.01  # how far the sum of the cards' memory may be from the GPU's
_NOT_KEYS = re.compile(
    r"""\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'|\#[^\n]*""", re.DOTALL
)  # texts and comments; a number may have a dot too
_CORES = re.compile(r"(\d+)[- ]?core", re.IGNORECASE)
_COMPUTE = re.compile(r"\d{1,2}\.\d")
_UNITS = ("_gb_s", "_gib", "_us")
_CLASSES: dict[str, Any] = {
    "memory": Memory,
    "storage": Storage,
    "link": Link,
    "network": Network,
    "gpu": Compute,
    "cpu": Compute,
    "host": Host,
}


_SENTENCE = re.compile(r"\s(?:and|with|&)\s|^and\s", re.IGNORECASE)


def load_machine(name_or_path: str | Path) -> Machine:
    """The preset of this name, the machine that a TOML file describes, or the one that parts make.

    `2x gb10-128 over 10gbe` is two machines that a network joins, `this` the computer that the program runs on, and
    `this + nvme-gen4` that one with another part, or one that it does not tell.
    A name means the preset that it is, as `rtx-3060` or `M5 Max 128GB`, and a text with a `+` names parts, such as
    `m3-max + 48GiB`, or `RTX 3060 12GB, 64 GB DDR4`; any other chip with its RAM, as `m2-ultra-192`, is made of its
    parts. Write `./name` for a file with the same name.
    Raises BadInput, naming the file and the key, for a name, a file or parts that cannot be used.
    """
    if isinstance(name_or_path, str):
        if (several := several_in(name_or_path)) is not None:
            return joined(load_machine(several.each), several)
        if (added := beside_this(name_or_path)) is not None:
            return this(added)
        if not is_path(name_or_path):
            if len(named := machines_in(name_or_path)) > 1:
                if not all(map(_is_machine, named)):
                    parse_parts(as_parts(name_or_path))  # which says what is wrong with its parts
                raise _unknown_machine(name_or_path)
            name_or_path = as_parts(named[0])
        preset, system = _preset_in(name_or_path)
        if preset:
            return _preset(preset, system)
        if (parts := parts_in(name_or_path)) is not None:
            return compose_parts(parts)
    path = Path(name_or_path)
    if not str(path).isprintable():
        raise Malformed(f"{str(path)!r}: cannot be the name of a machine or of its file")
    try:
        if not path.exists():
            if isinstance(name_or_path, str) and not is_path(name_or_path):
                raise _unknown_machine(name_or_path)
            raise Missing(f"{path}: no such file; give a machine's TOML file, or a name from `sim machine list`")
        if not path.is_file():
            raise Unusable(f"{path}: is not a regular file; give a machine's TOML file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unusable(f"{path}: cannot be read ({error.strerror or error}); give a machine's TOML file") from None
    if len(content) > MAX_BYTES:
        raise TooLarge(
            f"{path}: more than {MAX_BYTES // 2**10} KiB; a machine's file has a few KiB; is it another file?"
        )
    try:
        text = as_utf8(content).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"{path}: is not UTF-8 text (at byte {error.start}); give a machine's TOML file") from None
    return parse_machine(text, where=str(path))


def beside_this(text: str) -> str | None:
    """The parts that are written beside `this`; None for another machine."""
    first, *others = words(text)
    return " + ".join(others) if plain(first) in THIS else None


def this(added: str) -> Machine:
    """The computer that the program runs on, with these parts instead of those of the same kind."""
    from flashmoe_sim.machines.here.collect import here

    found = here()
    return found.with_parts(added) if added else found.machine


def machines_in(text: str) -> list[str]:
    """The machines that a text names with commas between them.

    If not every name is a machine, and they are parts of one, as people write them (`RTX 3060, Ryzen 5 5600, 64 GB`),
    that one.
    Raises BadInput that names the unknown part, if other parts, such as RAM, are not machines by themselves.
    """
    names = [name.strip() for name in text.split(",")]
    if len(names) == 1 or is_path(text) or not all(names):
        return names
    if (_is_sentence(text, names) or _is_cpu_with_cards(names)) and _is_machine(one := as_parts(text)):
        return [one]
    others = [name for name in names if not _is_machine(name)]
    if len(others) < len(names) and all("+" in name for name in others):
        return names
    one = as_parts(text)
    try:
        return names if parts_in(one) is None else [one]
    except BadInput:
        known = list(filter(is_part, names))
        if known and len(known) < len(names) and all(map(_is_machine, known)):
            return names
        raise


def _is_cpu_with_cards(names: Sequence[str]) -> bool:
    """Whether one name is of a CPU with its RAM, and the others of cards alone: `5800X 64GB, RTX 3090` is one."""
    try:
        found = [parse_parts(as_parts(name)) for name in names]
    except BadInput:
        return False
    others = [one for one in found if set(one.by_kind) != {"gpu"} or one.ram_gib is not None]
    return len(others) == 1 < len(found) and "cpu" in others[0].by_kind and not {"gpu", "chip"} & set(others[0].by_kind)


def _is_sentence(text: str, names: Sequence[str]) -> bool:
    """Whether commas stand between one machine's parts: others are joined by words, or by nothing."""
    return any(map(_SENTENCE.search, names)) or ("+" not in text and any("+" in as_parts(name) for name in names))


def _is_machine(name: str) -> bool:
    try:
        load_machine(name)
    except BadInput:
        return False
    return True


def parts_in(text: str) -> Parts | None:
    """The parts that a text names, alone as `m2-ultra-192` or joined by a `+`; None for a path and a file's name.

    Raises BadInput for parts that cannot be used together.
    """
    if is_path(text) or not text.isprintable():
        return None
    if (added := beside_this(text)) is not None:
        return parse_parts(this(added).name)
    text = as_parts(text)
    try:
        return parse_parts(text)
    except UnknownPart:
        if len(words(text)) > 1:
            raise
    return None


def _preset_in(text: str) -> tuple[str, str]:
    """The preset that a text names, and the operating system beside it; empty if the text names none.

    A chip with its RAM and a card are the preset of the same name: `DGX Spark` is gb10-128, `RTX 3060 12GB` rtx-3060.
    """
    if text in PRESETS:
        return text, ""
    if is_path(text):
        return "", ""
    systems = [system for word in words(text) if (system := system_in(word))]
    named = [word for word in words(text) if not system_in(word)]
    if len(named) != 1 or len(systems) > 1:
        return "", ""
    system = "".join(systems)
    if (key := plain(named[0])) in (presets := {plain(name): name for name in PRESETS}):
        return presets[key], system
    try:
        parts = parse_parts(named[0])
    except BadInput:
        return "", ""
    chip, gpu = parts.by_kind.get("chip"), parts.by_kind.get("gpu")
    name = ""
    if chip is not None and parts.ram_gib is not None:
        name = f"{chip.name}-{parts.ram_gib:g}"
    elif gpu is not None and parts.n_gpus == 1:
        name = gpu.name
    if name not in PRESETS or (chip is not None and _has_other_cores(name, chip, named[0])):
        return "", ""
    return name, system


def _has_other_cores(preset: str, chip: Part, text: str) -> bool:
    """Whether a text gives a chip, of which there are several with one name, other cores of its GPU than a preset's."""
    said, own = _CORES.search(text), _CORES.search(_preset(preset, "").title)
    return bool(said and own and said[1] != own[1]) and _CORES.search(chip.title) is None


@cache
def _preset(name: str, system: str) -> Machine:
    text = resources.files("flashmoe_sim.machines").joinpath("presets", f"{name}.toml").read_text("utf-8")
    machine = parse_machine(text, where=f"{name}.toml")
    if not system or system == machine.os:
        return machine
    system = system_of(f"{name} + {system}", machine.os, system)
    return replace(machine, os=system, name=f"{name} + {system}", title=f"{machine.title}, {TITLES[system]}")


def _unknown_machine(name: str) -> BadInput:
    """An error with the nearest presets, chips as sold and parts."""
    if "," not in name and (left := left_over(name)):
        return UnknownName(
            f"unknown machine {shown(name)}: {shown(' '.join(left))} names no part; write parts with + between them"
        )
    near = any_of(nearest(name, (*chips_as_sold(), *PRESETS)))
    listed = "`sim machine list` lists all" if near else f"known: {', '.join(sorted(PRESETS))}"
    return UnknownName(f"unknown machine {name!r}; {near}{listed}; or parts: 'rtx-3060 + 32GiB'")


def parse_machine(text: str, *, where: str) -> Machine:
    """The machine that a TOML document describes. where: its file, for messages.

    Raises BadInput for anything that is missing, unknown or impossible in it.
    """
    if any(piece.count(".") > MOST_DOTS for piece in re.split(r"[=,\[\]{}\n]", _NOT_KEYS.sub("", text))):
        # tomllib's time and memory are quadratic in them
        raise Malformed(f"{where}: a key of more than {MOST_DOTS} dots; a machine's have one, as storage.read_gb_s")
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Malformed(f"{where}: not TOML: {error}; quote texts, and write one key = value a line") from None
    except ValueError:  # Python's limit on digits
        raise Malformed(f"{where}: a number has thousands of digits; expected at most 1e18") from None
    of_gpu, of_cpu = ("api", "gpus", "cards", "machines"), ("cpu_features", "cpu_cores", "sockets", "socket_mode")
    words = (*of_gpu, "os", "gpu_maker", "gpu_compute", *of_cpu)
    known = ("name", "title", "unified", *words, *SECTIONS, "anchors", "learnt")
    for key in document:
        if key not in known:
            raise UnknownName(f"{where}: unknown key {shown(key)}; known: {', '.join(known)}")
    unified = document.get("unified", False)
    if not isinstance(unified, bool):
        raise Malformed(f"{where}: unified is {shown(unified)}; expected true or false")
    for section in REQUIRED_SECTIONS:
        if section not in document:
            raise Malformed(
                f"{where}: [{section}] is missing; expected {', '.join(f'[{s}]' for s in REQUIRED_SECTIONS)}"
            )
    if "gpu" not in document and "cpu" not in document:
        raise Malformed(f"{where}: neither [gpu] nor [cpu]; one of them has to compute")
    if "link" in document and "gpu" not in document:
        raise Malformed(f"{where}: [link] without [gpu]; a link leads into a GPU's memory; remove it or add [gpu]")
    parts = {section: _section(where, section, document[section]) for section in SECTIONS if section in document}
    gpu, memory = parts.get("gpu"), parts.get("memory")
    if memory and memory.reserve_gib.value >= memory.ram_gib.value:
        raise OutOfRange(
            f"{where}: memory.reserve_gib is {memory.reserve_gib.value:g}, but memory.ram_gib only "
            f"{memory.ram_gib.value:g}; give less than that"
        )
    if unified and gpu and memory and gpu.memory_gib and gpu.memory_gib.value > memory.ram_gib.value:
        raise OutOfRange(
            f"{where}: gpu.memory_gib is {gpu.memory_gib.value:g}, but a unified machine shares memory.ram_gib "
            f"{memory.ram_gib.value:g}; give at most that"
        )
    machine = Machine(
        name=_text(where, document, "name"),
        title=_text(where, document, "title"),
        unified=unified,
        api=(api := _one_of(where, document, "api", APIS, "the GPU's programming interface")),
        gpus=_gpus(where, document),
        cards=_cards(where, document),
        machines=_machines(where, document),
        os=_one_of(where, document, "os", SYSTEMS, "the operating system"),
        gpu_maker=_gpu_maker(where, document, api),
        gpu_compute=_gpu_compute(where, document),
        cpu_features=_cpu_features(where, document),
        cpu_cores=_count(where, document, "cpu_cores", "the CPU's physical cores", most=MOST_CORES, absent=0),
        sockets=_sockets(where, document, parts),
        socket_mode=_one_of(where, document, "socket_mode", MODES, "how two sockets are used"),
        anchors=_anchors(where, document["anchors"]) if "anchors" in document else None,
        learnt=_learnt(where, document["learnt"]) if "learnt" in document else None,
        **parts,
    )
    return with_attention(machine)


def _one_of(where: str, document: Mapping[str, Any], key: str, known: Iterable[str], what: str) -> str:
    """The word under this key, which may be missing. what: its meaning, for messages."""
    if key not in document:
        return ""
    word = _text(where, document, key)
    if word not in (known := tuple(known)):
        raise UnknownName(f"{where}: {key} is {shown(word)}; expected {what}: {', '.join(known)}")
    return word


def _gpu_maker(where: str, document: Mapping[str, Any], api: str) -> str:
    """The maker that the file names, or the one whose own interface programs the GPU."""
    if maker := _one_of(where, document, "gpu_maker", MAKERS, "the GPU's maker"):
        return maker
    return next((maker for maker, own in MAKERS.items() if own == api), "")


def _gpu_compute(where: str, document: Mapping[str, Any]) -> str:
    if "gpu_compute" not in document:
        return ""
    compute = document["gpu_compute"]
    if not isinstance(compute, str) or not _COMPUTE.fullmatch(compute):
        raise Malformed(f'{where}: gpu_compute is {shown(compute)}; expected the compute capability, such as "8.6"')
    return compute


def _cpu_features(where: str, document: Mapping[str, Any]) -> tuple[str, ...] | None:
    if "cpu_features" not in document:
        return None
    features = document["cpu_features"]
    if not isinstance(features, list) or any(feature not in FEATURES for feature in features):
        raise Malformed(f"{where}: cpu_features is {shown(features)}; expected a list of {', '.join(FEATURES)}")
    return tuple(features)


def _count(where: str, document: Mapping[str, Any], key: str, what: str, *, most: int, absent: int) -> int:
    """A whole number from 1 to `most`, or `absent` if the file has none."""
    if key not in document:
        return absent
    count = document[key]
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= most:
        raise OutOfRange(f"{where}: {key} is {shown(count)}; expected {what}, 1 to {most}")
    return count


def _sockets(where: str, document: Mapping[str, Any], parts: Mapping[str, Any]) -> int:
    sockets = _count(where, document, "sockets", "the number of CPUs", most=MOST_SOCKETS, absent=1)
    memory = parts.get("memory")
    if sockets > 1 and ("cpu" not in parts or memory is None or memory.socket_link_gb_s is None):
        raise Malformed(f"{where}: sockets is {sockets}; two need [cpu] and memory.socket_link_gb_s; add both")
    if sockets == 1 and "socket_mode" in document:
        raise Malformed(f"{where}: socket_mode without sockets = 2; add it, or leave socket_mode out")
    return sockets


def _gpus(where: str, document: Mapping[str, Any]) -> int:
    cards = document.get("cards", [])
    absent = len(cards) if cards and isinstance(cards, list) else 1
    gpus = _count(where, document, "gpus", "the number of GPUs", most=MOST_GPUS, absent=absent)
    shared = document.get("unified", False) and gpus != _machines(where, document)
    if gpus > 1 and ("gpu" not in document or shared):
        raise Malformed(f"{where}: gpus is {gpus}; several need [gpu] with a memory of its own; leave it out")
    return gpus


def _machines(where: str, document: Mapping[str, Any]) -> int:
    machines = _count(where, document, "machines", "the number of joined machines", most=MOST_GPUS, absent=1)
    if (machines > 1) != ("network" in document):
        raise Malformed(f"{where}: machines is {machines}; two or more need [network], and one has none")
    return machines


def _cards(where: str, document: Mapping[str, Any]) -> tuple[Card, ...]:
    """Unlike GPUs, one table for each."""
    if "cards" not in document:
        return ()
    keys = {"gpu": ("memory_gib", "weights_gb_s", "knee_tokens"), "link": ("pinned_gb_s",)}
    numbers = [key for section, names in keys.items() for key in SECTIONS[section] if key.name in names]
    cards = [
        Card(_text(place, row, "name"), *(_number(f"{place}: {key.name}", row[key.name], key) for key in numbers))
        for place, row in _rows(where, "cards", document["cards"], ("name", *(key.name for key in numbers)))
    ]
    gpu_gib, gpus = document.get("gpu", {}).get("memory_gib", {}).get("value"), _gpus(where, document)
    if len(cards) != gpus or len(cards) < 2:
        raise Malformed(f"{where}: {len(cards)} cards, but gpus is {gpus}; expected a table for each of two or more")
    if gpu_gib is None or abs(sum(card.memory_gib for card in cards) / gpu_gib - 1) > CARDS_GIB:
        given = " + ".join(f"{card.memory_gib:g}" for card in cards)
        raise Malformed(f"{where}: cards have {given} GiB, but gpu.memory_gib is {gpu_gib}; expected their sum")
    return tuple(cards)


def _rows(where: str, name: str, rows: object, known: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each table of an array, which has just these keys, with its place for messages."""
    if not isinstance(rows, list):
        raise Malformed(f"{where}: {name} is {shown(rows)}; expected tables: [[{name}]]")
    for number, row in enumerate(rows, 1):
        place = f"{where}: {name} {number}"
        if not isinstance(row, Mapping):
            raise Malformed(f"{place} is {shown(row)}; expected a table with {', '.join(known)}")
        for key in row:
            if key not in known:
                raise UnknownName(f"{place}: unknown key {shown(key)}; known: {', '.join(known)}")
        for key in known:
            if key not in row:
                raise Malformed(f"{place}: {key} is missing; expected {', '.join(known)}")
        yield place, row


def _section(where: str, section: str, table: object) -> Any:
    if not isinstance(table, Mapping):
        raise Malformed(f"{where}: {section} is {shown(table)}; expected a table: [{section}] and its keys")
    keys = {key.name: key for key in SECTIONS[section]}
    extra = ("measured",) if section == "storage" else ()
    for name in table:
        if name not in keys and name not in extra:
            raise _unknown_key(where, section, name, [*keys, *extra])
    for key in keys.values():
        if key.required and key.name not in table:
            raise Malformed(f"{where}: {section}.{key.name} is missing; {key.meaning}")
    values: dict[str, Any] = {
        name: _quantity(f"{where}: {section}.{name}", key, table[name]) for name, key in keys.items() if name in table
    }
    if "measured" in table:
        values["measured"] = _measured(where, table["measured"])
    return _CLASSES[section](**values)


def _unknown_key(where: str, section: str, given: str, known: list[str]) -> BadInput:
    path = f"{section}.{given}" if given.isprintable() else f"{section}.{given!r}"
    for name in known:
        if any(name == given + unit for unit in _UNITS):
            return UnknownName(f"{where}: {path} has no unit: write {name}")
    return UnknownName(f"{where}: unknown key {path}; {did_you_mean(given, known)}known: {', '.join(known)}")


def _quantity(where: str, key: Key, table: object) -> Quantity:
    form = '{ value = …, source = "…", condition = "…" }'
    if not isinstance(table, Mapping):
        raise Malformed(f"{where} is {shown(table)}; expected {form}")
    known = ("value", "lo", "hi", "source", "condition", "estimated", "guessed")
    for name in table:
        if name not in known:
            raise UnknownName(f"{where}: unknown key {shown(name)}; known: {', '.join(known)}")
    if "value" not in table:
        raise Malformed(f"{where}: value is missing; expected {form}")
    value = _number(f"{where}: value", table["value"], key)
    estimated, guessed = (table.get(flag, False) for flag in ("estimated", "guessed"))
    for flag, given in (("estimated", estimated), ("guessed", guessed)):
        if not isinstance(given, bool):
            raise Malformed(f"{where}: {flag} is {shown(given)}; expected true or false")
    lo, hi = default_interval(key, value, estimated=estimated)
    if "lo" in table:
        lo = _number(f"{where}: lo", table["lo"], key)
    if "hi" in table:
        hi = _number(f"{where}: hi", table["hi"], key)
    if not lo <= value <= hi:
        raise OutOfRange(f"{where}: lo {lo:g}, value {value:g}, hi {hi:g}; expected lo <= value <= hi")
    source, condition = _text(where, table, "source"), _text(where, table, "condition")
    return Quantity(value, lo, hi, source, condition, estimated, guessed)


def _number(where: str, value: object, key: Key) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{where} is {shown(value)}; expected {key.range}")
    low = value <= key.least if key.above else value < key.least
    if low or not value <= min(key.most, 1e18) or (key.whole and value != int(value)):
        raise OutOfRange(f"{where} is {shown(value)}; expected {key.range}")
    return float(value)


def _measured(where: str, rows: object) -> tuple[MeasuredRead, ...]:
    points: dict[tuple[float, int], MeasuredRead] = {}
    for place, row in _rows(where, "storage.measured", rows, ("size_kib", "lanes", "gb_s", "source")):
        size_kib = _number(f"{place}: size_kib", row["size_kib"], Key("size_kib", ""))
        lanes = int(_number(f"{place}: lanes", row["lanes"], LANES))
        gb_s = _number(f"{place}: gb_s", row["gb_s"], Key("gb_s", ""))
        if (size_kib, lanes) in points:
            raise Malformed(f"{place}: a second point at {size_kib:g} KiB and {lanes} lanes; expected one")
        points[size_kib, lanes] = MeasuredRead(size_kib, lanes, gb_s, _text(place, row, "source"))
    return tuple(points.values())


def _anchors(where: str, table: object) -> Anchors:
    known = ("runs", "model", "date", "command")
    if not isinstance(table, Mapping) or set(table) - {"routed_bytes"} != set(known):
        raise Malformed(f"{where}: anchors is {shown(table)}; expected a table with {', '.join(known)}")
    routed = table.get("routed_bytes")
    if routed is not None and (isinstance(routed, bool) or not isinstance(routed, int) or routed < 1):
        raise Malformed(f"{where}: anchors.routed_bytes is {shown(routed)}; expected the bytes of the model's experts")
    runs = table["runs"]
    if not isinstance(runs, list) or not runs or not all(isinstance(run, str) for run in runs):
        raise Malformed(f"{where}: anchors.runs is {shown(runs)}; expected a list of texts")
    place = f"{where}: anchors"
    return Anchors(
        tuple(runs), _text(place, table, "model"), _text(place, table, "date"), _text(place, table, "command"), routed
    )


def _learnt(where: str, table: object) -> Learnt:
    known = ("notes", "names", "mean", "covariance")
    if not isinstance(table, Mapping) or set(table) != set(known):
        raise Malformed(f"{where}: learnt is {shown(table)}; expected a table with {', '.join(known)}")
    for key in ("notes", "names"):
        if not isinstance(table[key], list) or not all(isinstance(text, str) for text in table[key]):
            raise Malformed(f"{where}: learnt.{key} is {shown(table[key])}; expected a list of texts")
    names = tuple(table["names"])
    mean, covariance = (_numbers(where, key, table[key]) for key in ("mean", "covariance"))
    if len(set(names)) < len(names) or mean.shape != (len(names),):
        raise Malformed(f"{where}: learnt: expected {len(names)} different names with a number in mean for each")
    square = covariance.reshape(len(names), -1)
    if square.shape != (len(names), len(names)) or not np.allclose(square, square.T):
        raise Malformed(f"{where}: learnt.covariance: expected {len(names)} rows of as many numbers, alike both ways")
    if names and np.linalg.eigvalsh(square).min() < -LEAST_VARIANCE:
        raise Malformed(f"{where}: learnt.covariance is not a covariance: the variance of a sum of unknowns is below 0")
    return Learnt(names, mean, square, tuple(table["notes"]))


def _numbers(where: str, key: str, given: object) -> NDArray[np.float64]:
    try:
        found = np.array(given, np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if not np.isfinite(found).all():
        raise Malformed(f"{where}: learnt.{key} is {shown(given)}; expected numbers")
    return found


def _text(where: str, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if value is None:
        raise Malformed(f"{where}: {key} is missing; expected a text")
    if not isinstance(value, str) or not value.strip():
        raise Malformed(f"{where}: {key} is {shown(value)}; expected a text")
    return value
