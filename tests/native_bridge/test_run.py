"""One run of the stand-in: the folder it leaves, and what is said if it fails."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.io.errors import Exists, Missing, SimError, Unsupported, Unusable
from flashmoe_sim.trace.load import load_trace
from native_bridge.engines.base import RunRequest, Runtime
from native_bridge.engines.read import read_run
from native_bridge.engines.runs import Run
from native_bridge.run import Loaded, run_once
from tests.native_bridge.conftest import MODEL, PROMPT, RECORDED, STAND_IN

REQUEST = RunRequest("slot-bank", 24, PROMPT, n_predict=300)
KEYS = ["rc", "mode", "bank", "ubatch", "batch", "topk", "n_predict", "threads", "prompt", "extra", "replay_of"]


@pytest.fixture
def once(stand_in: Runtime, sidecar: Path, tmp_path: Path) -> Any:
    def run(request: RunRequest = REQUEST, **options: Any) -> Run:
        files = {"runtime": stand_in, "model": MODEL, "sidecar": sidecar}
        loaded = Loaded(**{name: options.pop(name, file) for name, file in files.items()})
        return run_once(request, loaded, **({"folder": tmp_path / "run", "timeout_s": 60.0} | options))

    return run


def flags(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return document


def test_the_folder_is_like_a_recorded_one(once: Any, tmp_path: Path) -> None:
    run = once()
    recorded = read_run(RECORDED / "prose-bank24")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "log.txt",
        "run.json",
        "text.txt",
        "trace.jsonl.gz",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert list(flags(tmp_path / "run"))[: len(KEYS)] == KEYS
    assert run.log.routed == recorded.log.routed
    assert run.log.settings == recorded.log.settings
    assert (run.mode, run.bank, run.ubatch, run.n_predict) == ("slot-bank", 24, 1, 300)
    ours, theirs = (
        load_trace(tmp_path / "run" / "trace.jsonl.gz"),
        load_trace(RECORDED / "prose-bank24" / "trace.jsonl.gz"),
    )
    assert (ours.expert == theirs.expert).all()


def test_what_is_kept_of_where_it_ran(once: Any, tmp_path: Path) -> None:
    once()
    document = flags(tmp_path / "run")
    assert document["rc"] == 0
    assert document["command"][0] == str(STAND_IN)
    assert document["extra"] == ["--seed", "1", "--logit-bias", "0-inf"]
    assert document["runtime"]["commit"] == "64e25509b"
    assert (document["model"]["layers"], document["model"]["experts"], document["model"]["top_k"]) == (8, 64, 8)
    assert document["machine"]
    assert document["seconds"] > 0
    assert document["cache"] == {"state": "as-is"}


@pytest.mark.parametrize(
    ("mode", "bank", "recorded"),
    [
        ("stock", 32, RECORDED / "prose-stock"),
        ("resident-bank", 64, RECORDED / "prose-resident-bank"),
        ("resident-slot-bank", 24, RECORDED / "prose-resident-slot-bank24"),
        ("oracle-all-hit", 64, RECORDED / "prose-allhit"),
        ("oracle-prefetch", 24, RECORDED / "prose-oracle-prefetch-bank24"),
    ],
)
def test_the_other_modes(once: Any, tmp_path: Path, mode: str, bank: int, recorded: Path) -> None:
    replayed = mode.startswith("oracle")
    run = once(replace(REQUEST, mode=mode, bank=bank), replay=RECORDED / "prose-bank24" if replayed else None)
    assert run.mode == mode
    assert run.log.routed == read_run(recorded).log.routed
    if (recorded / "text.txt").exists():
        assert (tmp_path / "run" / "text.txt").read_bytes() == (recorded / "text.txt").read_bytes()
    assert (run.trace is None) == (mode != "resident-slot-bank")
    assert run.replay_of == ("prose-bank24" if replayed else None)


def test_a_folder_is_not_overwritten(once: Any, tmp_path: Path) -> None:
    once()
    with pytest.raises(Exists, match="run:"):
        once()
    once(force=True)
    (tmp_path / "run" / "notes").write_text("mine")
    with pytest.raises(Exists, match="run: holds notes, which no run wrote"):
        once(force=True)
    assert (tmp_path / "run" / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("does", "code", "message"),
    [
        ("crash", -6, r"it was ended by SIGABRT; it said: ggml.c:1: GGML_ASSERT\(false\) failed"),
        ("crash-with-gdb", -6, r"it was ended by SIGABRT; it said: what\(\): Failed to parse input at pos 0: "),
        ("flood", -9, "it printed more than 64 MiB and was ended; log.txt has the first 1 MiB"),
        ("fail", 3, "it ended with code 3; it said: main: error: no such thing as a slot"),
        ("hang", -9, "stopped after 4 s, its time limit; its last line: Loading model"),
        ("print-nothing", 0, "it printed nothing and ended with code 0"),
        ("another-version", 0, "its log is unknown; is it of another version"),
        ("fill-the-disk", 0, "its trace has 1691 of 3374 routed calls; the disk may be full"),
    ],
)
def test_a_run_that_fails(
    once: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, code: int, message: str
) -> None:
    """Until then progress counts routed calls."""
    monkeypatch.setenv("STAND_IN_DOES", does)
    seen: list[tuple[float, int]] = []
    with pytest.raises(SimError, match=message) as caught:
        once(timeout_s=4.0 if does == "hang" else 60.0, progress=lambda *counted: seen.append(counted))
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "log.txt").exists()
    assert flags(tmp_path / "run")["rc"] == code
    with pytest.raises(Unusable, match=r"the run failed|rc is"):
        read_run(tmp_path / "run")
    if does in ("crash", "hang", "fail", "fill-the-disk"):
        trace = load_trace(tmp_path / "run" / "trace.jsonl.gz")
        assert trace.calls == (3374 if does != "fill-the-disk" else 1691)
        whole = load_trace(RECORDED / "prose-bank24" / "trace.jsonl.gz")
        assert (trace.expert == whole.expert[: len(trace.expert)]).all()
    if does == "hang":
        assert seen[-1][1] == 3374
        assert seen == sorted(seen)


def test_a_bank_that_is_too_small_for_a_call(once: Any, tmp_path: Path) -> None:
    with pytest.raises(SimError) as caught:
        once(replace(REQUEST, bank=16, ubatch=4))
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: slot-bank: the bank is too small: layer 0 needs more than 16 slots at call 8, for 4 "
        "tokens of 8 experts each; --bank 32 always does, a smaller --ubatch (at most 2 always fits)"
    )
    assert load_trace(tmp_path / "run" / "trace.jsonl.gz").calls == 8


def test_a_disk_that_is_full_from_the_start(once: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise SimError("log.txt: cannot be written (No space left on device); free the disk")

    monkeypatch.setattr("native_bridge.run.run_child", full)
    with pytest.raises(SimError, match="No space left on device"):
        once()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_after_a_while(once: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the log nor a packed trace can be written; run.json has its room from the start."""

    def full(*arguments: Any) -> None:
        if arguments[-1] != b"\nLoading model... \n":  # what it prints before it writes its trace
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("native_bridge.process._Lines._write", full)
    monkeypatch.setattr("native_bridge.run_folder.gzip.GzipFile", full)
    with pytest.raises(
        SimError, match=r"slot-bank: log.txt: cannot be written \(No space left on device\); free the disk"
    ):
        once()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["log.txt", "run.json", "trace.jsonl"]
    assert load_trace(tmp_path / "run" / "trace.jsonl").calls > 0
    assert flags(tmp_path / "run")["rc"] == 1


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_run_whose_folder_cannot_be_named_is_kept_beside_it(
    once: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, existing: bool, failing: int
) -> None:
    """As on a folder that is mounted. The run before stays; the new one took hours."""
    if existing:
        once()
    before, number, rename = flags(tmp_path / "run") if existing else None, 0, Path.rename

    def busy(path: Path, target: Path) -> Path:
        nonlocal number
        number += 1
        if number == failing:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return rename(path, target)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", busy)
        if failing > (2 if existing else 1):
            once(force=True)
            return
        with pytest.raises(
            SimError, match=r"run: cannot be written \(Device or resource busy\); this run is in .*/run-"
        ):
            once(force=True)
    (kept,) = tmp_path.glob("run-*")
    assert load_trace(kept / "trace.jsonl.gz").calls > 0
    assert flags(kept)["rc"] == 0
    assert (tmp_path / "run").exists() == existing
    assert not existing or flags(tmp_path / "run") == before
    assert list(tmp_path.glob(".*")) == []


