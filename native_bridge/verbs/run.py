"""`sim bridge run`; and `sim replay`, with a note that comes from the log of a recorded run."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.cli.common import message
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, SimError
from flashmoe_sim.io.sections import Column, Section, percent, table
from flashmoe_sim.options import FORCE, option, option_field
from flashmoe_sim.verbs.base import Verb
from flashmoe_sim.verbs.replay import Replay
from native_bridge.engines.table import ENGINES
from native_bridge.verbs.base import CACHE, GENERATED, TOKENS, RunOptions, read_prompt, running

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.machine import Machine
    from native_bridge.engines.base import Mode
    from native_bridge.engines.runs import Run
    from native_bridge.repeats import Planned, Series


PROMPT = (
    "The runtime keeps a small bank of resident experts for every layer. When a token asks for an expert that is not "
    "in the bank, the bytes are read from disk and copied into a slot before the layer can run."
)
PREFETCHES = tuple(dict.fromkeys(name for engine in ENGINES.values() for name in engine.prefetches))


@dataclass(frozen=True)
class Done:
    """Every run, or why it failed. title: of their table."""

    outcomes: list[tuple[Planned, Run | SimError]]
    title: str

    @property
    def failed(self) -> list[SimError]:
        return [outcome for _, outcome in self.outcomes if isinstance(outcome, SimError)]


@dataclass(frozen=True, kw_only=True)
class RunEngine(RunOptions, Verb[Done]):
    """Run the runtime, and keep each run in a folder."""

    help: ClassVar[
        str
    ] = """Run the patched llama.cpp in every given mode, at every given bank; keep each run in a folder.

    Modes: stock (all experts resident), resident-bank, resident-slot-bank, slot-bank (experts are read from the
    sidecar), oracle-all-hit and oracle-prefetch (both replay the trace of a slot-bank run).

    A folder has run.json, log.txt, trace.jsonl.gz and text.txt, which `sim machine fit` and `sim sweep` read.

    With --cache warm the files of the experts are read before every run; with cold they are dropped from the page
    cache, and a run whose cache was not cold is refused. With --repeat all runs are made once, then all again.

    Flags of the runtime without an option here come after --, and are recorded: such as -- -fa off --no-mmap. If the
    same command is run again, it keeps the runs that it has made, and makes the others.

    \b
    Example: sim bridge run --out runs --mode stock,slot-bank,oracle-all-hit \\
                 --bank 16,32
    """

    flags: tuple[str, ...] = field(
        default=(), kw_only=False, metadata=option("[-- RUNTIME_FLAGS]...", "", positional=True)
    )
    model: Path | None = option_field(None, "FILE", "The GGUF file; default: the bundled small model.")
    out: Path = field(metadata=option("DIR", "The folder for the runs, one folder each."))
    modes: str = option_field("slot-bank", "A,B,…", "The modes to run.", flag="--mode")
    banks: str | None = option_field(
        None, "16,24,…", "Slots of each layer, for the modes that have a bank.", flag="--bank"
    )
    top_k: int | None = option_field(None, "K", "Experts a token; by default the model's own.", flag="--topk", least=1)
    ubatch: int = option_field(1, "N", "Tokens of a micro-batch.", least=1)
    prefetch: str | None = option_field(
        None, "", "The runtime's prefetch, in modes that have a bank.", choices=PREFETCHES
    )
    io_split: int | None = option_field(
        None, "N", "Chunks that a read is cut into; the runtime's own is 4.", least=1, most=8
    )
    prompt: str | None = option_field(None, "TEXT", "The prompt.")
    prompt_file: Path | None = option_field(None, "FILE", "A file with the prompt.")
    seed: int = option_field(1, "N", "Seed of its random choices.", least=0)
    tokens: int = field(default=TOKENS, metadata=GENERATED)
    replay: Path | None = option_field(
        None, "DIR", "The run that the oracle modes replay, instead of one of this command."
    )
    repeat: int = option_field(1, "N", "Times to repeat all runs.", least=1)
    cache: str = field(default="warm", metadata=CACHE)
    timeout: float = option_field(3600.0, "S", "Time limit of a run, in seconds.", least=1)
    force: bool = field(default=False, metadata=FORCE)

    def run(self) -> Done:
        from flashmoe_sim.geometry.gguf import read_gguf
        from native_bridge.engines.base import RunRequest
        from native_bridge.repeats import plan, requests_of

        series = self._series()
        modes = series.engine.modes
        traced = [name for name, mode in modes.items() if mode.traced]
        text, given = self._prompt(), self.of_request()

        def make(mode: str, bank: int) -> RunRequest:
            return RunRequest(
                mode,
                bank,
                text,
                n_predict=self.tokens,
                ubatch=self.ubatch,
                batch=max(64, self.ubatch),
                top_k=self.top_k or 0,
                prefetch=self.prefetch if mode in traced else None,
                io_split=self.io_split,
                seed=self.seed,
                prompt_file=self.prompt_file,
                extra=self.flags,
                **given,
            )

        names = tuple(dict.fromkeys(name.strip() for name in self.modes.split(",")))
        if self.prefetch is not None and (without := [name for name in names if name not in traced]):
            if len(without) == len(names):
                raise Conflict(
                    f"--prefetch {self.prefetch}: no given mode supports it; add {' or '.join(traced)}, or leave it out"
                )
            message(f"{', '.join(without)}: without --prefetch, which only {' and '.join(traced)} have")
        requests = requests_of(names, _banks(self.banks), read_gguf(series.model), make, modes=modes)
        planned = plan(requests, self.out, modes=modes, repeat=self.repeat, replay=self.replay)
        geometry = series.check(planned)
        if unknown := series.engine.unknown_effect(self.flags):
            message(f"{unknown}: `sim bridge check` does not compare these runs")
        there = [series.there(one) for one in planned]
        if any(there):
            reused, again = there.count("run"), there.count("failed")
            message(f"reusing {reused} of {len(planned)} runs, repeating {again} that failed")
        self._announce(planned[: len(requests)], geometry, modes)
        with running(len(geometry.layers)) as progress:
            outcomes = list(series.run_each(planned, progress))
        return Done(outcomes, f"{geometry.name}, {self.cache} page cache")

    def _series(self) -> Series:
        from native_bridge.fixture import bundled_model

        if self.model is None and self.sidecar is not None:
            raise Incomplete(f"{self.sidecar}: a sidecar without its model; give --model, too")
        how: dict[str, Any] = {"cache": self.cache, "timeout_s": self.timeout, "force": self.force}
        return self.series(self.model or bundled_model(), self.out, **how)

    def _prompt(self) -> str:
        if self.prompt_file is None:
            return PROMPT if self.prompt is None else self.prompt
        if self.prompt is not None:
            raise Conflict("--prompt and --prompt-file; give one of them")
        return read_prompt(self.prompt_file)

    def _announce(self, once: Sequence[Planned], model: ModelGeometry, modes: Mapping[str, Mode]) -> None:
        names = ", ".join(one.name for one in once)
        times = f", {self.repeat} times over" if self.repeat > 1 else ""
        count = len(once) * self.repeat
        plan = f"{count} run{'s' * (count > 1)} of {model.name}, page cache {self.cache}: {names}{times}"
        for line in textwrap.wrap(plan, 75, break_on_hyphens=False):
            message(line)
        for one in (one for one in once if modes[one.request.mode].banked):
            request = one.request
            experts = max(layer.n_experts for layer in model.layers.values())
            union = min(experts, request.ubatch * (request.top_k or model.top_k))
            if union > request.bank:
                message(
                    f"{one.name}: {request.ubatch} tokens may ask for {union} experts; a run in which they do fails"
                )

    def document(self, found: Done) -> dict[str, Any]:
        return {"runs": [_document(one, outcome) for one, outcome in found.outcomes]}

    def sections(self, found: Done) -> list[Section]:
        """A row per request, with the median of its repeats, and its tokens if any run has too few."""
        by_name: dict[str, list[Run]] = {}
        for one, outcome in found.outcomes:
            if not isinstance(outcome, SimError):
                by_name.setdefault(one.name, []).append(outcome)
        if not by_name:
            return []
        columns: list[Column] = [
            ("mode", "left", lambda runs: runs[0].mode),
            ("bank", "right", lambda runs: str(runs[-1].bank) if runs[-1].does.slots else "-"),
            ("hit %", "right", lambda runs: percent(_hit_rate(runs[-1]))),
            ("tok/s", "right", lambda runs: f"{median(_speeds(runs)):.1f}"),
        ]
        if any(len(runs) > 1 for runs in by_name.values()):
            columns.append(("lo to hi", "right", lambda runs: f"{min(_speeds(runs)):.1f} to {max(_speeds(runs)):.1f}"))
        columns.append(("prompt tok/s", "right", lambda runs: f"{median(each.log.prompt_tok_s for each in runs):.1f}"))
        if any((_fewest(runs) or self.tokens) < self.tokens for runs in by_name.values()):
            columns.append(
                ("tokens", "right", lambda runs: f"{least} of {self.tokens}" if (least := _fewest(runs)) else "-")
            )
        return [Section("", (table(columns, by_name.values(), title=found.title),))]

    def failures(self, found: Done) -> list[SimError]:
        return found.failed


def _banks(text: str | None) -> tuple[int, ...]:
    from flashmoe_sim.policies.bank import parse_banks

    if text is None:
        return ()
    if not all(end.isascii() and end.isdigit() and int(end[:9]) for end in re.split(r",|\.\.", text.replace(" ", ""))):
        raise Malformed(f"--bank {text}: the runtime counts a bank in slots of each layer, from 1; give such as 16,32")
    return tuple(bank.slots or 0 for bank in parse_banks(text))


def _speeds(runs: Sequence[Run]) -> list[float]:
    return [each.log.decode_tok_s for each in runs]


def _fewest(runs: Sequence[Run]) -> int | None:
    """The fewest tokens that one of the runs generated; None if none of their routed calls say."""
    return min((count for each in runs if (count := _tokens(each)) is not None), default=None)


def _tokens(run: Run) -> int | None:
    """The number of generated tokens; None if its routed calls do not say."""
    tokens = run.document.get("tokens")
    return tokens if isinstance(tokens, int) else None


def _hit_rate(run: Run) -> float | None:
    routed = run.log.routed
    return 1 - routed.misses / routed.requests if routed is not None and routed.requests else None


def _document(one: Planned, outcome: Run | SimError) -> dict[str, Any]:
    """The result of a run, or why it failed."""
    document: dict[str, Any] = {
        "folder": str(one.folder),
        "mode": one.request.mode,
        "bank": one.request.bank,
        "replay_of": str(one.replay) if one.replay is not None else None,
    }
    if isinstance(outcome, SimError):
        return document | {"failed": str(outcome)}
    return document | {
        "failed": None,
        "hit_rate": _hit_rate(outcome),
        "tokens": _tokens(outcome),
        "tokens_wanted": outcome.n_predict,
        "decode_tok_s": outcome.log.decode_tok_s,
        "prompt_tok_s": outcome.log.prompt_tok_s,
        "gpu_layers": outcome.log.gpu_layers,
        "bank_in": outcome.log.placement.bank,
        "memory": [asdict(memory) for memory in outcome.log.placement.memory],
    }


@dataclass(frozen=True, kw_only=True)
class ReplayRecorded(Replay):
    """Replay, and say first if the recorded run did not use the machine's link."""

    def check(self) -> None:
        """Raise BadInput as `Replay` does, and print the note."""
        super().check()
        if self.machine is None:
            return
        from flashmoe_sim.verbs.given import machine_of

        if note := host_bank(Path(str(self.trace)), machine_of(self.machine)):
            message(note)


def host_bank(trace: Path, machine: Machine) -> str | None:
    """A note if the trace comes from a run whose log shows that it did not use the machine's link."""
    from flashmoe_sim.io.errors import BadInput
    from native_bridge.engines.read import read_run

    folder = trace if trace.is_dir() else trace.parent
    if machine.link is None or not trace.exists() or not (folder / "run.json").is_file():
        return None
    try:
        run = read_run(folder, failed_too=True)
    except BadInput:
        return None
    if not run.log.host_bank_of_gpu:
        return None
    return (
        f"{folder}: its log shows slots in the host's memory and experts computed by the CPU; these seconds assume a "
        f"bank on the GPU of {machine.name}, with uploads over its link"
    )
