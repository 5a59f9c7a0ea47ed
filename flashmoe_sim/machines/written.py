"""Parts as people write them: case, spaces, hyphens, GB or GiB and the maker's name do not matter.

A size beside a name is a card's own memory, or the RAM of a chip or a CPU. It must be one that was sold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, lru_cache

from flashmoe_sim.io.errors import (
    BadInput,
    Conflict,
    Incomplete,
    Malformed,
    OutOfRange,
    UnknownName,
    Unsupported,
    shown,
)
from flashmoe_sim.machines.parts import (
    DESKTOP,
    KINDS,
    MOST_CHANNELS,
    MOST_GPUS,
    MOST_SOCKETS,
    Part,
    Parts,
    catalogue,
    integrated,
    laptop_card,
    memory_part,
)
from flashmoe_sim.machines.sockets import link_between
from flashmoe_sim.machines.unnamed_memory import SOLDERED, split, takes, with_channels

NEAREST = 3
MOST_MODULES = 48  # of RAM, in a server with two sockets
SYSTEMS = {  # operating systems, in the normal form
    "linux": (
        *(
            "linux",
            "ubuntu",
            "kubuntu",
            "xubuntu",
            "debian",
            "fedora",
            "wsl",
            "linuxmint",
            "nixos",
            "arch",
            "archlinux",
        ),
        *("manjaro", "cachyos", "popos", "proxmox", "rockylinux", "almalinux", "centos", "rhel", "opensuse", "nobara"),
        *(
            "bazzite",
            "unraid",
            "endeavouros",
            "gentoo",
            "steamos",
            "truenas",
            "dgxos",
            "proxmoxve",
            "gnulinux",
            "asahi",
            "jetpack",
            "l4t",
        ),
    ),
    "windows": ("windows", "windows10", "windows11", "win10", "win11", "windowsserver"),
    "macos": ("macos", "osx", "ventura", "sonoma", "sequoia", "tahoe"),
}
_EDITION = re.compile(
    r"(?<=\d)(?: (?:pro|home|business|enterprise|ltsc|education|\d\dh\d))+\b", re.IGNORECASE
)  # of Windows
_RELEASE = re.compile(  # of Linux, behind its name
    r"r?\d[\w.-]*|lts|linux|scale|kernel|lxc|ve|os|gnu/linux|server|desktop|workstation|stable|sid|trixie|bookworm|bullseye|focal|jammy|noble|tumbleweed|leap"
)
MOST_MT_S = {"ddr3": 2132, "ddr4": 4399, "ddr5": 10_000}  # of RAM whose kind nobody gave: DDR5 is sold from 4800 on
OF_CHIPS = (1, 2, 3, 4, 6, 8, 12, 16)  # channels of memory that is soldered beside a chip
OF_A_ROUND_RATE = 0.03  # makers say 400 GB/s of 409.6
GENERATIONS = (*MOST_MT_S, *SOLDERED)
_SYSTEMS = {way: name for name, ways in SYSTEMS.items() for way in ways}
# Not the plus in "Max+ 395".
_PLUS = re.compile(
    r"\s+\+\s*|\+(?=[^\s-])|(?<!max)\+\s+(?=[^\s(])|\+\s+(?=[^\s(])(?!(?:pro\s+)?\d{3}\b(?!\s*gi?b))", re.IGNORECASE
)
_SIZE = re.compile(r"(?<![\d.])(?:(\d{1,2}) ?[x*\u00d7] ?)?(\d{1,6}(?:\.\d{1,3})?)[ -]?gi?b\b(?!/s|ps)", re.IGNORECASE)
_SEPARATORS, _GIB = re.compile(r"[^a-z0-9]+"), re.compile(r"(?<=\d)gib")
_TERABYTES = re.compile(r"(\d{1,3}(?:\.\d{1,3})?) ?ti?b\b", re.IGNORECASE)
COUNTS = {"dual": 2, "twin": 2, "triple": 3, "quad": 4}
_SEVERAL = re.compile(
    rf"(?:(\d{{1,3}}) ?[x*\u00d7]|({'|'.join(COUNTS)})(?= (?!ch\b|channel))) ?(?=\S{{2}})", re.IGNORECASE
)
_SEVERAL_AFTER = re.compile(r"(.+\S)\s+[x\u00d7] ?(\d{1,2})", re.IGNORECASE)
_LAPTOP = re.compile(r"\b(?:laptop gpu|mobile|notebook|max-?q)\b")
# Inches behind a Mac's name: no size of memory, number of cores or year.
_SCREEN = (
    r"(?:[ -]?(?:1[1-7]|2[147])(?:\.\d)?(?:[- ]?in(?:ch)?\b|\"|\b(?![.-]?\d| ?(?:[gt]i?b?\b|-?c(?:ore|pu)?\b|x))))?"
)
_COMPUTER = re.compile(
    rf"\bi?mac(?:book)?\b(?: (?:air|pro|neo|studio|mini)\b)?{_SCREEN}|\bmb[pa]\b{_SCREEN}|(?<=m\d )air\b{_SCREEN}|"
    r"(?:(?<=m\d )|(?<=m\d[ -]pro )|(?<=m\d[ -]max )|(?<=m\d[ -]ultra ))(?:studio|mini)\b|"
    r"\b(?:1[1-7]|2[147])(?:\.\d)?(?:[- ]?in(?:ch)?\b|\")|"
    r"\b(?:fe|oc)\b"
)  # or a card's edition
_NOISE = re.compile(
    r"nvidia|geforce|amd|radeon|intel|(?<!\d)core|apple|gpu|graphics|cpu|processor|generation"
    r"|(?:workstation|server|founders)edition"
)
_SOCKET = re.compile(r"sxm\d?|pcie(?![\dx])")
_PROCESSOR = re.compile(r"\b(?:ryzen|threadripper|epyc|xeon|core (?:i\d|ultra)|i[3579][- ]?\d)", re.IGNORECASE)
_OF_PROCESSORS = re.compile(  # what says nothing of which processor it is: families within families, cores, samples
    r"\bryzen(?= threadripper)|(?<!threadripper )\bpro\b|\b\d+[- ]?(?:cores?|c|threads?|t|vcpus?)\b|"
    r"\bzen ?\d\+?|\b(?:qs|es)\b|(?<=epyc )(?:naples|rome|milan|genoa|bergamo|turin)\b|"
    r"\b(?:(?:alder|arrow|panther|raptor) lake|"
    r"(?:sapphire|emerald|granite) rapids|(?:cascade|ice) lake|broadwell|haswell|skylake)(?:-ep|-sp)?\b",
    re.IGNORECASE,
)
CHANNELS = {"single": 1, **COUNTS, "hexa": 6, "octa": 8, "octo": 8}
_CHANNELS_SAID = re.compile(rf"\b(\d{{1,2}}|{'|'.join(CHANNELS)})[- ]?(?:channels?|ch)\b(?: of\b)?", re.IGNORECASE)
_RATE = re.compile(r"\b(?:lp)?ddr\d\w?[- ]?\d{4,5}\b(?!x)|\bm(?:cr|r)dimm[- ]?\d{4}\b(?!x)", re.IGNORECASE)
_ABOUT_RAM = re.compile(
    r"\b(?:of )?(?:d?ram|uma|memory|unified|shared(?= (?:ram|memory))|ecc|(?:lr|r|u)?dimms?|sticks?|modules?)\b|"
    r"(?<=\d) ?(?:mhz|mt/s)\b|[()]",
    re.IGNORECASE,
)
_RAM_SAID = re.compile(r"\b(?:ram|memory)\b", re.IGNORECASE)
_BARE_SPEED = re.compile(
    r"(?<![\w.-])@? ?(?:(\d{4})(?= *(?:$|[)])| +c(?:l ?)?\d\d\b)|(\d{4,5}) ?(?:mhz|mt/?s)\b)(?: *c(?:l ?)?\d\d\b)?",
    re.IGNORECASE,
)
_OF_A_KIND = re.compile(r"ddr\d|dimm-?\d", re.IGNORECASE)
_OF_CHANNELS = re.compile(r"\bof \d+ channels", re.IGNORECASE)
LEAST_MT_S = 1066
REPORTED = 0.065  # what ECC and the driver take of a card's memory
_REPORTED = re.compile(  # what systems and drivers add to the names of processors and cards
    r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|@.*|\bw/.*|\bwith\b.*|\b\d+-cores?\b|\b\d+th gen\b|\btesla\b"
    r"|-?\b\d+ ?gb\b|\bhbm\d?e?\b|\b(?:workstation|server) edition\b",
    re.IGNORECASE,
)
_SEVERAL_OR = re.compile(r"\d{1,2} ?(?:or|-|to) ?\d{1,2} ?x", re.IGNORECASE)
_VRAM = re.compile(r"\b(?:of )?v-?ram\b", re.IGNORECASE)
_DRIVE = re.compile(
    r"\b(?:m\.?2|ssd|sata|nvme|drive|disk|internal|samsung|wd(?:[ _]black)?|crucial|kingston)\b", re.IGNORECASE
)
_KINDS_OF_DRIVES = (("sata", "sata-ssd"), ("nvme", "nvme"), ("m.2", "nvme"), ("ssd", ""))  # the first that is said
_STUDIO = r"^(?!.*\blm studio)(?=.*\bstudio\b).*\bm\d\b(?![ -]?(?:max|ultra)\b)"  # no such chip is in one
_VAGUE = tuple(  # names of families, and what tells their members apart
    (re.compile(pattern, re.IGNORECASE), question)
    for pattern, question in (
        (_STUDIO, "which chip? A Studio has a Max or an Ultra, such as m2-max-64"),
        (r"\bi?mac(?:book)?\b|^apple$", "which Mac? Write its chip and memory, such as m4-max-64"),
        (r"\bxeon\b(?!.*\d{4})", "which Xeon? Write its number, such as xeon-e5-2680-v4"),
        (r"\bepyc\b(?!.*\d)", "which EPYC? Write its number, such as epyc-7302"),
        (r"\bthreadripper\b(?!.*\d{4})", "which Threadripper? Write its number, such as threadripper-3970x"),
        (r"\bryzen(?: \d)?(?: (?:pro|cpu))?$", "which Ryzen? Write its number, such as ryzen-5600"),
        (r"\bi[3579](?: cpu)?$", "which of them? Write its number, such as i7-12700k"),
        (r"^pcie$", "which PCIe? Write its generation and lanes, such as pcie4x8"),
        (r"\bcpu[- ]only\b", "a GPU is named beside it; leave out the one that does not compute"),
        (r"\be-?gpu\b", "over which cable? Write it as a part, such as oculink or thunderbolt4"),
        (r"\bv-?ram\b", "of which GPU? Name it, such as rtx-3060"),
        (
            r"\d ?[mg]b(?:/s|ps)\b",
            "write a drive by its kind, such as nvme-gen3, and RAM by its, such as ddr5-5600x2; storage.read_gb_s and "
            "memory.bandwidth_gb_s of a machine's file take speeds",
        ),
        (r"\bof \d+ channels?\b", "write the channels of one socket beside the memory, as ddr5-4800x8"),
    )
)
_CHANNELS = re.compile(r"\d{4} ?x ?\d{1,2}\b(?! ?gi?b)|channels?$", re.IGNORECASE)
_OTHER_MEMORY = re.compile(r"(lpddr[45]x?|ddr[345])(\d{4,5})(?:x(\d{1,2}))?")
_MANY_CHANNELS = re.compile(r"(.*\d{4})x(\d{2})")  # as two sockets have together
_FOR_ONE_SOCKET = re.compile(r"\bepyc[- ]?\d\w{2}\dp\b", re.IGNORECASE)
_WITH_LETTERS = re.compile(r"i\d-(?:\d{4,5}[a-z]+|\d{5})")  # an Intel Core whose number alone is no other part's
_VARIANT = re.compile(r" \d+ GB\b| \(\d+-core GPU\)")


class UnknownPart(UnknownName):
    """A text that names no part."""


@dataclass
class _Read:
    """What one word, between two plus signs, says.

    channels: of memory without a speed. mt_s: a speed of RAM without its kind. doubtful: the word with it, if
    it has no unit.
    of_both: whether it is memory with the channels of two sockets. vram_gib: memory of the cards, each or together.
    desktop: whether it says that cards are a desktop's.
    own_drive: an SSD of no kind, which only a chip has. modules: of RAM, if their number is given.
    """

    part: Part | None = None
    number: int = 1
    ram_gib: float | None = None
    generation: str = ""
    channels: int = 0
    mt_s: int = 0
    system: str = ""
    doubtful: str = ""
    of_both: bool = False
    vram_gib: float | None = None
    own_drive: str = ""
    desktop: bool = False
    modules: int = 0


def words(text: str) -> list[str]:
    """The words of a text such as `rtx-3060 + 64GiB`; the plus in `Max+ 395` is part of a name."""
    return [word.strip() for word in _PLUS.split(text)]


def system_in(word: str) -> str:
    """The operating system that a word names, one of machine.SYSTEMS, or nothing; of Linux in any version."""
    way = plain(_EDITION.sub("", word))
    known = _SYSTEMS.get(way.rstrip("0123456789"), "")
    first, *others = word.lower().split() or [""]
    family = _SYSTEMS.get(plain(first), "")
    if not known and others and family in ("linux", "macos"):
        is_release = _is_release_of_macos if family == "macos" else _RELEASE.fullmatch
        known = family if all(is_release(one) for one in others) else ""
    return known if known in ("linux", "macos") or way.startswith("windowsserver") else _SYSTEMS.get(way, "")


def _is_release_of_macos(word: str) -> bool:
    return word[0].isdecimal() or word == "latest" or _SYSTEMS.get(word) == "macos"


def is_part(word: str) -> bool:
    """Whether a word names a part, RAM, a kind of memory or an operating system."""
    return _refusal(word) is None


def is_unknown(word: str) -> bool:
    """Whether a word names nothing, rather than a part that cannot be so."""
    return _refusal(word) is UnknownPart


@lru_cache(maxsize=1024)
def _refusal(word: str) -> type[BadInput] | None:
    """The kind of error that a word is, of which the similar names are slow to find; None for a part."""
    try:
        _read(word)
    except BadInput as error:
        return type(error)
    return None


def is_certain(word: str) -> bool:
    """Whether a word surely is a part, RAM or a system; quick, since no similar names are looked for."""
    after = None if named_part(word) else _SEVERAL_AFTER.fullmatch(word)
    one = after[1] if after else _SEVERAL.sub("", word, count=1) if _SEVERAL.match(word) else word
    size = _SIZE.search(one) or _TERABYTES.search(one)
    rest = _ABOUT_RAM.sub(" ", f"{one[: size.start()]} {_VRAM.sub(' ', one[size.end() :])}" if size else one).strip()
    if (size is not None and _drive(word, rest) is not None) or _is_bare_ram(word):
        return True
    if not (key := plain(rest)):
        return size is not None
    known = (
        key in GENERATIONS
        or system_in(word)
        or named_part(rest)
        or (_RATE.search(word) and _CHANNELS_SAID.search(word))
    )
    return bool(known) and is_part(word)


def left_over(text: str) -> list[str]:
    """The words of a text between which parts stand that are none; empty if there are no parts."""
    tokens, left, at = text.split(), [], 0
    while at < len(tokens):
        ends = range(len(tokens), at, -1)
        end = next((end for end in ends if is_certain(" ".join(tokens[at:end]))), at)
        if end == at:
            left.append(tokens[at])
        at = max(end, at + 1)
    return left if len(left) < len(tokens) else []


def has_laptop(word: str) -> bool:
    """Whether a word names a card, or one with its memory, that exists for laptops too."""
    size = _SIZE.search(word)
    bare = _SEVERAL.sub("", f"{word[: size.start()]} {word[size.end() :]}" if size else word, count=1)
    part = named_part(_VRAM.sub("", bare).strip())
    return part is not None and part.kind == "gpu" and not part.form and laptop_card(part) is not None


def is_of_a_laptop(word: str) -> bool:
    """Whether a word names a processor that only laptops, and small computers, have."""
    part = named_part(word) or (_read(word).part if is_part(word) else None)
    return part is not None and part.kind == "cpu" and part.form == "laptop"


def is_computer(word: str) -> bool:
    """Whether a word names a computer without its chip, as `MacBook Pro`."""
    return not plain(_COMPUTER.sub("", word.lower()))


def is_integrated(word: str) -> bool:
    """Whether a word names the GPU inside a processor."""
    part = _read(word).part if is_part(word) else None
    return part is not None and part.kind == "chip" and integrated(part)


def kind_of(word: str) -> str:
    """The kind of part that a word names, one of KINDS, `RAM`, or nothing for an operating system; it names one."""
    read = _read(word)
    if read.part is not None:
        return read.part.kind
    return "" if read.system or read.desktop else "RAM"


def parse_parts(text: str) -> Parts:
    """The parts of a text such as `2x rtx-3060 + ryzen-5600 + 64GB DDR4 + linux`, in any order.

    Raises UnknownPart for an unknown part, and BadInput for two of one kind, for several of a part of which there is
    one, for GPUs of two makers, and for a size of memory that was not sold.
    """
    by_kind: dict[str, Part] = {}
    cards: list[Part] = []
    sizes: list[tuple[str, float]] = []
    generation, system = "", ""
    channels, mt_s, doubtful = 0, 0, ""
    bare, sockets, of_both, vram_gib, own_drive, modules = False, 1, "", None, "", 0
    for word in words(text):
        read = _read(word)
        vram_gib, own_drive = read.vram_gib or vram_gib, read.own_drive or own_drive
        modules = read.modules or modules
        if read.ram_gib is not None:
            sizes.append((word, read.ram_gib))
        if read.system:
            if system not in ("", read.system):
                raise Conflict(f"{system} and {read.system}: two operating systems; give one")
            system = read.system
        if read.generation:
            if generation not in ("", read.generation):
                raise Conflict(f"{generation} and {read.generation}: two kinds of memory; give one")
            generation = read.generation
        if read.channels:
            if channels not in (0, read.channels):
                raise Conflict(f"{channels} and {read.channels} channels of memory; give one number")
            channels = read.channels
        if read.mt_s:
            if mt_s not in (0, read.mt_s):
                raise Conflict(f"{mt_s} and {read.mt_s} MT/s: two speeds of RAM; give one")
            mt_s, doubtful = read.mt_s, read.doubtful
        if read.part is not None:
            if read.part.kind == "gpu":
                _check_card(cards, read.part)
                cards += [read.part] * read.number
            elif (before := by_kind.get(read.part.kind)) is not None:
                if read.part.kind == "chip" and read.part in _family(before, of_any_name=True):
                    by_kind["chip"] = max(before, read.part, key=lambda part: "core" in part.name)
                    continue
                if read.part.kind == "storage":  # the model is on the fastest
                    by_kind["storage"] = max(before, read.part, key=lambda part: part.numbers["read_gb_s"].value)
                    continue
                if read.part == before and read.part.kind == "cpu" and link_between(before) is None:
                    continue
                raise Conflict(f"{before.name} and {read.part.name}: two parts of one kind, {read.part.kind}; give one")
            else:
                by_kind[read.part.kind] = read.part
            if read.part.kind == "cpu":
                sockets = read.number
            if read.part.kind == "memory" and not _says_channels(word):
                bare = True
            of_both = word if read.of_both else of_both
    if vram_gib is not None and not (cards == [] and "chip" in by_kind):
        cards = _with_vram(cards, vram_gib)
    ram_gib, cards = _without_vram(sizes, cards)
    chip_with_drive = "ssd_gb_s" in getattr(by_kind.get("chip"), "numbers", {})
    if chip_with_drive and "storage" in by_kind and by_kind["storage"].numbers["read_gb_s"].guessed:
        del by_kind["storage"]  # its own
    if own_drive and not chip_with_drive:
        raise Incomplete(f"{shown(own_drive)}: of which kind? Write sata-ssd, nvme-gen3, nvme-gen4 or nvme-gen5")
    if (chip := by_kind.get("chip")) is not None:
        by_kind["chip"], ram_gib = _as_sold(chip, ram_gib)
        if "memory" in by_kind and not integrated(chip) and _is_its_own(chip, by_kind["memory"]):
            del by_kind["memory"]
        of_memory = generation or (f"{channels} channels" if channels else f"{mt_s} MT/s" if mt_s else "")
        if of_memory and not integrated(chip):
            raise Conflict(f"{chip.name} and {of_memory}: a chip has its own memory; leave {of_memory} out")
    if doubtful and "cpu" not in by_kind and (other := named_part(str(mt_s))) is not None:
        raise Malformed(f"{shown(doubtful)}: write {other.name}, or {mt_s} MT/s for the speed of the RAM")
    if mt_s:
        by_kind["memory"], bare = _of_speed(mt_s, generation, by_kind), True
    cpu = by_kind.get("cpu")
    if channels and sockets > 1 and cpu is not None and cpu.memory and channels > split(catalogue()[cpu.memory])[1]:
        channels //= 2
    if modules and not channels and (bare or "memory" not in by_kind) and cpu is not None and cpu.memory:
        channels = min(max(modules // sockets, 1), split(catalogue()[cpu.memory])[1])
    if cpu is not None and cpu.memory and channels == split(catalogue()[cpu.memory])[1]:
        channels = 0  # all that it has, as without them
    if channels > MOST_CHANNELS:
        raise OutOfRange(f"{channels} channels; give 1 to {MOST_CHANNELS}, those of one socket")
    if (memory := by_kind.get("memory")) is not None:
        if not memory.name.startswith(generation):
            raise Conflict(f"{memory.name} and {generation}: two kinds of memory; give one")
        generation = ""
        if bare:
            by_kind["memory"] = with_channels(memory, cpu, ram_gib, channels)
        elif channels not in (0, split(memory)[1]):
            raise Conflict(f"{memory.name} and {channels} channels: two numbers of channels; give one")
        elif sockets > 1:
            by_kind["memory"] = _of_one_socket(memory, by_kind["cpu"])
        channels = 0
    if of_both and sockets == 1:
        raise UnknownPart(f"unknown part {shown(of_both)}; so many channels have two sockets, as 2x epyc-9354")
    if len(cards) > MOST_GPUS:
        raise OutOfRange(f"{len(cards)} cards; give at most {MOST_GPUS}")
    by_kind = {kind: by_kind[kind] for kind in KINDS if kind in by_kind}
    return with_cards(Parts(by_kind, ram_gib, 1, (), system, generation, sockets, channels), cards)


def _is_its_own(chip: Part, memory: Part) -> bool:
    """Whether a chip has memory of this rate, on a number of channels that chips have."""
    of_chip, of_memory = (one.numbers["bandwidth_gb_s"].value for one in (chip, memory))
    channels = of_chip / of_memory * split(memory)[1]
    near = any(abs(channels / number - 1) < OF_A_ROUND_RATE for number in OF_CHIPS)
    return near and memory.name.startswith("lpddr")


def _of_speed(mt_s: int, generation: str, by_kind: Mapping[str, Part]) -> Part:
    """The memory of a speed whose kind is the given one, else the CPU's, else the one that was sold at this speed."""
    memory, cpu = by_kind.get("memory"), by_kind.get("cpu")
    if memory is not None:
        raise Conflict(f"{memory.name} and {mt_s} MT/s: two speeds of RAM; give one")
    kind = generation or next(kind for kind, most in MOST_MT_S.items() if mt_s <= most)
    if not generation and cpu is not None and cpu.memory and not takes(cpu, kind):
        kind = split(catalogue()[cpu.memory])[0].partition("-")[0]
    found = memory_part(f"{kind}-{mt_s}x2") or memory_part(f"{kind}-{2 * mt_s}x2")  # of a clock, twice as many
    if found is None:
        beside = f"{cpu.name} and " if cpu is not None else ""
        raise Conflict(
            f"{beside}{mt_s} MT/s: {kind} is not sold at this speed; write the RAM's kind, such as DDR4-3200"
        )
    return found


