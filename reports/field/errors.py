"""How far published speeds are from what the commands predict: written to flashmoe_sim/machines/errors.toml."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from flashmoe_sim.api import load_trace, replay
from flashmoe_sim.field.engines import attended, engine_of
from flashmoe_sim.field.rows import source_of
from flashmoe_sim.machines.belief import ANY, ENDS_OF_90, FITTED, SD_90, Draws, Whose, normals, published_times, shares
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.any_engine import NAME
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.store import write_store
from reports.field.asked import PARTS, Answered
from reports.field.lent import logit, made_sd

FILE = Path(__file__).parents[2] / "flashmoe_sim" / "machines" / "errors.toml"
HEAD = """# Written by `python -m reports.field`: how far published speeds and other texts are from predictions.
# times: how many times as fast as its parts say a system is, by those who measured it; each who did counts once; all:
# of any other, as the median of these.
# sd: of ln(measured / predicted) beside what the machine's numbers and the text explain, by system; all: of any other,
# for which each of these counts once; "": of a replay without a system.
# shares: of its square, what all engines on a machine, all settings of a program, and all of a model have in common.
# prompts: sd of the speeds of prompts, of any system.
# checked: how many rows were answered, and the share of them in the intervals that are printed, and in those that are
# fitted without the machine, or without the person or repository that published the row.
# hits: of the logarithm of the odds of a hit. text_sd: of another text of the same model; made_sd: of a model from a
# trace made for it, beside text_sd; profile_lo, profile_hi: 90% interval of how a profile of another text differs.
"""
MOST = 1.2  # of ln(measured / predicted): more is a row that ran otherwise than it says
SHALLOW = 8192  # tokens in the context
HELD, ON_MACHINES = 0.9, 5  # intervals hold so many of a system's rows, if these are of so many machines
OF_SYSTEMS_SD = 0.1  # of the logarithm of how fast systems are beside their parts
PEOPLE, OF_PEOPLE_SD = 3, 0.3  # of what people find of one system
POOLED = 6  # how many rows the spread of all counts beside a system's own
SDS = np.linspace(0.02, 1.2, 119)
TEXTS = (("python-256", "prose-256", "cpp-256"), ("gpt-oss-120b",), ("deepseek-v2-lite",))
PIECES = 4  # of a trace that is alone, each of which counts as a text
SHARED = ("common", "program", "model")  # what two rows of a machine can have in common: all of them, or one of these
SHARES = (8, 4, 2)  # one in so many experts is resident


@dataclass(frozen=True)
class Errors:
    """The numbers of the file."""

    times: dict[str, float]
    sd: dict[str, float]
    shares: dict[str, float]


class _Row:
    """ln(measured / predicted) of a row, and the part of it that the machine and the text may explain."""

    def __init__(self, one: Answered) -> None:
        self.whose = one.asked.whose
        self.system, self.program, self.model = self.whose.system, self.whose.program, self.whose.model
        self.machine, self.source, self.engine = (
            one.row.machine_id or one.row.id,
            source_of(one.row),
            engine_of(one.row),
        )
        self.named = one.machine
        self.draws = one.of_machine
        self.shallow = attended(one.row) <= SHALLOW
        times = (one.row.decode_tok_s or 1.0) / (one.found.tok_s or 1.0) * published_times(self.system)
        self.raw = self.off = math.log(times)

    def centred(self, times: Mapping[str, float]) -> Self:
        """With what is left of its error if systems are so many times as fast."""
        self.off = self.raw - math.log(times.get(self.system, times[ANY]))
        lo, hi = np.quantile(self.draws, (0.05, 0.95))
        self.known_sd = float(hi if self.off > 0 else -lo) / SD_90
        return self


def fitted(ran: Sequence[Answered]) -> Errors:
    """How fast systems are, the spread beside what the machine explains, and how much of it rows share."""
    every = [_Row(one) for one in ran]
    times = centres(every)
    rows = _shallow(every, times)
    of = _shares(known := _known(rows), _spread(known))
    of = {name: round(share, 2) for name, share in of.items()}
    sd = {name: round(one, 2) for name, one in _spreads(rows, _all_needed(rows, of)).items()}
    return Errors(times, sd, of)


def left_out(ran: Sequence[Answered], found: Errors, by: str) -> dict[str, Errors]:
    """What is fitted without each machine, source or engine, with the same shares. by: `machine`, `source`, `engine`.

    An engine that is left out is one that nobody measured: its systems have the numbers of any other.
    """
    every = [_Row(one) for one in ran]
    rows = _shallow(every, found.times)
    needed, without = _all_needed(rows, found.shares), dict[str, Errors]()
    for name in {getattr(row, by) for row in every}:
        times = centres([row for row in every if getattr(row, by) != name])
        sd = _spreads([row for row in rows if getattr(row, by) != name], needed)
        without[name] = Errors(times, sd, found.shares)
    return without


def centres(rows: Sequence[_Row]) -> dict[str, float]:
    """How many times as fast as its parts say each system is: the middle of those who measured it, each by the median
    of their rows on parts, drawn towards 1 as a sum of two normal errors would be. A plain engine has no parts to be
    drawn to.

    Source: a mean of a random effect (Gelman et al. 2013, Bayesian Data Analysis, 5.4), with medians for means.
    """
    found = defaultdict[str, dict[str, list[float]]](lambda: defaultdict(list))
    for row in rows:
        if row.named == PARTS:
            found[row.system][row.source].append(row.raw)
    each = {system: [median(rows) for rows in of.values()] for system, of in sorted(found.items())}
    systems = {system: _middle(of) for system, of in each.items() if not system.startswith(NAME)}
    plain = {system: median(of) for system, of in each.items() if system.startswith(NAME)}
    middles = {ANY: median(systems.values())} | systems | plain
    return {system: round(math.exp(middle), 2) for system, middle in middles.items()}


def _middle(of: Sequence[float]) -> float:
    """The expected middle of a system's logarithms, from one of each who measured it."""
    middle = median(of)
    before = PEOPLE * OF_PEOPLE_SD**2  # as if so many had been so far apart
    variance = (before + sum((min(abs(one - middle), 1.0)) ** 2 for one in of)) / (PEOPLE + len(of) - 1)
    return middle * OF_SYSTEMS_SD**2 / (OF_SYSTEMS_SD**2 + variance / len(of))


