"""Many runs of one model and prompt: every mode at every bank, with repeats, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Missing, SimError, unknown_name
from native_bridge.cache import Cache, model_files
from native_bridge.engines.base import Engine, Mode, RunRequest, Runtime
from native_bridge.engines.read import read_run
from native_bridge.engines.runs import Run
from native_bridge.engines.table import ENGINES
from native_bridge.fixture.sidecar import write_sidecar
from native_bridge.host import machine_name
from native_bridge.process import TerminatedRun
from native_bridge.run import Loaded, check_mode, going_on, run_once, settings_of_environment
from native_bridge.run_folder import FLAGS, refuse_folder


@dataclass(frozen=True)
class Planned:
    """A planned run, its folder, and the folder of the run that it replays. name: shared with its repeats."""

    name: str
    request: RunRequest
    folder: Path
    replay: Path | None


def run_name(request: RunRequest, mode: Mode) -> str:
    """The name of a run's folder among runs of one model and prompt. mode: the request's."""
    parts = [f"{request.mode}{request.bank}" if mode.traced else request.mode]
    parts += [f"bank{request.bank}"] if mode.kind == "prefetched" else []
    parts += [f"ub{request.ubatch}"] if request.ubatch > 1 else []
    parts += [f"topk{request.top_k}"] if request.top_k else []
    parts += [request.prefetch] if request.prefetch is not None else []
    parts += [f"split{request.io_split}"] if request.io_split is not None and mode.sidecar else []
    return "-".join(parts)


def requests_of(
    names: Sequence[str],
    banks: Sequence[int],
    model: ModelGeometry,
    make: Callable[[str, int], RunRequest],
    *,
    modes: Mapping[str, Mode],
) -> list[RunRequest]:
    """A request for each mode and bank; one for each mode that has no bank, which is every expert.

    names: of the modes. make: the request of a mode and a bank. modes: of the engine.
    Raises BadInput if there is no bank for a mode that needs one.
    """
    experts = max(layer.n_experts for layer in model.layers.values())
    banked = {name for name, mode in modes.items() if mode.banked}
    if not banks and (needing := [name for name in names if name in banked]):
        raise Incomplete(f"mode {needing[0]} needs a bank; give --bank, such as --bank 16,32")
    return [make(mode, bank) for mode in names for bank in (banks if mode in banked else (experts,))]


def plan(
    requests: Sequence[RunRequest],
    out: Path,
    *,
    modes: Mapping[str, Mode],
    repeat: int = 1,
    replay: Path | None = None,
) -> list[Planned]:
    """The runs in order: all requests once, then all again, so that a machine that slows down affects all equally.

    A mode that replays is given the streamed run of the same bank and repeat, or of the largest bank; or the folder
    given. modes: of the engine. Raises BadInput for a mode that is not among them.
    """
    for request in requests:
        if request.mode not in modes:
            raise unknown_name("mode", request.mode, [name for name, mode in modes.items() if mode.offered])
    inorder = sorted(requests, key=lambda request: modes[request.mode].replays)
    planned = []
    for number in range(1, repeat + 1):
        suffix = f"-rep{number}" if repeat > 1 else ""
        for request in inorder:
            mode = modes[request.mode]
            source = replay if mode.replays else None
            if mode.replays and source is None and (of := _replayed(request, inorder, modes)) is not None:
                source = out / f"{run_name(of, modes[of.mode])}{suffix}"
            name = run_name(request, mode)
            planned.append(Planned(name, request, out / f"{name}{suffix}", source))
    return planned


def _replayed(request: RunRequest, requests: Sequence[RunRequest], modes: Mapping[str, Mode]) -> RunRequest | None:
    streamed = [other for other in requests if modes[other.mode].kind == "streamed"]
    same = [other for other in streamed if other.bank == request.bank]
    return next(iter(same or sorted(streamed, key=lambda other: -other.bank)), None)


@dataclass(frozen=True)
class Series:
    """What the runs of one command share.

    model: a GGUF file. sidecar: its folder, or None. writes_sidecar: whether the sidecar is written, once all runs are
    known to be possible, if it is not there. cache: the state of the page cache before a run. force: make existing runs
    again.
    """

    runtime: Runtime
    model: Path
    sidecar: Path | None = None
    writes_sidecar: bool = False
    cache: str = "warm"
    timeout_s: float = 3600.0
    force: bool = False

    @property
    def engine(self) -> Engine:
        return ENGINES[self.runtime.engine]

    def check(self, planned: Sequence[Planned]) -> ModelGeometry:
        """The model's geometry. Raises BadInput if any of the runs could not be started, before the first one is."""
        geometry, engine, sidecar = read_gguf(self.model), self.engine, self.sidecar
        ours = {one.folder for one in planned}
        follows = self.writes_sidecar and sidecar is not None and not (sidecar / "manifest.json").exists()
        for one in planned:
            engine.check_request(one.request, geometry, sidecar=sidecar, replay=one.replay, sidecar_follows=follows)
            engine.check_flags(one.request.extra, self.runtime.flags)
            check_mode(one.request, self.runtime)
            refuse_folder(one.folder, force=self.force or self.there(one) is not None)
            if one.replay is not None and one.replay not in ours:
                _check_replay(one.request, one.replay)
        if follows and any(engine.modes[one.request.mode].sidecar for one in planned):
            assert sidecar is not None
            write_sidecar(self.model, sidecar)
        return geometry

    def there(self, one: Planned) -> str | None:
        """`run` or `failed`: what this very command left in a run's folder; None with `force`, for nothing and for
        anything else."""
        if self.force:
            return None
        try:
            document = json.loads((one.folder / FLAGS).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        first = model_files(self.model)[0]
        request = going_on(one.request, self.runtime, first)
        wanted = {
            "command": Loaded(self.runtime, first, self.sidecar).command(request),
            "environment": settings_of_environment(self.engine),
            "machine": machine_name(),
            "replay_of": one.replay.name if one.replay is not None else None,
        }
        same = all(document.get(key) == value for key, value in wanted.items())
        for key, value in (("cache", ("state", self.cache)), ("runtime", ("commit", self.runtime.commit))):
            same = same and isinstance(document.get(key), dict) and value in document[key].items()
        if not same:
            return None
        return "failed" if document.get("failed") is not None else "run"

    def run_each(
        self, planned: Sequence[Planned], progress: Callable[[Planned, float, int], None] | None = None
    ) -> Iterator[tuple[Planned, Run | SimError]]:
        """Each run, or why it failed, as soon as it is over; one that replays a failed run is not started.

        Without force, existing runs of the same command are read, and its failed ones are made again. After a run that
        cannot be started, whose outcome is a BadInput, no other is started.
        """
        failed: dict[Path, SimError] = {}
        for one in planned:
            outcome: Run | SimError
            there = self.there(one)
            if one.replay in failed:
                outcome = SimError(f"{one.folder}: not started: {one.replay.name}, which it replays, failed")
            elif there == "run":
                outcome = read_run(one.folder)
            else:
                outcome = self._run(one, progress, again=self.force or there == "failed")
            if isinstance(outcome, SimError):
                failed[one.folder] = outcome
            yield one, outcome
            if isinstance(outcome, BadInput):
                return

    def run_whole(self, planned: Sequence[Planned]) -> list[Path]:
        """The folders of the runs; raises the SimError of the first one that fails."""
        for _, outcome in self.run_each(planned):
            if isinstance(outcome, SimError):
                raise outcome
        return [one.folder for one in planned]

    def _run(
        self, one: Planned, progress: Callable[[Planned, float, int], None] | None, *, again: bool
    ) -> Run | SimError:
        try:
            return run_once(
                one.request,
                Loaded(self.runtime, self.model, self.sidecar),
                folder=one.folder,
                replay=one.replay,
                timeout_s=self.timeout_s,
                cache=Cache(self.cache),
                force=again,
                progress=None if progress is None else lambda seconds, calls: progress(one, seconds, calls),
            )
        except TerminatedRun:
            raise
        except BadInput as error:
            return type(error)(
                f"{one.folder}: not started: {error}; then give the same command: it goes on from this run"
            )
        except SimError as error:
            return error


def _check_replay(request: RunRequest, folder: Path) -> None:
    """Refuse the replay of a run with other routing: the runtime would stop in the middle."""
    run = read_run(folder)
    prompt = run.document.get("prompt")
    wanted = {"ubatch": request.ubatch, "topk": request.top_k, "prompt": request.prompt, "tokens": request.n_predict}
    found = {"ubatch": run.ubatch, "topk": run.top_k, "prompt": prompt, "tokens": run.n_predict}
    if run.trace is None:
        raise Missing(f"{folder}: has no trace to replay; give the folder of a run of slot-bank")
    if different := [key for key in wanted if wanted[key] != found[key]]:
        raise Conflict(
            f"{folder}: was run with another {' and another '.join(different)} than asked for here; an oracle replays "
            f"what was routed: give the same --{', --'.join(different)}"
        )