def _with_vram(cards: list[Part], vram_gib: float) -> list[Part]:
    """The cards with this memory, each or together.

    Raises BadInput for memory of cards that nobody named, or that were not sold with it.
    """
    each = [card.numbers["memory_gib"].value for card in cards]
    if not cards:
        raise Incomplete(f"{vram_gib:g} GB of VRAM: of which GPU? Name it, such as rtx-3060")
    if _as_reported(vram_gib, (*each, sum(each))) in (*each, sum(each)):
        return cards
    if found := _sold_with(cards, vram_gib):
        return found
    has = " and ".join(f"{size:g}" for size in dict.fromkeys(each))
    raise Conflict(f"{vram_gib:g} GB of VRAM, but {cards[0].name} has {has}; give the card that it is")


def _sold_with(cards: Sequence[Part], vram_gib: float) -> list[Part]:
    """Equal cards as they were sold with this memory, each or together; none if they were not."""
    if len({card.name for card in cards}) != 1:
        return []
    try:
        read = _read(f"{len(cards)}x {cards[0].name} {vram_gib:g}GB")
    except (OutOfRange, UnknownPart):
        return []
    return [] if read.part is None else [read.part] * len(cards)


def _without_vram(sizes: Sequence[tuple[str, float]], cards: list[Part]) -> tuple[float | None, list[Part]]:
    """The size of RAM, None if there is none, and the cards with the memory that stands alone beside it.

    sizes: in GiB, with the word that gives each. Raises BadInput for two sizes of RAM.
    """
    own = [card.numbers["memory_gib"].value for card in cards]
    if len(sizes) > 2:
        others = [one for one in sizes if _as_reported(one[1], own) not in own]
        if len(others) == 1 and len(sizes) - 1 <= len(cards):
            return others[0][1], cards
    if len(sizes) == 2 and cards:
        alone = [size for word, size in sizes if not plain(_SIZE.sub("", word))]
        near = [size for size in dict.fromkeys(alone) if _as_reported(size, own) in own]
        for found in (near, [size for size in alone if _sold_with(cards, size)]):
            if len(found) == 1:
                (ram_gib,) = [size for _, size in sizes if size != found[0]] or found
                return ram_gib, cards if found is near else _sold_with(cards, found[0])
    if len(sizes) > 1:
        raise Conflict(f"{sizes[0][1]:g}GiB and {sizes[1][0]}: two sizes of RAM; give one")
    return (sizes[0][1] if sizes else None), cards


