"""New rows of measured speeds: what cannot be is refused, and the rest is beside what is predicted."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flashmoe_sim.field.asked import AskedRow, Traces, asked_of, observation_of
from flashmoe_sim.field.engines import engine_of
from flashmoe_sim.field.known import Known, saying
from flashmoe_sim.field.machine import built_of, part_in
from flashmoe_sim.field.model import model_of
from flashmoe_sim.field.rows import WAYS, FieldRow
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.provenance import today
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.belief import SD_90
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.measured.causes import FEWEST, Cause, Ran, explained

STRATEGIES = tuple(one for way in WAYS.values() for one in way)
OLDEST = date(2023, 1, 1)
RANGES = {  # the least and the most of what exists; the unit, and the mistake that others usually are
    "decode_tok_s": (0.005, 1000, "tokens a second, not milliseconds a token"),
    "prompt_tok_s": (0.1, 60_000, "tokens a second of the prompt"),
    "gpu_vram_gib": (1, 1600, "GiB of all cards together, not MB"),
    "gpu_mem_gb_s": (20, 10_000, "GB/s of one card, not Gbit/s or MB/s"),
    "ram_gib": (2, 8192, "GiB, not MB"),
    "ram_gb_s": (4, 2000, "GB/s, not MB/s or MT/s"),
    "ssd_gb_s": (0.03, 60, "GB/s, not MB/s"),
    "model_file_gib": (0.5, 2500, "GiB of all shards together"),
    "total_experts": (2, 4096, "experts of a layer"),
    "top_k": (1, 64, "routed experts of a token"),
    "moe_layers": (1, 300, "layers with routed experts"),
}
SIZES = 0.65, 1.6  # of the file that the quantization's recipe has
ROOM = 1.2  # times the bandwidths that data sheets say
DRAFTED = 4.0  # tokens of a pass, at most
FULL, LAYERS = 1.05, 1.1  # times the memory of a GPU, and the layers of a model, at most
SWAPPED = 0.2  # of the decode speed: a prompt is never read so slowly
_DRAFTS = re.compile(r"draft|spec|mtp|eagle|ngram|lookup", re.IGNORECASE)
_DATE = re.compile(r"\d{4}(-\d\d)?")  # a year, or a month
_ONE_TYPE = re.compile(r"\w+")  # a quantization that is no mix by hand
_ADDRESS = re.compile(r"https?://[^\s/]+\.[^\s]+")


class Problem(NamedTuple):
    """What is wrong with a row. where: file and line."""

    where: str
    id: str
    says: str


def urls_of(path: Path) -> dict[str, str]:
    """The addresses of the rows of a file, by their ids; of a file that `read_rows` has read."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row["id"].strip(): (row.get("source_url") or "").strip() for row in csv.DictReader(file)}


def problems(rows: Sequence[FieldRow], urls: Mapping[str, str], known: Known) -> list[Problem]:
    """Everything that keeps rows from being used. urls: as `urls_of`. known: the rows that are used already."""
    said, found = dict(known.by_saying), list[Problem]()
    for row in rows:
        says = [*_of_row(row, urls[row.id])]
        if row.id in known.ids:
            says.append("the id is used already; give another one")
        if (other := said.get(saying(row))) is not None:
            says.append(f"says the same as {other}; leave it out")
        said.setdefault(saying(row), row.id)
        found += [Problem(row.where, row.id, one) for one in says]
    return found


def _of_row(row: FieldRow, url: str) -> Iterator[str]:
    for check in (_named, _source, _numbers):
        yield from check(row)
    if not _ADDRESS.fullmatch(url):
        yield f"source_url is {url!r}; expected the address of the page where the speed stands"
    try:
        model = model_of(row)
        machine = built_of(row).machine
    except BadInput as error:
        yield str(error).removeprefix(f"{row.where}: ")
        return
    yield from _sizes(row, model)
    yield from _too_fast(row, model, machine)


def _named(row: FieldRow) -> Iterator[str]:
    if row.strategy not in STRATEGIES:
        yield f"strategy is {row.strategy!r}; expected one of {', '.join(STRATEGIES)}"
    if not row.engine or not engine_of(row):
        yield "no engine; give the program that ran, such as llama.cpp"
    if row.strategy == "all_gpu" and not row.gpu:
        yield "all_gpu without a GPU; give gpu, or cpu_only as the strategy"
    if row.strategy == "n_cpu_moe" and not (row.experts_on_cpu_layers or re.search(r"cpu-moe|ncmoe", row.flags)):
        yield "n_cpu_moe without a number; give experts_on_cpu_layers, or the flag in flags"
    if not row.gpu and not row.cpu:
        yield "no computer; give gpu, cpu or both"


def _source(row: FieldRow) -> Iterator[str]:
    if not row.source:
        yield "no source; give who measured it, such as owner/repository or a name"
    try:
        day = date.fromisoformat(f"{row.date}-01-01"[:10] if _DATE.fullmatch(row.date) else row.date)
    except ValueError:
        yield f"date is {row.date!r}; expected the day or month of the measurement, such as 2026-11-30 or 2026-11"
        return
    if not OLDEST <= day <= today():
        yield f"date is {row.date}, which is before {OLDEST} or to come"


