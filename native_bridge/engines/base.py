"""An engine: a program that streams experts, and everything that the bridge needs to know about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from flashmoe_sim.io.errors import Unsupported

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.fitting import Fitted
    from flashmoe_sim.trace.routing import RoutingTrace
    from native_bridge.engines.run_log import RunLog
    from native_bridge.engines.runs import PredictedRun, Run

Kind = Literal["resident", "streamed", "copied", "all-hit", "prefetched"]


@dataclass(frozen=True)
class Mode:
    """A mode of an engine.

    kind: all experts `resident` and no slots; `streamed` into slots from files, or `copied` into them from RAM; the
    replay of a trace whose experts are all in slots before it (`all-hit`) or are read ahead of it (`prefetched`).
    sidecar: whether it needs one. offered: whether users can run it; for the others there are recorded runs.
    """

    kind: Kind
    sidecar: bool = True
    offered: bool = True

    @property
    def slots(self) -> bool:
        """Whether routed calls find their experts in slots."""
        return self.kind != "resident"

    @property
    def traced(self) -> bool:
        """Whether it writes a trace of its routed calls."""
        return self.kind in ("streamed", "copied")

    @property
    def replays(self) -> bool:
        """Whether it replays the trace of another run."""
        return self.kind in ("all-hit", "prefetched")

    @property
    def banked(self) -> bool:
        """Whether runs differ by their bank; an all-hit replay has a slot for every expert."""
        return self.traced or self.kind == "prefetched"


@dataclass(frozen=True)
class Device:
    """What a program can offload to."""

    name: str
    description: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Runtime:
    """A build of an engine, as it describes itself.

    engine: its name in ENGINES. modes: of this build. flags: every flag in its --help with its value as shown there,
    empty for none. backends: CPU, and those of its devices.
    """

    engine: str
    path: Path
    version: str
    commit: str
    modes: tuple[str, ...]
    compiler: str = ""
    backends: tuple[str, ...] = ("CPU",)
    devices: tuple[Device, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The facts to store with a run."""
        return {
            "path": str(self.path),
            "version": self.version,
            "commit": self.commit,
            "compiler": self.compiler,
            "backends": list(self.backends),
            "devices": [asdict(device) for device in self.devices],
        }


@dataclass(frozen=True)
class RunRequest:
    """One run of an engine.

    bank: slots per layer; every expert if a mode has no bank of its own. ubatch: tokens per micro-batch.
    top_k: experts per token, 0 for the model's own. prefetch: a name in the engine's `prefetches`. io_split: chunks per
        read, None for the engine's default. n_predict: tokens to generate. gpu_layers: like the runtime's `-ngl`, None
        for its default. prompt_file: where the prompt was read from. extra: further flags of the engine, as given.
    go_on: flags that keep a text from ending early, added by `run_once`.
    """

    mode: str
    bank: int
    prompt: str
    n_predict: int = 100
    ubatch: int = 1
    batch: int = 64
    top_k: int = 0
    prefetch: str | None = None
    io_split: int | None = None
    seed: int = 1
    threads: int = 1
    gpu_layers: str | None = None
    prompt_file: Path | None = None
    extra: tuple[str, ...] = ()
    go_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class DoctorFinding:
    """The result of one check. state: ok, warning or missing; what to do is empty if there is nothing to do."""

    state: str
    name: str
    found: str
    to_do: str = ""