def _spreads(rows: Sequence[_Row], needed: Mapping[_Row, float]) -> dict[str, float]:
    """The spread of each system, and of engines without one, which say nothing of systems."""
    found = _spread(_known(rows))
    for name in sorted({row.system for row in rows if row.program == NAME}):
        own = [row for row in rows if row.system == name]
        found[name] = _middle_spread(_likelihood(own, Counter(row.machine for row in own)))
    return _holding(rows, found, needed)


def _known(rows: Sequence[_Row]) -> list[_Row]:
    return [row for row in rows if row.program != NAME]


def _shallow(rows: Sequence[_Row], times: Mapping[str, float]) -> list[_Row]:
    """The rows in which attention takes little, centred; what it adds is the machine's, and repeats its series."""
    return [row.centred(times) for row in rows if row.shallow]


def _spread(rows: Sequence[_Row]) -> dict[str, float]:
    """The spread of each system; all rows count as POOLED ones, a machine as its square root.

    An unknown system is as one of those that are known, each of which counts once: most rows are of a few engines that
    many people tuned. What machines are fitted on has recorded runs, and the spread of all rows.
    """
    counts = Counter(row.machine for row in rows)
    fitted = {name: kind.fitted_off for name, kind in SYSTEMS.items()}  # an unknown one may be as far off
    of = defaultdict[str, list[_Row]](list)
    for row in rows:
        of[row.system].append(row)
    each = {name: _likelihood(of[name], counts, fitted=fitted) for name in sorted(of)}
    weight = {name: sum(counts[row.machine] ** -0.5 for row in of[name]) for name in each}
    every = np.sum([*each.values()], axis=0)
    pooled = every * POOLED / sum(weight.values())
    found = {ANY: _middle_spread(np.sum([each[name] / weight[name] for name in each], axis=0))}
    found |= dict.fromkeys(FITTED, _middle_spread(every))
    return found | {name: _middle_spread(_likelihood(of[name], counts) + pooled) for name in each}


