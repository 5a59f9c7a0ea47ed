"""The table and the JSON of many runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from flashmoe_sim.cli.common import print_table
from flashmoe_sim.io.cells import percent
from flashmoe_sim.io.errors import SimError
from flashmoe_sim.io.sections import Table
from native_bridge.run_folder import FLAGS

if TYPE_CHECKING:
    from native_bridge.engines.base import RunRequest
    from native_bridge.engines.runs import Run
    from native_bridge.repeats import Planned


def print_runs(outcomes: Sequence[tuple[Planned, Run | SimError]], title: str) -> None:
    """Print a row per request, with the median of its repeats, and its tokens if any run has too few."""
    by_name: dict[str, list[Run]] = {}
    requests: dict[str, RunRequest] = {}
    for one, outcome in outcomes:
        if not isinstance(outcome, SimError):
            by_name.setdefault(one.name, []).append(outcome)
            requests[one.name] = one.request
    repeated = any(len(runs) > 1 for runs in by_name.values())
    tokens = {
        name: [count for each in runs if (count := tokens_of(each)) is not None] for name, runs in by_name.items()
    }
    short = any(min(tokens[name], default=each.n_predict) < each.n_predict for name, each in requests.items())
    rows = []
    for name, runs in by_name.items():
        speeds = [each.log.decode_tok_s for each in runs]
        row = [requests[name].mode, _bank(runs[-1]), percent(_hit_rate(runs[-1])), f"{median(speeds):.1f}"]
        row += [f"{min(speeds):.1f} to {max(speeds):.1f}"] if repeated else []
        row += [f"{median(each.log.prompt_tok_s for each in runs):.1f}"]
        wanted = requests[name].n_predict
        rows.append([*row, f"{min(tokens[name])} of {wanted}" if tokens[name] else "-"] if short else row)
    columns = [("mode", "left"), ("bank", "right"), ("hit %", "right"), ("tok/s", "right")]
    columns += [("lo to hi", "right")] if repeated else []
    columns += [("prompt tok/s", "right")]
    print_table(Table([*columns, ("tokens", "right")] if short else columns, rows, title=title))


def tokens_of(run: Run) -> int | None:
    """The number of generated tokens; None if its routed calls do not say."""
    tokens = json.loads((run.folder / FLAGS).read_bytes()).get("tokens")
    return tokens if isinstance(tokens, int) else None


def _bank(run: Run) -> str:
    return str(run.bank) if run.does.slots else "-"


def _hit_rate(run: Run) -> float | None:
    routed = run.log.routed
    return 1 - routed.misses / routed.requests if routed is not None and routed.requests else None


def document_of(one: Planned, outcome: Run | SimError) -> dict[str, Any]:
    """The result of a run, or why it failed."""
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
        "tokens": tokens_of(outcome),
        "tokens_wanted": outcome.n_predict,
        "decode_tok_s": outcome.log.decode_tok_s,
        "prompt_tok_s": outcome.log.prompt_tok_s,
        "gpu_layers": outcome.log.gpu_layers,
        "bank_in": outcome.log.placement.bank,
        "memory": [asdict(memory) for memory in outcome.log.placement.memory],
    }
