"""Rows of a table of published speeds, from what an engine or a benchmark printed and what its user says."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

from flashmoe_sim.field.asked import system_of
from flashmoe_sim.field.engines import program
from flashmoe_sim.field.machine import part_in
from flashmoe_sim.field.rows import HEAD, row_of
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import named_model, named_models
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, UnknownName, Unsupported, shown
from flashmoe_sim.io.provenance import today
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.compose import nominal_ram
from flashmoe_sim.machines.load import load_machine, parts_in
from flashmoe_sim.machines.network import several_in
from flashmoe_sim.machines.parts import TITLES, Part, Parts
from flashmoe_sim.measured.by_hand import BY_HAND
from flashmoe_sim.measured.learn import of_another
from flashmoe_sim.measured.usable import Usable, usable
from flashmoe_sim.measured.value import Measured
from flashmoe_sim.measured.which import known_model, model_that_ran
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.llama_flags import DEFAULT_BATCH, DEFAULT_UBATCH
from flashmoe_sim.systems.placed import on_cpu
from flashmoe_sim.systems.table import parse_system

FLAGS = {  # of llama.cpp, by names in `Measured.settings`
    "n_gpu_layers": "-ngl",
    "n_cpu_moe": "--n-cpu-moe",
    "overrides": "-ot",
    "tensor_split": "-ts",
    "threads": "-t",
    "flash_attn": "-fa",
    "type_k": "-ctk",
    "type_v": "-ctv",
    "mmap": "--mmap",
}
SIZES = ("cpu_layers", "gpu_layers", "cache_mib", "max_mib", "slots", "experts", "experts_per_layer", "cap", "tier_gib")
UNSAID = {"0", "0.00", "auto", "f16"}  # settings that are as without them
AS_TEXT = ("{} slots/layer", "{} experts", "cap {}", "{} MiB", "{} GiB")  # of a size, in the column of slots and caches
AS_FLAG = ("--moe-cache-mib {}", "--moe-hot-cache-max-mib {}", "cache {}", "-ngl {}")
_NO_WORD = re.compile(r"[^a-z0-9.]+")
_MAKERS = re.compile(r"^(?:NVIDIA|AMD|Intel|Apple) ")


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a user says of a measurement; empty if nothing. machine: parts, or `this`. The others are as the columns."""

    machine: str = ""
    model: str = ""
    engine: str = ""
    system: str = ""
    source: str = ""
    url: str = ""
    date: str = ""
    id: str = ""
    notes: str = ""


class RowGroup(NamedTuple):
    """What measurements of one row have in common. depth: tokens in the context."""

    alike: tuple[object, ...]
    depth: int


NEEDED = {  # by field of Said: what it is, for a question or an error
    "machine": "the computer's parts, such as 'rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB', or `this`",
    "source": "who measured it, such as owner/repository or a name",
    "url": "the address of the page where it stands",
    "model": "the model and its quantization, such as gpt-oss-20b:mxfp4",
    "system": "where the experts were: all-gpu, cpu, placed:cpu_layers=24 or another of `sim system list`",
}


def missing(measured: Sequence[Measured], said: Said) -> list[str]:
    """The fields that a user still has to say."""
    lacking = [name for name in ("machine", "source", "url") if not getattr(said, name)]
    if not said.model and all(map(_unnamed, measured)):
        lacking.append("model")
    named = [one for one in measured if said.model or not _unnamed(one)]
    if said.machine and named and not said.system and all(_unplaced(one, said) for one in named):
        lacking.append("system")
    return lacking


def hint(name: str, measured: Sequence[Measured]) -> str:
    """What the file says of a field that it does not say well enough, as a clause; empty if nothing."""
    keys = {"machine": ("gpu", "cpu"), "model": ()}.get(name)
    if keys is None:
        return ""
    one = next(filter(_unnamed, measured), measured[0])
    told = [one.settings.get(key, "") for key in keys] or [one.model]
    words = ", ".join(shown(word) for word in told if word)
    return f" (the file says {words})" if words else ""


