"""`sim trace catalog`: the traces that ship with the program."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.verbs.base import Verb

if TYPE_CHECKING:
    from flashmoe_sim.trace.bundled import BundledTrace


@dataclass(frozen=True)
class TraceCatalog(Verb["list[BundledTrace]"]):
    """The bundled traces."""

    help: ClassVar[str] = "List the bundled traces with their size; every TRACE argument takes their names."

    def run(self) -> list[BundledTrace]:
        """The traces in the order of the catalogue."""
        from flashmoe_sim.trace.bundled import catalog

        return list(catalog().values())

    def document(self, found: list[BundledTrace]) -> dict[str, Any]:
        """What `--json` prints."""
        return {"traces": [{**asdict(entry), "path": str(entry.path)} for entry in found]}

    def sections(self, found: list[BundledTrace]) -> list[Section]:
        """A row for each trace."""
        rows = [
            (one.name, f"{one.tokens:,}", str(one.layers), str(one.experts), str(one.top_k), one.what) for one in found
        ]
        sizes = [(heading, "right") for heading in ("tokens", "layers", "experts", "top-k")]
        columns = [("name", "left"), *sizes, ("what it is", "left")]
        caption = "--json adds licences and sources"
        return [Section("", (Table(columns, rows, caption=caption, dispensable=("top-k", "layers")),))]
