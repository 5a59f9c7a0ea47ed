"""`sim recommend` as it is first seen: one screen, with the numbers of the JSON, in words that need no glossary."""

from __future__ import annotations

import re
from typing import Any

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.report.first_screen import HIGH, number
from flashmoe_sim.tune.others import MOST, speeds_of_others
from tests.support import document

ASKED = {
    "a PC": ("gpt-oss-120b", "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4 + windows"),
    "a Mac": ("gpt-oss-120b", "m4-max-128"),
    "no GPU": ("qwen3-30b-a3b", "ryzen-9950x + ddr5-5600x2 + 64GiB"),
    "larger than the RAM": ("qwen3-235b-a22b", "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen4 + linux"),
    "little said": ("gpt-oss-20b", "rtx-4090"),
}
SYSTEMS = "placed,placed-ik,cached,moe-cache,all-gpu,cpu"
UNKNOWN_WORDS = "contract|knee|draws?|unproven|aliased|replay(?:ed)?|host|bank|pages of mapped"


@pytest.fixture(params=ASKED, scope="module")
def asked(request: pytest.FixtureRequest) -> list[str]:
    model, machine = ASKED[request.param]
    return ["recommend", model, "--machine", machine, "--system", SYSTEMS]


def shown(capsys: pytest.CaptureFixture[str], *asked: str) -> str:
    assert main([*asked]) == 0
    return capsys.readouterr().out


def test_it_is_one_screen(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, *asked)
    lines = out.splitlines()
    commands = [line for line in lines if re.search(r"(?:llama-server|cli)\S* ", line)]
    assert len(lines) <= HIGH
    assert all(len(line) <= 80 for line in lines if line not in commands)
    assert not re.search(rf"\b(?:{UNKNOWN_WORDS})\b", out)
    assert lines[-1].endswith("more: --why; a page: --save page.html")


def test_its_numbers_are_those_of_the_json(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(shown(capsys, *asked).split())
    advised = document(capsys, *asked)
    best: dict[str, Any] = advised["best"]
    lo, mid, hi = (number(best[name]) for name in ("tok_s_lo", "tok_s", "tok_s_hi"))
    assert f"{mid} tokens a second, most likely {lo} to {hi}" in out
    assert best["command"] in out


def test_speeds_of_others_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """Every speed that is drawn is a published one with this model, of about this file."""
    out = shown(capsys, "recommend", *ASKED["a PC"][:1], "--machine", ASKED["a PC"][1], "--system", "placed")
    strip = out.split("\n\n")[1].split("\n  ")[0].splitlines()
    rows = [line for line in strip if "[" not in line]
    assert 3 <= len(rows) <= MOST
    known = {one.on for one in speeds_of_others() if one.model == "gpt-oss-120b"}
    assert all(any(row.startswith(on[:20]) for on in known) for row in rows)
    assert "\nOthers measured: * the same engine" in out


def test_a_narrow_terminal_has_room_for_the_axis(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = shown(capsys, "recommend", *ASKED["a PC"][:1], "--machine", ASKED["a PC"][1], "--system", "placed")
    above = out.partition("\nRun ")[0].splitlines()
    assert sum("+---" in line for line in above) == 1
    assert all(len(line) <= 60 for line in above)


def test_why_has_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", *ASKED["a PC"][:1], "--machine", ASKED["a PC"][1], "--system", "placed"]
    first, whole = shown(capsys, *asked), shown(capsys, *asked, "--why")
    assert len(whole.splitlines()) > 2 * len(first.splitlines())
    for title in ("How large", "What holds it back", "What this rests on"):
        assert title in whole
        assert title not in first


def test_a_near_one_that_may_not_fit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["recommend", "gpt-oss-20b", "--machine", "rtx-3060", "--system", "placed,all-gpu"]
    free = {row["system"]: row["gpu_free_bytes"] for row in document(capsys, *asked)["systems"]}
    assert free["all-gpu"] < 0 < free["placed"]
    near = " ".join(shown(capsys, *asked).split()).partition(" Near ")[2].partition(" Doubt ")[0]
    assert re.fullmatch(r"llama.cpp, all on the GPU \d+ \(\d+ to \d+\), which may not fit", near)


def test_what_is_asked_for_stands_below(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "recommend", "gpt-oss-120b", "--machine", ASKED["a PC"][1], "--system", "placed", "--buy")
    assert "What to buy" in out


@pytest.mark.parametrize(
    ("tok_s", "says"),
    [
        (0.0121, "below 0.1"),
        (0.346, "0.35"),
        (0.999, "1.0"),
        (6.62, "6.6"),
        (9.96, "10"),
        (24.6, "25"),
        (1234.5, "1,234"),
    ],
)
def test_two_digits(tok_s: float, says: str) -> None:
    assert number(tok_s) == says


def test_it_says_which_file_or_model_was_taken(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "recommend", "kimi-k2", "--machine", "m1-pro-32", "--system", "cpu,slot-bank")
    assert "Note no system can run kimi-k2:q4_k_m here" in " ".join(out.split())


def test_a_faster_engine_that_is_not_sure_enough_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With faster RAM its lead is no longer sure in nine of ten draws, so that what is named first is slower."""
    asked = ["recommend", "gpt-oss-120b", "--machine", "rtx-4070 + ddr5-5600x2 + 64GiB + nvme-gen4"]
    found = document(capsys, *asked, "--system", SYSTEMS)
    out = " ".join(shown(capsys, *asked, "--system", SYSTEMS).split())
    best, other = (next(one for one in found["systems"] if one["system"] == name) for name in ("placed", "moe-cache"))
    assert found["best"]["setting"] == best["setting"]
    assert other["tok_s"] > 1.1 * best["tok_s"]
    (share,) = re.findall(rf"likely faster \((\d+)%\): {number(other['tok_s'])} \(", out)
    assert 50 < int(share) < 90
    assert other["command"] in out


@pytest.mark.parametrize(("system", "named"), [("", False), (" + linux", True), (" + windows", True)])
def test_a_system_that_decides_how_a_file_is_read_is_asked_for(
    system: str, named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = f"rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen4{system}"
    out = " ".join(shown(capsys, "recommend", "gpt-oss-120b", "--machine", machine, "--system", "placed").split())
    assert ("the system, on which reading depends: give `+ linux` or `+ windows`" in out) != named


def test_where_a_known_model_is_and_on_what_others_measured(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(
        shown(capsys, "recommend", "qwen3-30b-a3b", "--machine", ASKED["a PC"][1], "--system", "placed").split()
    )
    assert "GB, Q4_K_M at https://huggingface.co/unsloth/Qwen3-30B-A3B-GGUF" in out
    out = " ".join(shown(capsys, "recommend", "kimi-k2", "--machine", "epyc-9354 + 768GiB", "--system", "cpu").split())
    assert "on such a GPU" not in out