def _unnamed(one: Measured) -> bool:
    """Whether nobody says which known model ran, with which bits; Ollama's tags are of its library's own."""
    try:
        model = model_that_ran(one, None)
    except (Incomplete, UnknownName):
        return True
    except BadInput:
        return False
    quants = [quant for quant in named_models()[model.base_name].quants if not quant.startswith("mlx")]
    return not one.quant and one.model_bytes is None and one.engine.lower() != "ollama" and len(quants) > 1


def _unplaced(one: Measured, said: Said) -> bool:
    """Whether only the place of its experts is missing."""
    try:
        usable(one, load_machine(said.machine), _model(said))
    except Incomplete:
        return True
    except BadInput:
        return False
    return False


def _model(said: Said) -> ModelGeometry | None:
    """The model that a user says ran. Raises BadInput for one without a name that rows can have."""
    if not said.model:
        return None
    model = load_model(said.model)
    if model.base_name not in named_models():
        what = f"--model {shown(said.model)}: {model.base_name} is none of `sim model list`, of which rows are"
        raise UnknownName(what, advice="give the name of the model there, with its quantization")
    return model


def rows(measured: Sequence[Measured], said: Said, *, day: str) -> tuple[list[dict[str, str]], list[str]]:
    """The cells of a row for each setting and depth, by column: its decode speed, and its prompt's if that was timed.

    Also a line for each measurement that was left out, such as of an unknown model or system.
    Raises BadInput if none is left, and for a setting that no row can say.
    """
    machine, columns = load_machine(said.machine), machine_columns(said.machine)
    if other := next(filter(None, (of_another(one, machine) for one in measured)), ""):
        raise Conflict(f"{other.partition('; ')[0]}; give its own --machine")
    model = _model(said)
    groups, refused = defaultdict[RowGroup, list[Usable]](list), list[BadInput]()
    for one in measured if model is None else _of_one_model(measured):
        placed = replace(one, system=said.system, unplaced="") if said.system and not one.system else one
        try:
            if said.system and one.system and not _means(said.system, one.system):
                what = f"{one.where}: says {one.system}, and --system is {said.system}"
                raise Conflict(what, advice="leave out --system, or give the speed by hand")
            of = usable(replace(placed, engine=said.engine) if said.engine else placed, machine, model)
            if model is not None and of.geometry.base_name != model.base_name:
                what = f"{one.where}: says {shown(one.model)}, and --model is {model.base_name}"
                raise Conflict(what, advice="leave out --model, or give the speed by hand")
        except BadInput as error:
            refused.append(error)
        else:
            groups[_group(of)].append(of)
    if not groups:
        raise refused[0]
    written = [_cells(group, columns, said, day=day) for group in _with_their_prompts(groups)]
    base = said.id or _slug(said.source.rpartition("/")[2], written[0]["model"], written[0]["gpu"] or written[0]["cpu"])
    for number, cells in enumerate(written, 1):
        cells["id"] = base if len(written) == 1 else f"{base}-{number}"
    if len(written) > 1:
        series = {"series": base, "varies": _varies(written)}
        written = [cells | series for cells in written]
    return [{name: cells.get(name, "") for name in HEAD} for cells in written], [str(error) for error in refused]


def _means(said: str, found: str) -> bool:
    """Whether a system that was found is the one that was said, which may leave its sizes open."""
    one, other = parse_system(said), parse_system(found)
    return type(one) is type(other) and _sizes(one).items() <= _sizes(other).items()


def _of_one_model(measured: Sequence[Measured]) -> list[Measured]:
    """The measurements without their model's name, if all have one that nobody knows: a user has said which it is."""
    if len({one.model for one in measured}) == 1 and not known_model(measured[0].model, measured[0].engine):
        return [replace(one, model="") for one in measured]
    return list(measured)


def _group(of: Usable) -> RowGroup:
    """What measurements of one row have in common; the systems of prompts say more, which rows do not."""
    one, system = of.measured, parse_system(of.measured.system)
    settings = tuple(one.settings.get(name, "") for name in (*FLAGS, "ubatch"))
    return RowGroup((of.geometry.name, system.name, *_sizes(system).items(), *settings), one.depth)


