"""`sim bridge doctor`: whether a run can be made here, and what is missing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import SimError
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.options import option_field
from flashmoe_sim.verbs.base import Verb
from native_bridge.verbs.base import RUNTIME

if TYPE_CHECKING:
    from native_bridge.engines.base import DoctorFinding


@dataclass(frozen=True, kw_only=True)
class Doctor(Verb["list[DoctorFinding]"]):
    """Check what a run needs here."""

    help: ClassVar[str] = """Check the runtime, the model, its sidecar, memory, disk and processor, and say what to do.

    Exits with 1 if something that a run needs is missing; a warning does not prevent a run.

    \b
    Example: sim bridge doctor --model model.gguf --sidecar sidecar --bank 64
    """

    runtime: str | None = field(default=None, metadata=RUNTIME)
    model: Path | None = option_field(None, "FILE", "The GGUF file to run; default: the bundled small model.")
    sidecar: Path | None = option_field(None, "DIR", "The folder of its sidecar, to be compared byte by byte.")
    bank: int | None = option_field(None, "N", "Also check that a bank of N slots a layer fits into memory.", least=1)

    def run(self) -> list[DoctorFinding]:
        from native_bridge.doctor import examine

        return examine(runtime=self.runtime, model=self.model, sidecar=self.sidecar, bank=self.bank)

    def document(self, found: list[DoctorFinding]) -> dict[str, Any]:
        return {"findings": [asdict(finding) for finding in found]}

    def sections(self, found: list[DoctorFinding]) -> list[Section]:
        rows = [(one.state, one.name, one.found, one.to_do) for one in found]
        return [Section("", (Table([("", "left"), ("what", "left"), ("found", "left"), ("to do", "left")], rows),))]

    def failures(self, found: list[DoctorFinding]) -> list[SimError]:
        missing = [one.name for one in found if one.state == "missing"]
        return [SimError(f"missing for a run: {', '.join(missing)}; the table says what to do")] if missing else []