def _holding(rows: Sequence[_Row], sd: Mapping[str, float], needed: Mapping[_Row, float]) -> dict[str, float]:
    """The spread by system, and more where the printed intervals would not hold their share of a system's rows."""
    found = dict(sd)
    for name in sorted({row.system for row in rows}):
        own = [row for row in rows if row.system == name]
        if len({row.machine for row in own}) >= ON_MACHINES:
            least = float(np.quantile([needed[row] for row in own], HELD, method="inverted_cdf"))
            found[name] = max(found[name], least)
    return found


def _all_needed(rows: Sequence[_Row], of: Mapping[str, float]) -> dict[_Row, float]:
    return {row: _needed(row, of) for row in rows}


def _needed(row: _Row, of: Mapping[str, float]) -> float:
    """The least of SDS with which the printed interval holds a row; the last if none is enough."""
    engine = draws_of(row.whose, of)
    lo, hi = np.quantile(row.draws + SDS[:, None] * engine, ENDS_OF_90, axis=1)
    inside = (np.minimum(lo, 0) <= row.off) & (row.off <= np.maximum(hi, 0))
    return float(SDS[np.argmax(inside)] if inside.any() else SDS[-1])


def draws_of(whose: Whose, of: Mapping[str, float]) -> Draws:
    """Draws of an engine's error of one standard deviation. of: the shares of its square that rows have in common."""
    return np.asarray(sum(math.sqrt(share) * normals(name) for name, share in shares(whose, of).items()))


def _middle_spread(likelihood: NDArray[np.float64]) -> float:
    """The median of SDS, each as likely as the rows make it.

    The likeliest one alone would make intervals too narrow where rows are few.
    """
    share = np.cumsum(np.exp(likelihood - likelihood.max()))
    return float(SDS[np.searchsorted(share / share[-1], 0.5)])


def _likelihood(
    rows: Iterable[_Row], counts: Counter[str], fitted: Mapping[str, float] = MappingProxyType({})
) -> NDArray[np.float64]:
    """The logarithm of the likelihood of each of SDS. fitted: by how much systems would be too fast without a fit."""
    found = np.zeros(len(SDS))
    for row in rows:
        off = min(abs(row.off - fitted.get(row.system, 0.0)), MOST)
        square = row.known_sd**2 + SDS**2
        found -= 0.5 * (np.log(square) + off * off / square) / counts[row.machine] ** 0.5
    return found


def _shares(rows: Sequence[_Row], sd: dict[str, float]) -> dict[str, float]:
    """The likeliest shares of the square of the spread that rows of a machine have in common, by what they share.

    The likelihood is that of pairs of rows on one machine, each with what their draws have in common; a row counts
    once, and a machine as the square root of its rows. Source: composite likelihood (Varin, Reid and Firth 2011,
    Statistica Sinica 21, 1).
    """
    machines = defaultdict(list)
    for row in rows:
        machines[row.machine, row.named].append(row)
    asked = Counter(machine for machine, _ in machines)
    pairs = [
        _Pair(one, other, sd, 1 / ((len(group) - 1) * math.sqrt(len(group)) * asked[machine]))
        for (machine, _), group in machines.items()
        for one, other in itertools.combinations(group, 2)
    ]
    weights = np.array([pair.weight for pair in pairs])
    off, known, own, alike = (
        np.array([getattr(pair, name) for pair in pairs]) for name in ("off", "known", "own", "alike")
    )

    def unlikely(logs: NDArray[np.float64]) -> float:
        *common, single = np.exp(logs)
        first, second = (known[:, row] + own[:, row] ** 2 * (sum(common) + single) for row in (0, 1))
        both = known[:, 2] + own[:, 0] * own[:, 1] * (alike @ common)
        determinant = first * second - both * both
        squares = second * off[:, 0] ** 2 - 2 * both * off[:, 0] * off[:, 1] + first * off[:, 1] ** 2
        return float(weights @ (squares / determinant + np.log(determinant)))

    best = minimize(unlikely, np.full(len(SHARED) + 1, math.log(0.25)), bounds=[(-7.0, 1.0)] * (len(SHARED) + 1))
    found = np.exp(best.x)
    return dict(zip(SHARED, (found[:-1] / found.sum()).tolist(), strict=True))