def _with_their_prompts(groups: Mapping[RowGroup, list[Usable]]) -> Iterator[list[Usable]]:
    """The groups; a prompt that was read before an answer, as servers do, is of the answer's."""
    after = {key: list(group) for key, group in groups.items()}
    for key, group in groups.items():
        for of in group if all(of.measured.prompt for of in group) else ():
            answer = key._replace(depth=key.depth + (of.measured.tokens or 0))
            if answer != key and answer in after:
                after[answer].append(of)
                after[key].remove(of)
    return filter(None, after.values())


def _varies(written: Iterable[Mapping[str, str]]) -> str:
    kinds = {(cells["model"], cells["quant"], cells["strategy"], cells["experts_on_cpu_layers"]) for cells in written}
    return "context" if len(kinds) == 1 else "setting"


def _cells(group: Sequence[Usable], columns: Mapping[str, str], said: Said, *, day: str) -> dict[str, str]:
    first = next((of for of in group if not of.measured.prompt), group[0])
    one, geometry, system = first.measured, first.geometry, parse_system(first.measured.system)
    named, settings = named_models()[geometry.base_name], one.settings
    batches = [settings.get("batch", DEFAULT_BATCH), settings.get("ubatch", DEFAULT_UBATCH)]
    cells = {
        "source": said.source,
        "date": said.date or day,
        "source_url": said.url,
        "engine": one.engine or next(iter(system.ran_as), system.engine),
        "engine_version_or_pr": f"b{build}" if (build := settings.get("build", "")).isdecimal() else build,
        "model": geometry.base_name,
        "quant": one.quant or geometry.quant.upper(),
        "model_file_gib": f"{one.model_bytes / GIB:.2f}" if one.model_bytes else "",
        "total_experts": str(named.experts),
        "top_k": str(geometry.top_k or named.top_k),
        "moe_layers": str(len(named_model(geometry.base_name).layers)),
        **columns,
        "flags": " ".join(_flags(one)),
        "context": str(one.depth or ""),
        "batch_ubatch": "/".join(batches) if {"batch", "ubatch"} & settings.keys() else "",
        "prompt_tok_s": _median(of.measured.tok_s for of in group if of.measured.prompt),
        "decode_tok_s": _median(of.measured.tok_s for of in group if not of.measured.prompt),
        "notes": "; ".join(filter(None, (said.notes, columns.get("notes", "")))),
        "confidence": "B" if one.where.startswith(BY_HAND) else "A",
        "machine_id": _slug(said.source.rpartition("/")[2], columns["gpu"] or columns["cpu"]),
    }
    return _placed(cells, system, first)


def _placed(cells: dict[str, str], system: System, of: Usable) -> dict[str, str]:
    """The cells with how the experts were placed, so that who reads the row finds the same system.

    Raises BadInput for what no row can say.
    """
    (one, geometry), engine = of, program(cells["engine"])
    own = system.ran_as.get(engine, ())
    strategies = own or tuple(name for names in system.ran_as.values() for name in names)
    override = one.settings.get("overrides", "")
    if "ot_regex" in strategies and override:
        count = len(on_cpu(geometry, override))
        return cells | {"strategy": "ot_regex", "experts_on_cpu_layers": str(count)}
    sizes = _sizes(system)
    layers = str(sizes.get("cpu_layers", ""))
    if not own and strategies:
        return cells | {"strategy": strategies[0], "experts_on_cpu_layers": layers}
    for strategy in strategies:
        for text, flag in _ways(sizes):
            more: dict[str, str] = {
                "strategy": strategy,
                "slots_per_layer_or_cache_gib": text,
                "experts_on_cpu_layers": layers,
            }
            made: dict[str, str] = {**cells, **more, "flags": f"{cells['flags']} {flag}".strip()}
            with suppress(BadInput):
                found = system_of(row_of(one.where, {"id": "row"} | {name: made.get(name, "") for name in HEAD[1:]}))
                if type(found) is type(system) and all(getattr(found, name) == size for name, size in sizes.items()):
                    return made
    raise Unsupported(
        f"{one.where}: a row cannot say {system.spec} of {cells['engine']}: it would be read as another setting",
        advice="give the settings in notes of a row that you write by hand, and check it by `sim field check`",
    )


