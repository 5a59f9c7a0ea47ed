"""What real engines can do, and for whom: a file for each in `engines/`, every fact with its source."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import date, timedelta
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from flashmoe_sim.drafts import MODEL, MTP, NGRAM, Drafts
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes, nearest, quantizations
from flashmoe_sim.io.errors import Malformed, Missing, UnknownName
from flashmoe_sim.io.sizes import GIB, MIB, size
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.parameters import INT32

YES, BY_CODE, FAILS, UNKNOWN = "yes", "by-code", "fails", "unknown"
# What an engine does with an architecture, or a graph, that it does not serve.
REFUSED = {
    "ignored-alloc": "takes GPU memory for its cache, which the graph of {} never uses",
    "ignored-free": "accepts its flags, and computes {} as if they were absent",
    "wrong": "computes {} wrongly",
    FAILS: "does not run {}",
    UNKNOWN: "is not known to run {}",
}
STATUSES = (YES, BY_CODE, *REFUSED)
# What may be asked of a model's graph: the field of `Graph`, and the words for a graph that differs.
GRAPH = {
    "biases": "experts with biases",
    "fused": "a file with gate and up in one tensor",
    "scales": "a file with a scale for each expert",
    "weights_first": "routing weights before the experts",
    "clamped": "experts whose values are clamped",
}
GROUPED = "-grouped"  # an architecture whose file has expert groups, where engines treat it differently
STATES = {
    "released": "released",
    "fork": "fork, last commit",
    "draft": "open draft of a pull request of",
    "patches": "patches, last commit",
    "source": "built from source, last commit",
}
Kind = TypeVar("Kind")
NO_MMAP = "--no-mmap"
OLD = timedelta(days=92)  # three months, the longest
FEW = 2  # architectures, so few that they are what the engine is for
DESKTOP = {"linux", "macos", "windows"}
CPU = "cpu"  # beside APIS: without a GPU
OS_NAMES = {"linux": "Linux", "macos": "macOS", "windows": "Windows", "android": "Android"}


@dataclass(frozen=True, kw_only=True)
class EngineState:
    """kind: one of STATES. date: of the release, the last commit or the pull request."""

    kind: str
    date: str
    source: str

    @property
    def words(self) -> str:
        return f"{STATES[self.kind]} {self.date}"


@dataclass(frozen=True, kw_only=True)
class Licence:
    """name: empty if the repository has none."""

    name: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Where an engine runs.

    apis: interfaces of its GPUs; empty for none needed. makers: of its GPUs. compute: the least compute capability of
    an NVIDIA GPU. features: of the CPU. gpu_memory_mib: the least that the GPU must have. Empty or 0: no condition.
    """

    os: tuple[str, ...]
    source: str
    apis: tuple[str, ...] = ()
    makers: tuple[str, ...] = ()
    compute: str = ""
    features: tuple[str, ...] = ()
    gpu_memory_mib: int = 0


