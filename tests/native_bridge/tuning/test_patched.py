"""`sim tune` with programs that answer like the patched llama-cli: a right one, and some that break."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.measured.read import read_measured
from native_bridge.tuning import complete, session
from native_bridge.tuning.llama_programs import find_program
from tests.native_bridge.conftest import MODEL
from tests.native_bridge.tuning import stand_in
from tests.native_bridge.tuning.fake_cli import HELP, LETTERS
from tests.native_bridge.tuning.stand_in import MACHINE, lines, printed, started
from tests.support import refusal

FEW = ("--system", "slot-bank:slots=16")


def write(folder: Path, **behaviour: Any) -> Path:
    return stand_in.write(folder / "llama-cli", "fake_cli", {"speed": 2000.0} | behaviour)


def tune(folder: Path, *more: object, **behaviour: Any) -> int:
    engine = folder / "llama-cli"
    if not engine.exists():
        write(folder, **behaviour)
    return stand_in.tune(engine, *more)


def test_slots_prefetch_and_reads_are_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--minutes", "1") == 0
    found = printed(capsys)
    settings = {run["setting"] for run in found["runs"]}
    assert found["best"].startswith("slot-bank:slots=64:")
    assert any("prefetch=" in one for one in settings)
    assert any("io_split=" in one for one in settings)
    assert not any("top_k" in one for one in settings)
    program, *words = shlex.split(found["command"].rpartition("EXPERIMENTAL_")[2].partition(" ")[2] or found["command"])
    assert program == str(tmp_path / "llama-cli")
    ran = [line for line, _ in started(tmp_path)]
    assert any(line[: len(words)] == words for line in ran)
    assert str(Path("out/sidecar").absolute()) in words
    assert {run["gpu_bytes"] for run in found["runs"]} == {2956 << 20}
    learnt = read_measured(Path("out"))
    assert {one.system.partition(":")[0] for one in learnt} == {"slot-bank"}


def test_every_repeat_fills_the_bank_and_has_a_text_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--objective", "prompt", "--prompt-tokens", "300", "--minutes", "0.02")
    assert tune(tmp_path, "--json", *asked, *FEW) == 0
    first, *others = [letters for _, letters in started(tmp_path)][: session.REPEATS + 1]
    assert first == 300
    assert others == [LETTERS * 300] * session.REPEATS
    assert printed(capsys)["runs"][0]["seconds"] == pytest.approx(300 / (20 * 2000.0), rel=0.3)
    assert len({complete.letters(500, number * 128) for number in range(4)}) == 4


def test_the_times_of_real_logs() -> None:
    logs = Path(__file__).parents[1] / "engines" / "flashmoe" / "logs"
    found = complete.timings_of((logs / "cpu-batched.txt").read_text())
    speeds = {"prompt_per_second": pytest.approx(857.4, abs=0.1), "predicted_per_second": pytest.approx(853.8, abs=0.1)}
    assert found == {"prompt_n": 19, "prompt_ms": 22.16, "predicted_n": 40, "predicted_ms": 46.85} | speeds
    assert complete.timings_of((logs / "cpu-overflow.txt").read_text()) == {}


def test_the_runtime_of_the_bridge_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("FLASHMOE_RUNTIME", str(write(tmp_path)))
    assert find_program(None).path == tmp_path / "llama-cli"


def test_the_sidecar_that_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str], sidecar: Path) -> None:
    assert tune(tmp_path, "--json", "--sidecar", sidecar, "--minutes", "0.02", *FEW) == 0
    assert str(sidecar) in printed(capsys)["command"]
    assert not Path("out/sidecar").exists()


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        ("silent", "printed no speed"),
        ("other format", "printed no speed"),
        ("zero", "printed no speed: predicted_ms 0.0"),
        ("stops", "generated 1 tokens where"),
        ("crash", "ended with code 1: llama_model_load: error loading model: unknown architecture"),
        ("overflow", "slot-bank overflow in layer 3"),
        ("later", "an illegal memory access"),
        ("segv", "was ended by signal 11"),
        ("oom", "was ended by signal 9"),
        ("hang", "was ended after"),
        ("flood", "printed without end"),
    ],
)
def test_a_broken_runtime_has_no_fastest_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, breaks: str, says: str
) -> None:
    monkeypatch.setattr(session, "LEAST_LIMIT_S", 0.5)
    monkeypatch.setattr(session, "SLOWEST", 0.0 if breaks == "hang" else 1000.0)
    monkeypatch.setattr(session, "MOST_BYTES", 1 << 20)
    assert tune(tmp_path, *FEW, breaks=breaks) == 2
    out, err = capsys.readouterr()
    assert "measured;" not in out
    assert says in err
    assert err.splitlines()[-1].startswith("sim: no setting gave a speed; the last run ")
    assert {line["lacks"] for line in lines()[1:]} == {"ram" if breaks == "oom" else ""}


def test_memory_that_lacks_with_many_slots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--minutes", "1", most_slots=40) == 0
    found = printed(capsys)
    assert found["best"].startswith("slot-bank:slots=32:") or found["best"].startswith("slot-bank:slots=32 ")
    assert any(run["lacks"] == "ram" for run in found["runs"])


def test_a_runtime_that_slows_down_is_not_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--minutes", "0.2", breaks="slower") == 0
    assert printed(capsys)["ended"] != "sure"


def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = write(tmp_path)

    def said(*given: object) -> str:
        return refusal(capsys, "tune", MODEL, "--machine", MACHINE, "--engine", engine, *given)

    prompts = ("--objective", "prompt", "--prompt-tokens", "100")
    assert "--depth: llama-cli times a prompt with what is before it" in said("--depth", "50", *prompts)
    assert "--system all-gpu: llama-cli does not run it; it runs slot-bank" in said("--system", "all-gpu")
    assert "no such" in said("--sidecar", tmp_path / "none")
    write(tmp_path, help=HELP.replace("--moe-cache-io-split", "--moe-other"))
    assert "slot-bank is started with --moe-cache-io-split, which" in said()
    write(tmp_path, help=HELP.replace("--moe-mode", "--moe-other"))
    assert "or of the patched llama-cli" in said()
    write(tmp_path)
    monkeypatch.setenv("LLAMA_FLASH_MOE_EXPERIMENTAL_BATCHED_INSTALL_READS", "1")
    assert "is set; how misses are installed is a setting of slot-bank; unset it" in said()
    bench = stand_in.write(tmp_path / "llama-bench", "fake_bench", {"speed": 5.0})
    assert "--sidecar: llama-bench reads none" in refusal(capsys, "tune", MODEL, "--engine", bench, "--sidecar", "x")
