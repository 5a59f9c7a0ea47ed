"""`sim system list`, `show`, `engines` and `new`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict, Exists, Malformed, Unusable
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.options import option, option_field
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

        from flashmoe_sim.io.provenance import today
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


FILES = {  # of the package, by the skeleton's
    "pyproject.toml.txt": "pyproject.toml",
    "system.py.txt": "$module/__init__.py",
    "engine.toml.txt": "$module/$name.toml",
    "test.py.txt": "tests/test_$module.py",
}


@dataclass(frozen=True, kw_only=True)
class NewSystem(Verb[list[Path]]):
    """Write a package with a system of one's own."""

    help: ClassVar[
        str
    ] = """Write a package with a new system, NAME, to start from: an engine that is not in `sim system list`.

    Its system is an example with LRU slots on a GPU until its rule, memory and command are the engine's own. Once it
    is installed (pip install -e ./NAME), `compare`, `recommend` and every other command know it by its name.

    \b
    Examples:  sim system new quick-moe
               sim system new quick-moe --dir ~/engines/quick-moe
    """

    name: str = field(kw_only=False, metadata=option("NAME", "", positional=True))
    folder: Path | None = option_field(
        None, "DIR", "Where the package goes; by default a folder NAME here.", flag="--dir"
    )

    def check(self) -> None:
        """Raise BadInput for a name that cannot be a system's or is one, and for a folder that is there."""
        from flashmoe_sim.systems.table import SYSTEMS

        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", self.name):
            expected = "expected small letters, digits and single hyphens, such as quick-moe"
            raise Malformed(f"system {self.name!r}: {expected}")
        if self.name in [*SYSTEMS]:
            raise Conflict(
                f"system {self.name!r}: is there already, see `sim system show {self.name}`; give another name"
            )
        if self._folder.exists():
            raise Exists(f"{self._folder}: exists; give another folder with --dir")

    @property
    def _folder(self) -> Path:
        return Path(self.name) if self.folder is None else self.folder

    def run(self) -> list[Path]:
        """The files, written."""
        from importlib import resources
        from string import Template
        from tempfile import TemporaryDirectory

        from flashmoe_sim.io.provenance import today

        words = {
            "name": self.name,
            "module": f"{self.name.replace('-', '_')}_system",
            "kind": "".join(part.capitalize() for part in self.name.split("-")),
            "day": today().isoformat(),
        }
        skeleton = resources.files("flashmoe_sim.systems").joinpath("skeleton")
        places = {file: Template(place).substitute(words) for file, place in FILES.items()}
        folder = self._folder
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=folder.parent) as part:
                whole = Path(part) / folder.name
                for file, place in places.items():
                    path = whole / place
                    path.parent.mkdir(parents=True, exist_ok=True)
                    text = skeleton.joinpath(file).read_text("utf-8")
                    path.write_text(Template(text).substitute(words), "utf-8", newline="\n")
                whole.rename(folder)
        except OSError as error:
            raise Unusable(f"{folder}: {error.strerror or error}; give another folder with --dir") from None
        return [folder / place for place in places.values()]

    def document(self, found: list[Path]) -> dict[str, Any]:
        """What `--json` prints."""
        return {"files": [str(path) for path in found]}

    def sections(self, found: list[Path]) -> list[Section]:
        """The files, and what to do with them."""
        _, system, facts, _ = found
        lines = [
            f"{system}: rule, memory and command",
            f"{facts}: what the engine can do",
            f"After `pip install -e .` in that folder every command has the system {self.name}.",
        ]
        return [Section(f"{self.name}: a package in {self._folder}", tuple(lines))]