@dataclass(frozen=True, kw_only=True)
class Formats:
    """reads: `gguf`, `safetensors` or `mlx`. quants: the only quantizations that it loads; empty for all.

    kv_types: the only types of keys and values that its command line can ask for; empty for all of llama.cpp's.
    """

    reads: tuple[str, ...]
    source: str
    quants: tuple[str, ...] = ()
    kv_types: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GraphNeeds:
    """What the graph of a model must be; None for no condition. otherwise: what the engine does if it is not."""

    otherwise: str
    source: str
    activation: tuple[str, ...] = ()
    biases: bool | None = None
    fused: bool | None = None
    scales: bool | None = None
    weights_first: bool | None = None
    clamped: bool | None = None
    groups: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SlotSizes:
    """Sizes of its slots. per_top_k: the least, as a multiple of the experts of a token. allowed: the only ones.

    below_experts: whether a layer must have more experts than slots.
    """

    source: str
    least: int = 1
    most: int = 0
    per_top_k: int = 0
    allowed: tuple[int, ...] = ()
    below_experts: bool = False

    def why_not(self, slots: int, *, top_k: int, experts: int) -> str:
        """Why the engine refuses so many slots, or empty."""
        least = max(self.least, self.per_top_k * top_k)
        if slots < least:
            of = f", {self.per_top_k} for each of the {top_k} experts of a token" if self.per_top_k else ""
            return f"{slots} slots; the engine needs at least {least}{of}"
        if self.most and slots > self.most:
            return f"{slots} slots; more than {self.most} are not stable"
        if self.below_experts and slots >= experts:
            return f"{slots} slots; with {experts} or more the engine loads the whole model instead"
        return ""

    def within(self, sizes: Sequence[int], *, top_k: int, experts: int) -> list[int]:
        """Those of ascending sizes that the engine accepts, and its least one if the largest exceeds it."""
        least = max(self.least, self.per_top_k * top_k)
        tried = {*sizes, *([least] if sizes and sizes[0] < least <= sizes[-1] else [])}
        return sorted(size for size in tried if not self.why_not(size, top_k=top_k, experts=experts))


