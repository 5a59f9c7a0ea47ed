"""`sim bridge calibrate`: a machine from runs made for it, or from recorded ones."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.cli.common import message
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, TooLarge
from flashmoe_sim.io.sections import Section
from flashmoe_sim.options import FORCE, MACHINE_OUT, option, option_field
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
        from native_bridge.verbs.fit import FitMachine, Sharpened

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
        from native_bridge.fitted import document

        fitted, anchors = found
        return {"runs": [str(anchor) for anchor in anchors]} | document(fitted, self.out)

    def sections(self, found: tuple[Fitted, list[Path]]) -> list[Section]:
        from native_bridge.fitted import sections

        fitted, anchors = found
        return [*sections(fitted), Section("", (f"fitted on {', '.join(map(str, anchors))}",))]

    def notes(self, found: tuple[Fitted, list[Path]]) -> list[str]:
        return [f"wrote {self.out}"]
