"""The table and the JSON of many runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from flashmoe_sim.cli.common import percent, print_table
from flashmoe_sim.errors import SimError
from native_bridge.modes import BANKED

if TYPE_CHECKING:
    from flashmoe_sim.machines.runs import Run
    from native_bridge.repeats import Planned
    from native_bridge.request import RunRequest


def print_runs(outcomes: Sequence[tuple[Planned, Run | SimError]], title: str) -> None:
    """A row for each request, with the median of its repeats."""
    by_name: dict[str, list[Run]] = {}
    requests: dict[str, RunRequest] = {}
    for one, outcome in outcomes:
        if not isinstance(outcome, SimError):
            by_name.setdefault(one.request.name, []).append(outcome)
            requests[one.request.name] = one.request
    repeated = any(len(runs) > 1 for runs in by_name.values())
    rows = []
    for name, runs in by_name.items():
        speeds = [each.log.decode_tok_s for each in runs]
        row = [requests[name].mode, _bank(requests[name]), percent(_hit_rate(runs[-1])), f"{median(speeds):.1f}"]
        row += [f"{min(speeds):.1f} to {max(speeds):.1f}"] if repeated else []
        rows.append([*row, f"{median(each.log.prompt_tok_s for each in runs):.1f}"])
    columns = [("mode", "left"), ("bank", "right"), ("hit %", "right"), ("tok/s", "right")]
    columns += [("lo to hi", "right")] if repeated else []
    print_table([*columns, ("prompt tok/s", "right")], rows, title=title)


def _bank(request: RunRequest) -> str:
    return str(request.bank) if request.mode in (*BANKED, "oracle-all-hit") else "-"


def _hit_rate(run: Run) -> float | None:
    routed = run.log.routed
    return 1 - routed.misses / routed.requests if routed is not None and routed.requests else None


def document_of(one: Planned, outcome: Run | SimError) -> dict[str, Any]:
    """What a run came to, or why it failed."""
    document: dict[str, Any] = {
        "folder": str(one.folder),
        "mode": one.request.mode,
        "bank": one.request.bank,
        "replay_of": str(one.replay) if one.replay is not None else None,
    }
    if isinstance(outcome, SimError):
        return document | {"failed": str(outcome)}
    return document | {
        "failed": None,
        "hit_rate": _hit_rate(outcome),
        "decode_tok_s": outcome.log.decode_tok_s,
        "prompt_tok_s": outcome.log.prompt_tok_s,
        "gpu_layers": outcome.log.gpu_layers,
        "bank_in": outcome.log.placement.bank,
        "memory": [asdict(memory) for memory in outcome.log.placement.memory],
    }