@dataclass(frozen=True, kw_only=True)
class OnlyModel:
    """The only model that it runs."""

    layers: int
    experts: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Archs:
    """What the engine does with each architecture, by llama.cpp's names; others: with all that are not listed."""

    status: Mapping[str, str]
    others: str
    source: str

    def of(self, name: str) -> str:
        return self.status.get(name, self.others)

    @property
    def served(self) -> list[str]:
        return [name for name, status in self.status.items() if status in (YES, BY_CODE)]


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What its authors or users say that somebody who installs it should know. says: a sentence each."""

    says: tuple[str, ...]
    source: str


@dataclass(frozen=True, kw_only=True)
class CanDraft:
    """How the engine verifies drafted tokens.

    mtp, ngram, model: its flags for each kind of drafter, with {n} for the number of tokens, or {window} for one more;
    empty if it has none.
    archs: the architectures whose own layer it can use; empty for all. apart: others, whose layer is a file of its own,
    which the flag `file` names, and which need a build such as `builds` says, in words. most: of tokens; 0: no limit.
    call_us: what a routed call of several tokens takes longer, beside its experts. no: why it cannot draft at all.
    """

    source: str
    mtp: str = ""
    ngram: str = ""
    model: str = ""
    archs: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    file: str = "--spec-draft-model DRAFT.gguf"
    builds: str = ""
    most: int = 0
    call_us: float = 0.0
    no: str = ""

    def why_not(self, drafts: Drafts, arch: str) -> str:
        """Why it cannot draft so, or empty."""
        if self.no:
            return self.no
        if not getattr(self, drafts.kind):
            known = [kind for kind in (MTP, NGRAM, MODEL) if getattr(self, kind)]
            return f"is not known to draft with --drafter {drafts.kind}; it does with {_or(known)}"
        if drafts.kind == MTP and self.archs and arch not in (*self.archs, *self.apart):
            layers = _or((*self.archs, *self.apart))
            instead = "; --drafter ngram needs no layer" if self.ngram else ""
            return f"drafts with the model's own layer for {layers}, not {arch or 'an unknown architecture'}{instead}"
        if self.most and drafts.count > self.most:
            return f"drafts at most {self.most} tokens"
        return ""

    def needs(self, drafts: Drafts, arch: str) -> str:
        """The builds that can make such drafts, in words; empty if all can."""
        return self.builds if drafts.kind == MTP and arch in self.apart else ""

    def words(self, drafts: Drafts, arch: str) -> tuple[str, ...]:
        """The flags for drafts that it can make."""
        flags: str = getattr(self, drafts.kind)
        if drafts.kind == MTP and arch in self.apart:
            flags = f"{self.file} {flags}"
        return tuple(flags.format(n=drafts.count, window=drafts.count + 1).split())


@dataclass(frozen=True, kw_only=True)
class Prebuilt:
    """What can be had without building. how: a page, or a package manager's line that the engine's own page gives.

    os: empty if its page says for which. builds: for which GPUs, if that is known; apis: the same as a machine's `api`,
    and `cpu`. take: which files of a page, by api.
    """

    name: str
    how: str
    os: tuple[str, ...] = ()
    builds: str = ""
    apis: tuple[str, ...] = ()
    take: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        where = "; ".join(filter(None, (_named(self.os), self.builds)))
        return f"{self.name}{where and f' ({where})'}: {self.how}"

    def serves(self, os: str, api: str) -> bool:
        """Whether it is for an operating system, and as far as is known for its GPU. api: empty without a GPU."""
        return os in self.os and (not self.apis or (api or CPU) in self.apis)

    def installs(self, program: str, os: str, api: str) -> str:
        """What to do to have a program of it, in words."""
        if not self.how.startswith("https:"):
            return f"`{self.how}`"
        if (files := self.take.get(api or CPU)) is None:
            return f"get it from {self.how}"
        here = f".\\{program}" if os == "windows" else f"./{program}"
        return f"unpack {files} from {self.how} into one folder, and call it {here} there"


@dataclass(frozen=True, kw_only=True)
class Get:
    """Where it is. building: its own page on building it; empty if it describes none.

    commit: whose flags were read. weights: how its file of the model is made or downloaded. unmapped: the flags with
    which it reads files into RAM as a whole instead of mapping them. programs: the folder of its programs, from the one
    that holds its repository, if they have the names of another engine's.
    """

    address: str
    commit: str
    building: str
    weights: str
    source: str
    branch: str = ""
    prebuilt: tuple[Prebuilt, ...] = ()
    unmapped: str = NO_MMAP
    programs: str = ""

    def ready(self, os: str) -> list[Prebuilt]:
        """What can be had without building on an operating system; all of it if that is empty."""
        return [one for one in self.prebuilt if not (os and one.os) or os in one.os]


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """A program, by its facts.

    common: whether anybody can install it, as llama.cpp; others lead an answer only if shown to be faster.
    looked_up: the day on which its sources were last read, in copies that may be older.
    models: named models that differ from their architecture.
    """

    name: str
    program: str
    common: bool
    looked_up: str
    state: EngineState
    licence: Licence
    platform: Platform
    formats: Formats
    archs: Archs
    get: Get | None = None
    graph: GraphNeeds | None = None
    sizes: SlotSizes = field(default_factory=lambda: SlotSizes(source="no limit was read"))
    shape: OnlyModel | None = None
    reported: Reported | None = None
    drafts: CanDraft = field(
        default_factory=lambda: CanDraft(source="nothing was read", no="is not known to draft tokens")
    )
    models: Mapping[str, str] = field(default_factory=dict)

    def if_old(self, day: date) -> str:
        """That the facts are older than three months on a day, and where newer ones are; empty if they are not."""
        if day - date.fromisoformat(self.looked_up) <= OLD:
            return ""
        address = "" if self.get is None else f" ({self.get.address})"
        return (
            f"What is known of {self.program}{address} is of {self.looked_up}, more than three months ago; it may have "
            "changed since."
        )

    def how_to_get(self, os: str) -> list[str]:
        """Where to get it for an operating system, or for any if that is empty: a sentence each; none if not known."""
        if (get := self.get) is None:
            return []
        licence = f"licence {self.licence.name}" if self.licence.name else "no licence in its repository"
        ready = get.ready(os)
        nothing = f"Nothing prebuilt is known{f' for {OS_NAMES[os]}' if os else ''}."
        return [
            f"{self.program}: {self.state.words}; {licence}; for {_named(self.platform.os)}.",
            f"Its address: {get.address}{f', branch {get.branch}' if get.branch else ''}",
            *([f"Prebuilt: {one.words}" for one in ready] or [nothing]),
            *([f"How to build it: {get.building}"] if get.building else []),
            f"Its file of the model: {get.weights}.",
            f"The flags are from commit {get.commit}.",
            *(f"Reported: {one}." for one in (self.reported.says if self.reported else ())),
        ]

    def path_of(self, program: str, *, windows: bool) -> str:
        """A program by its path if another engine's has its name; else its name.

        Source: llama.cpp's CMakeLists.txt, whose programs are in build/bin; Visual Studio adds its configuration.
        """
        folder = "" if self.get is None else self.get.programs
        if not folder:
            return program
        path = f"./{folder}/{program}"
        return path.replace("build/bin", "build/bin/Release").replace("/", "\\") if windows else path

    def where_from(self, program: str, os: str, api: str) -> str:
        """Where a program of it comes from on a machine, in a sentence; empty if the machine's system is not known."""
        if (get := self.get) is None:
            return ""
        built = f", built as {get.building} says" if get.building else ""
        if get.programs:
            folder = get.programs.partition("/")[0]
            of = f"{get.address}{f', branch {get.branch}' if get.branch else ''}"
            return f"{folder}: the folder of {of}{built}; write its path if it is elsewhere."
        if not os:
            return ""
        way = next((one.installs(program, os, api) for one in get.prebuilt if one.serves(os, api)), "")
        way = way or (f"build it as {get.building} says" if get.building else "")
        return f"If {self.program} is not installed: {way}." if way else ""

    def get_row(self, os: str) -> dict[str, Any] | None:
        """The same for JSON; None if it is not known."""
        if (get := self.get) is None:
            return None
        return {
            "engine": self.program,
            "state": self.state.words,
            "looked_up": self.looked_up,
            "licence": self.licence.name or None,
            "os": list(self.platform.os),
            "address": get.address,
            "branch": get.branch or None,
            "commit": get.commit,
            "prebuilt": [asdict(one) for one in get.ready(os)],
            "building": get.building or None,
            "weights": get.weights,
            "reported": list(self.reported.says) if self.reported else [],
        }

    def named(self, os: str) -> str:
        """The program, and the only operating systems that it runs on unless `os` says which one is meant."""
        own = self.platform.os
        only = "" if os or set(own) >= DESKTOP else f", on {_or([OS_NAMES[one] for one in own])} only"
        return f"{self.program}{only}"

    def where(self, *, gpu: bool = True) -> list[str]:
        """Where it runs, in words. gpu: with a GPU, of which the platform says more."""
        on = self.platform
        requirements = [] if set(on.os) >= DESKTOP else [_or([OS_NAMES[one] for one in on.os])]
        if on.apis and gpu:
            requirements.append(_or(on.apis))
        if on.compute and gpu:
            requirements.append(f"compute capability {on.compute} or more")
        if on.gpu_memory_mib and gpu:
            requirements.append(f"{on.gpu_memory_mib / 1000:g} GB on the GPU")
        if on.features:
            requirements.append(f"a CPU with {', '.join(on.features).upper()}")
        return requirements

    def needs(self, *, gpu: bool) -> list[str]:
        """The hardware, formats and models that it needs, in words. gpu: if a system of it needs a GPU."""
        anywhere = self.common and set(self.platform.os) >= DESKTOP
        requirements = [] if anywhere else self.where(gpu=gpu)
        if self.formats.quants:
            requirements.append(f"a model in {_or(self.formats.quants)}")
        if self.shape is not None:
            requirements.append(f"a model of {self.shape.layers} layers with {self.shape.experts} experts")
        if not self.common and len(self.archs.served) <= FEW:
            requirements.append(f"{_or(self.archs.served)} models")
        return requirements

    def status(self, model: ModelGeometry) -> str:
        """What it does with a model, by its name and its architecture: one of STATUSES."""
        named = self.models.get(model.base_name)
        grouped = f"{model.arch}{GROUPED}"
        known = grouped if (model.graph.groups or 0) > 1 and grouped in self.archs.status else model.arch
        return named or self.archs.of(known)

    def why_not(self, model: ModelGeometry, machine: Machine) -> str:
        """Why it cannot run a model on a machine, or empty."""
        return self._why_not_there(machine) or self._why_not_so(model) or self.why_not_file(model)

    def why_not_file(self, model: ModelGeometry) -> str:
        """Why it cannot load the model in this format or quantization, or empty."""
        if self.loads(model):
            return ""
        reads, quants = self.formats.reads, self.formats.quants
        names = [name.upper() if name in ("gguf", "mlx") else name for name in reads if name != "gguf-ik"]
        near = self.nearest_file(model)
        advice = f"; give --model {near.name}, {size(file_bytes(near))}, nearest in size" if near else ""
        if quants:
            return f"loads {_or(quants)} only, not {model.quant or model.name}{advice}"
        has = "types of ik_llama.cpp alone" if model.format == "gguf-ik" else model.format
        return f"reads {_or(names)}, not {has}{advice}"

    def loads(self, model: ModelGeometry) -> bool:
        """Whether it can load a model in this format and quantization."""
        reads, quants = self.formats.reads, self.formats.quants
        return model.quant in quants if quants else not model.format or model.format in reads

    def nearest_file(self, model: ModelGeometry) -> ModelGeometry | None:
        """The quantization that it loads which is nearest to the model in size; None if none is known."""
        return nearest(model, [one for one in quantizations(model, self.formats.quants) if self.loads(one)])

    def _why_not_there(self, machine: Machine) -> str:
        on = self.platform
        if machine.os and machine.os not in on.os:
            return f"runs on {_or([OS_NAMES[one] for one in on.os])} only"
        features = on.features if machine.cpu_features is None else machine.cpu_features
        if missing := [one for one in on.features if one not in features]:
            return f"needs a CPU with {', '.join(missing).upper()}"
        if machine.gpu is None:
            return ""
        if on.makers and machine.gpu_maker and machine.gpu_maker not in on.makers:
            return f"runs on GPUs of {_or([one.upper() for one in on.makers])} only"
        if on.compute and _numbers(machine.gpu_compute) < _numbers(on.compute):
            has = f"this GPU has {machine.gpu_compute}" if machine.gpu_compute else "this GPU's is not known"
            return f"needs an NVIDIA GPU of compute capability {on.compute} or more; {has}"
        memory = machine.gpu.memory_gib
        if on.gpu_memory_mib and memory is not None and memory.value * GIB / MIB < on.gpu_memory_mib:
            return f"needs a GPU with {on.gpu_memory_mib / 1000:g} GB; its installer refuses less"
        return ""

    def _why_not_so(self, model: ModelGeometry) -> str:
        if self.shape is not None and (self.shape.layers, self.shape.experts) != (
            len(model.layers),
            max(layer.n_experts for layer in model.layers.values()),
        ):
            return f"runs one model only, of {self.shape.layers} layers with {self.shape.experts} experts"
        if (status := self.status(model)) in REFUSED:
            return self._refusal(status, model.arch or "a model of an unknown architecture")
        if self.graph is None:
            return ""
        needs, has = self.graph, model.graph
        if needs.activation and has.activation and has.activation not in needs.activation:
            return self._refusal(needs.otherwise, f"experts with {has.activation}")
        for name, words in GRAPH.items():
            wanted, found = getattr(needs, name), getattr(has, name)
            if wanted is False and found:
                return self._refusal(needs.otherwise, words)
        if needs.groups is False and (has.groups or 0) > 1:
            return self._refusal(needs.otherwise, "expert groups")
        return ""

    def _refusal(self, status: str, what: str) -> str:
        reason = REFUSED[status].format(what)
        return f"{reason}; it serves {', '.join(self.archs.served)}" if status in (FAILS, UNKNOWN) else reason


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _or(words: Sequence[str]) -> str:
    return listed(words, "or")


