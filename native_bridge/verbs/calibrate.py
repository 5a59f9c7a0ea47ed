"""`sim machine fit` and `sim bridge calibrate`: a machine from recorded runs, from a table, or from new runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.cli.common import message
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, TooLarge, Unusable
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.options import FORCE, MACHINE_OUT, option, option_field
from flashmoe_sim.question import command_line
from flashmoe_sim.verbs.base import Verb
from native_bridge.verbs.base import (
    CACHE_STATES,
    GENERATED,
    PARAMETERS,
    PROMPT,
    TOKENS,
    RunOptions,
    refuse_given,
)

if TYPE_CHECKING:
    from flashmoe_sim.machines.fitting import Contradiction, Fitted
    from flashmoe_sim.machines.machine import Machine, Quantity


@dataclass(frozen=True, kw_only=True)
class Calibrate(RunOptions, Verb["tuple[Fitted, list[Path]]"]):
    """Fit this machine; the result has the folders of its anchors, too."""

    help: ClassVar[str] = """Fit this machine, and write it to a file for --machine.

    It makes three runs, each --repeat times, in turns: one that streams experts (slot-bank) through few slots, one with
    a slot for every expert, and a replay of its trace with all experts resident (oracle-all-hit).
    --parameter request_us adds the first run with another io-split, and weights_gb_s a run with half the experts per
    token. The runs are kept.

    With --from RUN_FOLDER... nothing is run: the anchors are chosen from recorded runs (a folder of run folders will
    do): the one with the most misses, the best all-hit one and, among the other streamed ones, the one with the most
    first fills, with the repeats of each. The rest is like `sim machine fit`.

    \b
    Example: sim bridge calibrate --model big.gguf --cache cold --out mine.toml
             sim bridge calibrate --from runs/ --cache warm --out mine.toml
    """

    folders: tuple[Path, ...] = field(
        default=(), kw_only=False, metadata=option("[RUN_FOLDER]...", "", positional=True)
    )
    first: Path | None = option_field(None, "DIR", "Choose among recorded runs instead of making runs.", flag="--from")
    model: Path | None = option_field(
        None, "FILE", "The GGUF file to run; default: the bundled small model, too small to load a disk."
    )
    out: Path = field(metadata=MACHINE_OUT)
    runs: Path | None = option_field(None, "DIR", "Folder for the runs; default: NAME-runs beside --out.")
    bank: int | None = option_field(
        None, "N", "Slots of the run with few slots; default: a fifth of the experts.", least=1
    )
    cache: str | None = option_field(
        None, "", "State of the page cache; default for new runs: warm.", choices=CACHE_STATES
    )
    repeat: int = option_field(3, "N", "Times to make each run.", least=1)
    tokens: int = field(default=TOKENS, metadata=GENERATED)
    parameters: tuple[str, ...] = field(default=(), metadata=PARAMETERS)
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> tuple[Fitted, list[Path]]:
        from flashmoe_sim.io.whole import refuse_existing
        from flashmoe_sim.machines.fitting import Contradiction, check_parameters
        from native_bridge.check.anchors import uneven_repeats

        refuse_existing(self.out, force=self.force)
        check_parameters(self.parameters)
        model, anchors = self._anchors()
        fit = FitMachine(
            tuple(map(str, anchors)),
            model=None if model is None else str(model),
            parameters=self.parameters,
            out=self.out,
            force=self.force,
        )
        uneven = uneven_repeats(anchors)
        try:
            fitted = fit.run()
        except Contradiction as error:
            raise self._contradiction(error, model, anchors, uneven) from None
        assert not isinstance(fitted, Sharpened)
        if uneven:
            fitted = replace(fitted, notes=(*fitted.notes, f"the machine was busy: {uneven}"))
        return fitted, anchors

    def _contradiction(
        self, error: Contradiction, model: Path | None, anchors: Sequence[Path], uneven: str
    ) -> Contradiction:
        """The same error with the cause that the repeats show, and a way on."""
        from native_bridge.check.anchors import fastest_repeats
        from native_bridge.engines.read import fit_runs

        again = "record them again" if self.first else "give the same command with --force"
        if not uneven:
            return type(error)(f"{error}, or {again} on a quiet machine")
        fastest, of = fastest_repeats(anchors), None if model is None else str(model)
        words = ["sim", "bridge", "calibrate", "--from", *map(str, fastest), *(["--model", of] if of else [])]
        try:
            fit_runs(fastest, name="", command="", model=of, parameters=self.parameters)
            kept = f"; or fit the fastest of each: {shlex.join([*words, '--out', str(self.out)])}"
        except BadInput:
            kept = ""
        return type(error)(f"the machine was busy: {uneven}; stop other programs and {again}{kept}")

    def _anchors(self) -> tuple[Path | None, list[Path]]:
        """The model of the anchors, if it is known, and their folders."""
        from native_bridge.check.anchors import anchors_among

        if self.first is not None:
            refuse_given(self, ("runtime", "runs", "bank"), "with --from: nothing is run; leave one of them out")
            given = [self.first, *self.folders]
            model = None if self.model is None else str(self.model)
            return self.model, anchors_among(given, model=model, cache=self.cache, parameters=self.parameters)
        if self.folders:
            first = self.folders[0]
            raise Incomplete(f"{first}: a folder without --from; give --from {first} to fit on recorded runs")
        return self._made()

    def _made(self) -> tuple[Path, list[Path]]:
        """The runs of the engine's `calibration`, each `repeat` times in turns, which are kept.

        Raises BadInput for impossible runs, such as an all-hit run of a model whose experts do not fit into memory, and
        SimError if a run fails.
        """
        from flashmoe_sim.geometry.gguf import read_gguf
        from flashmoe_sim.io.sizes import size
        from native_bridge import host
        from native_bridge.fixture import bundled_model
        from native_bridge.repeats import plan, run_name

        model, cache = self.model or bundled_model(), self.cache or "warm"
        place = self.runs or self.out.with_name(f"{self.out.stem}-runs")
        series = self.series(model, place, cache=cache, force=self.force)
        geometry, engine = read_gguf(model), series.engine
        needed, free = geometry.routed_bytes + (geometry.dense_bytes or 0), host.free_ram_bytes()
        if needed > free:
            raise TooLarge(
                f"{model}: its weights take {size(needed)} for the run whose experts are all resident, and "
                f"{size(free)} of memory are free; give a smaller model: the machine is fitted, not it"
            )
        requests = engine.calibration(
            geometry,
            bank=self.bank,
            parameters=self.parameters,
            prompt=PROMPT,
            n_predict=self.tokens,
            **self.of_request(),
        )
        if cache == "cold" and any(not engine.modes[request.mode].slots for request in requests):
            raise Conflict(
                "--parameter weights_gb_s makes a run of stock, whose experts are read while it decodes if the page "
                "cache is cold; give --cache warm"
            )
        planned = plan(requests, place, modes=engine.modes, repeat=self.repeat)
        series.check(planned)
        names = ", ".join(run_name(request, engine.modes[request.mode]) for request in requests)
        times = f", {self.repeat} times in turns" if self.repeat > 1 else ""
        message(f"{len(planned)} runs of {geometry.name} in {place}, page cache {cache}: {names}{times}")
        return model, series.run_whole(planned)

    def document(self, found: tuple[Fitted, list[Path]]) -> dict[str, Any]:
        from native_bridge.fitted_sections import document

        fitted, anchors = found
        return {"runs": [str(anchor) for anchor in anchors]} | document(fitted, self.out)

    def sections(self, found: tuple[Fitted, list[Path]]) -> list[Section]:
        from native_bridge.fitted_sections import sections

        fitted, anchors = found
        return [*sections(fitted), Section("", (f"fitted on {', '.join(map(str, anchors))}",))]

    def notes(self, found: tuple[Fitted, list[Path]]) -> list[str]:
        return [f"wrote {self.out}"]


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
        from flashmoe_sim.machines.load import load_machine
        from flashmoe_sim.machines.normal_unknowns import LEARNT
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
        from native_bridge.fitted_sections import document

        if not isinstance(found, Sharpened):
            return document(found, self.out)
        rows = [{"path": path, "before": asdict(one), "after": asdict(new)} for path, one, new in found.changed]
        return {"machine": str(self.out), "learnt": list(found.notes), "quantities": rows}

    def sections(self, found: Fitted | Sharpened) -> list[Section]:
        from flashmoe_sim.io.sizes import plain
        from native_bridge.fitted_sections import ends, sections

        if not isinstance(found, Sharpened):
            return sections(found)
        columns = [("", "left"), *((heading, "right") for heading in ("before", "90%", "after", "90% after"))]
        rows = [(path, plain(one.value), ends(one), plain(new.value), ends(new)) for path, one, new in found.changed]
        return [Section("", (Table(columns, rows), *found.notes))]

    def notes(self, found: Fitted | Sharpened) -> list[str]:
        return [f"wrote {self.out}"]