def _of_one_socket(memory: Part, cpu: Part) -> Part:
    """The memory of one socket: what was given, or a half of more channels than one has."""
    kind, channels = split(memory)
    if channels <= split(catalogue()[cpu.memory])[1]:
        return memory
    return memory_part(f"{kind}x{channels // 2}") or memory


def with_cards(parts: Parts, cards: Sequence[Part]) -> Parts:
    """The parts with these GPUs, the fastest first, as CUDA counts them."""
    if not cards:
        return parts
    first, *others = sorted(cards, key=_speed, reverse=True)
    unlike = tuple(card for card in others if card.name != first.name)
    by_kind = {kind: {**parts.by_kind, "gpu": first}[kind] for kind in KINDS if kind == "gpu" or kind in parts.by_kind}
    return replace(parts, by_kind=by_kind, n_gpus=len(cards) - len(unlike), unlike=unlike)


def _speed(card: Part) -> tuple[float, float]:
    """What cards are ordered by: the rate of their arithmetic, then of their memory."""
    rate = card.numbers.get("fp32_tflops")
    return 0.0 if rate is None else rate.value, card.numbers["bandwidth_gb_s"].value


def _check_card(before: Sequence[Part], card: Part) -> None:
    """Raises BadInput for a card beside others that was named already, or is programmed in another way."""
    for other in before:
        if other.name == card.name:
            raise Conflict(f"{card.name} twice; write several cards as 2x {card.name}")
        if (other.maker, other.api) != (card.maker, card.api):
            raise Unsupported(
                f"{other.name} and {card.name}: GPUs of two makers together are not modelled; give one of them"
            )


