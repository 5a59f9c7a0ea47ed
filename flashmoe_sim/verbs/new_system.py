"""`sim system new`: a package for an engine that this program does not have."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from flashmoe_sim.io.errors import Conflict, Exists, Malformed, Unusable
from flashmoe_sim.io.sections import Section
from flashmoe_sim.options import option, option_field
from flashmoe_sim.verbs.base import Verb

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

        from flashmoe_sim.io.today import today

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
