"""`sim bridge run`: plans, repeats, the table, and refusals before anything is started."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from flashmoe_sim.geometry import read_gguf
from flashmoe_sim.io.errors import Incomplete
from native_bridge import page_cache
from native_bridge.cli.main import main
from native_bridge.engines.base import RunRequest
from native_bridge.engines.flashmoe.modes import MODES
from native_bridge.repeats import plan, requests_of, run_name
from tests.native_bridge.conftest import MODEL, PROMPT, RECORDED
from tests.support import document

pytestmark = pytest.mark.usefixtures("stand_in")

ALL = "stock,resident-bank,resident-slot-bank,slot-bank,oracle-all-hit,oracle-prefetch"


def run(*arguments: object) -> int:
    return main(["bridge", "run", *map(str, arguments)])


def request(mode: str, bank: int) -> RunRequest:
    return RunRequest(mode, bank, PROMPT)


def test_modes_without_a_bank_are_planned_once() -> None:
    requests = requests_of(ALL.split(","), [16, 24], read_gguf(MODEL), request, modes=MODES)
    assert [run_name(one, MODES[one.mode]) for one in requests] == [
        *("stock", "resident-bank", "resident-slot-bank16", "resident-slot-bank24", "slot-bank16", "slot-bank24"),
        *("oracle-all-hit", "oracle-prefetch-bank16", "oracle-prefetch-bank24"),
    ]
    assert {one.bank for one in requests if one.mode in ("stock", "oracle-all-hit")} == {64}
    with pytest.raises(Incomplete, match="mode slot-bank needs a bank; give --bank"):
        requests_of(["stock", "slot-bank"], [], read_gguf(MODEL), request, modes=MODES)


def test_names_tell_the_runs_of_a_folder_apart() -> None:
    names = [run_name(request(name, 24), mode) for name, mode in MODES.items()]
    assert len(set(names)) == len(MODES)
    other = replace(request("slot-bank", 24), ubatch=2, top_k=4, prefetch="temporal", io_split=1)
    assert run_name(other, MODES["slot-bank"]) == "slot-bank24-ub2-topk4-temporal-split1"


def test_repeats_are_interleaved_and_oracles_replay_their_own() -> None:
    requests = [
        request("oracle-prefetch", 16),
        request("oracle-all-hit", 64),
        request("slot-bank", 16),
        request("slot-bank", 24),
    ]
    planned = plan(requests, Path("out"), modes=MODES, repeat=2)
    assert [one.folder.name for one in planned] == [
        *("slot-bank16-rep1", "slot-bank24-rep1", "oracle-prefetch-bank16-rep1", "oracle-all-hit-rep1"),
        *("slot-bank16-rep2", "slot-bank24-rep2", "oracle-prefetch-bank16-rep2", "oracle-all-hit-rep2"),
    ]
    replays = {one.folder.name: one.replay and one.replay.name for one in planned}
    assert replays["oracle-prefetch-bank16-rep2"] == "slot-bank16-rep2"
    assert replays["oracle-all-hit-rep1"] == "slot-bank24-rep1"
    assert replays["slot-bank16-rep1"] is None
    assert plan(requests, Path("out"), modes=MODES, replay=Path("mine"))[-1].replay == Path("mine")


def test_all_modes_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", tmp_path, "--mode", ALL, "--bank", "16,24", "--tokens", "300") == 1
    printed = capsys.readouterr()
    assert "no recorded run of resident-slot-bank" in printed.err  # at 16 there is none
    assert "sim: 9 runs of tiny-moe-64x8, page cache warm: stock, resident-bank,\n" in printed.err
    lines = printed.out.splitlines()
    assert lines[0] == "tiny-moe-64x8, warm page cache"
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines[3:11]] == [
        ["stock", "-", "-", "2163.6", "3595.0"],
        ["resident-bank", "-", "-", "2179.5", "3543.9"],
        ["resident-slot-bank", "24", "68.5", "1925.0", "3013.8"],
        ["slot-bank", "16", "54.2", "1368.5", "1644.2"],
        ["slot-bank", "24", "68.5", "1090.3", "1521.4"],
        ["oracle-all-hit", "64", "100.0", "1876.4", "3147.0"],
        ["oracle-prefetch", "16", "100.0", "1542.1", "1760.9"],
        ["oracle-prefetch", "24", "100.0", "1632.1", "2619.5"],
    ]
    assert json.loads((tmp_path / "oracle-prefetch-bank16" / "run.json").read_text())["replay_of"] == "slot-bank16"
    assert (tmp_path / "sidecar" / "manifest.json").exists()


def test_repeats_have_a_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", tmp_path, "--bank", 24, "--repeat", 2) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[3].split() == [
        "slot-bank",
        "24",
        "68.5",
        "1090.3",
        *["1090.3", "to", "1090.3"],
        "1521.4",
    ]
    assert "2 runs of tiny-moe-64x8, page cache warm: slot-bank24, 2 times over" in printed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sidecar", "slot-bank24-rep1", "slot-bank24-rep2"]


def test_a_text_that_ended_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--out", tmp_path, "--mode", "stock,slot-bank,oracle-prefetch", "--bank", 24, "--tokens")
    assert run(*given, 400) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == ["mode", "bank", "hit", "%", "tok/s", "prompt", "tok/s", "tokens"]
    assert [line.split()[-3:] for line in printed[4:6]] == [["300", "of", "400"]] * 2
    assert printed[3].split()[-1] == "-"  # nothing says how many `stock` wrote
    assert json.loads((tmp_path / "slot-bank24" / "run.json").read_text())["tokens"] == 300
    assert run(*given, 300, "--force") == 0
    assert "of 300" not in capsys.readouterr().out


def test_json(sidecar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--model", MODEL, "--sidecar", sidecar, "--out", tmp_path)
    good, bad = document(capsys, "bridge", "run", *where, "--bank", "24,60", code=1)["runs"]
    assert good["folder"] == str(tmp_path / "slot-bank24")
    assert good["hit_rate"] == pytest.approx(1 - 8509 / 26992)
    assert good["failed"] is None
    assert (good["tokens"], good["tokens_wanted"]) == (300, 100)
    assert (good["gpu_layers"], good["bank_in"], good["memory"]) == (None, [], [])
    assert "no recorded run" in bad["failed"]


def test_a_replay_of_a_failed_run_is_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", tmp_path, "--bank", 60, "--mode", "slot-bank,oracle-prefetch") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "oracle-prefetch-bank60: not started: slot-bank60, which it replays, failed" in printed.err
    assert "no recorded run of slot-bank" in printed.err


def test_a_replay_must_be_of_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = json.loads((RECORDED / "prose-bank24" / "run.json").read_text())["prompt"]
    options = ("--out", tmp_path, "--mode", "oracle-prefetch", "--bank", 24, "--replay", RECORDED / "prose-bank24")
    assert run(*options) == 2
    assert "was run with another prompt and another tokens than asked for here" in capsys.readouterr().err
    assert run(*options, "--prompt", prompt, "--tokens", 300) == 0
    assert "oracle-prefetch    24  100.0" in capsys.readouterr().out


def test_nothing_is_started_where_a_folder_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", tmp_path, "--bank", 24) == 0
    assert run("--out", tmp_path, "--bank", "16,24", "--tokens", 50) == 2
    assert f"{tmp_path / 'slot-bank24'}: exists; give --force to overwrite it" in capsys.readouterr().err
    assert not (tmp_path / "slot-bank16").exists()
    assert run("--out", tmp_path, "--bank", "16,24", "--tokens", 50, "--force") == 0


def test_the_same_command_keeps_its_runs_and_makes_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--out", tmp_path, "--bank", "24,60") == 1
    capsys.readouterr()
    kept, failed = tmp_path / "slot-bank24", tmp_path / "slot-bank60"
    (kept / "text.txt").write_text("as it was")
    when = failed.stat().st_mtime_ns
    assert run("--out", tmp_path, "--bank", "16,24,60") == 1
    printed = capsys.readouterr()
    assert "reusing 1 of 3 runs, repeating 1 that failed" in printed.err
    assert [line.split()[1] for line in printed.out.splitlines()[3:] if line] == ["16", "24"]
    assert (kept / "text.txt").read_text() == "as it was"
    assert failed.stat().st_mtime_ns > when
    assert run("--out", tmp_path, "--bank", "24", "--force") == 0
    assert (kept / "text.txt").read_text() != "as it was"


@pytest.mark.parametrize("change", [("--seed", 2), ("--cache", "as-is"), ("--", "-fa", "off")])
def test_a_run_of_another_command_is_not_taken_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[object, ...]
) -> None:
    assert run("--out", tmp_path, "--bank", 24) == 0
    assert run("--out", tmp_path, "--bank", 24, *change) == 2
    assert "slot-bank24: exists; give --force to overwrite it" in capsys.readouterr().err


def test_a_page_cache_that_cannot_be_prepared_ends_no_run_that_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--out", tmp_path, "--bank", "16,24,32")
    shares = iter([1.0, 0.5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_cache, "resident_bytes", lambda files: page_cache.total_bytes(files) * next(shares))
        assert run(*command) == 2
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines()[3:] if line] == ["16"]
    assert f"{tmp_path / 'slot-bank24'}: not started: --cache warm: 50% of" in printed.err
    assert "then give the same command: it goes on from this run" in printed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sidecar", "slot-bank16"]
    assert run(*command) == 0
    printed = capsys.readouterr()
    assert "reusing 1 of 3 runs, repeating 0 that failed" in printed.err
    assert [line.split()[1] for line in printed.out.splitlines()[3:] if line] == ["16", "24", "32"]


def test_flags_of_the_runtime_are_passed_on_and_recorded(tmp_path: Path) -> None:
    assert run("--out", tmp_path, "--bank", 24, "--", "-fa", "off", "--no-mmap") == 0
    document = json.loads((tmp_path / "slot-bank24" / "run.json").read_text())
    assert document["flags"] == ["-fa", "off", "--no-mmap"]
    assert " ".join(document["command"]).count("-fa off --no-mmap") == 1
    assert document["extra"][-3:] == document["flags"]


def test_a_wide_micro_batch_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", tmp_path, "--bank", 16, "--ubatch", 4) == 1
    err = capsys.readouterr().err
    assert "slot-bank16-ub4: 4 tokens may ask for 32 experts; a run in which they do fails" in err
    assert "the bank is too small: layer 0 needs more than 16 slots at call 8" in err


def test_a_full_bank_is_never_too_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("--out", tmp_path, "--bank", 64, "--ubatch", 16)
    assert "may ask for" not in capsys.readouterr().err


def test_a_sidecar_is_written_for_a_given_model_too(tmp_path: Path) -> None:
    assert run("--out", tmp_path, "--model", MODEL, "--bank", 24) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sidecar", "slot-bank24"]
    document = json.loads((tmp_path / "slot-bank24" / "run.json").read_text())
    assert document["model"]["sidecar"] == str(tmp_path / "sidecar")


def test_of_flags_that_are_not_known_the_counts_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_DOES", "later")
    assert run("--out", tmp_path, "--bank", 24, "--", "--moe-prefill-layer-major") == 0
    err = capsys.readouterr().err
    assert "--moe-prefill-layer-major: the experts of its prompt are read layer by layer, beside the bank" in err
    assert "`sim bridge check` does not compare these runs" in err
    assert main(["bridge", "check", str(tmp_path / "slot-bank24"), "--model", str(MODEL)]) == 1
    printed = capsys.readouterr()
    printed_out = " ".join(printed.out.split())
    assert "slot-bank24: not compared: " in printed_out
    assert "--moe-prefill-layer-major: the experts of its prompt" in printed_out
    assert "differ" not in printed_out


def test_a_prompt_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("From a file,\nin two lines.")
    assert run("--out", tmp_path / "out", "--bank", 24, "--prompt-file", tmp_path / "prompt") == 0
    document: dict[str, Any] = json.loads((tmp_path / "out" / "slot-bank24" / "run.json").read_text())
    assert document["prompt"] == document["command"][-1] == "From a file,\nin two lines."
    assert document["prompt_file"] == str(tmp_path / "prompt")


def test_names_of_prefetch_are_only_for_modes_that_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", tmp_path, "--mode", "stock,slot-bank", "--bank", 24, "--prefetch", "temporal") == 0
    assert "stock: without --prefetch, which only resident-slot-bank and slot-bank have" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"sidecar", "stock", "slot-bank24-temporal"}
    assert run_name(replace(request("stock", 64), prefetch="temporal"), MODES["stock"]) == "stock-temporal"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: int, code: int) -> None:
    program = "from native_bridge.cli.main import entry; entry()"
    words = [sys.executable, "-c", program, "bridge", "run", "--out", str(tmp_path), "--bank", "24"]
    us = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "STAND_IN_DOES": "hang"})
    for _ in range(200):
        if logs := [log for log in tmp_path.glob(".*/log.txt") if "Loading" in log.read_text()]:
            break
        time.sleep(0.1)
    assert logs
    children = psutil.Process(us.pid).children(recursive=True)
    us.send_signal(number)
    assert us.communicate(timeout=20)[1].count("\n") == 2
    assert us.returncode == code
    assert [path.name for path in tmp_path.iterdir()] == ["sidecar"]
    assert len(children) == 2
    assert psutil.wait_procs(children, timeout=5)[1] == []