def _read(word: str) -> _Read:
    """One word: an operating system, a part with or without number and size, RAM, or a generation of memory."""
    if not word:
        raise Malformed("an empty part; write parts with one + between two, such as rtx-3060 + 64GiB")
    if word.lower() in ("ram", "memory"):
        raise Malformed(f"{word} without its size; write it, such as 64GiB")
    if re.match(r"-\d", word):
        raise OutOfRange(f"{shown(word)}: less than nothing; write {word.removeprefix('-')} without the sign")
    word = _with_channels_behind(word)
    if system := system_in(word):
        return _Read(system=system)
    if plain(word) == DESKTOP:
        return _Read(desktop=True)
    if (of_channels := _with_bare_channels(word)) is not None:
        return of_channels
    if (of_speed := _with_bare_speed(word)) is not None:
        return of_speed
    if (part := named_part(word)) is not None:
        return _Read(part)
    if (of_drive := _drive(word, word)) is not None:
        return of_drive
    if _SEVERAL_OR.match(word):
        raise Malformed(f"{shown(word)}: give one number of them, such as 2x")
    if (key := plain(word)) in GENERATIONS:
        return _Read(generation=key)
    if several := _SEVERAL.match(word):
        return _several(word, int(several[1] or COUNTS[several[2].lower()]), word[several.end() :])
    if several := _SEVERAL_AFTER.fullmatch(word):
        return _several(word, int(several[2]), several[1])
    if terabytes := _TERABYTES.search(word):
        rest = f"{word[: terabytes.start()]} {word[terabytes.end() :]}"
        if (of_drive := _drive(word, rest)) is not None:
            return of_drive
        if _is_ram(rest):
            return _sized(word, 1024 * float(terabytes[1]), rest)
        ram = f"{1024 * float(terabytes[1]):g}GiB"
        kind = UnknownPart if plain(_DRIVE.sub(" ", rest)) else Malformed  # other parts beside it, without a mark
        raise kind(f"{shown(word)}: write a drive by its kind, without its size, such as nvme-gen4; RAM as {ram}")
    if found := _SIZE.search(word):
        rest = f"{word[: found.start()]} {word[found.end() :]}"
        return replace(_sized(word, int(found[1] or 1) * float(found[2]), rest), modules=int(found[1] or 0))
    if (many := _channels_of_two(word)) is not None:
        return _Read(many, of_both=True)
    for way in _ways(word):
        if (of_chip := _chip_and_number(way)) is not None:
            return _with_size(word, *of_chip)
    return _Read(find_part(_ABOUT_RAM.sub("", word).strip()))


