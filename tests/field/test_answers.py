"""What a file of rows gets: the commands' own answers, sharper after other rows of the machine were measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.field.asked import Traces, asked_of
from flashmoe_sim.field.machine import built_of
from flashmoe_sim.field.model import model_of
from flashmoe_sim.field.rows import COLUMNS, FieldRow, read_rows
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.verbs.compare import Compare
from reports.field import answers as field
from reports.field.__main__ import main
from reports.field.answers import answers, learnt_from
from tests.field.builders import DEFAULTS, row, write

SPEEDS = {"tok_s", "lo", "hi", "prompt_tok_s", "prompt_lo", "prompt_hi"}


def answer(
    folder: Path, capsys: pytest.CaptureFixture[str], asked: dict[str, str], measured: dict[str, str] | None = None
) -> dict[str, Any]:
    """What `--json` prints of one row, with one of its machine measured."""
    arguments = [str(write(folder / "asked.csv", DEFAULTS | asked)), "--json"]
    if measured is not None:
        arguments += ["--given", str(write(folder / "given.csv", DEFAULTS | measured))]
    assert main(arguments) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)[0]
    return document


def test_a_file_gets_answers_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = {"id": "two", "model": "Nobody-7B"}, {"id": "three", "engine": "vLLM", "strategy": "all_gpu"}
    path = write(tmp_path / "rows.csv", *(DEFAULTS | cells for cells in ({}, *others)))
    assert main([str(path), "--json"]) == 0
    one, two, three = json.loads(capsys.readouterr().out)
    assert set(one) == set(two) == set(three) == {"id", "system", "why"} | SPEEDS
    assert (one["id"], one["system"], one["why"]) == ("one", "placed", None)
    assert one["lo"] < one["tok_s"] < one["hi"]
    assert one["prompt_lo"] < one["prompt_tok_s"] < one["prompt_hi"]
    assert {two[name] for name in (*SPEEDS, "system")} == {None}
    assert "Nobody-7B" in two["why"]
    assert three["system"] is None
    assert three["hi"] / three["lo"] > 1.5 * one["hi"] / one["lo"]
    assert main([str(path)]) == 0
    text = capsys.readouterr().out
    assert "two: no prediction; unknown model" in text
    assert "three: any engine: " in text
    assert f", prompts {one['prompt_tok_s']:.3g} (" in text


def test_answers_are_those_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the row was measured at."""
    strata = {"engine": "Strata", "strategy": "vram_lru", "model": "Qwen3.8-Flash-Next", "quant": "IQ3_S"}
    for cells in ({}, {"engine": "Ollama", "strategy": "all_gpu"}, strata):
        one = row(tmp_path, **cells)
        asked = asked_of(one, Traces())
        drafted = asked.case.drafts
        of_drafts = {} if drafted is None else {"draft": drafted.count, "accept": 0.77}
        compared = Compare(
            model=model_of(one), machine=built_of(one).machine, systems=[asked.system], context=0, **of_drafts
        )
        (found,) = compared.run().rows
        for measured in ("", "1", "900"):
            said = answer(tmp_path, capsys, cells | dict.fromkeys(("decode_tok_s", "prompt_tok_s"), measured))
            assert said["system"] == asked.system.name
            assert said["tok_s"] == pytest.approx(found.tok_s, rel=1e-3)
            assert (said["lo"], said["hi"]) == pytest.approx((found.tok_s_lo, found.tok_s_hi), rel=1e-2)


def test_columns_of_measurements_are_not_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed = tuple(name for name in COLUMNS if not name.startswith(("decode", "prompt", "notes", "date", "source")))
    with_all, without = (write(tmp_path / "rows.csv", DEFAULTS, columns=columns) for columns in (COLUMNS, needed))
    assert main([str(with_all), "--json"]) == main([str(without), "--json"]) == 0
    assert capsys.readouterr().out


def test_a_measurement_of_the_same_machine_changes_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"id": "asked", "machine_id": "m"}
    before = answer(tmp_path, capsys, asked)
    mine = asked | {"id": "mine", "decode_tok_s": str(1.4 * before["tok_s"])}
    faster = answer(tmp_path, capsys, asked, mine)
    assert before["tok_s"] * 1.2 < faster["tok_s"] < before["tok_s"] * 1.4
    assert faster["hi"] / faster["lo"] < 0.7 * before["hi"] / before["lo"]
    assert answer(tmp_path, capsys, asked, mine | {"machine_id": "n"}) == before
    same = answer(tmp_path, capsys, asked, mine | {"decode_tok_s": str(before["tok_s"])})
    assert same["tok_s"] == pytest.approx(before["tok_s"], rel=0.02)
    assert before["lo"] < same["lo"] < same["hi"] < before["hi"]


def test_a_measurement_that_cannot_be_is_doubted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        write(tmp_path / f"{name}.csv", DEFAULTS | {"machine_id": "m", "decode_tok_s": "900"}) for name in ("a", "b")
    ]
    assert main([str(paths[0]), "--given", str(paths[1])]) == 0
    printed = capsys.readouterr()
    assert "not used: " in printed.err
    assert "b.csv: line 2: 900 tok/s, and " in printed.err
    assert printed.err.count("\n") == 1


def test_a_machine_is_learnt_once_and_from_the_likeliest_row_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in any order teach the same; one that cannot be teaches nothing."""
    asked = read_rows(write(tmp_path / "a.csv", *(DEFAULTS | {"id": name, "machine_id": "m"} for name in "ab")))
    speeds = {"right": "30", "wrong": "900"}
    given = read_rows(
        write(
            tmp_path / "b.csv",
            *(DEFAULTS | {"id": name, "machine_id": "m", "decode_tok_s": speed} for name, speed in speeds.items()),
        )
    )
    taught = list[int]()

    def counted(rows: Sequence[FieldRow], *others: Any) -> Machine:
        taught.append(len(rows))
        return learnt_from(rows, *others)

    monkeypatch.setattr(field, "learnt_from", counted)
    both = (answers(asked, order, prompts=False) for order in (given, given[::-1]))
    assert [*both] == [answers(asked, given[:1], prompts=False)] * 2
    assert taught == [2, 2, 1]


@pytest.mark.parametrize("lacks", ["machine_id", "decode_tok_s"])
def test_a_measurement_that_lacks_something_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lacks: str
) -> None:
    measured = {"id": "mine", "machine_id": "m", "decode_tok_s": "10"} | {lacks: ""}
    paths = [
        write(tmp_path / name, DEFAULTS | one) for name, one in (("a.csv", {"machine_id": "m"}), ("b.csv", measured))
    ]
    assert main([str(paths[0]), "--given", str(paths[1])]) == 0
    assert f"b.csv: line 2: has no {lacks}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "no such file"), ("id,engine\n1,2\n", "no column"), ("\xff", "UTF-8")],
)
def test_a_bad_file_gives_one_line(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    assert main([str(path), "--json"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize(
    "arguments",
    [
        *("--nothing", "a.csv b.csv", "--json", "--given x.csv", "--pairs", "a.csv --tune", "--pairs --json"),
        *("--pairs --tune", "a.csv --pairs --tune", "a.csv b.csv --pairs"),
    ],
)
def test_a_wrong_command_says_how(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert "usage: python -m reports.field" in error
    assert error.count("\n") == 1
