"""The part of the page on pairs of rows with and without an expert cache."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from scipy.special import ndtr

from flashmoe_sim.machines.belief import SD_90
from flashmoe_sim.tune.pays import ANY, Gains
from reports.field.gains import fitted, left_out, seen
from reports.field.pairs import Pair, both_ways
from reports.field.scores import Judged
from reports.field.tune import engine_of
from reports.pages import joined, table

CUTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)

HEAD = (
    "A pair is two predicted rows of one machine, model, quantization and depth: one with an expert cache "
    "(`vram_lru`, `vram_static_profile`, `slot_bank_ssd`, `ssd_stream`) and one without (`n_cpu_moe`, `ot_regex`, "
    "`cpu_only`, `all_gpu`) of plain llama.cpp or ik_llama.cpp, or of the same program in the same series. The gain is "
    "the speed with the cache over the speed without. *Predicted* has the costs of engines, tuned without the machine; "
    "its interval takes the errors of the two predictions as independent. *From the parts* has no engine's cost, as "
    "`sim recommend` predicts; both take the hit rate of a row that says one. A pair is *right* if the faster of the "
    "two is predicted to be faster. If it is not, the intervals of the two speeds must at least *overlap*; else the "
    "pair is **broken**."
)
HOW = (
    "`python -m reports.field FILE.csv --pairs` prints how likely each cache of a file is faster. Both runs of a pair "
    "are on one machine, so that an error of its speed cancels. A measured gain counts as a sum of a level, the gain "
    "from the parts with a weight, and errors of the machine (its CPU against its GPU, its hits), the engine and the "
    "pair. Kinds of caches and engines have levels of their own, drawn towards the common one, so that an engine "
    "with many pairs speaks for itself and an unknown one gets the level of its kind. A gain far above a factor of 1.6 "
    "counts as 1.6, and a machine as the square root of its pairs. "
    "[gains.toml](../../flashmoe_sim/tune/gains.toml) has what is fitted. `sim recommend` and `sim compare` print the "
    "mean of such probabilities over draws of what is unknown of a machine. "
    "Here each pair is judged by the pairs of other machines."
)


def section(rows: Sequence[Judged]) -> str:
    """What caches gain, measured and predicted, and how likely they are faster."""
    tuned, alone = both_ways([one.without_machine for one in rows])
    every = seen(alone)
    likely = left_out(every)
    broken = sorted({one.name for one in (*tuned, *alone) if not one.holds})
    machines = len({one.cached.machine_id for one in tuned})
    summary = (
        f"There are {len(tuned)} pairs on {machines} machines. {_in_words('Predicted', tuned)} "
        f"{_in_words('From the parts', alone)} The intervals are wide, and most pairs claim no order."
    )
    listed = "\n".join(f"- broken: {name}" for name in broken)
    parts = [HEAD, summary, listed, _by_engine(tuned, alone), HOW, _scores(tuned, alone, likely)]
    return joined(*parts, _reliable(tuned, likely), _levels(fitted(every)), _table(tuned, alone, likely))


def _in_words(how: str, found: Sequence[Pair]) -> str:
    apart = [one for one in found if not one.overlap]
    off = statistics.median(one.predicted / one.measured for one in found)
    return (
        f"{how}, the order is right in {sum(one.ordered for one in found)}; the intervals do not overlap in "
        f"{len(apart)}, and {sum(not one.ordered for one in apart)} of these are broken; in the median the predicted "
        f"gain is {off:.2f} times the measured one."
    )


def _by_engine(tuned: Sequence[Pair], alone: Sequence[Pair]) -> str:
    groups: dict[str, list[tuple[Pair, Pair]]] = defaultdict(list)
    for one, other in zip(tuned, alone, strict=True):
        groups[engine_of(one.cached)].append((one, other))
    cells = []
    for name, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        right, apart = sum(one.ordered for one, _ in group), sum(other.ordered for _, other in group)
        broken = sum(not (one.holds and other.holds) for one, other in group)
        cells.append((name, len(group), right, apart, broken))
    return table(("cache", "pairs", "right", "right from the parts", "broken"), cells, left=None)


def _scores(tuned: Sequence[Pair], alone: Sequence[Pair], likely: Sequence[float]) -> str:
    """How good the probabilities are, beside simpler ones."""
    ways = (
        ("how often caches on other machines are faster", base_rates(tuned)),
        ("the predicted gain and its interval alone", [independent(one) for one in tuned]),
        ("the gain from the parts and its interval alone", [independent(one) for one in alone]),
        ("**fitted**", likely),
    )
    cells = []
    for name, found in ways:
        brier, right = (each(tuned, found) for each in (brier_scores, signs))
        scores = (f"{mean:.3f}" for mean in (statistics.fmean(brier), by_machine(tuned, brier)))
        cells.append((name, *scores, f"{statistics.fmean(right):.0%}", f"{by_machine(tuned, right):.0%}"))
    head = ("probability", "Brier score", "each machine once", "signs right", "each machine once")
    return joined(table(head, cells, left=None), "The goals are a Brier score of at most 0.15, and 85% of signs right.")


def brier_scores(found: Sequence[Pair], likely: Sequence[float]) -> list[float]:
    """The square of how far each probability is from what happened."""
    return [(p - (one.measured > 1)) ** 2 for one, p in zip(found, likely, strict=True)]


def signs(found: Sequence[Pair], likely: Sequence[float]) -> list[float]:
    """1 for each pair whose faster row is the likelier one, else 0."""
    return [float((p > 0.5) == (one.measured > 1)) for one, p in zip(found, likely, strict=True)]


def by_machine(found: Sequence[Pair], scores: Sequence[float]) -> float:
    """The mean of scores in which each machine counts once."""
    counts = Counter(one.cached.machine_id for one in found)
    each = [score / counts[one.cached.machine_id] for one, score in zip(found, scores, strict=True)]
    return math.fsum(each) / len(counts)


def base_rates(found: Sequence[Pair]) -> list[float]:
    """For each pair the share of faster caches on other machines, each of which counts once."""
    rates = dict[str, float]()
    for machine in {one.cached.machine_id for one in found}:
        others = [one for one in found if one.cached.machine_id != machine]
        rates[machine] = by_machine(others, [float(one.measured > 1) for one in others])
    return [rates[one.cached.machine_id] for one in found]


def independent(one: Pair) -> float:
    """The probability by the predicted gain and its interval."""
    lo, hi = one.interval
    end = hi if one.predicted < 1 else lo
    return float(ndtr(math.log(one.predicted) * SD_90 / abs(math.log(end / one.predicted))))


def _reliable(found: Sequence[Pair], likely: Sequence[float]) -> str:
    """What happened beside what was likely."""
    cells = []
    for lo, hi in itertools.pairwise(CUTS):
        some = [(one, p) for one, p in zip(found, likely, strict=True) if lo <= p < hi]
        if some:
            machines = len({one.cached.machine_id for one, _ in some})
            mean, faster = (
                statistics.fmean(of) for of in ([p for _, p in some], [one.measured > 1 for one, _ in some])
            )
            cells.append((f"{lo:.0%} to {hi:.0%}", len(some), machines, f"{mean:.0%}", f"{faster:.0%}"))
    return table(("probability", "pairs", "machines", "mean", "was faster"), cells, left=None)


def _levels(gains: Gains) -> str:
    """How fast caches are if they are predicted to gain nothing."""
    every = {"any other kind" if name == ANY else name: level for name, (level, _) in gains.kinds.items()}
    listed = ", ".join(f"{name} {math.exp(level):.2f}" for name, level in every.items())
    own = ", ".join(f"{name} {math.exp(more):.2f}" for name, (more, _) in gains.engines.items())
    return (
        f"The gain from the parts has a weight of {gains.weight:.2f}. If it is 1, the expected gain is by kind: "
        f"{listed}. An engine's factor beside its kind: {own}."
    )


def _table(tuned: Sequence[Pair], alone: Sequence[Pair], likely: Sequence[float]) -> str:
    cells = []
    for one, other, p in zip(tuned, alone, likely, strict=True):
        lo, hi = one.interval
        who = (one.cached.machine_id, f"{one.cached.model} {one.cached.quant}", engine_of(one.cached))
        gains = (f"{one.measured:.2f}", f"{one.predicted:.2f}", f"{lo:.2f} to {hi:.2f}", _order(one))
        cells.append((*who, one.cached.id, one.plain.id, *gains, f"{other.predicted:.2f}", _order(other), f"{p:.0%}"))
    head = ("machine", "model", "cache", "with", "without", "measured", "predicted", "interval", "order")
    return table((*head, "from the parts", "order", "likely faster"), cells, left=None)


def _order(one: Pair) -> str:
    if one.ordered:
        return "right"
    return "overlap" if one.overlap else "**broken**"
