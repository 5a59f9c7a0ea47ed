"""Hit rate against the bank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.report.figures.style import Chart

if TYPE_CHECKING:
    import polars


def hit_curves(rows: polars.DataFrame) -> Chart:
    """Hit rate against the bank, a line for each policy and predictor, under the best that any policy could do.

    rows: schema.RESULT_COLUMNS, as `sweep` and `curve` return them. Read are trace, trace_id, policy, contract, prefetch,
        bank, bank_slots, bank_bytes, hit_rate, resident_bytes and best_hit_rate. Rows that differ in machine alone
        are drawn once. Up to 4 traces have a panel each; the title says how many are left out.
    Raises BadInput without rows, and for banks that are partly in slots and partly in bytes.
    """
    raise NotImplementedError
