"""`sim policy` and `sim prefetch`, `list` and `show`: the eviction policies and the predictors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.options import option
from flashmoe_sim.verbs.base import Verb


@dataclass(frozen=True, kw_only=True)
class ListPolicies(Verb[list[dict[str, Any]]]):
    """Describe every policy."""

    help: ClassVar[str] = "List every policy with the contracts under which it is defined."

    def run(self) -> list[dict[str, Any]]:
        """`describe` of each."""
        from flashmoe_sim.describe import describe
        from flashmoe_sim.policies.table import POLICIES

        return [describe(policy) for policy in POLICIES.values()]

    def document(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        """What `--json` prints."""
        return {"policies": found}

    def sections(self, found: list[dict[str, Any]]) -> list[Section]:
        """A row for each."""
        from flashmoe_sim.describe import shown_contracts

        rows = [(one["name"], shown_contracts(one["contracts"]), one["summary"]) for one in found]
        listed = Table([("policy", "left"), ("contracts", "left"), ("what it does", "left")], rows)
        hint = (
            "`sim policy show NAME` gives parameters, ties and source. A policy of your own is `mine:Gap`: the "
            "class Gap in mine.py, in the current folder or on Python's path."
        )
        return [Section("", (listed, hint))]


@dataclass(frozen=True, kw_only=True)
class ShowRule(Verb[dict[str, Any]]):
    """Describe one policy or predictor."""

    name: str = field(kw_only=False, metadata=option("NAME", "", positional=True))

    def document(self, found: dict[str, Any]) -> dict[str, Any]:
        """What `--json` prints."""
        return found

    def sections(self, found: dict[str, Any]) -> list[Section]:
        """Its rule, and everything else about it."""
        from flashmoe_sim.describe import sections

        name = found["name"]
        facts = [
            *((fact, found[fact]) for fact in ("ties", "lead") if found[fact]),
            ("contracts", ", ".join(found["contracts"])),
            ("knows the future", "yes" if found["hindsight"] else "no"),
            ("source", found["source"]),
            ("parameters", f"given as {name}:key=value" if found["parameters"] else "none"),
            *((f"  {key}={value}", found["meanings"][key]) for key, value in found["parameters"].items()),
        ]
        return sections(name, found["rule"], facts)


@dataclass(frozen=True, kw_only=True)
class ShowPolicy(ShowRule):
    """Describe one policy."""

    help: ClassVar[str] = (
        "Show everything about the policy NAME: one of `sim policy list`, or your own as module:Class."
    )

    def run(self) -> dict[str, Any]:
        """`describe` of it."""
        from flashmoe_sim.describe import describe
        from flashmoe_sim.parameters import find
        from flashmoe_sim.policies.base import Policy
        from flashmoe_sim.policies.table import POLICIES

        return describe(find("policy", self.name, POLICIES, Policy))


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
