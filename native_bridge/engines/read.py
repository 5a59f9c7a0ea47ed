"""Reading the folder of a run: its flags, its log and, if it wrote one, its trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.recordings import manifest_of_run, named_model_file
from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import Conflict, Malformed, Missing, TooLarge, UnknownName, Unusable, shown
from flashmoe_sim.io.files import regular_file_bytes, unreadable
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.machines.fitting import Fitted, check_number, check_parameters
from native_bridge.engines.runs import Run
from native_bridge.engines.table import ENGINES, UNNAMED

MAX_BYTES = 64 * MIB
MAX_NUMBER = 2**31 - 1


def read_run(folder: str | Path, *, failed_too: bool = False) -> Run:
    """The run in a folder: run.json, log.txt and perhaps trace.jsonl.gz.

    failed_too: accept a failed run; its log then says why, and how far it came.
    Raises BadInput, naming the file, for a folder without them, a failed run, and an incomplete log.
    """
    path = Path(folder)
    if not str(path).isprintable():
        raise Malformed(f"{str(path)!r}: cannot be the name of a run's folder")
    try:
        if not path.is_dir():
            kind, what = (Unusable, "is not a folder") if path.exists() else (Missing, "no such folder")
            raise kind(f"{path}: {what}; give the folder of a run, with run.json and log.txt")
        trace = next((file for file in (path / "trace.jsonl.gz", path / "trace.jsonl") if file.is_file()), None)
    except OSError as error:
        raise unreadable(path, error) from None
    flags = _Flags(path / "run.json")
    if (rc := flags.integer("rc", -(2**31))) != 0 and not failed_too:
        raise Unusable(f"{flags.path}: rc is {rc}: the run failed; run it again, or leave it out")
    if flags.document.get("failed") is not None and not failed_too:
        raise Unusable(f"{flags.path}: the run failed: {flags.text('failed')}; run it again, or leave it out")
    named = flags.text("engine") if "engine" in flags.document else UNNAMED
    if named not in ENGINES:
        raise UnknownName(f"{flags.path}: engine is {shown(named)}; known: {', '.join(ENGINES)}")
    engine = ENGINES[named]
    mode = flags.text("mode")
    if mode not in engine.modes:
        raise UnknownName(f"{flags.path}: mode is {shown(mode)}; known: {', '.join(engine.modes)}")
    extra = flags.texts("extra")
    said = _text(text, "the text of a run") if (text := path / "text.txt").is_file() and text.stat().st_size else ""
    log = engine.read_log(
        without_text(_text(path / "log.txt", "the log of a run"), said),
        mode=mode,
        where=str(path / "log.txt"),
        extra=extra,
        failed_too=failed_too,
    )
    return Run(
        engine=engine,
        folder=path,
        mode=mode,
        bank=flags.integer("bank", 1),
        ubatch=flags.integer("ubatch", 1),
        top_k=flags.integer("topk", 0),
        n_predict=flags.integer("n_predict", 1),
        threads=flags.integer("threads", 1),
        replay_of=flags.text("replay_of") if flags.document.get("replay_of") is not None else None,
        extra=extra,
        flags=flags.texts("flags") if "flags" in flags.document else None,
        place={key: flags.text(key) for key in ("machine", "host") if key in flags.document},
        environment=flags.environment(),
        cache=_cache_state(flags.document.get("cache")),
        log=log,
        document=flags.document,
        trace=trace,
        model=named_model_file(flags.document.get("model")),
    )


def without_text(log: str, text: str) -> str:
    """A log in which the lines of the generated text are empty, so that none of them passes for the program's own."""
    said = {line.strip() for line in text.splitlines()} - {""}
    return "\n".join("" if line.strip() in said else line for line in log.split("\n")) if said else log


def find_run_model(runs: Sequence[Run], given: str | None) -> ModelGeometry | None:
    """The given model, else from a run's manifest.json, else from its run.json; None if there is none.

    Raises BadInput if the runs are of models whose experts differ.
    """
    if given is not None:
        return load_model(given)
    sources: dict[Path, Run] = {}
    for run in runs:
        if source := manifest_of_run(run.folder) or run.model:
            sources.setdefault(source, run)
    models = {source: load_model(source) for source in sources}
    first = next(iter(models), None)
    if first is None:
        return None
    for source, model in models.items():
        if model.layers != models[first].layers:
            raise Conflict(
                f"{source}: bytes per expert or layers differ from those of {sources[first].folder}: "
                "the anchors come from two models; fit each by itself"
            )
    return models[first]


def _cache_state(recorded: object) -> str | None:
    state = recorded.get("state") if isinstance(recorded, dict) else None
    return state if state in ("warm", "cold") else None


class _Flags:
    """run.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = _text(path, "the flags of a run as JSON")
        try:
            document = strict_json.loads(text.encode())
        except ValueError as error:
            raise Malformed(f"{path}: not JSON ({error}); expected the flags of a run; write it again") from None
        if not isinstance(document, dict):
            raise Malformed(f"{path}: is {shown(document)}; expected an object with the flags of a run")
        self.document: dict[str, Any] = document

    def integer(self, key: str, least: int) -> int:
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_NUMBER:
            raise Malformed(f"{self.path}: {key} is {shown(value)}; expected an integer from {least} to {MAX_NUMBER}")
        return value

    def text(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str) or not value:
            raise Malformed(f"{self.path}: {key} is {shown(value)}; expected a text")
        return value

    def environment(self) -> Mapping[str, str] | None:
        value = self.document.get("environment")
        if value is not None and not (isinstance(value, dict) and all(isinstance(one, str) for one in value.values())):
            raise Malformed(f"{self.path}: environment is {shown(value)}; expected an object of texts")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._value(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise Malformed(f"{self.path}: {key} is {shown(value)}; expected a list of flags")
        return tuple(value)

    def _value(self, key: str) -> object:
        if key not in self.document:
            raise Malformed(
                f"{self.path}: {key} is missing; expected rc, mode, bank, ubatch, topk, n_predict, threads, extra"
            )
        return self.document[key]


def _text(path: Path, kind: str) -> str:
    """A file as text. A log includes the model's text, which may be cut within a character or be anything."""
    if regular_file_bytes(path, kind=kind) > MAX_BYTES:
        raise TooLarge(f"{path}: more than {MAX_BYTES // MIB} MiB; expected {kind}")
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise unreadable(path, error) from None


def fit_runs(
    folders: Sequence[str | Path], *, name: str, command: str, model: str | None = None, parameters: Sequence[str] = ()
) -> Fitted:
    """Fit a machine on folders of recorded runs, with the engine of the first.

    name: of the machine. command: repeats the fit. model: of the runs; by default from a manifest.json with the runs or
    beside them. parameters: to fit beside those that need no further runs.
    Raises BadInput for runs that cannot be used, come from different machines, or do not identify the parameters.
    """
    check_parameters(parameters)
    runs = [read_run(folder) for folder in folders]
    check_number([str(run.folder.resolve()) for run in runs])
    engine = runs[0].engine
    engine.refuse_two_machines(runs, io_split_may_differ="request_us" in parameters)
    geometry = find_run_model(runs, model)
    return engine.fit(runs, geometry, name=name, command=command, parameters=parameters)
