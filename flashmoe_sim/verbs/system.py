"""`sim system list`, `engines` and `show`: the real systems, and the programs behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.options import option
from flashmoe_sim.verbs.base import Verb

if TYPE_CHECKING:
    from flashmoe_sim.systems.base import System
    from flashmoe_sim.systems.facts import EngineFacts


@dataclass(frozen=True, kw_only=True)
class ListSystems(Verb[list[dict[str, Any]]]):
    """Describe every system."""

    help: ClassVar[str] = "List every system with what it keeps and where its misses go."

    def run(self) -> list[dict[str, Any]]:
        """`describe_system` of each."""
        from flashmoe_sim.describe import describe_system
        from flashmoe_sim.systems.table import SYSTEMS

        return [describe_system(kind) for kind in SYSTEMS.values()]

    def document(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        """What `--json` prints."""
        return {"systems": found}

    def sections(self, found: list[dict[str, Any]]) -> list[Section]:
        """A row for each."""
        rows = [(one["name"], one["keeps"], one["misses"]) for one in found]
        listed = Table([("system", "left"), ("keeps", "left"), ("misses", "left")], rows)
        hint = "`sim system show NAME` gives settings, needs and source; `sim compare` runs them."
        return [Section("", (listed, hint))]


@dataclass(frozen=True, kw_only=True)
class ListEngines(Verb[list[dict[str, Any]]]):
    """The engines by the age of what is known of them, oldest first."""

    help: ClassVar[str] = "List every engine with the day on which its facts were looked up, oldest first."

    def run(self) -> list[dict[str, Any]]:
        """A row for each engine; days: since it was looked up."""
        from datetime import date

        from flashmoe_sim.io.today import today
        from flashmoe_sim.systems.table import SYSTEMS

        day, systems = today(), dict(SYSTEMS.items())
        rows = []
        for name in sorted({kind.program for kind in systems.values()}):
            of = {system: kind for system, kind in systems.items() if kind.program == name}
            facts = next(iter(of.values())).facts_of_engine()
            if facts is None:
                continue
            rows.append(
                {
                    "engine": facts.program,
                    "systems": list(of),
                    "looked_up": facts.looked_up,
                    "days": (day - date.fromisoformat(facts.looked_up)).days,
                    "old": bool(facts.if_old(day)),
                    "state": facts.state.words,
                    "address": None if facts.get is None else facts.get.address,
                }
            )
        return sorted(rows, key=lambda row: (row["looked_up"], row["engine"]))

    def document(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        """What `--json` prints."""
        return {"engines": found}

    def sections(self, found: list[dict[str, Any]]) -> list[Section]:
        """A row for each, and how many are older than three months."""
        rows = [(row["engine"], ", ".join(row["systems"]), row["looked_up"], f"{row['days']:,}") for row in found]
        columns = [("engine", "left"), ("systems", "left"), ("looked up", "left"), ("days ago", "right")]
        old = sum(row["old"] for row in found)
        hint = (
            f"{old or 'None'} of {len(found)} {'is' if old == 1 else 'are'} older than three months. --json has their "
            "addresses and states; `sim system show NAME` names each source."
        )
        return [Section("", (Table(columns, rows), hint))]


@dataclass(frozen=True, kw_only=True)
class ShowSystem(Verb["type[System]"]):
    """Find one system."""

    help: ClassVar[str] = (
        "Show everything about the system NAME: one of `sim system list`, or your own as module:Class."
    )

    name: str = field(kw_only=False, metadata=option("NAME", "", positional=True))

    def run(self) -> type[System]:
        """Its class."""
        from flashmoe_sim.parameters import find
        from flashmoe_sim.systems.base import System
        from flashmoe_sim.systems.table import SYSTEMS

        return find("system", self.name, SYSTEMS, System)

    def document(self, found: type[System]) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.describe import describe_system

        return describe_system(found)

    def sections(self, found: type[System]) -> list[Section]:
        """Its rule, everything else about it, and how to get its engine."""
        from flashmoe_sim.describe import sections, shown_cost, written

        one, facts = self.document(found), found.facts_of_engine()
        lines = [
            ("engine", one["engine"]),
            ("keeps", one["keeps"]),
            ("misses", one["misses"]),
            ("needs", one["needs"] or "any machine"),
            ("source", one["source"]),
            *([] if facts is None else _facts(facts)),
            *(("cost of its own", shown_cost(cost)) for cost in found.costs),
            ("settings", f"given as {one['name']}:key=value" if one["parameters"] else "none"),
            *((f"  {written(key, value)}", one["meanings"][key]) for key, value in one["parameters"].items()),
        ]
        return sections(f"{one['name']}: {one['title']}", one["rule"], lines)


def _facts(facts: EngineFacts) -> list[tuple[str, str]]:
    """What is known of the engine, and how to get it."""
    archs, get = facts.archs, facts.get
    lines = [
        ("looked up", facts.looked_up),
        ("state", f"{facts.state.words} ({facts.state.source})"),
        ("licence", f"{facts.licence.name or 'none in its repository'} ({facts.licence.source})"),
        ("runs on", f"{'; '.join(facts.where()) or 'any system'} ({facts.platform.source})"),
        ("reads", f"{', '.join(facts.formats.quants or facts.formats.reads)} ({facts.formats.source})"),
        ("serves", f"{', '.join(archs.served)} ({archs.source})"),
    ]
    if facts.reported is not None:
        lines.append(("reported", f"{'; '.join(facts.reported.says)} ({facts.reported.source})"))
    if get is None:
        return lines
    return [
        *lines,
        ("address", f"{get.address}{f', branch {get.branch}' if get.branch else ''}"),
        *(("prebuilt", one.words) for one in get.prebuilt),
        *([("how to build it", get.building)] if get.building else []),
        ("weights", get.weights),
        ("read in", get.source),
    ]