class Engine(ABC):
    """What the bridge requires of an engine; for runs alone, the abstract methods are enough.

    name: in ENGINES. modes, prefetches: by the names that a user gives. dropped: prefixes of environment variables that
    it must not see. switches: prefixes of those that change its behaviour.
    """

    name: ClassVar[str]
    modes: ClassVar[Mapping[str, Mode]]
    prefetches: ClassVar[tuple[str, ...]] = ()
    dropped: ClassVar[tuple[str, ...]] = ()
    switches: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def find(self, given: str | None) -> Path:
        """The program given, else the one that is installed. Raises BadInput if there is none."""

    @abstractmethod
    def describe(self, path: Path) -> Runtime:
        """A program's description of itself. Raises BadInput if it is not a program of this kind."""

    @abstractmethod
    def command(
        self, request: RunRequest, runtime: Runtime, *, model: Path, sidecar: Path | None, trace: str
    ) -> list[str]:
        """The program and its arguments. trace: the file that it writes or, in a mode that replays, reads."""

    @abstractmethod
    def read_log(self, text: str, *, mode: str, where: str, extra: Sequence[str], failed_too: bool = False) -> RunLog:
        """The content of a run's log.

        where: its file, for messages. extra: `further` of its request. failed_too: accept a failed run, with the reason
        in `failure`. Raises BadInput for an incomplete log.
        """

    def check_runtime(self, runtime: Runtime) -> None:
        """Raise BadInput if this build cannot make runs."""

    def check_request(
        self,
        request: RunRequest,
        model: ModelGeometry,
        *,
        sidecar: Path | None,
        replay: Path | None,
        sidecar_follows: bool = False,
    ) -> None:
        """Raise BadInput if the engine cannot make this run of this model.

        sidecar_follows: the sidecar is written only after all requests are known to be valid.
        """

    def check_flags(self, flags: Sequence[str], known: Mapping[str, str]) -> None:
        """Raise BadInput if a user's flags are unknown or belong to one of our options. known: the program's flags."""

    def unknown_effect(self, flags: Sequence[str]) -> str:
        """Why the counts of runs with these flags cannot be predicted, or empty."""
        return ""

    def go_on_flags(self, model: Path) -> tuple[str, ...]:
        """Flags with which a text of this model never ends before its number of tokens."""
        return ()

    def further(self, request: RunRequest) -> list[str]:
        """The flags that are listed separately in run.json, as `extra`."""
        return list(request.extra)

    def refusal(self, request: RunRequest, log: str, *, calls: int | None, model: ModelGeometry) -> str | None:
        """Why the engine itself ended a run, if its log says so. calls: routed calls in its trace, None without one."""
        return None

    def complaint(self, log: str) -> str:
        """The first line of a log that mentions an error, or empty. log: without the generated text."""
        return ""

    def examine(self, runtime: Runtime | None) -> Iterator[DoctorFinding]:
        """The findings of `sim bridge doctor` on a program, None for none, and on the environment."""
        return iter(())

    def examine_bank(self, runtime: Runtime, model: ModelGeometry, bank: int | None) -> Iterator[DoctorFinding]:
        """The findings of `sim bridge doctor` on a program's GPU and on where the bank goes."""
        return iter(())

    def routing_flags(self, run: Run) -> tuple[str, ...]:
        """The flags of a run that determine its text, and so its routing."""
        return run.extra

    def is_repeatable(self, run: Run) -> bool:
        """Whether the same flags give the same text."""
        return False

    def maps_experts(self, run: Run) -> bool:
        """Whether its experts are mapped files, which are read when they are first used."""
        return False

    def predict(
        self, run: Run, trace: RoutingTrace, model: ModelGeometry | None, *, failing: tuple[int, int] | None
    ) -> PredictedRun:
        """The simulator's prediction of a run with the calls of a trace: every slot, and every counter.

        failing: layer and references of a call after those of the trace that finds no slot. Raises BadInput if the bank
        cannot hold a call.
        """
        raise Unsupported(f"{run.folder}: nothing predicts the counters of {self.name}")

    def comparison(self, model: ModelGeometry, **options: Any) -> list[RunRequest]:
        """The runs of a comparison: every mode. options: fields of RunRequest."""
        raise Unsupported(f"{self.name}: has no set of runs to compare; give the folders of runs")

    def calibration(
        self, model: ModelGeometry, *, bank: int | None, parameters: Sequence[str], **options: Any
    ) -> list[RunRequest]:
        """The fewest runs that determine a machine. bank: slots of the small run. options: fields of RunRequest."""
        raise Unsupported(f"{self.name}: has no set of runs to calibrate with; give recorded runs with --from")

    def refuse_two_machines(self, runs: Sequence[Run], *, io_split_may_differ: bool = False) -> None:
        """Raise BadInput, naming the setting, if two runs differ in a setting that affects times."""

    def fit(
        self, runs: Sequence[Run], model: ModelGeometry | None, *, name: str, command: str, parameters: Sequence[str]
    ) -> Fitted:
        """A machine fitted on runs; see `fit_runs`."""
        raise Unsupported(f"{runs[0].folder}: nothing fits a machine on runs of {self.name}")
