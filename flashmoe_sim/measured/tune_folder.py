"""The folder of `sim tune`: what its runs printed."""

from __future__ import annotations

import json
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

    Raises BadInput if there is none.
    """
    found, left_out = FoundSpeeds([]), 0
    for run in lines_of(record)[1:]:
        try:
            if run["seconds"] is None or run["disturbed"]:
                left_out += 1
                continue
            printed = _printed(run, folder / Path(str(run["file"])).name)
        except (KeyError, OSError, BadInput):
            left_out += 1
            continue
        found.measured.extend(printed.measured)
        found.left_out.extend(printed.left_out)
    if left_out:
        found.left_out.append(f"{folder}: {left_out} runs that failed, or ran beside other programs, are not used")
    if not found.measured:
        raise Unusable("has no run of use", where=str(folder), advice="run `sim tune` again while nothing else runs")
    return found


def _printed(run: dict[str, Any], file: Path) -> FoundSpeeds:
    """What llama-bench printed, or what llama-server answered, which says nothing of its setting."""
    text = file.read_text("utf-8", "replace")
    if not responses.detect(text):
        return llama_bench.read_json(text, str(file))
    found, system = responses.read(text, str(file)), parse_system(str(run["system"]))
    measured = [replace(one, system=system.spec, engine=system.engine) for one in found.measured]
    return FoundSpeeds(measured, found.left_out)
