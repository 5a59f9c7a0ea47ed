"""`sim notebook`: copies the notebooks that ship with the program, and opens them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from flashmoe_sim.io.errors import Unusable, unknown_name
from flashmoe_sim.io.sections import Section, Table, Verbatim
from flashmoe_sim.options import FORCE, option, option_field
from flashmoe_sim.verbs.base import Verb


@dataclass(frozen=True)
class Notebook:
    """A notebook that ships with the program. question: its title."""

    name: str
    question: str


@dataclass(frozen=True)
class CopiedNotebooks:
    """known: all notebooks. copied, kept: files that were written, and that were there already."""

    known: Sequence[Notebook]
    copied: Sequence[Path] = ()
    kept: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True)
class CopyNotebooks(Verb[CopiedNotebooks]):
    """Copy notebooks, and open them."""

    help: ClassVar[str] = """Copy the notebooks, and open them in JupyterLab.

    NAME, or its beginning, is from `sim notebook --list`; default: all. An existing notebook is kept,
    with your changes. --json copies and opens nothing.

    \b
    Examples:  sim notebook
               sim notebook 03 --dir study
    """

    name: str | None = field(default=None, kw_only=False, metadata=option("[NAME]", "", positional=True))
    folder: Path = option_field(Path("notebooks"), "DIR", "Where the copies go.", flag="--dir")
    listed: bool = option_field(False, "", "List the notebooks with their questions, and copy none.", flag="--list")
    no_open: bool = option_field(False, "", "Only copy.")
    force: bool = field(default=False, metadata=FORCE)

    def check(self) -> None:
        """Raise BadInput for a file in the folder's place."""
        if self.folder.exists() and not self.folder.is_dir():
            raise Unusable(f"{self.folder}: is not a folder; give another folder for the notebooks")

    def run(self) -> CopiedNotebooks:
        """Copy those that are chosen and not there."""
        from flashmoe_sim.io.whole import atomic_writer
        from flashmoe_sim.trace.bundled import bundled_folder

        shipped = bundled_folder() / "notebooks"
        known = notebooks(shipped)
        if self.listed:
            return CopiedNotebooks(known)
        copied: list[Path] = []
        kept: list[Path] = []
        chosen = known if self.name is None else [_find(self.name, known)]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unusable(f"{self.folder}: {error.strerror or error}; give another folder with --dir") from None
        for one in chosen:
            path = self.folder / f"{one.name}.ipynb"
            if path.exists() and not self.force:
                kept.append(path)
                continue
            with atomic_writer(path, force=self.force) as out:
                out.write((shipped / path.name).read_bytes())
            copied.append(path)
        return CopiedNotebooks(known, copied, kept)

    def document(self, found: CopiedNotebooks) -> dict[str, Any]:
        """What `--json` prints."""
        if self.listed:
            return {"notebooks": [asdict(one) for one in found.known]}
        return {"copied": [str(path) for path in found.copied], "kept": [str(path) for path in found.kept]}

    def sections(self, found: CopiedNotebooks) -> Iterator[Section]:
        """The notebooks, or what was copied, which is then opened."""
        if self.listed:
            rows = [(one.name, one.question) for one in found.known]
            yield Section("", (Table([("notebook", "left"), ("what it asks", "left")], rows),))
            return
        lines = [f"copied {path}" for path in found.copied]
        lines += [f"kept {path}: it was there already; --force copies it again" for path in found.kept]
        yield Section("", tuple(map(Verbatim, lines)))
        if not self.no_open and _has_jupyterlab():
            import subprocess
            import sys

            place = self.folder if self.name is None else [*found.copied, *found.kept][0]
            subprocess.run([sys.executable, "-m", "jupyterlab", str(place)], check=False)

    def notes(self, found: CopiedNotebooks) -> list[str]:
        """What opening them needs, if it is not there."""
        if self.listed or self.no_open or _has_jupyterlab():
            return []
        command = "pip install '.[notebook]'"
        return [f"opening them needs the package jupyterlab: {command}; any other Jupyter will do"]


def _has_jupyterlab() -> bool:
    from importlib.util import find_spec

    return find_spec("jupyterlab") is not None


def notebooks(folder: Path) -> list[Notebook]:
    """The notebooks of a folder with their titles, from the first cell."""
    found = []
    for path in sorted(folder.glob("*.ipynb")):
        first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
        found.append(Notebook(path.stem, first.partition("\n")[0].removeprefix("# ")))
    return found


def _find(name: str, known: list[Notebook]) -> Notebook:
    meant = [one for one in known if one.name.startswith(name)]
    if len(meant) != 1:
        raise unknown_name("notebook", name, [one.name for one in known])
    return meant[0]
