"""`sim machine fit`: the file it writes, what it prints, and one line for whatever it cannot use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashmoe_sim.machines.load import load_machine
from native_bridge.cli.main import main
from tests.native_bridge.recorded_runs import TIMED

TABLES = Path(__file__).parents[2] / "data" / "published"
QWEN = str(TABLES / "anemll_qwen35_35b_bank.csv")
STREAMED, ALL_HIT = str(TIMED / "warm-bank12"), str(TIMED / "warm-allhit")
ROWS = ("--row", "bank=16", "--row", "bank=128", "--model", "qwen3.5-35b-a3b:ud-iq2_m")


pytestmark = pytest.mark.usefixtures("own_folder")


def fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["machine", "fit", *arguments, "--out", "mine.toml"]) == 0
    return capsys.readouterr().out


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = fit(capsys, STREAMED, ALL_HIT)
    assert max(map(len, out.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "cpu.layer_us 3416 3124 to 3701 warm-bank12, warm-allhit" in lines
    assert "storage.read_gb_s 3.87 3.579 to 4.233 warm-bank12, warm-allhit" in lines
    assert "host.first_touch_gb_s 5.012 3.474 to 8.929 warm-bank12, warm-allhit" in lines
    assert "host.resume_us 0 0 to 348 warm-bank12" in lines
    assert "host.call_us 5.512 4.961 to 6.063 warm-bank12" in lines
    assert "warm-bank12 tok/s 14 13.38 -4.4%" in lines
    assert "warm-bank12 ms an install, reads 0.4428 0.4354 -1.7%" in lines
    assert "warm-allhit tok/s 23.7 24.36 +2.8%" in lines
    assert "warm-allhit ms an install, prime 0.764 0.7653 +0.2%" in lines


def test_the_file_says_where_it_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    fit(capsys, STREAMED, ALL_HIT, "--model", str(TIMED))
    machine = load_machine("mine.toml")
    assert (machine.name, machine.title) == ("mine", "Fitted on 2 anchors of mid")
    assert (machine.memory, machine.link, machine.gpu) == (None, None, None)
    assert (machine.storage.lanes.value, machine.storage.request_us.value, machine.host.install_us.value) == (1, 0, 0)
    assert (machine.cpu.weights_gb_s, machine.cpu.knee_tokens.estimated) == (None, True)
    whole, _, condition = machine.storage.read_gb_s.condition.partition("; ")
    assert whole == "the whole reading pool as the anchors saw it, page cache included"
    ran = "the CPU computes, 2 threads, top-8, io-split 4, split-install"
    assert condition == machine.cpu.layer_us.condition == ran
    assert machine.anchors.runs == (STREAMED, ALL_HIT)
    assert machine.anchors.model == "mid"
    assert machine.anchors.command == f"sim machine fit {STREAMED} {ALL_HIT} --model {TIMED} --out mine.toml"
    first = Path("mine.toml").read_bytes()
    assert main([*machine.anchors.command.split()[1:], "--force"]) == 0
    assert Path("mine.toml").read_bytes() == first
    assert main(["machine", "show", "mine.toml"]) == 0


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(fit(capsys, STREAMED, ALL_HIT, "--json"))
    machine = load_machine("mine.toml")
    by_name = {row["parameter"]: row for row in document["fitted"]}
    assert list(by_name) == ["layer_us", "read_gb_s", "first_touch_gb_s", "resume_us"]
    read = machine.storage.read_gb_s
    assert by_name["read_gb_s"] == {
        "parameter": "read_gb_s",
        "path": "storage.read_gb_s",
        "value": read.value,
        "lo": read.lo,
        "hi": read.hi,
        "anchors": ["warm-bank12", "warm-allhit"],
    }
    assert document["machine"]["storage"]["read_gb_s"]["value"] == read.value
    assert document["machine"]["memory"] is None
    assert [row["of"] for row in document["residuals"]] == ["token", "reads", "token", "prime"]
    for row in document["residuals"]:
        assert row["fitted_s"] == pytest.approx(row["measured_s"] * (1 + row["relative"]))
    assert document["correlation"][0][0] == pytest.approx(1)
    assert document["correlation"][0][1] == document["correlation"][1][0] < 0
    assert document["anchors"][0]["misses_per_token"] == pytest.approx(77.5, abs=1)
    assert document["notes"] == []


def test_anchors_that_do_not_agree(capsys: pytest.CaptureFixture[str]) -> None:
    out = fit(capsys, STREAMED, ALL_HIT, str(TIMED / "warm-bank64-rep2"))
    assert max(map(len, out.splitlines())) <= 80
    assert "note: warm-bank64-rep2: reads took 3.148 s" in out


def test_files_among_the_folders_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("README.md").write_text("What lies here.\n")
    assert main(["machine", "fit", "README.md", STREAMED, ALL_HIT, "--out", "mine.toml"]) == 0
    assert "sim: README.md: not the folder of a run; left out\n" in capsys.readouterr().err
    assert load_machine("mine.toml").anchors.runs == (STREAMED, ALL_HIT)  # type: ignore[union-attr]


def test_rows_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Two rows and two numbers: both come out as measured, whatever is fitted."""
    lines = [" ".join(line.split()) for line in fit(capsys, QWEN, *ROWS).splitlines()]
    assert "bank=16 tok/s 46.9 46.9 +0.0%" in lines
    assert "bank=128 tok/s 53 53 +0.0%" in lines
    assert any(line.startswith("note: read_gb_s: the anchors hardly tell its time from zero") for line in lines)
    machine = load_machine("mine.toml")
    install_s = (1 / 46.9 - 1 / 53.0) / (40 * (1.68 - 0.64))
    assert machine.storage.read_gb_s.value == pytest.approx(942080 / install_s / 1e9, rel=1e-4)
    assert machine.gpu.layer_us.value == pytest.approx((1 / 53.0 / 40 - 0.64 * install_s) * 1e6, rel=1e-4)
    assert machine.anchors.runs == (f"{QWEN}: bank=16", f"{QWEN}: bank=128")
    assert machine.storage.read_gb_s.condition.endswith("-ub 1; -n 120")


def test_hit_rates_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Without misses_per_call: of 4 experts, what the hit rate leaves; `-ngl 0` makes it the CPU's."""
    table = Path("table.csv")
    table.write_text("hit_pct,tok_s,condition\n50,40,one machine -ngl 0\n90,50,one machine -ngl 0\n")
    fit(
        capsys,
        "table.csv",
        "--row",
        "hit_pct=50",
        "--row",
        "tok_s=50.0",
        "--topk",
        "4",
        "--model",
        "qwen3.5-35b-a3b:ud-iq2_m",
    )
    machine = load_machine("mine.toml")
    install_s = (1 / 40 - 1 / 50) / (40 * 4 * 0.4)
    assert machine.storage.read_gb_s.value == pytest.approx(942080 / install_s / 1e9, rel=1e-4)
    assert machine.gpu is None
