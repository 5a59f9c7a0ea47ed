"""`sim sweep --dry-run`: what a sweep would do, and roughly how long it would take."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from flashmoe_sim.cli.common import echo, print_json, print_table, wrapped
from flashmoe_sim.io.sections import Table
from flashmoe_sim.io.sizes import size

if TYPE_CHECKING:
    from flashmoe_sim.verbs.sweep import OpenSweep

DOES = {
    "stack": "one pass for all sizes",
    "walk": "some sizes, layer by layer",
    "alone": "one replay",
    "timed": "replays, timed on machines",
}


def print_plan(opened: OpenSweep, *, as_json: bool) -> None:
    """Print the tasks, how many are known, the passes by kind, and the estimate."""
    from flashmoe_sim.residency.many import CountPass
    from flashmoe_sim.sweep.estimate import estimate

    plan, left_out = opened.plan(), opened.left_out
    kinds = Counter(one.work.kind if isinstance(one.work, CountPass) else "timed" for one in plan.passes)
    about = estimate(plan.passes, opened.workloads, threads=opened.cores)
    if as_json:
        document: dict[str, Any] = {
            "tasks": len(plan.tasks),
            "in_ledger": len(plan.known),
            "to_compute": len(plan.missing),
            "passes": dict(kinds),
            "estimate": {
                "seconds": about.seconds,
                "threads": about.threads,
                "memory_bytes": about.memory_bytes,
            },
            "left_out": [one._asdict() for one in left_out],
        }
        print_json(document)
        return
    echo(f"{len(plan.tasks):,} tasks: {len(plan.known):,} in the ledger, {len(plan.missing):,} to compute")
    if kinds:
        rows = [[kind, f"{number:,}", DOES[kind]] for kind, number in kinds.items()]
        print_table(Table([("pass", "left"), ("number", "right"), ("what it does", "left")], rows))
    on = f"{about.threads} thread{'' if about.threads == 1 else 's'}"
    echo(
        wrapped(
            f"Rough estimate for an idle machine, within a factor of about 3: {_duration(about.seconds)} on {on}, "
            f"up to {size(about.memory_bytes)} of memory. Start (seconds) and compiling (up to minutes, once) come on "
            "top; a busy machine takes several times as long."
        )
    )


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
