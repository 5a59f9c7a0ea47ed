"""How often traces that are made for models without a recording hit, beside published hit rates.

`python -m reports.field.lent` writes lent.csv, in a minute; `./dev report` puts it on the page.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean

import polars as pl

from flashmoe_sim.api import replay
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.sections import signed
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.borrow import MOST_LIKE, lenders, made_like
from flashmoe_sim.trace.cut import cut
from reports.pages import joined, table

TABLE = Path(__file__).with_name("lent.csv")
PUBLISHED = Path(__file__).parents[2] / "data" / "published" / "replayed_hits.csv"
POLICIES = {"lru": "LRU", "half": "a list learned on other text"}
INTRO = """Do they hit as often as the models themselves? [lent.csv](lent.csv) compares {rates} published hit rates of
{models} models with those of made traces. Banks have the same size and runs the same length, and first uses count. A
list is learned on the first half of the made trace and judged on the second. The differences are of the logarithm of
the odds of a hit (+0.5 is 62% instead of 50%); means count each model once. *Alone*: made like {alone} only. `python -m
reports.field.lent` makes the table.
"""


@dataclass(frozen=True)
class Rate:
    """A published hit rate. policy: `lru` or `half`. tokens: of the run, from its start; None if it is long.

    skip: the tokens at its start that do not count.
    """

    name: str
    model: str
    top_k: int
    policy: str
    bank: str
    tokens: int | None
    skip: int
    hit_rate: float


def published() -> list[Rate]:
    """The rates of data/published/replayed_hits.csv."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return [_rate(cells) for cells in csv.DictReader(file)]


def _rate(cells: Mapping[str, str]) -> Rate:
    tokens = int(cells["tokens"]) if cells["tokens"] else None
    of_model = cells["id"], cells["model"], int(cells["top_k"])
    return Rate(*of_model, cells["policy"], cells["bank"], tokens, int(cells["skip"]), float(cells["hit_pct"]) / 100)


def hit_rate(rate: Rate, lent: Sequence[str] | None = None) -> float:
    """The hit rate of a trace made for the model as `sim recommend` makes it, or from the named recordings."""
    workload = _made(rate.model, rate.top_k, None if lent is None else tuple(lent))
    if rate.tokens is not None:
        workload = prepare(cut(workload.trace, steps=(None, rate.tokens)), workload.geometry)
    policy, skip = "lru", rate.skip
    if rate.policy == "half":
        skip = workload.trace.tokens // 2
        policy = f"static:profile=first-{skip}"
    steps = replay(workload, bank=rate.bank, contract="atomic", policy=policy, by="step")[skip:]
    return int(steps["hits"].sum()) / int(steps["requests"].sum())


@lru_cache(maxsize=2)
def _made(model: str, top_k: int, lent: tuple[str, ...] | None) -> Workload:
    geometry = replace(named_model(model), top_k=top_k)
    return made_like(lenders(geometry) if lent is None else lent, geometry)


def rows() -> pl.DataFrame:
    """A row for each published rate: it, that of the made trace, and that of one made from one recording alone."""
    return pl.DataFrame(
        [
            {
                "id": rate.name,
                "model": rate.model,
                "policy": rate.policy,
                "bank": rate.bank,
                "published": rate.hit_rate,
                "made": round(hit_rate(rate), 4),
                "alone": round(hit_rate(rate, [MOST_LIKE]), 4),
            }
            for rate in published()
        ]
    )


def differences(found: pl.DataFrame, policy: str, column: str = "made") -> dict[str, list[float]]:
    """By model, the logarithm of the odds of a hit in a made trace, less the published one."""
    of_policy = found.filter(policy=policy)
    return {
        str(model): [logit(made) - logit(asked) for made, asked in zip(rows[column], rows["published"], strict=True)]
        for (model,), rows in of_policy.group_by("model", maintain_order=True)
    }


def made_sd(text_sd: float) -> float:
    """How much models differ from their made traces in LRU banks, beside what other text changes."""
    return math.sqrt(max(_rms(differences(pl.read_csv(TABLE), "lru")) ** 2 - text_sd**2, 0.0))


def section(found: pl.DataFrame) -> str:
    """The differences by policy and model."""
    intro = INTRO.format(rates=len(found), models=found["model"].n_unique(), alone=MOST_LIKE)
    lines: list[tuple[object, ...]] = []
    for policy, words in POLICIES.items():
        made, alone = (differences(found, policy, column) for column in ("made", "alone"))
        for model, each in made.items():
            like = " and ".join(lenders(named_model(model)))
            lines.append((words, model, len(each), like, signed(fmean(each)), signed(fmean(alone[model]))))
        lines += [
            (words, "**mean**", "", "", f"**{signed(_mean(made))}**", f"**{signed(_mean(alone))}**"),
            (words, "**root mean square**", "", "", f"**{_rms(made):.1f}**", f"**{_rms(alone):.1f}**"),
        ]
    head = ("policy", "model", "rates", "made like", "made - published", "alone")
    return joined(intro, table(head, lines, left=None))


def _mean(by_model: Mapping[str, Sequence[float]]) -> float:
    return fmean(map(fmean, by_model.values()))


def _rms(by_model: Mapping[str, Sequence[float]]) -> float:
    return math.sqrt(fmean(fmean(each**2 for each in of_model) for of_model in by_model.values()))


if __name__ == "__main__":
    rows().write_csv(TABLE)


def logit(share: float) -> float:
    """The logarithm of the odds; a share near 0 or 1 counts as one in ten thousand from it."""
    share = min(max(share, 1e-4), 1 - 1e-4)
    return math.log(share / (1 - share))