def _sizes(system: System) -> dict[str, object]:
    """The settings of SIZES that a system has."""
    known = {one.name for one in fields(system)} & {*SIZES}
    return {name: size for name in SIZES if name in known and (size := getattr(system, name)) is not None}


def _ways(sizes: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Texts for the columns of slots and of flags that may say these sizes."""
    yield "", ""
    for size in sizes.values():
        yield from ((text.format(size), "") for text in AS_TEXT)
        yield from (("", flag.format(size)) for flag in AS_FLAG)


def _flags(one: Measured) -> Iterator[str]:
    for name, flag in FLAGS.items():
        value = one.settings.get(name, "")
        if name == "mmap":
            yield from ["--no-mmap"] if value == "off" else []
        elif value and value not in UNSAID:
            yield f'{flag} "{value}"' if name == "overrides" else f"{flag} {value}"
    if one.depth:
        yield f"-d {one.depth}"


def _median(speeds: Iterable[float]) -> str:
    known = list(speeds)
    return f"{statistics.median(known):.4g}" if known else ""


def machine_columns(text: str) -> dict[str, str]:
    """The cells that say which computer it was.

    Raises BadInput for several computers, for unknown parts, and without a size of RAM.
    """
    parts = None if several_in(text) else parts_in(text)
    if parts is None:
        raise Unsupported(f"--machine {shown(text)}: is a file or several computers; give {NEEDED['machine']}")
    chip = parts.by_kind.get("chip")
    ram_gib = parts.ram_gib or (chip.sold_gib[0] if chip and len(chip.sold_gib) == 1 else None)
    if ram_gib is None:
        raise Incomplete(f"--machine {shown(text)}: does not say the RAM; add it, such as '{text} + 32GiB'")
    cpu, memory, link = (parts.by_kind.get(kind) for kind in ("cpu", "memory", "link"))
    said = memory.title if memory else " ".join(filter(None, (parts.generation.upper(), parts.of_channels)))
    storage = parts.by_kind.get("storage")
    notes = ["" if storage is None else storage.title, TITLES.get(parts.os, "")]
    return {
        "gpu": _written(chip) if chip and not parts.cards else " + ".join(_cards(parts)),
        **_card_numbers(parts),
        "pcie": "" if link is None else link.title,
        "cpu": "" if cpu is None else f"{parts.times(cpu)}{_written(cpu)}",
        "ram_gib": f"{ram_gib:g}",
        "ram_gb_s": f"{parts.sockets * nominal_ram(parts).value:g}" if said else "",
        "ram_gb_s_basis": f"of the memory as given: {said}" if said else "",
        "notes": "; ".join(filter(None, notes)),
    }


def _cards(parts: Parts) -> Iterator[str]:
    for part in {part.name: part for part in parts.cards}.values():
        yield f"{parts.times(part)}{_written(part)}"


def _card_numbers(parts: Parts) -> dict[str, str]:
    """Memory of all cards, and the bandwidth of one if they are alike."""
    numbers = [part.numbers for part in parts.cards]
    if not numbers:
        return {}
    sizes, rates = ([one[name].value for one in numbers] for name in ("memory_gib", "bandwidth_gb_s"))
    return {"gpu_vram_gib": f"{sum(sizes):g}", "gpu_mem_gb_s": f"{rates[0]:g}" if len(set(rates)) == 1 else ""}


def _written(part: Part) -> str:
    """The title of a part if that is read as the same part, else its name."""
    title = _MAKERS.sub("", part.title)
    return title if part_in(title, (part.kind,)) == part else part.name


def _slug(*words: str) -> str:
    return "-".join(filter(None, (_NO_WORD.sub("-", word.lower()).strip("-") for word in words)))


def day_of(given: str | Path) -> str:
    """The day on which a file was written last; today if the text is none."""
    with suppress(OSError, ValueError):
        return min(date.fromtimestamp(Path(given).stat().st_mtime), today()).isoformat()
    return today().isoformat()
