"""A search by real runs: each is made, watched, and kept in a folder, from which the same search goes on."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from flashmoe_sim.geometry.model import DEFAULT_TYPE
from flashmoe_sim.io.errors import BadInput, Conflict, Exists, Malformed, SimError, Unusable, shortened
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.belief import SD_90
from flashmoe_sim.measured.tune_folder import RECORD, lines_of
from flashmoe_sim.systems.base import Launch
from flashmoe_sim.tune.grid import Grid
from flashmoe_sim.tune.trials import SURE, Outcome, Search, Trial
from native_bridge.cache import model_files
from native_bridge.engines.llama_program import device_memory
from native_bridge.engines.run_log import DeviceMemory
from native_bridge.host import system_facts
from native_bridge.page_cache import total_bytes
from native_bridge.process import Around, Finished, run_child
from native_bridge.tuning.launch import with_knobs
from native_bridge.tuning.program import Program, Wanted, memory_lacking

REPEATS = 3
DECODED, DECODED_S = (16, 128), 8.0  # tokens of a repeat: as many as take so long, within these
LEAST_FREE = 0.03  # of the RAM: a run that leaves less free is ended, before the system swaps
SWAPPED_BYTES = GIB // 2  # by which swap may grow
OTHERS = 0.1  # of the processors: what other programs may take of them
SLOWED = 0.85  # of the first repeat's speed: less is told
SLOWEST = 4.0  # times slower than the slow end of what is believed: then it hangs
LEAST_LIMIT_S = 60.0
MOST_BYTES = 1 << 24  # of what it prints
GIVE_UP = 4  # runs that fail in a row, not for lack of memory, before one works
SHOWN = 160


class Used(NamedTuple):
    """The most memory that a run used, mapped files included; None if unknown. gpu_bytes: of all GPUs, by its log."""

    ram_bytes: int | None = None
    gpu_bytes: int | None = None


UNKNOWN = Used()


@dataclass(frozen=True)
class TunedRun:
    """A run of a search. note: what is odd about it, empty if nothing is. file: what it printed. memory: it used."""

    trial: Trial
    outcome: Outcome
    note: str = ""
    file: str = ""
    memory: Used = UNKNOWN


class _LacksMemory(SimError):
    """The machine is about to swap."""


@dataclass(eq=False)
class Session:
    """A search in a folder. model: the file, or the first of its files. minutes: for all runs together.

    runs: so far, those of earlier sessions in the folder included.
    """

    grid: Grid
    program: Program
    model: Path
    folder: Path
    minutes: float
    search: Search = field(init=False)
    runs: list[TunedRun] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.search = self.grid.search()

    def open(self, *, force: bool = False) -> None:
        """Begin in the folder, or go on with the runs in it.

        Raises BadInput for a folder of another search, or one that holds anything else.
        """
        path = self.folder / RECORD
        try:
            if self.folder.exists() and not self.folder.is_dir():
                raise Unusable(f"{self.folder}: is not a folder; choose another name")
            if self.folder.exists() and not path.exists() and any(self.folder.iterdir()):
                raise Exists(f"{self.folder}: holds other files; choose another folder")
            if path.exists() and not force:
                self._go_on(path)
            else:
                self.folder.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(self._about()) + "\n", encoding="utf-8")
        except OSError as error:
            raise Unusable(f"{path}: cannot be written ({error.strerror or error}); give another folder") from None
        self.program.prepare(self.model)

    def _about(self) -> dict[str, Any]:
        goal, case = self.grid.objective, self.grid.case
        return {
            "tune": 1,
            "model": case.model.name,
            "file": self.model.name,
            "model_bytes": self.model_bytes,
            "engine": str(self.program.path),
            "version": self.program.version,
            "objective": goal.goal,
            "prompt_tokens": goal.prompt_tokens,
            "answer_tokens": goal.answer_tokens,
            "depth": case.depth,
            "kv_type": None if case.kv_type == DEFAULT_TYPE else case.kv_type,
            "draft": None if case.drafts is None else case.drafts.in_words,
        }

    def _go_on(self, path: Path) -> None:
        text = path.read_text("utf-8", "replace")
        about, *runs = lines_of(text) or [{}]
        if about.get("tune") != 1:
            raise Malformed(f"{path}: is not the record of a search; choose another folder")
        other = [name for name, value in self._about().items() if about.get(name) != value]
        if other:
            name = other[0]
            raise Conflict(
                f"{path}: is of another search: {name} {about.get(name)!r}, and here {self._about()[name]!r}; "
                "choose another folder, or --force to start again"
            )
        known = {one.spec: place for place, one in enumerate(self.grid.trials)}
        for line in runs:
            place = known.get(line.get("setting", ""))
            if place is not None and line.keys() >= {*Outcome._fields, "note", "file"}:
                outcome = Outcome(**{name: line[name] for name in Outcome._fields})
                used = Used(*(line.get(name) for name in Used._fields))
                self.runs.append(TunedRun(self.grid.trials[place], outcome, line["note"], line["file"], used))
                self.search.hear(place, outcome)
        if not text.endswith("\n"):  # of a run that was killed while it was written down
            with path.open("a", encoding="utf-8") as stream:
                stream.write("\n")

    @property
    def model_bytes(self) -> int:
        """Of all files of the model."""
        return total_bytes(model_files(self.model))

    @property
    def spent_minutes(self) -> float:
        """The time of all runs."""
        return sum(run.outcome.wall_s for run in self.runs) / 60

    @property
    def load_s(self) -> float:
        """How long a run takes beside what it times: as those before, else as reading the file."""
        beside = [run.outcome.load_s for run in self.runs if run.outcome.seconds is not None]
        storage = self.grid.case.machine.storage.read_gb_s.value
        return median(beside) if beside else self.model_bytes / (storage * 1e9)

    def launch(self, place: int) -> Launch:
        """What starts the engine with a setting."""
        launch = self.grid.predicted(place).launch
        assert launch is not None
        return with_knobs(self.grid.trials[place], launch, self.program)

    def minutes_of(self, place: int) -> float:
        """How long a run of a setting takes, as is believed now."""
        return self._run_s(place, deviations=0.0) / 60

    def _run_s(self, place: int, *, deviations: float) -> float:
        """How long a run takes if its setting is so many standard deviations slower than is believed."""
        seconds = self._seconds(place, deviations=deviations)
        if self.grid.objective.goal == "decode":
            seconds *= self.tokens(place) + self.program.filled_tokens
        before_s = self.grid.before_s.get(self.grid.trials[place].system, 0.0)
        return self.load_s + (REPEATS + 1) * (before_s + seconds)

    def _seconds(self, place: int, *, deviations: float) -> float:
        """Of the objective."""
        now = self.search.now
        return math.exp(deviations * math.sqrt(max(now.covariance[place, place], 0.0)) - now.mean[place])

    def tokens(self, place: int) -> int:
        """How many tokens a repeat generates: those of DECODED_S at the slow end."""
        (least, most), goal = DECODED, self.grid.objective
        if goal.goal != "decode":
            return min(goal.answer_tokens, most)
        return int(min(max(DECODED_S / self._seconds(place, deviations=SD_90), least), most))

    def ended(self) -> str:
        """Why nothing more is run, or empty."""
        if self.search.sure >= SURE:
            return "sure"
        tried = [run.outcome for run in self.runs]
        if len(tried) >= GIVE_UP and all(one.seconds is None and not one.lacks for one in tried):
            return "failed"
        place = self.search.next(self.minutes_of)
        if place is None:
            return "all"
        if self.search.is_even:
            return "even"
        return "time" if tried and self.spent_minutes + self.minutes_of(place) > self.minutes else ""

    def run(self, watch: Callable[[Trial, float], None] | None = None) -> Iterator[TunedRun]:
        """Run one setting after another until the fastest is known, the time is up, or nothing is left."""
        while not self.ended():
            place = self.search.next(self.minutes_of)
            assert place is not None
            self.measure(place, watch)
            yield self.runs[-1]

    def measure(self, place: int, watch: Callable[[Trial, float], None] | None = None) -> None:
        """Run a setting, and keep what it gave."""
        trial, number = self.grid.trials[place], len(self.runs) + 1
        launch = self.launch(place)
        wanted = Wanted(self.grid.objective, self.tokens(place), REPEATS, self.grid.case.depth)
        log, out = self.folder / f"run-{number:02}.log", self.folder / f"run-{number:02}.json"
        command = self.program.command(launch.words, self.model, wanted)
        around = Around({**os.environ, **launch.environment})
        memory, others = _RamWatch(), _Others()

        def look(seconds: float) -> None:
            memory.check()
            if watch is not None:
                watch(trial, seconds)

        limit_s = max(LEAST_LIMIT_S, SLOWEST * self._run_s(place, deviations=SD_90))
        began, finished, lacking = time.monotonic(), None, ""
        try:
            finished = run_child(
                command,
                output=log,
                stdout=out,
                timeout_s=limit_s,
                around=around,
                watch=look,
                most_bytes=MOST_BYTES,
            )
        except _LacksMemory as error:
            lacking = str(error)
        wall_s = time.monotonic() - began
        outcome, note = self._outcome(finished, lacking, launch.words, wanted, (out, log))
        outcome = outcome._replace(wall_s=wall_s)
        busy = 0.0 if finished is None else others.cores(finished)
        if (outcome.seconds is not None or (finished and finished.timed_out)) and busy > OTHERS * others.all:
            outcome = outcome._replace(disturbed=True)
            note = f"other programs took {busy:.1f} of {others.all} processors"
        used = Used(finished.ram_bytes or None, _on_gpus(log)) if finished else UNKNOWN
        self.runs.append(TunedRun(trial, outcome, note, out.name, used))
        self.search.hear(place, outcome)
        self._keep(self.runs[-1])

    def _outcome(
        self, finished: Finished | None, lacking: str, words: tuple[str, ...], wanted: Wanted, files: tuple[Path, Path]
    ) -> tuple[Outcome, str]:
        """What a run gave, and what is odd about it."""
        if finished is None:
            return Outcome(None, failed=lacking, lacks="ram"), ""
        text, log = (file.read_text("utf-8", "replace") for file in files)
        if finished.timed_out:
            return Outcome(None, failed=f"was ended after {finished.seconds:.0f} s, many times what is predicted"), ""
        if finished.code or finished.flooded:
            why = f"ended with code {finished.code}" if finished.code >= 0 else f"was ended by signal {-finished.code}"
            why = "printed without end" if finished.flooded else f"{why}{_last(log)}"
            killed = finished.code == -signal.SIGKILL and not finished.flooded
            return Outcome(None, failed=why, lacks=memory_lacking(log) or ("ram" if killed else "")), ""
        try:
            printed = self.program.read(text, words, wanted, model_bytes=self.model_bytes)
        except BadInput as error:
            return Outcome(None, failed=shortened(str(error), SHOWN), lacks=memory_lacking(log)), ""
        note = ""
        if printed.slowed < SLOWED:
            note = f"its last repeat had {printed.slowed:.0%} of the first one's speed: heat, or other programs"
        load_s = max(finished.seconds - printed.timed_s, 0.0)
        return Outcome(printed.seconds, printed.sd, finished.seconds, load_s=load_s), note

    def _keep(self, run: TunedRun) -> None:
        outcome = run.outcome
        line = {
            "setting": run.trial.spec,
            "system": run.trial.system.spec,
            **outcome._asdict(),
            **run.memory._asdict(),
            "note": run.note,
            "file": run.file,
        }
        path = self.folder / RECORD
        try:
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise SimError(f"{path}: cannot be written ({error.strerror or error}); free the disk") from None


class _RamWatch:
    """Ends a run before the system swaps."""

    def __init__(self) -> None:
        self.psutil = system_facts()
        self.swapped = self.psutil.swap_memory().used

    def check(self) -> None:
        ram = self.psutil.virtual_memory()
        grown = self.psutil.swap_memory().used - self.swapped
        if ram.available < LEAST_FREE * ram.total or grown > SWAPPED_BYTES:
            raise _LacksMemory(f"was ended with {ram.available / GIB:.1f} GiB of RAM free, before the system swaps")


class _Others:
    """What other programs take of the processors during a run."""

    def __init__(self) -> None:
        self.psutil = system_facts()
        self.all = self.psutil.cpu_count() or 1
        self.busy_s, self.began = self._busy_s(), time.monotonic()

    def _busy_s(self) -> float:
        times = self.psutil.cpu_times()
        return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))

    def cores(self, finished: Finished) -> float:
        """How many processors others took."""
        passed = time.monotonic() - self.began
        return max(self._busy_s() - self.busy_s - finished.cpu_s, 0.0) / max(passed, 1e-3)


def _on_gpus(log: Path) -> int | None:
    """The memory of GPUs that a log says llama.cpp used at the end of its last run; None if it says nothing."""
    found = dict[str, DeviceMemory]()
    for line in log.read_text("utf-8", "replace").splitlines():
        if (start := line.find("llama_memory_breakdown_print")) >= 0 and (one := device_memory(line[start:])):
            found[one.place] = one
    gpus = [one for one in found.values() if one.total_mib is not None]
    return sum((one.model_mib + one.context_mib + one.compute_mib) << 20 for one in gpus) if found else None


def _last(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f": {shortened(lines[-1], SHOWN)}" if lines else ""
