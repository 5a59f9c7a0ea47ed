"""GPU memory: what plans say, beside what cards held and what engines logged."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from flashmoe_sim.budget import Context
from flashmoe_sim.field.asked import Traces, asked_of
from flashmoe_sim.field.estimators import OneEstimate, Question, told
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.geometry.compute_buffers import compute_buffer_bytes
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import case_of
from flashmoe_sim.systems.placed import PlacedLayers
from reports.field.report import PUBLISHED, all_rows
from reports.pages import joined, table

KEPT = Path(__file__).with_name("memory.csv")  # of other people's programs, as `python -m reports.referee ask` got
CARDS, BUFFERS = PUBLISHED / "gpu_memory.csv", PUBLISHED / "compute_buffers.csv"
OURS = "flashmoe-sim"
_PEAK = re.compile(r"peak VRAM (\d+\.\d+) GiB")
_CONTEXT = re.compile(r"-c (\d+)\b")
ABOUT = """GiB of whole cards while a model ran, as published; and the plan of the same setting with what drivers and
desktops take, whose constants were set with these rows in view. llmfit is asked for the least memory of its placement,
which is one constant where experts are on the CPU; modelscout and llm-checker count the whole model, and are asked
where it is on the GPU; moe-fit prints no sum, and no log of llama.cpp's `--fit` that is known here tells its setting.
{crow}
"""
CROW = """Crow's plan is {least:.1f} to {most:.1f} GiB short, whatever its slots: it holds something that is not known
here."""
LOGGED = """Engines log the size of their compute buffers, the part of a plan that follows least from a model's file. Of
{lines} such lines, of {models} models, the plan is {least:.0%} to {most:.0%} more, {median:.0%} in the median. Nobody
else prints it. What weights take follows from the file's bytes.
"""


class HeldMemory(NamedTuple):
    """What a card held. question: what estimators are told; measured_gib, planned_gib: with driver and desktop."""

    what: str
    question: Question
    measured_gib: float
    planned_gib: float


@cache
def held() -> tuple[HeldMemory, ...]:
    """Published measurements of whole cards whose setting is told."""
    return *_of_cards(), *_of_rows()


def _of_cards() -> Iterator[HeldMemory]:
    with CARDS.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 1):
            model, machine = named_model(row["model"]), load_machine(row["machine"])
            context, layers = Context.of_options(int(row["context"]), kv_type=row["kv_type"]), int(row["cpu_layers"])
            kv_bytes = context.bytes_of(model)
            case = case_of(model, machine, workload=None, kv_bytes=kv_bytes, context=context.tokens)
            case = replace(case, micro_batch=int(row["micro_batch"]))
            of_row = _row(f"card-{number}", row["machine"].partition("+")[0], layers)
            question = told(of_row, model, machine) | {"context": context.tokens, "kv_type": row["kv_type"]}
            what = f"{row['model']}, {layers} layers on the CPU, {context.tokens:,} tokens"
            yield HeldMemory(
                what, question, int(row["gpu_mib"]) / 1024, _planned(PlacedLayers(cpu_layers=layers), case)
            )


def _row(id_: str, gpu: str, layers: int) -> FieldRow:
    cells = dict.fromkeys(("engine", "model", "quant", "pcie", "cpu", "ram_gb_s_basis", "flags"), "")
    texts = dict.fromkeys(("slots_per_layer_or_cache_gib", "experts_on_cpu_layers", "context", "batch_ubatch"), "")
    sizes = ("model_file_gib", "total_experts", "top_k", "moe_layers", "gpu_vram_gib", "gpu_mem_gb_s", "ram_gib")
    numbers = dict.fromkeys((*sizes, "ram_gb_s", "ssd_gb_s"))
    strategy = "n_cpu_moe" if layers else "all_gpu"
    return FieldRow(where=str(CARDS), id=id_, gpu=gpu, strategy=strategy, **cells, **texts, **numbers)  # type: ignore[arg-type]


def _of_rows() -> Iterator[HeldMemory]:
    """Rows of the field tables whose notes say the most memory that was used, with a context."""
    traces = Traces()
    for row in all_rows():
        peak, told_context = _PEAK.search(row.notes), _CONTEXT.search(row.flags)
        if peak is None or told_context is None:
            continue
        asked = asked_of(row, traces)
        context = Context.of_options(int(told_context[1]))
        kv_bytes = context.bytes_of(asked.case.model)
        case = replace(asked.case, kv_bytes=kv_bytes, context=context.tokens)
        question = told(row, case.model, case.machine) | {"context": context.tokens, "kv_type": context.kv_type}
        what = f"{case.model.name}, {asked.system.spec}, {context.tokens:,} tokens"
        yield HeldMemory(what, question, float(peak[1]), _planned(asked.system, case))


def _planned(system: System, case: Case) -> float:
    """GiB of the GPU that the plan takes, with what a driver and a desktop take."""
    shares = sum(share.size_bytes for share in system.memory(case) if share.where == "gpu")
    return shares / GIB + estimate("memory.desktop_gib").value + estimate("gpu.driver_gib").value


def kept() -> dict[str, dict[str, OneEstimate]]:
    """What other people's programs answered, by name and id."""
    found: dict[str, dict[str, OneEstimate]] = {}
    with KEPT.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            value = float(row["gpu_gib"]) if row["gpu_gib"] else None
            found.setdefault(row["estimator"], {})[row["id"]] = OneEstimate(value, why_not=row["why_not"])
    return found


def logged() -> list[tuple[str, float]]:
    """Models, and the planned size of a compute buffer over the one that an engine logged."""
    with BUFFERS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["basis"] == "log"]
    return [(row["model"], buffer_mib(row) / float(row["mib"])) for row in rows]


def buffer_mib(row: Mapping[str, str]) -> float:
    """The planned size of the compute buffer in a line of BUFFERS."""
    model = named_model(row["model"])
    assert model.widths is not None
    planned_bytes = compute_buffer_bytes(
        model.widths,
        top_k=model.top_k,
        context=int(row["context"]),
        micro_batch=int(row["micro_batch"]),
        copied_bytes=int(row["copied_mib"] or 0) * MIB,
        outputs=int(row["outputs"]) if row["outputs"] else None,
        mask_bytes=int(row["mask_bytes"]),
    )
    return planned_bytes / MIB


def section() -> str:
    """Cards in a table, and what engines logged."""
    others = kept()
    rows = [
        (one.what, f"{one.measured_gib:.1f}", f"{one.planned_gib:.1f}", *(_said(of, one) for of in others.values()))
        for one in held()
    ]
    short = [one.measured_gib - one.planned_gib for one in held() if "crow" in one.what]
    crow = CROW.format(least=min(short), most=max(short)) if short else ""
    ratios = [ratio - 1 for _, ratio in logged()]
    lines = LOGGED.format(
        lines=len(ratios),
        models=len({model for model, _ in logged()}),
        least=min(ratios),
        most=max(ratios),
        median=statistics.median(ratios),
    )
    head = ("what ran", "measured", OURS, *(name.partition(" ")[0] for name in others))
    return joined("## GPU memory", table(head, rows), ABOUT.format(crow=crow), lines)


def _said(answers: dict[str, OneEstimate], one: HeldMemory) -> str:
    value = answers[one.question["id"]].value
    return "-" if value is None else f"{value:.1f}"