def _channels_of_two(word: str) -> Part | None:
    """The memory of one socket, if a word gives it with the channels of two; else None."""
    many = None if named_part(word) else _MANY_CHANNELS.fullmatch(plain(word))
    return named_part(f"{many[1]}x{int(many[2]) // 2}") if many else None


def _drive(word: str, rest: str) -> _Read | None:
    """The drive beside a size, which does not matter, or None. rest: the word without the size."""
    if not plain(bare := _DRIVE.sub(" ", rest)):
        said = [name for kind, name in _KINDS_OF_DRIVES if kind in rest.lower()]
        return None if not said else _Read(catalogue()[said[0]]) if said[0] else _Read(own_drive=word)
    part = named_part(bare.strip())
    part = part if part is not None and part.kind == "storage" else named_part(rest)
    return _Read(part) if part is not None and part.kind == "storage" else None


def _is_ram(rest: str) -> bool:
    """Whether what stands beside a size says that it is RAM."""
    part = named_part(_ABOUT_RAM.sub(" ", rest).strip())
    said = _RAM_SAID.search(rest)
    return bool(said) or plain(rest).startswith(GENERATIONS) or (part is not None and part.kind in ("memory", "cpu"))


def _with_channels_behind(word: str) -> str:
    """`8-channel DDR4-3200` as `DDR4-3200x8`; any other word as it is."""
    said, rate = _CHANNELS_SAID.search(word), _RATE.search(word)
    if said is None or rate is None:
        return word
    number = CHANNELS.get(said[1].lower()) or int(said[1])
    return " ".join(_CHANNELS_SAID.sub(" ", word.replace(rate[0], f"{rate[0]}x{number}")).split()).rstrip(" ,")


