"""`sim machine this`: the computer that the program runs on, as parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Command, Item, Section, Table
from flashmoe_sim.verbs.base import Verb

if TYPE_CHECKING:
    from flashmoe_sim.machines.here.read import Here


@dataclass(frozen=True, kw_only=True)
class ThisMachine(Verb["Here"]):
    """Find the machine that this process runs on."""

    help: ClassVar[str] = """Show this computer as parts, to paste after --machine, and how each is known.

    It reads the system's files and asks the drivers' programs, at most two seconds; nothing is measured or sent. What
    cannot be seen is a guess, which is named with its effect. --machine this takes the same machine, and
    --machine "this + nvme-gen4" adds or changes a part.

    \b
    Example: sim machine this
             sim recommend gpt-oss-120b --machine this
    """

    def run(self) -> Here:
        """The machine."""
        from flashmoe_sim.machines.here.collect import here

        return here()

    def document(self, found: Here) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "parts": found.spelling,
            "seen": [asdict(one) for one in found.fields],
            "machine": asdict(found.machine),
        }

    def sections(self, found: Here) -> list[Section]:
        """Its parts in a line, what was seen and where, and what was not."""
        rows = [(one.name, one.value, one.source) for one in found.fields if one.value]
        table = Table([("seen", "left"), ("", "left"), ("by", "left")], rows)
        told = [Item(f"{one.name}: {one.effect}", 2) for one in found.fields if one.effect]
        return [Section("", (Command(found.spelling), table, *told))]
