"""`sim referee`: other programs are asked, and whatever they do is an answer or a refusal."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flashmoe_sim.field.rows import COLUMNS
from native_bridge.advisers import ask
from native_bridge.advisers.ask import advice
from native_bridge.cli.main import main
from tests.field.builders import DEFAULTS, published

ANSWER = '\nprint(json.dumps({"id": q["id"], "tok_s": 25.5, "lo": 20, "hi": 30}), flush=True)'
EACH = "import json, sys, time\nfor line in sys.stdin:\n    q = json.loads(line)"
BROKEN = [
    ("print('about 25 tokens a second')", "did not answer: ended with 0"),
    ("import sys; sys.exit('no GPU found')", "did not answer: ended with 1 ('no GPU found')"),
    ('print(\'{"id": "one", "tok_s": "25 t/s"}\')', "answered '25 t/s', which is no speed"),
    ('print(\'{"id": "one", "tok_s": -4}\')', "answered -4, which is no speed"),
    ('print(\'{"id": "one", "tok_s": true}\')', "answered True, which is no speed"),
    ('print(\'{"id": "one", "tok_s": 1e9}\')', "answered 1000000000.0, which is no speed"),
    ('print(\'{"id": "another", "tok_s": 4}\')', "did not answer: ended with 0"),
    ("print('[1, 2]')", "did not answer: ended with 0"),
    ("import time; time.sleep(600)", "did not answer: no answer in 0.5 s"),
    ("while True: print('x' * 10**6)", "did not answer: printed too much"),
    ('print(\'{"id": "one", "why_not": "too large"}\')', "too large"),
]
Program = Callable[[str], list[str]]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    def made(script: str) -> list[str]:
        path = tmp_path / f"program{len(list(tmp_path.iterdir()))}.py"
        path.write_text(script)
        return [sys.executable, str(path)]

    return made


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def each(*lines: str) -> str:
    return EACH + "".join(f"\n    {line.strip()}" for line in (*lines, ANSWER))


@pytest.mark.parametrize(("script", "why"), BROKEN, ids=[str(number) for number in range(len(BROKEN))])
def test_what_is_no_answer_is_a_refusal(
    script: str, why: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "SILENT_S", 0.5)
    monkeypatch.setattr(ask, "MOST_BYTES", 1 << 18)
    (answer,) = advice(program(script), [{"id": "one"}]).by_id.values()
    assert answer.value is None
    assert answer.why_not.startswith(why)


def test_one_question_never_ends_the_others(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """It crashes at one and hangs at another: both are refusals, and it is started again for what is behind them."""
    monkeypatch.setattr(ask, "SILENT_S", 1.0)
    asked = [{"id": f"{number}"} for number in range(6)]
    script = each('if q["id"] == "2": sys.exit(7)', 'if q["id"] == "4": time.sleep(60)')
    found = advice(program(script), asked).by_id
    assert list(found) == [one["id"] for one in asked]
    assert {which: one.why_not for which, one in found.items() if one.why_not} == {
        "2": "did not answer: ended with 7",
        "4": "did not answer: no answer in 1 s",
    }
    assert {one[:3] for one in found.values() if one.value} == {(25.5, 20, 30)}


def test_who_never_answers_is_started_three_times(program: Program, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    asked = [{"id": f"{number}"} for number in range(50)]
    found = advice(program(f"open({str(starts)!r}, 'a').write('x')"), asked).by_id
    assert {one.why_not for one in found.values()} == {"did not answer: ended with 0"}
    assert starts.read_text() == "xxx"


def test_what_was_measured_is_not_told(program: Program) -> None:
    told = 'print(json.dumps({"id": q["id"], "why_not": " ".join(sorted(q))}))'
    said = advice(program(EACH + f"\n    {told}"), [{"id": "one", "tok_s": 4.0, "source": "me", "gpu": ""}])
    assert said.by_id["one"].why_not == "gpu id"


@pytest.mark.parametrize(
    ("line", "value"), [('"gpu_gib": 7.5', 7.5), ('"tok_s": 7.5', None), ('"gpu_gib": "8 GB"', None)]
)
def test_memory_is_asked_for_by_the_same_protocol(line: str, value: float | None, program: Program) -> None:
    script = (
        f"import json\nq = json.loads(input())\nassert q['wants'] == 'gpu_gib'\nprint('{{\"id\": \"one\", {line}}}')"
    )
    answer = advice(program(script), [{"id": "one"}], wants=ask.MEMORY).by_id["one"]
    assert answer.value == value
    assert value or "which is no size in GiB" in answer.why_not


def test_a_program_that_is_not_there_is_a_refusal() -> None:
    said = advice(["/nowhere/llmfit"], [{"id": "one"}])
    assert "did not answer: /nowhere/llmfit: cannot be started" in said.by_id["one"].why_not


@pytest.mark.parametrize(
    ("first", "python"),
    [
        ("#!/opt/x/bin/python3.11\n", "/opt/x/bin/python3.11"),
        ("#!/bin/sh\n'''exec' \"/opt/a b/bin/python\" \"$0\" \"$@\"\n' '''\n", "/opt/a b/bin/python"),
        ("#!/bin/sh\n'''exec' /opt/x/bin/python3 \"$0\" \"$@\"\n' '''\n", "/opt/x/bin/python3"),
        ("\x7fELF", ""),
    ],
)
def test_the_python_of_a_program(first: str, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "moefit"
    path.write_text(first + "import sys\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    there, absent = ask.installed()
    assert there["moe-fit"][0] == (python or str(tmp_path / "python"))
    assert absent == [one.name for one in ask.ADVISERS if one.name != "moe-fit"]


def rows(folder: Path, *cells: dict[str, str]) -> Path:
    path = folder / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(DEFAULTS | one for one in cells)
    return path


def test_everybody_is_scored_on_the_same_rows(
    tmp_path: Path, program: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that the program was set by is planted: it is scored apart."""
    monkeypatch.setattr(ask, "SILENT_S", 1.0)
    monkeypatch.setenv("COLUMNS", "80")
    seen = next(one for one in published().values() if one.strategy == "all_gpu" and one.gpu == "RTX 3090")
    cells = {name: str(value) if (value := getattr(seen, name)) is not None else "" for name in COLUMNS}
    path = rows(
        tmp_path,
        {"experts_on_cpu_layers": "20"},
        {"id": "two", "gpu": "2x RTX 3090", "strategy": "all_gpu"},
        {"id": "three", "model": "nobody-7b"},
        {"id": "four", "decode_tok_s": ""},
        cells,
    )
    programs = {"mine": each(), "hangs": "import time; time.sleep(60)"}
    given = [word for name, code in programs.items() for word in ("--estimator", f"{name}={shlex.join(program(code))}")]
    out = tmp_path / "answers.csv"
    assert main(["referee", str(path), *given, "--json", "--out", str(out)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["unmeasured"]) == (4, 1)
    assert found["not_installed"] == [one.name for one in ask.ADVISERS]
    scores = {(one["estimator"], one["rows"], one["way"]): one for one in found["scores"]}
    assert scores["flashmoe-sim", "unseen", None]["asked"] == 3
    assert scores["flashmoe-sim", "unseen", None]["answered"] == 2
    assert scores["flashmoe-sim", "seen", None]["asked"] == 1
    assert scores["mine", "unseen", None]["answered"] == 1
    assert scores["mine", "unseen", None]["factor"] == pytest.approx(25.5 / 20)
    assert scores["hangs", "unseen", None]["answered"] == 0
    assert found["refusals"]["hangs"]["did not answer: no answer in 1 s"] == 2
    assert found["refusals"]["mine"]["several GPUs, sockets or machines, of which it cannot be told"] == 1
    answers = {(one["estimator"], one["id"]): one for one in found["answers"]}
    assert "nobody-7b" in answers["mine", "three"]["why_not"]
    assert [one["id"] for one in found["answers"] if one["seen"]] == [seen.id] * len(found["refusals"])
    own = answers["flashmoe-sim", "one"]
    assert own["tok_s_lo"] < own["tok_s"] < own["tok_s_hi"]
    assert answers["flashmoe-sim on paper", "one"]["tok_s_lo"] is None
    assert pl.read_csv(out).height == len(found["answers"])
    assert main(["referee", str(path), *given]) == 0
    shown = capsys.readouterr()
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    assert re.search(r"^mine +1 of 3 +1\.27 +1\.27 +100% +100%, 1\.5 times$", shown.out, re.MULTILINE)
    together = shown.out.partition("The 1 that all of these answer\n")[2].partition("\n\n")[0]
    assert re.findall(r"^(\S.*?) +1 of 1", together, re.MULTILINE) == [
        "flashmoe-sim",
        "flashmoe-sim on paper",
        "bytes over bandwidth",
        "mine",
    ]
    assert "1 row without decode_tok_s is left out" in shown.err
    assert "not installed, and so not asked: llmfit, modelscout-llm, moe-fit, llm-checker" in shown.err


@pytest.mark.parametrize("content", ["model,tok_s\nx,4\n", "", "\x00\x01"])
def test_a_table_with_other_columns_is_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    assert main(["referee", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "line 1" in err