def _says_channels(word: str) -> bool:
    """Whether a word gives the channels of memory; a number behind its size is of modules."""
    after = _SEVERAL_AFTER.fullmatch(word)
    one = after[1] if after and _SIZE.search(after[1]) else word
    return _CHANNELS.search(_with_channels_behind(one)) is not None


def _is_bare_ram(word: str) -> bool:
    """Whether a word is channels or a speed of RAM, with its size or without."""
    try:
        return (_with_bare_channels(word) or _with_bare_speed(word)) is not None
    except BadInput:
        return False


def _with_bare_channels(word: str) -> _Read | None:
    """What a word with a number of channels, but no speed, says: the channels, and what is beside them."""
    if (said := _CHANNELS_SAID.search(word)) is None or _OF_CHANNELS.search(word):
        return None
    rest = " ".join(f"{word[: said.start()]} {word[said.end() :]}".replace("(", " ").replace(")", " ").split())
    size = _SIZE.search(rest)
    beside = f"{rest[: size.start()]} {rest[size.end() :]}" if size else rest
    if plain(_ABOUT_RAM.sub(" ", _BARE_SPEED.sub(" ", beside))) not in ("", *GENERATIONS):
        return None
    number = CHANNELS.get(said[1].lower()) or int(said[1])
    if not number:
        raise OutOfRange(f"{shown(word)}: give 1 to {MOST_CHANNELS} channels, those of one socket")
    return replace(_read(rest) if rest else _Read(), channels=number)


def _with_bare_speed(word: str) -> _Read | None:
    """What a word with a speed of RAM, but not its kind, says: the speed, and the size beside it."""
    found = _BARE_SPEED.search(word)
    if found is None or _OF_A_KIND.search(word) or not LEAST_MT_S <= int(found[1] or found[2]) <= MOST_MT_S["ddr5"]:
        return None
    rest = f"{word[: found.start()]} {word[found.end() :]}"
    if found[1] and (card := named_part(found[1])) is not None and card.kind == "gpu" and _SIZE.match(word):
        return None  # 8GB 3070
    ram = _read(rest) if _SIZE.search(rest) else None
    if ram is not None and (ram.ram_gib is None or ram.part is not None):
        return None
    if ram is None and (not found[2] or plain(_ABOUT_RAM.sub(" ", rest))):
        return None
    return replace(ram or _Read(), mt_s=int(found[1] or found[2]), doubtful=word if found[1] else "")


def _several(word: str, number: int, one: str) -> _Read:
    """Several cards, CPUs or modules of RAM. one: the word without their number."""
    if not 1 <= number <= MOST_MODULES:
        raise OutOfRange(f"{shown(word)}: {number} cards; give 1 to {MOST_GPUS}")
    beside = (size := _SIZE.search(one)) and _VRAM.sub(" ", f"{one[: size.start()]} {one[size.end() :]}")
    card = named_part(beside.strip()) if beside else None
    if size and card and card.kind == "gpu" and number > 1:
        sold = {other.numbers["memory_gib"].value: other for other in _family(card)}
        together, each = float(size[2]) == number * card.numbers["memory_gib"].value, sold.get(float(size[2]))
        if together and each is not None and not each.shop:
            raise Malformed(f"{shown(word)}: each or together? Write {number}x {each.name}, or {number}x {card.name}")
        if together and each is None:
            one = card.name  # the memory of all
    read = _read(one)
    modules = read.ram_gib is not None and (read.part is None or read.part.kind == "memory")
    if read.part is not None and read.part.kind == "memory" and not modules:
        channels = f"{split(read.part)[0]}x{min(number, MOST_CHANNELS)}"
        raise Malformed(f"{shown(word)}: modules or channels? Write channels of one socket as {channels}, RAM as 64GiB")
    if number > MOST_GPUS and not modules:
        raise OutOfRange(f"{shown(word)}: {number} cards; give 1 to {MOST_GPUS}")
    if read.part is not None and read.part.kind == "cpu" and number > 1:
        _check_sockets(word, number, read)
        read.number = number
        return read
    if read.part is not None and read.part.kind == "gpu":
        read.number = number
    elif read.ram_gib is not None and modules:
        read.ram_gib *= number
        read.modules = number
    elif number > 1:
        if read.part is not None and read.part.kind == "chip":
            raise Conflict(
                f"{shown(word)}: several machines need the network between them; write {word} over 10gbe, or give one"
            )
        kind = "part" if read.part is None else read.part.kind
        raise Conflict(f"{shown(word)}: several of one {kind}; only GPUs and CPUs of servers may be several; give one")
    return read


