"""The part of the page on pairs of rows with and without an expert cache."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from reports.field.outcome import Outcome
from reports.field.pairs import Pair, Speed, pairs
from reports.field.scores import Judged
from reports.field.tune import engine_of, price_of

HEAD = (
    "A pair is two predicted rows of one machine, model, quantisation and depth: one with an expert cache "
    "(`vram_lru`, `vram_static_profile`, `slot_bank_ssd`, `ssd_stream`) and one without (`n_cpu_moe`, `ot_regex`, "
    "`cpu_only`, `all_gpu`) of plain llama.cpp or ik_llama.cpp, or of the same program in the same series. The gain is "
    "the speed with the cache over the speed without. *Predicted* has the costs of engines, tuned without the machine; "
    "its interval takes the errors of the two predictions as independent. *From the parts* has no engine's cost, as "
    "`sim recommend` predicts; both take the hit rate of a row that says one. A pair is *right* if the faster of the "
    "two is predicted to be faster. If it is not, the intervals of the two speeds must at least *overlap*; else the "
    "pair is **broken**.\n"
)


def section(rows: Sequence[Judged]) -> str:
    """What caches gain, measured and predicted."""
    tuned, alone = of_rows(rows)
    broken = sorted({one.name for one in (*tuned, *alone) if not one.holds})
    machines = len({one.cached.machine_id for one in tuned})
    said = (
        f"There are {len(tuned)} pairs on {machines} machines. {_said('Predicted', tuned)} "
        f"{_said('From the parts', alone)} The intervals are wide, and most pairs claim no order.\n"
    )
    listed = "".join(f"- broken: {name}\n" for name in broken)
    return "\n".join([HEAD, said, *([listed] if listed else []), _by_engine(tuned, alone), _table(tuned, alone)])


def _said(how: str, found: Sequence[Pair]) -> str:
    apart = [one for one in found if not one.overlap]
    off = statistics.median(one.predicted / one.measured for one in found)
    return (
        f"{how}, the order is right in {sum(one.ordered for one in found)}; the intervals do not overlap in "
        f"{len(apart)}, and {sum(not one.ordered for one in apart)} of these are broken; in the median the predicted "
        f"gain is {off:.2f} times the measured one."
    )


def of_rows(rows: Sequence[Judged]) -> tuple[list[Pair], list[Pair]]:
    """The pairs as predicted without their machine, and from the parts alone."""
    known = [one for one in rows if one.without_machine.tok_s is not None]
    every = [one.row for one in known]
    alone = {
        one.row.id: Speed(*(getattr(price_of(one.in_sample.raw), name) for name in Speed._fields)) for one in known
    }
    return pairs(every, {one.row.id: _speed(one.without_machine) for one in known}), pairs(every, alone)


def _speed(one: Outcome) -> Speed:
    assert one.tok_s is not None
    assert one.lo is not None
    assert one.hi is not None
    return Speed(one.tok_s, one.lo, one.hi)


def _by_engine(tuned: Sequence[Pair], alone: Sequence[Pair]) -> str:
    groups: dict[str, list[tuple[Pair, Pair]]] = defaultdict(list)
    for one, other in zip(tuned, alone, strict=True):
        groups[engine_of(one.cached)].append((one, other))
    lines = ["| cache | pairs | right | right from the parts | broken |", "|---|---|---|---|---|"]
    for name, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        right, apart = sum(one.ordered for one, _ in group), sum(other.ordered for _, other in group)
        broken = sum(not (one.holds and other.holds) for one, other in group)
        lines.append(f"| {name} | {len(group)} | {right} | {apart} | {broken} |")
    return "\n".join(lines) + "\n"


def _table(tuned: Sequence[Pair], alone: Sequence[Pair]) -> str:
    lines = [
        "| machine | model | cache | with | without | measured | predicted | interval | order | from the parts "
        "| order |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one, other in zip(tuned, alone, strict=True):
        lo, hi = one.interval
        lines.append(
            f"| {one.cached.machine_id} | {one.cached.model} {one.cached.quant} | {engine_of(one.cached)} "
            f"| {one.cached.id} | {one.plain.id} | {one.measured:.2f} | {one.predicted:.2f} | {lo:.2f} to {hi:.2f} "
            f"| {_order(one)} | {other.predicted:.2f} | {_order(other)} |"
        )
    return "\n".join(lines) + "\n"


def _order(one: Pair) -> str:
    if one.ordered:
        return "right"
    return "overlap" if one.overlap else "**broken**"
