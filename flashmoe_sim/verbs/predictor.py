"""`sim prefetch list` and `show`: the predictors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.verbs.base import Verb
from flashmoe_sim.verbs.policy import ShowRule


@dataclass(frozen=True, kw_only=True)
class ListPredictors(Verb[list[dict[str, Any]]]):
    """Describe every predictor."""

    help: ClassVar[str] = "List every predictor with its lead: how long before its use an expert is predicted."

    def run(self) -> list[dict[str, Any]]:
        """`describe` of each."""
        from flashmoe_sim.describe import describe
        from flashmoe_sim.prefetchers.table import PREFETCHERS

        return [describe(predictor) for predictor in PREFETCHERS.values()]

    def document(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        """What `--json` prints."""
        return {"predictors": found}

    def sections(self, found: list[dict[str, Any]]) -> list[Section]:
        """A row for each."""
        rows = [(one["name"] + "*" * one["hindsight"], one["lead"] or "-", one["summary"]) for one in found]
        columns = (("predictor", "left"), ("lead", "left"), ("what it does", "left"))
        hint = (
            "`sim prefetch show NAME` gives parameters and source. A predictor of your own is `mine:Guess`: the "
            "class Guess in mine.py, in the current folder or on Python's path."
        )
        return [Section("", (Table(columns, rows, caption="*: knows the future"), hint))]


@dataclass(frozen=True, kw_only=True)
class ShowPredictor(ShowRule):
    """Describe one predictor."""

    help: ClassVar[str] = (
        "Show everything about the predictor NAME: one of `sim prefetch list`, or your own as module:Class."
    )

    def run(self) -> dict[str, Any]:
        """`describe` of it."""
        from flashmoe_sim.describe import describe
        from flashmoe_sim.parameters import find
        from flashmoe_sim.prefetchers.base import Prefetcher
        from flashmoe_sim.prefetchers.table import PREFETCHERS

        return describe(find("predictor", self.name, PREFETCHERS, Prefetcher))
