"""A close look at one bank, and all else that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flashmoe_sim.ceilings.diagnose import Diagnosis, diagnose
from flashmoe_sim.ceilings.speed import SpeedCeilings, ceilings
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.question import ConditionOptions
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.sweep.plan import plan_conditions, plan_setup
from flashmoe_sim.sweep.summary import foresees
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.systems.base import Case
from flashmoe_sim.tune.recommend import KNEE, Recommendation

Row = dict[str, Any]
MOST_BANKS = 16


@dataclass(frozen=True, eq=False)
class Close:
    """One setup of a trace.

    row: the chosen row of schema.RESULT_COLUMNS. layers: schema.LAYER_COLUMNS of its policy in several banks.
    """

    row: Row
    setup: Setup
    diagnosis: Diagnosis | None
    ceilings: SpeedCeilings | None
    layers: Sequence[Row]


def knee(rows: Sequence[Row]) -> Row | None:
    """The smallest bank with nine tenths of its policy's best; the policy is lru, or else the first in the rows.

    By decode speed if there is one, else by hit rate. Policies that know the future do not count; None without others.
    """
    possible = [row for row in rows if row["hit_rate"] is not None and not foresees(row)]
    timed = [row for row in possible if row["tok_s"] is not None]
    best_by = "tok_s" if timed else "hit_rate"
    if not (some := timed or possible):
        return None
    alike = ("trace_id", "policy", "prefetch", "contract", "scope", "machine")
    first = next((row for row in some if row["policy"] == "lru"), some[0])
    some = [row for row in some if all(row[name] == first[name] for name in alike)]
    enough = KNEE * max(row[best_by] for row in some)
    return min((row for row in some if row[best_by] >= enough), key=_size)


def look_closely(
    rows: Sequence[Row], workload: Workload, case: Case | None, progress: Callable[[int, int], None]
) -> tuple[Close | None, list[str]]:
    """A close look at the knee of a trace's rows, and the reasons for anything missing.

    case: of the machine on which it is timed.
    """
    own = [row for row in rows if row["trace_id"] == workload.trace.content_id]
    row = knee([one for one in own if case is None or one["machine"] == case.machine.name] or own)
    if row is None:
        return None, ["Why it misses: every row is of a policy that knows the future; add lru to `--policy`."]
    try:
        setup = _setup(row, row["bank"])
    except BadInput as error:
        return None, [f"Why it misses: {error}."]
    banks = _banks(own, row)
    total, why_not = len(banks) + 2, []
    layers: list[Row] = []
    for number, bank in enumerate(banks):
        progress(number, total)
        one = _setup(row, bank)
        who = Task(workload, one).identity()
        layers += [who | counted for counted in replay(workload, one).counts.by_layer()]
    progress(len(banks), total)
    found, speed = None, None
    try:
        found = diagnose(workload, setup)
    except BadInput as error:
        why_not.append(f"Why it misses: {error}.")
    progress(len(banks) + 1, total)
    if case is not None:
        try:
            conditions = plan_conditions(
                setup,
                ConditionOptions(
                    execution=row["execution"],
                    dense=case.model.dense_bytes,
                    kv=case.kv_bytes,
                    kv_type=case.kv_type,
                    depth=case.depth,
                ),
            )
            speed = ceilings(workload, setup, case.machine, replace(conditions, drafts=case.drafts))
        except BadInput as error:
            why_not.append(f"Where a token's time goes: {error}.")
    progress(total, total)
    return Close(row, setup, found, speed, layers), why_not


def _setup(row: Row, bank: str) -> Setup:
    options = {name: row[name] for name in ("policy", "contract", "scope", "prefetch", "io_split")}
    return plan_setup(bank, **options)


def _banks(rows: Sequence[Row], chosen: Row) -> list[str]:
    """The bank sizes in the sweep of the chosen row's policy, at most 16 including its own."""
    alike = ("policy", "prefetch", "contract", "scope")
    same = [row for row in rows if all(row[name] == chosen[name] for name in alike)]
    sizes = list(dict.fromkeys(row["bank"] for row in sorted(same, key=_size)))
    if len(sizes) <= MOST_BANKS:
        return sizes
    places = {number * (len(sizes) - 1) // (MOST_BANKS - 2) for number in range(MOST_BANKS - 1)}
    return [sizes[place] for place in sorted(places | {sizes.index(chosen["bank"])})]


def _size(row: Row) -> float:
    return float(parse_bank(row["bank"]).size)


@dataclass(frozen=True, eq=False)
class Material:
    """Everything that a report shows; None or empty if unknown.

    rows: schema.RESULT_COLUMNS. swept: whether the report made them. workloads: the given traces, by `trace_id`.
    by_depth: schema.BY_DEPTH, of the recommended system and the next fastest ones.
    measured: schema.PREDICTED, of a table with measured speeds. wanting: what is missing, why, and what to add.
    notes: what the user should know about traces, machine and rows.
    """

    rows: Sequence[Row]
    swept: bool
    workloads: Mapping[str, Workload]
    machine: Machine | None
    close: Close | None
    advice: Recommendation | None
    by_depth: Sequence[Row]
    measured: Sequence[Row]
    wanting: tuple[str, ...]
    notes: tuple[str, ...]
