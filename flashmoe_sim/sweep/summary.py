"""One row over several traces: means, ranges, and the number of traces on which a setup is first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from flashmoe_sim.policies.base import REPLAYED
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.schema import OF_SEVERAL_TRACES

RANKS = ("tok/s", "hits")
SHARED = ("bank", "bank_bytes", "policy", "contract", "prefetch", "scope", "machine", "execution")

Row = Mapping[str, Any]


def over_traces(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of schema.OF_SEVERAL_TRACES, in the order in which each setup and machine first occurs.

    rows: schema.RESULT_COLUMNS, in which each trace has its own name.
    """
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(tuple(row[name] for name in SHARED), []).append(row)
    best = _best(rows)
    found = []
    for shared, group in alike.items():
        hits, speeds, ceilings = ([row[name] for row in group] for name in ("hit_rate", "tok_s", "best_hit_rate"))
        timed = all(speed is not None for speed in speeds)
        values = dict(zip(SHARED, shared, strict=True)) | {
            "bank_slots": group[0]["bank_slots"] if len({row["bank_slots"] for row in group}) == 1 else None,
            "traces": len(group),
            "hit_rate": fmean(hits),
            "hit_rate_min": min(hits),
            "hit_rate_max": max(hits),
            "best_hit_rate": None if None in ceilings else fmean(ceilings),
            "tok_s": fmean(speeds) if timed else None,
            "tok_s_min": min(speeds) if timed else None,
            "tok_s_max": max(speeds) if timed else None,
            "wins": None if foresees(group[0]) else sum(0 <= _worth(row) == best[_rivals(row)] for row in group),
        }
        found.append({column.name: values[column.name] for column in OF_SEVERAL_TRACES})
    return found


def yours_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of traces on which a policy of the user's own was replayed, then the others, each in their order."""
    yours = {row["trace_id"] for row in rows if of_user(row)}
    return sorted(rows, key=lambda row: row["trace_id"] not in yours)


def ranked(rows: Sequence[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """The rows of each trace, bank and machine, the fastest first, or the one with the most hits.

    by: of RANKS. Ties keep their order.
    """
    places = {_rivals(row): number for number, row in reversed(list(enumerate(rows)))}

    def order(row: Row) -> tuple[float, ...]:
        speed = (-(row["tok_s"] or 0.0),) if by == "tok/s" else ()
        return places[_rivals(row)], *speed, -row["hit_rate"]

    return sorted(rows, key=order)


def foresees(row: Row) -> bool:
    """Whether the policy or the predictor knows the future; a policy with a separate profile does not."""
    if f"warm={REPLAYED}" in row["policy"].split(":"):
        return True
    policy, predictor = (row[name].split(":")[0] for name in ("policy", "prefetch"))
    knows = policy in POLICIES and POLICIES[policy].hindsight and "profile=" not in row["policy"]
    return knows or (predictor in PREFETCHERS and PREFETCHERS[predictor].hindsight)


def line_text(row: Row) -> str:
    """The policy, and the predictor if there is one."""
    policy, prefetch = row["policy"], row["prefetch"]
    return policy if prefetch in (None, "none") else f"{policy} + {prefetch}"


def of_user(row: Row) -> bool:
    """Whether the policy is the user's own."""
    return row["policy"].partition(":")[0] not in POLICIES


def _best(rows: Sequence[Row]) -> dict[tuple[Any, ...], float]:
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if not foresees(row):
            best[_rivals(row)] = max(best.get(_rivals(row), -1), _worth(row))
    return best


def _rivals(row: Row) -> tuple[Any, ...]:
    return row.get("trace"), row["bank"], row["machine"]


def _worth(row: Row) -> float:
    """Speed on a machine, -1 if it does not fit; hit rate without one."""
    if row["machine"] is None:
        return float(row["hit_rate"])
    return -1.0 if row["tok_s"] is None else float(row["tok_s"])