def test_what_cannot_be_started_leaves_nothing(once: Any, stand_in: Runtime, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="has no mode slot-bank; it has none"):
        once(runtime=replace(stand_in, modes=()))
    with pytest.raises(Missing, match="no such file"):
        once(model=tmp_path / "none.gguf")
    with pytest.raises(Missing, match=r"has no trace.jsonl.gz to replay"):
        once(replace(REQUEST, mode="oracle-prefetch"), replay=RECORDED / "prose-stock")
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_cannot_be_unpacked(once: Any, tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "prose-bank24", tmp_path / "cut")
    whole = (tmp_path / "cut" / "trace.jsonl.gz").read_bytes()
    (tmp_path / "cut" / "trace.jsonl.gz").write_bytes(whole[:1000])
    with pytest.raises(Unusable, match="cannot be unpacked"):
        once(replace(REQUEST, mode="oracle-prefetch"), replay=tmp_path / "cut")


def test_flags_of_the_environment_are_not_passed_on(once: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_MOE_SLOT_BANK", "3")
    monkeypatch.setenv("LLAMA_FLASH_MOE_DISABLE_GPU_BANK", "1")
    seen: dict[str, str] = {}
    run_child = run_once.__globals__["run_child"]

    def spy(*arguments: Any, **options: Any) -> Any:
        seen.update(options["around"].environment)
        return run_child(*arguments, **options)

    monkeypatch.setattr("native_bridge.run.run_child", spy)
    once()
    assert "LLAMA_ARG_MOE_SLOT_BANK" not in seen
    assert seen["LLAMA_FLASH_MOE_DISABLE_GPU_BANK"] == "1"
    assert flags(tmp_path / "run")["environment"] == {"LLAMA_FLASH_MOE_DISABLE_GPU_BANK": "1"}


def test_the_text_of_the_model_is_never_shown_as_the_failure(
    once: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_DOES", "speaks-of-errors")
    with pytest.raises(SimError, match="its log is unknown; is it of another version of the engine") as caught:
        once()
    assert "no line `[ Prompt: " in str(caught.value)
    assert "OSErroralse" in (tmp_path / "run" / "text.txt").read_text()
    monkeypatch.setenv("STAND_IN_DOES", "speaks-and-dies")
    with pytest.raises(SimError, match=r"it ended with code 3; its last line: log_runtime_summary"):
        once(force=True)


def test_a_later_build_and_a_prompt_beside_the_bank(once: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DOES", "later")
    run = once(replace(REQUEST, extra=("--moe-prefill-layer-major",)))
    assert run.log.decode_tok_s == 1090.3
    assert run.log.unknown.startswith("--moe-prefill-layer-major: ")
    trace = load_trace(tmp_path / "run" / "trace.jsonl.gz")
    assert (trace.calls, run.log.routed.calls, trace.slot) == (3374 + 8, 3374, None)