def _check_sockets(word: str, number: int, read: _Read) -> None:
    """Raise BadInput for several of a CPU that stands alone on its board, for more than two, and for a size beside."""
    cpu = read.part
    assert cpu is not None
    if link_between(cpu) is None or _FOR_ONE_SOCKET.search(word):
        raise Conflict(f"{shown(word)}: {cpu.title} is not known to stand two on a board; give one")
    if number > MOST_SOCKETS:
        raise Unsupported(f"{shown(word)}: {number} sockets are not modelled; give {MOST_SOCKETS}x {cpu.name}")
    if read.ram_gib is not None:
        raise Malformed(
            f"{shown(word)}: RAM of one socket or of all? Write all of it as a part: {number}x {cpu.name} + "
            f"{number * read.ram_gib:g}GiB"
        )


def _sized(word: str, size: float, rest: str) -> _Read:
    """A size, and what is written beside it."""
    if not size:
        raise OutOfRange(f"{word}: no RAM; give its size, such as 64GiB")
    if (of_drive := _drive(word, rest)) is not None:
        return of_drive
    if _VRAM.search(rest):
        rest = _VRAM.sub(" ", rest).strip()
        if not plain(rest):
            return _Read(vram_gib=size)
    rest = _ABOUT_RAM.sub(" ", rest).strip()
    if (many := _channels_of_two(rest)) is not None:
        return _Read(many, ram_gib=size, of_both=True)
    if not (key := plain(rest)):
        return _Read(ram_gib=size)
    return _Read(ram_gib=size, generation=key) if key in GENERATIONS else _with_size(word, find_part(rest), size)


def _with_size(word: str, part: Part, size: float) -> _Read:
    """A part with the size beside its name. Raises BadInput for a size that was not sold."""
    if part.kind == "gpu":
        sold = {other.numbers["memory_gib"].value: other for other in _family(part)}
        size = _as_reported(size, sold)
        if size not in sold:
            kind = UnknownPart if _RAM_SAID.search(word) else OutOfRange  # the size is of another part, without a mark
            laptop = laptop_card(part)
            has = f", which {laptop.name} has" if laptop and laptop.numbers["memory_gib"].value == size else ""
            raise kind(
                f"{shown(word)}: {part.name} was sold with {_sizes(sold)}, not {size:g}{has}; RAM is a part of its "
                f"own: {part.name} + {size:g}GiB"
            )
        return _Read(sold[size])
    if part.kind == "chip":
        sizes = {sold for other in _family(part) for sold in other.sold_gib}
        if size not in sizes:
            raise OutOfRange(
                f"{shown(word)}: {part.name} was sold with {_sizes(sizes)}, not {size:g}; for a size that is not sold "
                f"write {part.name} + {size:g}GiB"
            )
        return _Read(part, ram_gib=size)
    if part.kind in ("cpu", "memory"):
        return _Read(part, ram_gib=size)
    raise Conflict(f"{shown(word)}: give {part.name} without a size")


def _as_reported(size: float, sold: Iterable[float]) -> float:
    """The size with which a card was sold that a driver reports as this one, which is less by up to REPORTED."""
    near = [one for one in sold if one * (1 - REPORTED) <= size < one]
    return min(near, default=size) if size not in sold else size


def _as_sold(chip: Part, ram_gib: float | None) -> tuple[Part, float | None]:
    """The variant of a chip that is sold with this RAM, and the RAM if there is only one size of it."""
    if ram_gib is not None:
        return next((one for one in [chip, *_family(chip)] if ram_gib in one.sold_gib), chip), ram_gib
    return chip, chip.sold_gib[0] if len(chip.sold_gib) == 1 else None


def _family(part: Part, *, of_any_name: bool = False) -> list[Part]:
    """A part and its variants with other memory or fewer cores, by their titles; a name with its cores has none.

    of_any_name: a name with its cores has them too.
    """
    if "core" in part.name and not of_any_name:
        return [part]
    title = _VARIANT.sub("", part.title)
    return [one for one in catalogue().values() if one.kind == part.kind and _VARIANT.sub("", one.title) == title]


def _sizes(sizes: Iterable[float]) -> str:
    """`64, 128 or 192 GB`."""
    *others, last = (f"{size:g}" for size in sorted(sizes))
    return f"{', '.join(others)} or {last} GB" if others else f"{last} GB"


def _chip_and_number(key: str) -> tuple[Part, float] | None:
    """A chip and its RAM from `m2ultra192`."""
    chips = [way for way, name in _names().items() if catalogue()[name].kind == "chip" and key.startswith(way)]
    for way in sorted(chips, key=len, reverse=True):
        if re.fullmatch(r"\d{1,4}", rest := key.removeprefix(way)):
            return catalogue()[_names()[way]], float(rest)
    return None


def chips_as_sold() -> dict[str, Part]:
    """Every chip with each RAM that it is sold with, by names such as `m2-ultra-192`."""
    return {
        f"{part.name}-{size:g}": part for part in catalogue().values() if part.kind == "chip" for size in part.sold_gib
    }


def find_part(word: str) -> Part:
    """The part with this name, alias or title. Raises UnknownPart, with the nearest names, for an unknown one."""
    if not word:
        raise Malformed("an empty part; write parts with one + between two, such as rtx-3060 + 64GiB")
    if (part := named_part(word)) is not None:
        return part
    if word.isdecimal():
        raise UnknownName(f"unknown part {shown(word)}; {_of_number(word)}")
    if vague := next((ask for pattern, ask in _VAGUE if pattern.search(word)), ""):
        raise Incomplete(f"{shown(word)}: {vague}")
    raise UnknownPart(f"unknown part {shown(word)}; {any_of(nearest(word))}`sim machine parts` lists all")


