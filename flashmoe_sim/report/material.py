"""The material of a report: the rows of a sweep, a close look at one bank, and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.report.close import Close
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.tune.recommend import Recommendation

Row = dict[str, Any]


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