class _Pair:
    """Two rows of a machine. known: variances and covariance of what the machine and the text explain. own: the spread
    of their systems. alike: by SHARED, whether they share it."""

    def __init__(self, one: _Row, other: _Row, sd: dict[str, float], weight: float) -> None:
        self.weight = weight
        self.off = [max(min(row.off, MOST), -MOST) for row in (one, other)]
        covariance = np.cov(one.draws, other.draws)
        self.known = covariance[0, 0], covariance[1, 1], covariance[0, 1]
        self.own = sd[one.system], sd[other.system]
        self.alike = 1.0, float(one.program == other.program), float(one.model == other.model)


def text(found: Errors, hits: dict[str, float], *, prompt_sd: float, checked: Mapping[str, float]) -> str:
    """The file as it should be. checked: how many rows were answered, and the shares inside their intervals."""
    lines = [HEAD]
    for table, values in (("times", found.times), ("sd", found.sd)):
        lines += [f"[{table}]"]
        quoted = {name: name if name and " " not in name else f'"{name}"' for name in values}
        lines += [f"{quoted[name]} = {one:.2f}" for name, one in values.items()]
        lines += [""]
    lines += ["[shares]", *(f"{name} = {share:.2f}" for name, share in found.shares.items())]
    lines += ["", "[prompts]", f"sd = {prompt_sd:.2f}"]
    lines += ["", "[checked]", *(f"{name} = {round(value, 4):g}" for name, value in checked.items())]
    lines += ["", "[hits]", *(f"{name} = {value:.2f}" for name, value in hits.items()), ""]
    return "\n".join(lines)


def hits() -> dict[str, float]:
    """How much the odds of a hit differ between texts of one model, between models, and between profiles."""
    differences, profiles = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for names in TEXTS:
            texts = [load_trace(name) for name in names] if len(names) > 1 else _parts(load_trace(names[0]))
            files = [Path(folder) / f"{names[0]}-{number}.parquet" for number in range(len(texts))]
            for one, file in zip(texts, files, strict=True):
                write_store(one.trace, file)
            for share in SHARES:
                bank = max(texts[0].n_experts) // share
                lru = [_odds(one, bank, "lru") for one in texts]
                differences += [odds - fmean(lru) for odds in lru]
                same = [_same_text(one, bank, Path(folder) / "half.parquet") for one in texts]
                for number, file in enumerate(files):
                    profiles += [
                        _odds(one, bank, f"static:profile={file}") - own
                        for place, (one, own) in enumerate(zip(texts, same, strict=True))
                        if place != number
                    ]
    lo, hi = np.quantile(profiles, (0.05, 0.95))
    text_sd = _rms(differences)
    return {
        "text_sd": text_sd,
        "made_sd": made_sd(text_sd),
        "profile_lo": float(lo),
        "profile_hi": max(float(hi), 0.0),
    }


def _parts(whole: Workload) -> list[Workload]:
    steps = np.unique(whole.trace.steps)
    ends = [int(steps[round(place)]) for place in np.linspace(0, len(steps) - 1, PIECES + 1)]
    return [prepare(cut(whole.trace, steps=pair), whole.geometry) for pair in itertools.pairwise(ends)]


def _same_text(text: Workload, bank: int, file: Path) -> float:
    """The odds of a hit on the second half of a text with the profile of its first half."""
    middle = int(np.median(np.unique(text.trace.steps)))
    write_store(cut(text.trace, steps=(None, middle)), file, force=True)
    return _odds(prepare(cut(text.trace, steps=(middle, None)), text.geometry), bank, f"static:profile={file}")


def _odds(text: Workload, bank: int, policy: str) -> float:
    """The logarithm of the odds of a hit."""
    return logit(replay(text, bank=bank, contract="atomic", policy=policy)["hit_rate"].item())


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(fmean(value * value for value in values))