def _of_number(word: str) -> str:
    """What a number alone may mean, as it is to be written: a part with it, the speed of RAM, or its size."""
    if len(word) != 4 or not LEAST_MT_S <= int(word) <= MOST_MT_S["ddr5"]:
        return f"RAM has a unit: write {word}GiB"
    parts = (part.name for part in catalogue().values() if part.kind in ("gpu", "cpu"))
    ways = [name for name in parts if name.endswith(f"-{word}")]
    return f"write {' or '.join([*ways[:NEAREST], f'{word} MT/s'])} for the speed of the RAM"


def named_part(word: str) -> Part | None:
    """The part with this name, alias or title, or None."""
    if is_incomplete_studio(word):
        return None
    names = _names()
    if way := next((way for way in _ways(word) if way in names), ""):
        part = catalogue()[names[way]]
        return None if part.kind == "gpu" and _has_another_socket(part, word) else part
    found = _OTHER_MEMORY.fullmatch(plain(word))
    return memory_part(f"{found[1]}-{found[2]}x{found[3] or 2}") if found else None


def is_incomplete_studio(text: str) -> bool:
    """Whether a text says a Mac Studio with a chip that none has: an M2 stands for an M2 Max or an M2 Ultra."""
    return re.search(_STUDIO, text, re.IGNORECASE) is not None


def _has_another_socket(card: Part, word: str) -> bool:
    """Whether a word gives a card the other socket than it has, of which the memory may be faster."""
    said, own = (_SOCKET.search(text.lower()) for text in (word, card.title))
    return said is not None and own is not None and said[0][:3] != own[0][:3]


def reported_part(name: str, kind: str, *, memory_gib: float | None = None) -> Part | None:
    """The part of a kind that the system or a driver calls so, or None; of several cards the one with this memory."""
    part = named_part(_REPORTED.sub(" ", name))
    if part is None or part.kind != kind:
        return None
    if memory_gib is None:
        return part
    return min(_family(part), key=lambda one: abs(one.numbers["memory_gib"].value - memory_gib))


def _ways(word: str) -> tuple[str, ...]:
    """Normal forms of a word: as written; without the maker; without the computer; with neither; and with `laptop`
    last, or without the socket. Of a processor the last two are without its cores, `PRO` and the like.
    """
    text = plain(_LAPTOP.sub("laptop", _COMPUTER.sub("", word.lower())))
    bare = _NOISE.sub("", text)
    exactly = _NOISE.sub("", plain(word))
    if _PROCESSOR.search(word):
        processor = plain(_OF_PROCESSORS.sub(" ", word.lower()))
        return plain(word), exactly, text, bare, processor, _NOISE.sub("", processor)
    last = f"{bare.replace('laptop', '')}laptop" if "laptop" in bare else _SOCKET.sub("", bare)
    return plain(word), exactly, text, bare, last


def nearest(word: str, machines: Iterable[str] = ()) -> list[str]:
    """The known names most like a word: of parts; with names of machines, of these and of parts but chips."""
    names = _names()
    if machines:
        names = {way: name for way, name in names.items() if catalogue()[name].kind != "chip"}
        names |= {plain(name): name for name in machines}
    near = get_close_matches(plain(word), names, n=2 * NEAREST, cutoff=0.6)
    return list(dict.fromkeys(names[found] for found in near))[:NEAREST]


def any_of(near: Iterable[str]) -> str:
    """`did you mean 'rtx-3060' or 'rtx-3090'? `, or nothing."""
    names = " or ".join(map(repr, near))
    return f"did you mean {names}? " if names else ""


def matching(word: str) -> list[Part]:
    """The parts with this word in their kind, name, aliases or title. Raises BadInput if there is none."""
    key = plain(word)
    found = [
        part
        for part in catalogue().values()
        if key == part.kind or any(key in plain(text) for text in (part.name, *part.aliases, part.title))
    ]
    return found or [find_part(word)]


@cache
def _names() -> dict[str, str]:
    """Part names by every way to write them. Names come first, so that no alias or title hides one."""
    parts = catalogue().values()
    ways = [(part.name, part.name) for part in parts]
    ways += [(alias, part.name) for part in parts for alias in part.aliases]
    bare = []
    for part in parts:
        maker, _, rest = part.title.partition(" ")
        ways.append((part.title, part.name))
        if part.kind in ("gpu", "cpu", "chip"):  # their titles begin with the maker
            ways += [(rest or maker, part.name)]
            ways.append((rest.removeprefix("GeForce ").removeprefix("Core ").removeprefix("Radeon "), part.name))
        if part.kind == "cpu" and re.search(r"\d{3}", model := part.title.split()[-1]):
            ways.append((model, part.name))
        if part.title.startswith("Intel Core") and _WITH_LETTERS.fullmatch(part.name):
            bare += [(part.name.partition("-")[2] + suffix, part.name) for suffix in ("", "f")]  # 10700K
        if part.title.startswith("Intel Core"):
            ways += [(f"{part.name}{letter}", part.name) for letter in "ft"]  # without graphics, or with less power
            bare.append((f"{part.name.partition('-')[2]}f", part.name))  # 12400F
        if part.name.startswith("xeon-e"):
            bare.append((part.name.removeprefix("xeon-"), part.name))  # E5-2680 v4
        if part.title.startswith("AMD Radeon RX "):
            ways.append((f"radeon {part.title.removeprefix('AMD Radeon RX ')}", part.name))
        if found := re.fullmatch(r"AMD Ryzen AI (\d) (.*)", part.title):
            ways.append((f"ryzen {found[1]} ai {found[2]}", part.name))
        if part.title.startswith("AMD EPYC"):
            ways.append((f"{part.name}p", part.name))  # the same processor for one socket
        if part.name.startswith(("gtx-", "rtx-")):
            bare.append((part.name.partition("-")[2], part.name))  # 4060 laptop
    names: dict[str, str] = {}
    for way, name in ways + bare:
        if key := plain(way):
            names.setdefault(key, name)
    return names


def plain(text: str) -> str:
    """The normal form of a name: small letters and digits, and GB for GiB."""
    return _GIB.sub("gb", _SEPARATORS.sub("", text.lower()))
