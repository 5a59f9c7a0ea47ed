"""Published speeds of drafts, beside predictions: the cost of a pass, and speeds without drafts and with them.

`python -m reports.field.drafts` prints the tables.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flashmoe_sim.drafts import break_even
from flashmoe_sim.field.asked import Traces
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.compare import at_setting, with_undrafted
from flashmoe_sim.systems.resolve import DEFAULT_CONTEXT, resolve
from reports import pages

PUBLISHED = Path(__file__).parents[2] / "data" / "published"
HEAD = """A pass verifies drafted tokens together. The first table has its seconds over those of one token, the second
speeds with drafts over speeds without. Two factors are fitted on these rows (`drafts.verify_times`, and what
ik_llama.cpp takes longer for a call), so they show that the law holds rather than what a new machine gets; all of these
pairs gain."""
PASSES, PAIRS = PUBLISHED / "draft_passes.csv", PUBLISHED / "draft_pairs.csv"


@dataclass(frozen=True)
class Judged:
    """A published ratio and the predicted one. what: the model and the engine. drafted: tokens."""

    what: str
    drafted: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Signed: predicted over measured, less 1."""
        return self.predicted / self.measured - 1

    @property
    def right(self) -> bool:
        """Whether it is predicted to gain if it gained, and to lose if it lost."""
        return (self.measured > 1) == (self.predicted > 1)


@cache
def passes() -> list[Judged]:
    """Seconds of a pass of several tokens over seconds of a token, for rows whose machine is told.

    Benchmarks of passes use random tokens, which are routed independently of each other; no token is drafted.
    """
    found = []
    for row in _with_machine(PASSES):
        tokens, depth = int(row["tokens"]), int(row["depth"])
        memory = MemoryOptions(
            context=max(depth, DEFAULT_CONTEXT), depth=depth, draft=tokens - 1, accept=1.0, drafter="ngram"
        )
        one = _gain(row, memory, hit_rate=1.0)
        found.append(
            Judged(f"{row['model']}, {row['engine']}, {row['where']}", tokens, float(row["ratio"]), tokens / one)
        )
    return found


@cache
def pairs() -> list[Judged]:
    """Speed with drafts over speed without, for rows whose machine and acceptance are told."""
    found, traces = [], Traces()
    for row in _with_machine(PAIRS):
        if not row["accepted_share"]:
            continue
        drafted = int(row["drafted"])
        accept = break_even(drafted, 1 + drafted * float(row["accepted_share"]))  # which yields as many tokens a pass
        memory = MemoryOptions(draft=drafted, accept=accept, drafter=row["drafter"])
        measured = float(row["tok_s_with"]) / float(row["tok_s_without"])
        gain = _gain(row, memory, workload=traces.of(load_model(row["as_model"]))[0])
        found.append(Judged(f"{row['model']}, {row['engine']}, {row['where']}", drafted, measured, gain))
    return found


def _with_machine(path: Path) -> Iterator[Mapping[str, str]]:
    """The rows whose machine is known."""
    with path.open(newline="") as file:
        yield from (row for row in csv.DictReader(file) if row["machine"])


def _gain(
    row: Mapping[str, str], memory: MemoryOptions, *, workload: Workload | None = None, hit_rate: float | None = None
) -> float:
    """The predicted speed with drafts over the speed without, on a trace or at a hit rate."""
    on = resolve(
        workload=workload,
        model=load_model(row["as_model"]),
        machine=load_machine(row["machine"]),
        systems=row["system"],
        memory=memory,
        may_borrow=False,
    )
    system = on.systems[0].sized(on.case)
    one = at_setting(on.workload, on.case, system, hit_rate=hit_rate, interval=False)
    one = with_undrafted(on.workload, on.case, one, hit_rate=hit_rate, interval=False)
    assert one.tok_s is not None, one.why_not
    assert one.undrafted is not None
    assert one.undrafted.tok_s is not None
    return one.tok_s / one.undrafted.tok_s


def table(judged: list[Judged], *, number: str, what: str) -> str:
    """A table in Markdown, with its median error."""
    cells = (
        (one.what, one.drafted, f"{one.measured:.2f}", f"{one.predicted:.2f}", f"{100 * one.error:+.0f}%")
        for one in judged
    )
    error = statistics.median(abs(one.error) for one in judged)
    made = pages.table(("run", number, what, "predicted", "error"), cells, left=None)
    return pages.joined(made, f"Median error: {100 * error:.0f}%.")


def section() -> str:
    """Both tables, and how often it is predicted rightly whether drafts pay."""
    found = pairs()
    right = sum(one.right for one in found)
    return pages.joined(
        HEAD,
        table(passes(), number="tokens", what="pass / token"),
        table(found, number="drafted", what="with / without"),
        f"Whether drafts pay is predicted rightly in {right} of {len(found)}.",
    )


if __name__ == "__main__":
    print(section())
