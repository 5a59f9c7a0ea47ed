"""The folder of `sim tune`: what its runs printed."""

from __future__ import annotations

import json
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, Unusable
from flashmoe_sim.measured import llama_bench
from flashmoe_sim.measured.value import FoundSpeeds

RECORD = "tune.jsonl"


def read(record: str, folder: Path) -> FoundSpeeds:
    """The speeds of the runs that gave one and were not disturbed. record: the text of its file RECORD.

    Raises BadInput if there is none.
    """
    found, left_out = FoundSpeeds([]), 0
    for line in record.splitlines()[1:]:
        try:
            run = json.loads(line)
            if run["seconds"] is None or run["disturbed"]:
                left_out += 1
                continue
            file = folder / Path(str(run["file"])).name
            printed = llama_bench.read_json(file.read_text("utf-8", "replace"), str(file))
        except (ValueError, TypeError, KeyError, OSError, BadInput):
            left_out += 1
            continue
        found.measured.extend(printed.measured)
        found.left_out.extend(printed.left_out)
    if left_out:
        found.left_out.append(f"{folder}: {left_out} runs that failed, or ran beside other programs, are not used")
    if not found.measured:
        raise Unusable("has no run of use", where=str(folder), advice="run `sim tune` again while nothing else runs")
    return found
