"""A plain twin of the reader of the runtime's JSONL traces, and content to read."""

from __future__ import annotations

import json
import random
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from flashmoe_sim.trace import runtime_jsonl
from flashmoe_sim.trace._json_kernels import KEY_NAMES
from flashmoe_sim.trace.requests import ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace, infer_n_experts

LINE = b'{"seq":0,"layer":3,"n_expert_used":2,"n_tokens":1,"experts":[7,120],"slots":[0,1]}'
NEXT = b'{"seq":1,"layer":4,"n_expert_used":2,"n_tokens":2,"experts":[5,9,0,5],"slots":[3,2,1,3]}'
BOM = b"\xef\xbb\xbf"


def parse(content: bytes, *, lenient: bool = False, chunk_bytes: int = 1 << 16) -> RoutingTrace:
    opened = mock.patch.object(runtime_jsonl, "open_bytes", return_value=BytesIO(content))
    with opened, mock.patch.object(runtime_jsonl, "CHUNK_BYTES", chunk_bytes):
        return runtime_jsonl.read(Path("t.jsonl"), ReadOptions(lenient=lenient))


def _row(line: bytes) -> dict[str, Any]:
    """The object of a line; ValueError for a key twice that is understood."""
    keys = [key for key, _ in json.loads(line, object_pairs_hook=list)]
    if any(keys.count(name) > 1 for name in KEY_NAMES):
        raise ValueError("a key twice")
    return dict(json.loads(line))


def twin(content: bytes) -> RoutingTrace:
    """What reading well-formed content means, in the plainest Python."""
    rows = [_row(line) for line in content.removeprefix(BOM).split(b"\n") if line.strip()]
    bare = 0
    for row in rows:
        used, tokens = row.get("n_expert_used"), row.get("n_tokens")
        bare += used is None and tokens is None
        if tokens is None:
            row["n_tokens"] = len(row["experts"]) // used if used else 1
        row["n_expert_used"] = used or len(row["experts"]) // row["n_tokens"]
        if row["experts"] and row.get("slots") == []:
            del row["slots"]
    experts = [expert for row in rows for expert in row["experts"]]
    used = {row["n_expert_used"] for row in rows}
    notes = []

    def column(name: str, dtype: type[np.generic], *, listed: bool = False) -> Any:
        having = [row for row in rows if row.get(name) is not None]
        if len(having) == len(rows):
            return np.array([x for row in rows for x in (row[name] if listed else [row[name]])], dtype)
        if having:
            notes.append(f"{name} left out: only {len(having)} of {len(rows)} calls have it")
        return None

    slot = column("slots", np.int16, listed=True)
    weight = column("weights", np.float32, listed=True)
    sequence = column("sequence", np.int32)
    step = column("step", np.int32)
    if bare:
        number = "all" if bare == len(rows) else f"{bare} of {len(rows)}"
        notes.append(f"{number} lines lack n_tokens and n_expert_used: each is read as one token")
    words = {"unknown": 0, "prompt": 1, "decode": 2, None: 0}
    phases = [row.get("phase") for row in rows]
    expected = 0
    for number, line in enumerate(content.removeprefix(BOM).split(b"\n"), start=1):
        seq = json.loads(line).get("seq") if line.strip() else None
        if seq is not None:
            if seq != expected:
                notes.append(f"seq has gaps: line {number} has seq {seq} where {expected} was expected")
                break
            expected += 1
    if step is not None:
        numbers, restarts = renumbered(rows)
        step = np.array(numbers, np.int32)
        if restarts:
            lines = [n for n, line in enumerate(content.removeprefix(BOM).split(b"\n"), start=1) if line.strip()]
            times = "1 time" if len(restarts) == 1 else f"{len(restarts)} times"
            notes.append(
                f"steps start again {times}, first in line {lines[restarts[0]]}: taken as several recordings or "
                "requests, one after another, whose steps are numbered on"
            )
    layer = np.array([row["layer"] for row in rows], np.int16)
    expert = np.array(experts, np.int16)
    return RoutingTrace(
        layer=layer,
        n_tokens=np.array([row["n_tokens"] for row in rows], np.int32),
        offset=np.array([0, *np.cumsum([len(row["experts"]) for row in rows])], np.int64),
        expert=expert,
        n_experts=infer_n_experts(layer, expert),
        top_k=used.pop() if len(used) == 1 else 0,
        weight=weight,
        slot=slot,
        phase=None
        if all(phase is None for phase in phases)
        else np.array([words.get(phase, phase) for phase in phases], np.uint8),
        sequence=sequence,
        step=step,
        format="runtime-jsonl",
        name="t",
        notes=tuple(notes),
    )


def renumbered(rows: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """The step of each row, and the rows at which steps start again; ValueError for rows sorted by layer."""
    numbers, restarts = [rows[0]["step"]], []
    for at, (before, row) in enumerate(pairwise(rows), start=1):
        one_sequence = row.get("sequence") == before.get("sequence")
        if row["step"] < before["step"] and row["layer"] > before["layer"] and one_sequence:
            raise ValueError("out of order")
        seq_back = row["step"] == before["step"] and row.get("seq", -1) >= 0 and row["seq"] < before.get("seq", -1)
        if row["step"] < before["step"] or seq_back:
            restarts.append(at)
        if not restarts:
            numbers.append(row["step"])
        else:
            numbers.append(numbers[-1] + (at in restarts or row["step"] != before["step"]))
    return numbers, restarts


def in_layout(calls: int, *, used: int = 8, keys: int = 0) -> bytes:
    """Calls as the runtime writes them, four layers a step, some of many tokens; with another key order on demand."""
    rng = random.Random(calls)
    lines = []
    for seq in range(calls):
        tokens = 16 if seq // 4 % 7 == 0 else 1
        row = {
            "seq": seq,
            "layer": seq % 4,
            "n_expert_used": used,
            "n_tokens": tokens,
            "experts": [rng.randrange(256) for _ in range(used * tokens)],
            "slots": [rng.randrange(64) for _ in range(used * tokens)],
        }
        lines.append(json.dumps(dict([*row.items()][keys:] + [*row.items()][:keys]), separators=(",", ":")))
    return "\n".join(lines).encode() + b"\n"