def _named(systems: Sequence[str]) -> str:
    """Operating systems in words; empty for none."""
    return listed([OS_NAMES[one] for one in systems]) if systems else ""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


@cache
def facts_of(name: str, *, beside: str = __name__) -> EngineFacts:
    """The facts on an engine.

    beside: the module with whose file they are if they are not in `engines/`.
    Raises BadInput for a file with an unknown section, key or status, or a section without its source.
    """
    where, table = engine_file(name, beside)
    return read_engine(name, table, where=where)


@cache
def engine_file(name: str, beside: str) -> tuple[str, Mapping[str, Any]]:
    """The place of an engine's file, for errors, and what is in it."""
    if name in engine_names():
        folder = resources.files(f"{__package__}.engines")
        return "", tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))
    file = Path(sys.modules[beside].__file__ or "").with_name(f"{name}.toml")
    try:
        return str(file), tomllib.loads(file.read_text("utf-8"))
    except OSError:
        raise Missing(f"{file}: no such file; expected the facts of the engine {name}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"{file}: {error}") from None


def declared(name: str, program: str, kinds: Mapping[str, str], *, beside: str) -> dict[str, Any]:
    """What the file of an engine declares of one of its systems, as attributes of its class.

    kinds: what they are, as annotated. beside: as for `facts_of`. Without `engine`, it is the engine's own name.
    Raises BadInput for a file without the system, and for an attribute that is unknown or of another kind.
    """
    where, table = engine_file(program, beside)
    where = f"{where or f'engines/{program}.toml'}: [systems.{name}]"
    given = table.get("systems", {}).get(name)
    if not isinstance(given, Mapping) or not given.get("source"):
        raise Malformed(f"{where}: no source; say where its rule was read")
    values = {"engine": table.get("program"), **given}
    for key, value in values.items():
        if key not in kinds:
            raise UnknownName(f"{where}: unknown {key}; known: {', '.join(sorted(kinds))}")
        plain = re.sub(r"ClassVar\[(\w+)( \| None)?\]", r"\1", kinds[key])
        kind = plain if plain in EXPECTED else "dict[str]" if key == "costs" else "dict[list]"
        _check(where, key, value, kind)
        if kind == "dict[list]":
            values[key] = {one: tuple(each) for one, each in value.items()}
    if "limits" in values:
        values["limits"] = {one: (*ends, INT32)[:2] for one, ends in values["limits"].items()}
    return values


@cache
def engine_names() -> tuple[str, ...]:
    """All engines, in alphabetical order."""
    files = (file.name for file in resources.files(f"{__package__}.engines").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml")))


OF_ALL = ("program", "common", "looked_up")
EXPECTED = {  # by the type of a field
    "str": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "dict[list]": "a table of lists",
    "dict[str]": "a table of texts",
    "tuple[str, ...]": 'a list of texts, such as ["linux"]',
    "tuple[int, ...]": "a list of whole numbers",
}
SECTIONS: dict[str, type] = {
    "state": EngineState,
    "licence": Licence,
    "platform": Platform,
    "formats": Formats,
    "graph": GraphNeeds,
    "sizes": SlotSizes,
    "shape": OnlyModel,
    "reported": Reported,
    "drafts": CanDraft,
    "get": Get,
}


def read_engine(name: str, table: Mapping[str, Any], *, where: str = "") -> EngineFacts:
    """An engine from the sections of its file. where: the file, for errors, if it is not in `engines/`."""
    where = where or f"engines/{name}.toml"
    sections: dict[str, Any] = {
        key: _section(f"{where}: [{key}]", kind, table[key]) for key, kind in SECTIONS.items() if key in table
    }
    unknown = set(table) - set(SECTIONS) - {*OF_ALL, "archs", "models", "systems"}
    needed = {*OF_ALL, "archs", "state", "licence", "platform", "formats"} - set(table)
    if unknown or needed:
        raise Malformed(f"{where}: {f'unknown {min(unknown)}' if unknown else f'no {min(needed)}'}")
    for key, kind in (("program", str), ("common", bool)):
        if not isinstance(table[key], kind):
            raise Malformed(f"{where}: {key} is {table[key]!r}; expected {EXPECTED[kind.__name__]}")
    try:
        date.fromisoformat(table["looked_up"])
    except (TypeError, ValueError):
        raise Malformed(f'{where}: looked_up {table["looked_up"]!r}; expected a day such as "2026-11-29"') from None
    status, others, source = _statuses(f"{where}: [archs]", table["archs"])
    models, _, _ = _statuses(f"{where}: [models]", table["models"]) if "models" in table else ({}, "", "")
    archs = Archs(status=status, others=others or UNKNOWN, source=source)
    return EngineFacts(name=name, **{key: table[key] for key in OF_ALL}, archs=archs, models=models, **sections)


def _section(where: str, kind: type[Kind], table: Mapping[str, Any]) -> Kind:
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(table, Mapping):
        raise Malformed(f"{where}: {table!r}; expected a section")
    if not table.get("source"):
        raise Malformed(f"{where}: no source; say where it was read")
    if unknown := sorted(set(table) - set(known)):
        raise UnknownName(f"{where}: unknown {unknown[0]}; known: {', '.join(known)}")
    if missing := [name for name, item in known.items() if item.default is MISSING and name not in table]:
        raise Malformed(f"{where}: no {missing[0]}")
    for key, value in table.items():
        _check(where, key, value, str(known[key].type).removesuffix(" | None"))
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    for key, choices in (("otherwise", REFUSED), ("kind", STATES)):
        if key in values and values[key] not in choices:
            raise UnknownName(f"{where}: {key} {values[key]!r}; known: {', '.join(choices)}")
    if "prebuilt" in values:
        values["prebuilt"] = tuple(_prebuilt(where, one) for one in values["prebuilt"])
    return kind(**values)


def _check(where: str, key: str, value: Any, kind: str) -> None:
    """Raise BadInput unless a value is of its kind, a key of EXPECTED; values of other kinds are not checked."""
    fits = type(value).__name__ in {"float": ("float", "int")}.get(kind, (kind,))
    outer, _, inner = kind.removesuffix("]").removesuffix(", ...").partition("[")
    if inner:
        each = value.values() if outer == "dict" and isinstance(value, dict) else value
        fits = isinstance(value, dict if outer == "dict" else list) and {type(one).__name__ for one in each} <= {inner}
    if kind in EXPECTED and not fits:
        raise Malformed(f"{where}: {key} is {value!r}; expected {EXPECTED[kind]}")


def _prebuilt(where: str, table: Mapping[str, Any]) -> Prebuilt:
    known = {item.name for item in fields(Prebuilt)}
    if unknown := sorted(set(table) - known):
        raise UnknownName(f"{where}: prebuilt: unknown {unknown[0]}; known: {', '.join(sorted(known))}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Prebuilt(**values)


def _statuses(where: str, table: Mapping[str, Any]) -> tuple[dict[str, str], str, str]:
    """The status of each name, that of the others, and the source."""
    if not isinstance(table, Mapping) or not table.get("source"):
        raise Malformed(f"{where}: no source; say where it was read")
    others = table.get("others", "")
    lists = {key: names for key, names in table.items() if key not in ("source", "others")}
    if unknown := [status for status in (*lists, *filter(None, [others])) if status not in STATUSES]:
        raise UnknownName(f"{where}: unknown status {unknown[0]}; known: {', '.join(STATUSES)}")
    names = [name for each in lists.values() for name in each]
    if twice := [name for name in names if names.count(name) > 1]:
        raise Malformed(f"{where}: {twice[0]} is there twice")
    return {name: status for status, each in lists.items() for name in each}, others, table["source"]
