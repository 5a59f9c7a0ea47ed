"""`sim tune` with programs that answer like llama-server: right ones, and some that break."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.measured.read import read_measured
from native_bridge.tuning import serve, session
from native_bridge.tuning.llama_programs import find_program
from tests.native_bridge.tuning import stand_in
from tests.native_bridge.tuning.fake_server import HELP
from tests.native_bridge.tuning.stand_in import lines, printed, started


def write(folder: Path, **behaviour: Any) -> Path:
    return stand_in.write(folder / "llama-server", "fake_server", behaviour)


def tune(folder: Path, *more: object, **behaviour: Any) -> int:
    engine = folder / "llama-server"
    if not engine.exists():
        write(folder, **{"speed": 5.0} | behaviour)
    return stand_in.tune(engine, *more)


def test_the_line_that_is_named_is_the_one_that_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--system", "all-gpu") == 0
    found = printed(capsys)
    assert found["ended"] in ("sure", "even")
    assert "threads=6" in found["best"]
    assert found["seconds"] == pytest.approx(1 / (5.0 * 10 * 1.05))
    program, *words = shlex.split(found["command"])
    assert program == str(tmp_path / "llama-server")
    assert words in [run[: -len(["--host", "H", "--port", "P"])] for run in started(tmp_path)]
    learnt = [one for one in read_measured(Path("out")) if not one.prompt]
    assert {one.system for one in learnt} == {"all-gpu"}
    assert {round(one.tok_s, 6) for one in learnt} == {round(1 / found["seconds"], 6)}


def test_the_cache_of_a_new_build_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, speed=5.0)
    assert "cached" in find_program(str(tmp_path / "llama-server")).systems
    assert tune(tmp_path, "--dry-run", "--system", "cached") == 0
    shown = capsys.readouterr().out
    assert "cached:cache_mib=" in shown
    assert "cpu_share" not in shown
    write(tmp_path, help=f"{HELP}\n--moe-cache-cpu-share F")
    assert tune(tmp_path, "--dry-run", "--system", "cached") == 0
    assert "cpu_share=0.5" in capsys.readouterr().out
    write(tmp_path, help=HELP.replace("--moe-cache-mib N", ""))
    assert "cached" not in find_program(str(tmp_path / "llama-server")).systems
    assert tune(tmp_path, "--dry-run", "--system", "cached") == 2
    assert "cached is started with --moe-cache-mib, which" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("goal", "more", "seconds"),
    [("prompt", (), 300 / (5.0 * 10 * 20)), ("both", ("--answer-tokens", "100"), (300 / 20 + 100) / 50)],
)
def test_prompts_and_depth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], goal: str, more: tuple[str, ...], seconds: float
) -> None:
    asked = ("--objective", goal, "--prompt-tokens", "300", "--depth", "200", "--system", "all-gpu", *more)
    assert tune(tmp_path, "--json", *asked) == 0
    assert min(run["seconds"] for run in printed(capsys)["runs"]) == pytest.approx(seconds, rel=0.06)
    assert {one.depth for one in read_measured(Path("out")) if one.prompt} == {200}


def test_each_repeat_has_a_text_of_its_own() -> None:
    assert len({serve.text(about) for about in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        ("crash", "ended with code 1: the server did not start"),
        ("error", "the server answered 400 to /completion"),
        ("dies", "ended with code 3: the server gave no answer"),
        ("prose", "printed no speed"),
        ("zero", "printed no speed: predicted_ms 0.0"),
        ("stops", "generated 1 tokens where"),
        ("forgets", "it does not keep the context before"),
    ],
)
def test_a_broken_server_has_no_fastest_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], breaks: str, says: str
) -> None:
    asked = ("--objective", "both", "--prompt-tokens", "100", "--depth", "100", "--system", "all-gpu")
    assert tune(tmp_path, *asked, breaks=breaks) == 2
    out, err = capsys.readouterr()
    assert "measured;" not in out
    assert says in err
    assert all(line["seconds"] is None for line in lines()[1:])


def test_memory_that_lacks_is_known_from_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--system", "placed:cpu_layers=1", least_layers=3) == 2
    assert {line["lacks"] for line in lines()[1:]} == {"gpu"}


def test_a_fork_runs_what_is_named_if_it_has_the_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--system", "moe-cache") == 2
    assert "moe-cache is started with --fit, which" in capsys.readouterr().err
    (tmp_path / "llama-server").unlink()
    help_ = f"{HELP}\n--no-mmap N\n--fit N\n--moe-cache N\n"
    assert tune(tmp_path, "--json", "--system", "moe-cache", "--minutes", "0.05", help=help_) == 0
    found = printed(capsys)
    assert found["best"].startswith("moe-cache:")
    assert f" {tmp_path / 'llama-server'} " in found["command"]


def test_an_interrupted_server_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent is ended by a signal that nothing can catch."""
    import psutil

    monkeypatch.setattr(session, "LEAST_LIMIT_S", 1.0)
    monkeypatch.setattr(session, "SLOWEST", 0.0)
    write(tmp_path, speed=5.0)
    assert tune(tmp_path, "--system", "all-gpu", "--minutes", "0.02") in (0, 2)
    left = [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or [])]
    assert not left