def _numbers(row: FieldRow) -> Iterator[str]:
    if row.decode_tok_s is None and row.prompt_tok_s is None:
        yield "no speed; give decode_tok_s, prompt_tok_s or both"
    for name, (least, most, meant) in RANGES.items():
        value = getattr(row, name)
        if value is not None and not least <= value <= most:
            yield f"{name} is {value:g}; expected {least:g} to {most:g}: {meant}"
    if row.top_k and row.total_experts and row.top_k > row.total_experts:
        yield f"top_k is {row.top_k}, of {row.total_experts} experts"
    if row.prompt_tok_s and row.decode_tok_s and row.prompt_tok_s < SWAPPED * row.decode_tok_s:
        yield f"the prompt is read at {row.prompt_tok_s:g} and the answer written at {row.decode_tok_s:g}: swapped?"


def _sizes(row: FieldRow, model: ModelGeometry) -> Iterator[str]:
    name, size_gib = model.base_name, file_bytes(model) / GIB
    layers = len(model.layers)
    if row.moe_layers and row.moe_layers > LAYERS * layers:
        yield f"moe_layers is {row.moe_layers}; {name} has {layers}"
    if row.model_file_gib and _ONE_TYPE.fullmatch(row.quant):
        usual_gib = row.model_file_gib
        with suppress(BadInput):  # of a quantization without a recipe
            usual_gib = file_bytes(model_of(replace(row, model_file_gib=None))) / GIB
        if not SIZES[0] < row.model_file_gib / usual_gib < SIZES[1]:
            yield f"model_file_gib is {row.model_file_gib:g}; {row.quant} of {name} has about {usual_gib:.0f}"
    if row.strategy == "all_gpu" and row.gpu_vram_gib and size_gib > FULL * row.gpu_vram_gib:
        yield f"all_gpu, but {size_gib:.0f} GiB of weights are more than {row.gpu_vram_gib:g} GiB of GPU memory"


def _too_fast(row: FieldRow, model: ModelGeometry, machine: Machine) -> Iterator[str]:
    """More bytes a second than all memories of the computer give."""
    read_gb = ((model.dense_bytes or 0) + model.token_cycle_bytes()) / 1e9
    ram_gb_s = row.ram_gb_s or (0.0 if machine.memory is None else machine.memory.bandwidth_gb_s.value)
    rate = None if machine.gpu is None else machine.gpu.weights_gb_s
    gpu_gb_s = row.gpu_mem_gb_s or _sheet_gb_s(row) or (0.0 if rate is None else rate.value)
    most = machine.gpus * gpu_gb_s + (0.0 if machine.unified and row.gpu else machine.sockets * ram_gb_s)
    passes = (row.decode_tok_s or 0.0) / (DRAFTED if _DRAFTS.search(f"{row.flags} {row.notes}") else 1.0)
    if passes * read_gb > ROOM * machine.machines * most > 0:
        yield (
            f"{row.decode_tok_s:g} tokens a second read {passes * read_gb:,.0f} GB/s of weights, and the memories give "
            f"{machine.machines * most:,.0f}: a wrong unit, drafts that are not told, or another model"
        )


def _sheet_gb_s(row: FieldRow) -> float:
    """What the data sheet of the row's card says."""
    part = part_in(row.gpu, ("gpu", "chip")) or part_in(row.cpu, ("chip",))
    rate = None if part is None else part.numbers.get("bandwidth_gb_s")
    return 0.0 if rate is None else rate.value


TAIL = 0.05  # of the likely speeds: a measured one beyond is outside of the 90%


@dataclass(frozen=True)
class Beside:
    """A measured decode speed beside the predicted one, in tokens a second.

    below: the share of the predicted draws that are slower than the measured speed. causes: of a speed outside the 90%
    interval, the likeliest first. why_not: why there is no prediction or no comparison.
    """

    row: FieldRow
    tok_s: float | None = None
    lo: float | None = None
    hi: float | None = None
    below: float | None = None
    causes: tuple[Cause, ...] = ()
    why_not: str = ""

    @property
    def outside(self) -> bool:
        """Whether the measured speed is outside of the interval."""
        return self.below is not None and not TAIL <= self.below <= 1 - TAIL


def beside(row: FieldRow, traces: Traces) -> Beside:
    """A row's measured speed beside the predicted one."""
    try:
        asked = asked_of(row, traces)
        found = asked.answer()
    except BadInput as error:
        return Beside(row, why_not=str(error).removeprefix(f"{row.where}: "))
    if found.tok_s is None or found.draws is None:
        return Beside(row, why_not=found.why_not)
    lo, hi = found.tok_s_lo, found.tok_s_hi
    if row.decode_tok_s is None:
        return Beside(row, found.tok_s, lo, hi, why_not="no decode_tok_s to compare")
    below = float(np.mean(found.draws < row.decode_tok_s))
    made = Beside(row, found.tok_s, lo, hi, below)
    if not made.outside or lo is None or hi is None:
        return made
    return Beside(row, found.tok_s, lo, hi, below, _causes(asked, found.tok_s, math.log(hi / lo) / (2 * SD_90)))


def _causes(asked: AskedRow, tok_s: float, sd: float) -> tuple[Cause, ...]:
    ran = Ran(asked.system, asked.case, observation_of(asked), depth=asked.case.depth)
    return tuple(explained(ran, (math.log(tok_s), sd))[:FEWEST])
