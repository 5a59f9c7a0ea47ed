"""The folder of `sim tune`: what its runs printed."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput, Unusable
from flashmoe_sim.measured import llama_bench, responses
from flashmoe_sim.measured.value import FoundSpeeds
from flashmoe_sim.systems.table import parse_system

RECORD = "tune.jsonl"


def lines_of(record: str) -> list[dict[str, Any]]:
    """The lines of a record: what it is of, then its runs. A torn line is left out."""
    found = []
    for line in record.splitlines():
        with suppress(ValueError):
            if isinstance(one := json.loads(line), dict):
                found.append(one)
    return found


def read(record: str, folder: Path) -> FoundSpeeds:
    """The speeds of the runs that gave one and were not disturbed. record: the text of its file RECORD.

    Only those with the knobs of the fastest one, such as its threads: with others an engine is slower than it can be.
    Raises BadInput if there is none.
    """
    found = FoundSpeeds([])
    about, *runs = lines_of(record) or [{}]
    model, size = str(about.get("model", "")), about.get("model_bytes")
    good = [run for run in runs if isinstance(run.get("seconds"), float) and not run.get("disturbed")]
    left_out = len(runs) - len(good)
    knobs = _knobs(min(good, key=lambda run: float(run["seconds"]))) if good else ""
    for run in good:
        try:
            if _knobs(run) != knobs:
                continue
            printed = _printed(run, folder / Path(str(run["file"])).name)
        except (KeyError, OSError, BadInput):
            left_out += 1
            continue
        found.measured.extend(
            replace(one, model=model, model_bytes=size if isinstance(size, int) else one.model_bytes)
            for one in printed.measured
        )
        found.left_out.extend(printed.left_out)
    if left_out:
        found.left_out.append(f"{folder}: {left_out} runs that failed, or ran beside other programs, are not used")
    if not found.measured:
        raise Unusable("has no run of use", where=str(folder), advice="run `sim tune` again while nothing else runs")
    return found


def _knobs(run: dict[str, Any]) -> str:
    """What a run's setting has behind its system."""
    return str(run.get("setting")).removeprefix(str(run.get("system")))


def _printed(run: dict[str, Any], file: Path) -> FoundSpeeds:
    """What llama-bench printed, or what llama-server answered, which says nothing of its setting."""
    text = file.read_text("utf-8", "replace")
    if '"timings"' not in text:
        return llama_bench.read_json(text, str(file))
    found, system = responses.read(text, str(file)), parse_system(str(run["system"]))
    kv_type = re.search(r" kv=(\w+)", _knobs(run))
    settings = {"type_k": kv_type[1], "type_v": kv_type[1]} if kv_type else {}
    measured = [replace(one, system=system.spec, engine=system.engine, settings=settings) for one in found.measured]
    return FoundSpeeds(measured, found.left_out)
