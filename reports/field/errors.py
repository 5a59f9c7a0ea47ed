"""How far published speeds are from what the commands predict: written to flashmoe_sim/machines/errors.toml."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from flashmoe_sim.api import load_trace, replay
from flashmoe_sim.machines.belief import ANY, SD_90
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.store import write_store
from reports.field.depth import attended
from reports.field.model import name_of
from reports.field.printed import Printed
from reports.field.prior import HitCurve

FILE = Path(__file__).parents[2] / "flashmoe_sim" / "machines" / "errors.toml"
HEAD = """# Written by `python -m reports.field`: how far published speeds and other texts are from predictions.
# sd: of ln(measured / predicted) beside what the machine's numbers and the text explain, by system; all: of any other.
# shares: of its square, what all engines on a machine, all settings of a program, and all of a model have in common.
# prompts: sd of the speeds of prompts, of any system.
# checked: how many rows were predicted, and the share of them in the intervals that are printed.
# hits: of the logarithm of the odds of a hit. text_sd: of another text of the same model; made_sd: of another model,
# added to text_sd; profile_lo, profile_hi: 90 % interval of how a profile of another text differs from its own.
"""
MOST = 1.2  # of ln(measured / predicted): more is a row that ran otherwise than it says
SHALLOW = 8192  # tokens in the context
POOLED = 6  # how many rows the spread of all counts beside a system's own
SDS = np.linspace(0.02, 1.2, 119)
TEXTS = (("python-256", "prose-256", "cpp-256"), ("gpt-oss-120b",), ("deepseek-v2-lite",))
PARTS = 4  # of a trace that is alone, each of which counts as a text
SHARED = ("common", "program", "model")  # what two rows of a machine can have in common: all of them, or one of these
SHARES = (8, 4, 2)  # one in so many experts is resident


@dataclass(frozen=True)
class Errors:
    """The numbers of the file."""

    sd: dict[str, float]
    shares: dict[str, float]


class _Row:
    """ln(measured / predicted) of a row, and the part of it that the machine and the text may explain."""

    def __init__(self, one: Printed) -> None:
        assert one.found is not None
        assert one.of_machine is not None
        self.system, self.program = one.found.system.name, one.found.system.program
        self.model = name_of(one.row)
        self.machine, self.named = one.row.machine_id or one.row.id, one.machine
        self.draws = one.of_machine
        self.off = math.log((one.row.decode_tok_s or 1.0) / (one.found.tok_s or 1.0))
        lo, hi = np.quantile(one.of_machine, (0.05, 0.95))
        self.known_sd = float(hi if self.off > 0 else -lo) / SD_90


def fitted(ran: Sequence[Printed]) -> Errors:
    """The spread of rows beside what their machine explains, and how much of it they share."""
    rows = [_Row(one) for one in _shallow(ran)]
    sd = _spread(rows)
    return Errors(sd, _shares(rows, sd))


def without_machine(ran: Sequence[Printed]) -> dict[str, dict[str, float]]:
    """The spread that is fitted without each machine."""
    rows, machines = [_Row(one) for one in _shallow(ran)], {one.row.machine_id or one.row.id for one in ran}
    return {name: _spread([row for row in rows if row.machine != name]) for name in machines}


def _shallow(ran: Sequence[Printed]) -> list[Printed]:
    """The rows in which attention takes little: what it adds is the machine's, and repeats the error of its series."""
    return [one for one in ran if attended(one.row) <= SHALLOW]


def _spread(rows: Sequence[_Row]) -> dict[str, float]:
    """The spread of each system; all rows count as POOLED ones, a machine as its square root."""
    counts = Counter(row.machine for row in rows)
    every = _likelihood(rows, counts)
    pooled = every * POOLED / sum(counts[row.machine] ** -0.5 for row in rows)
    found = {ANY: _middle_spread(every)}
    for name in sorted({row.system for row in rows}):
        own = _likelihood([row for row in rows if row.system == name], counts)
        found[name] = _middle_spread(own + pooled)
    return found


def _middle_spread(likelihood: NDArray[np.float64]) -> float:
    """The median of SDS, each as likely as the rows make it.

    The likeliest one alone would make intervals too narrow where rows are few.
    """
    share = np.cumsum(np.exp(likelihood - likelihood.max()))
    return float(SDS[np.searchsorted(share / share[-1], 0.5)])


def _likelihood(rows: Iterable[_Row], counts: Counter[str]) -> NDArray[np.float64]:
    """The logarithm of the likelihood of each of SDS."""
    found = np.zeros(len(SDS))
    for row in rows:
        off = min(abs(row.off), MOST)
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


def text(found: Errors, hits: dict[str, float], *, prompt_sd: float, rows: int, inside: float) -> str:
    """The file as it should be. rows, inside: how many were predicted, and the share inside the printed intervals."""
    lines = [HEAD, "[sd]"]
    lines += [f"{name} = {sd:.2f}" for name, sd in found.sd.items()]
    lines += ["", "[shares]", *(f"{name} = {share:.2f}" for name, share in found.shares.items())]
    lines += ["", "[prompts]", f"sd = {prompt_sd:.2f}"]
    lines += ["", "[checked]", f"rows = {rows}", f"inside = {inside:.3f}"]
    lines += ["", "[hits]", *(f"{name} = {value:.2f}" for name, value in hits.items()), ""]
    return "\n".join(lines)


def hits(curve: HitCurve) -> dict[str, float]:
    """How much the odds of a hit differ between texts of one model, between models, and between profiles.

    curve: of LRU banks, fitted on many models.
    """
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
    return {
        "text_sd": _rms(differences),
        "made_sd": curve.sd,
        "profile_lo": float(lo),
        "profile_hi": max(float(hi), 0.0),
    }


def _parts(whole: Workload) -> list[Workload]:
    steps = np.unique(whole.trace.steps)
    ends = [int(steps[round(place)]) for place in np.linspace(0, len(steps) - 1, PARTS + 1)]
    return [prepare(cut(whole.trace, steps=pair), whole.geometry) for pair in itertools.pairwise(ends)]


def _same_text(text: Workload, bank: int, file: Path) -> float:
    """The odds of a hit on the second half of a text with the profile of its first half."""
    middle = int(np.median(np.unique(text.trace.steps)))
    write_store(cut(text.trace, steps=(None, middle)), file, force=True)
    return _odds(prepare(cut(text.trace, steps=(middle, None)), text.geometry), bank, f"static:profile={file}")


def _odds(text: Workload, bank: int, policy: str) -> float:
    """The logarithm of the odds of a hit."""
    hit_rate = replay(text, bank=bank, contract="atomic", policy=policy)["hit_rate"].item()
    return math.log(hit_rate / (1 - hit_rate))


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(fmean(value * value for value in values))
