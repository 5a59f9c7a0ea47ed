"""`sim machine fit`: a machine from recorded runs, or from rows of a published table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.cli.common import message
from flashmoe_sim.io.errors import Conflict, Incomplete, Unusable
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.options import FORCE, MACHINE_OUT, option, option_field
from flashmoe_sim.question import command_line
from flashmoe_sim.verbs.base import Verb
from native_bridge.verbs.base import PARAMETERS, refuse_given

if TYPE_CHECKING:
    from flashmoe_sim.machines.fitting import Fitted
    from flashmoe_sim.machines.machine import Machine, Quantity


@dataclass(frozen=True)
class Sharpened:
    """A machine before and after measured speeds."""

    before: Machine
    after: Machine

    @property
    def changed(self) -> list[tuple[str, Quantity, Quantity]]:
        old = dict(self.before.quantities())
        return [(path, old[path], new) for path, new in self.after.quantities() if new != old[path]]

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.after.learnt is None else self.after.learnt.notes


@dataclass(frozen=True, kw_only=True)
class FitMachine(Verb["Fitted | Sharpened"]):
    """Fit a machine on anchors, or on speeds measured on it."""

    help: ClassVar[str] = """Fit a machine on ANCHORS, and write it to a file for --machine.

    With --machine, ANCHORS are speeds measured on it: files that an engine or llama-bench printed, or texts such as
    "placed:cpu_layers=24=28.1". The file keeps what they taught, so that later commands need no --measured.

    ANCHORS are folders of runs of the patched runtime on one machine: run.json, log.txt and, if the run streamed,
    trace.jsonl.gz. At least two are needed, ideally a streamed one (slot-bank) and an all-hit one (oracle-all-hit or
    stock). Do
    not fit on the run that you want to predict.

    Or ANCHORS is one CSV file, with a --row for each anchor: columns decode_tok_s or tok_s, misses_per_call or
    hit_pct, and condition.

    Runs must be of one kind, all with a cold page cache or all with a warm one; files among the folders are left out.

    It fits layer_us and read_gb_s; resume_us if one run streams and one does not; first_touch_gb_s if an all-hit run
    records how long its bank took to fill; and pinned_gb_s if there are uploads. --parameter adds request_us (needs
    runs with two values of --moe-cache-io-split) or weights_gb_s (two values of --moe-topk).

    \b
    Example: sim machine fit bench.json --model gpt-oss-120b \\
                 --machine "rtx-3060 + 64GiB" --out mine.toml
             sim machine fit runs/bank12 runs/allhit --out mine.toml
             sim machine fit table.csv --row bank=16 --row bank=128 \\
                 --model qwen3.5-35b-a3b:ud-iq2_m --out published.toml
    """

    anchors: tuple[str, ...] = field(kw_only=False, metadata=option("ANCHORS...", "", positional=True))
    model: str | None = option_field(
        None,
        "SPEC",
        "The model that ran: a manifest, sidecar folder, GGUF file or name; default: a manifest.json beside the runs.",
    )
    rows: tuple[str, ...] = option_field(
        (), "COLUMN=VALUE", "A row of the table; give one for each anchor.", flag="--row"
    )
    top_k: int | None = option_field(
        None, "K", "Experts a token of the table's rows; else its column topk.", flag="--topk", least=1
    )
    machine: str | None = option_field(
        None,
        "X",
        "With measured speeds: the machine on which they were measured, a name from `sim machine list`, a file, "
        "or parts.",
    )
    parameters: tuple[str, ...] = field(default=(), metadata=PARAMETERS)
    out: Path = field(metadata=MACHINE_OUT)
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> Fitted | Sharpened:
        from flashmoe_sim.io.whole import refuse_existing
        from flashmoe_sim.machines.write import write_machine

        refuse_existing(self.out, force=self.force)
        found = self._fitted() if self.machine is None else self._learnt(self.machine)
        write_machine(found.after if isinstance(found, Sharpened) else found.machine, self.out, force=self.force)
        return found

    def _learnt(self, machine: str) -> Sharpened:
        from flashmoe_sim.geometry.load import load_model
        from flashmoe_sim.machines.learnt import LEARNT
        from flashmoe_sim.machines.load import load_machine
        from flashmoe_sim.measured.learn import learn_from

        if self.rows or self.top_k is not None or self.parameters:
            raise Conflict("--machine: measured speeds take no --row, --topk or --parameter; leave them out")
        before = load_machine(machine)
        after = learn_from(self.anchors, before, model=None if self.model is None else load_model(self.model))
        notes = [] if after.learnt is None else after.learnt.notes[len(before.learnt.notes) if before.learnt else 0 :]
        if not any(note.startswith(LEARNT) for note in notes):
            raise Unusable(f"no speed taught anything: {'; '.join(notes[:2])}")
        return Sharpened(before, replace(after, name=self.out.stem or "measured"))

    def _fitted(self) -> Fitted:
        from flashmoe_sim.machines.fitting import fit_rows
        from native_bridge.engines.read import fit_runs

        name, command, first = self.out.stem or "fitted", command_line("machine fit", self), self.anchors[0]
        if not self.rows:
            refuse_given(self, ("top_k",), "without --row; a run records its own top-k; leave it out")
            if table := next((anchor for anchor in self.anchors if anchor.lower().endswith(".csv")), None):
                raise Incomplete(f"{table}: a table without --row; choose its rows: --row bank=16 --row bank=128")
            return fit_runs(self._folders(), name=name, command=command, model=self.model, parameters=self.parameters)
        if len(self.anchors) != 1:
            raise Conflict(
                f"{len(self.anchors)} anchors with --row; expected one CSV file, of which the rows are the anchors"
            )
        if self.model is None:
            raise Incomplete(f"{first}: a table does not give layers and bytes; give --model")
        return fit_rows(
            first,
            self.rows,
            name=name,
            command=command,
            model=self.model,
            top_k=self.top_k,
            parameters=self.parameters,
        )

    def _folders(self) -> list[str]:
        """The anchors without files, such as the README.md that `runs/*` includes."""
        files = [anchor for anchor in self.anchors if Path(anchor).is_file()]
        if len(files) == len(self.anchors):
            return files
        for file in files:
            message(f"{file}: not the folder of a run; left out")
        return [anchor for anchor in self.anchors if anchor not in files]

    def document(self, found: Fitted | Sharpened) -> dict[str, Any]:
        from native_bridge import fitted

        if not isinstance(found, Sharpened):
            return fitted.document(found, self.out)
        rows = [{"path": path, "before": asdict(one), "after": asdict(new)} for path, one, new in found.changed]
        return {"machine": str(self.out), "learnt": list(found.notes), "quantities": rows}

    def sections(self, found: Fitted | Sharpened) -> list[Section]:
        from flashmoe_sim.io.numbers import plain
        from native_bridge import fitted

        if not isinstance(found, Sharpened):
            return fitted.sections(found)
        columns = [("", "left"), *((heading, "right") for heading in ("before", "90%", "after", "90% after"))]
        rows = [
            (path, plain(one.value), fitted.ends(one), plain(new.value), fitted.ends(new))
            for path, one, new in found.changed
        ]
        return [Section("", (Table(columns, rows), *found.notes))]

    def notes(self, found: Fitted | Sharpened) -> list[str]:
        return [f"wrote {self.out}"]
