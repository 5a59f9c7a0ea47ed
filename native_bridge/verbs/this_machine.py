"""`sim machine this`, which can also measure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.options import FORCE, option_field
from flashmoe_sim.verbs.this_machine import ThisMachine
from native_bridge.verbs.base import refuse_given
from native_bridge.verbs.probe import Probe

if TYPE_CHECKING:
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.machines.here.read import Here


@dataclass(frozen=True, kw_only=True)
class ThisMachineMeasured(ThisMachine):
    """Find the machine that this process runs on, and with --probe measure it too."""

    probe: bool = option_field(False, "", "Also measure it for a minute, and write --out, a file for --machine.")
    folder: Path | None = option_field(None, "DIR", "With --probe: a folder on the disk of the models.")
    out: Path | None = option_field(None, "FILE", "With --probe: the machine's file to write, a .toml.")
    force: bool = field(default=False, metadata=FORCE)

    def check(self) -> None:
        """Raise BadInput for --probe without a folder and a file, and for these without it."""
        if not self.probe:
            refuse_given(self, ["folder", "out", "force"], "without --probe: nothing is measured; add --probe")
        elif self.folder is None or self.out is None:
            raise Incomplete("--probe needs --folder, on the disk of the models, and --out, the file to write")

    def run(self) -> Here:
        """The machine, measured if that is asked for."""
        found = super().run()
        if not self.probe:
            return found
        from native_bridge.probe.here import MeasuredHere

        measured = self._probe().run()
        return MeasuredHere(**{item.name: getattr(found, item.name) for item in fields(found)}, measured=measured)

    def document(self, found: Here) -> dict[str, Any]:
        """What was seen, and under `probe` what was measured."""
        measured = getattr(found, "measured", None)
        return super().document(found) | ({} if measured is None else {"probe": self._probe().document(measured)})

    def sections(self, found: Here) -> list[Section]:
        """What was seen, then what was measured."""
        measured = getattr(found, "measured", None)
        return [*super().sections(found), *([] if measured is None else self._probe().sections(measured))]

    def _probe(self) -> Probe:
        assert self.out is not None
        return Probe(folder=self.folder, out=self.out, force=self.force)
