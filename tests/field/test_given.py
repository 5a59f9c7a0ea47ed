"""What measured rows of a machine teach about its other rows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.machines.learnt import learn
from reports.field import given
from reports.field.__main__ import main
from reports.field.given import Miss, Spread
from reports.field.rows import FieldRow, read_rows
from tests.field.builders import DEFAULTS, write

SPREAD = Spread(
    {"cpu": 0.4, "gpu": 0.3, "read": 0.6, "upload": 0.7, "model": 0.2, "engine": 0.3, "setting": 0.1, "own": 0.1}
)
NO_SHARES = dict.fromkeys(given.PARTS, 0.0)


def miss(off: float, *, cpu: float, model: str = "a", engine: str = "e", setting: str = "s") -> Miss:
    """A row of which the CPU has this share of the time, and the GPU the rest."""
    groups = {"model": model, "engine": engine, "setting": setting}
    return Miss(a_row(), off, NO_SHARES | {"cpu": cpu, "gpu": 1 - cpu}, groups)


@cache
def a_row() -> FieldRow:
    return read_rows(Path(__file__).parents[2] / "data" / "published" / "field.csv")[0]


def test_one_measurement_by_hand() -> None:
    learnt = given.learnt_from([miss(0.5, cpu=1.0)], SPREAD)
    other = miss(math.nan, cpu=1.0, model="b", engine="f", setting="t")
    mean, sd = given.deviation(other, learnt, SPREAD)
    whole = 0.4**2 + 0.2**2 + 0.3**2 + 0.1**2 + 0.1**2
    assert mean == pytest.approx(0.5 * 0.4**2 / whole)
    assert sd == pytest.approx(math.sqrt(whole - 0.4**4 / whole))


def test_what_is_not_shared_is_not_learnt() -> None:
    learnt = given.learnt_from([miss(0.5, cpu=1.0)], SPREAD)
    mean, _ = given.deviation(miss(math.nan, cpu=0.0, model="b", engine="f", setting="t"), learnt, SPREAD)
    assert mean == 0


def test_each_measurement_narrows() -> None:
    rows = [miss(0.2, cpu=share, setting=str(share)) for share in (0.1, 0.5, 0.9)]
    one = miss(math.nan, cpu=0.6)
    sds = [given.deviation(one, given.learnt_from(rows[:count], SPREAD), SPREAD)[1] for count in range(4)]
    assert sds == sorted(sds, reverse=True)
    assert sds[-1] < sds[0]


def test_conditioning_is_that_of_draws() -> None:
    """The joint distribution of a million draws, of which those near the measurement are kept."""
    loads = [{"a": 0.5, "b": 0.3}, {"a": 0.2, "c": 0.4}]
    learnt = learn(loads[:1], [0.6], [0.2])
    random = np.random.default_rng(1)
    unknown = dict(zip("abc", random.standard_normal((3, 1_000_000)), strict=True))
    first, second = (sum(load * unknown[name] for name, load in each.items()) for each in loads)
    kept = second[np.abs(first + 0.2 * random.standard_normal(1_000_000) - 0.6) < 0.01]
    mean, variance = learnt.of(loads[1])
    assert mean == pytest.approx(kept.mean(), abs=0.01)
    assert variance == pytest.approx(kept.var(), rel=0.03)


def test_spread_is_found_again() -> None:
    """Rows made with a spread give it back; and 90% of their intervals hold."""
    random = np.random.default_rng(2)
    rows = []
    for machine in range(300):
        unknown: dict[str, float] = {}
        for number in range(4):
            one = miss(0.0, cpu=random.random(), model=f"m{number // 2}", engine=f"e{number % 2}", setting=str(number))
            here = given.loads(one, SPREAD)
            off = sum(load * unknown.setdefault(name, random.standard_normal()) for name, load in here.items())
            row = replace(one.row, machine_id=str(machine))
            rows.append(one._replace(row=row, off=off + 0.1 * random.standard_normal()))
    found = given.fitted(rows)
    assert found.sd["cpu"] == pytest.approx(SPREAD.sd["cpu"], rel=0.3)
    assert found.sd["engine"] == pytest.approx(SPREAD.sd["engine"], rel=0.3)
    assert found.widen == pytest.approx(1.0, abs=0.12)


def test_a_measurement_of_the_same_machine_changes_the_prediction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, other = ({"id": name, "machine_id": name} for name in ("asked", "other"))
    before = predicted(tmp_path, capsys, asked, None)
    faster = predicted(tmp_path, capsys, asked, asked | {"id": "mine", "decode_tok_s": str(2 * before["tok_s"])})
    elsewhere = predicted(tmp_path, capsys, asked, other | {"decode_tok_s": str(2 * before["tok_s"])})
    assert before["tok_s"] * 1.5 < faster["tok_s"] < before["tok_s"] * 2
    assert faster["hi"] / faster["lo"] < before["hi"] / before["lo"]
    assert elsewhere == before


def test_a_measurement_as_predicted_only_narrows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"id": "asked", "machine_id": "m"}
    before = predicted(tmp_path, capsys, asked, None)
    after = predicted(tmp_path, capsys, asked, asked | {"decode_tok_s": str(before["tok_s"])})
    assert after["tok_s"] == pytest.approx(before["tok_s"], rel=1e-3)
    assert before["lo"] < after["lo"] < after["hi"] < before["hi"]


def predicted(
    folder: Path, capsys: pytest.CaptureFixture[str], asked: dict[str, str], measured: dict[str, str] | None
) -> dict[str, Any]:
    """What `--json` prints of one row, with one of its machine measured."""
    arguments = [str(write(folder / "asked.csv", DEFAULTS | asked)), "--json"]
    if measured is not None:
        arguments += ["--given", str(write(folder / "given.csv", DEFAULTS | measured))]
    assert main(arguments) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)[0]
    return document


@pytest.mark.parametrize(("lacks", "word"), [("machine_id", "machine_id"), ("decode_tok_s", "decode_tok_s")])
def test_a_measurement_that_lacks_something_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lacks: str, word: str
) -> None:
    measured = {"id": "mine", "machine_id": "m", "decode_tok_s": "10"} | {lacks: ""}
    paths = [
        write(tmp_path / name, DEFAULTS | one) for name, one in (("a.csv", {"machine_id": "m"}), ("b.csv", measured))
    ]
    assert main([str(paths[0]), "--given", str(paths[1])]) == 0
    assert f"b.csv: line 2: has no {word}" in capsys.readouterr().err


def test_a_file_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--given", "x.csv"]) == 2
    assert "usage: python -m reports.field" in capsys.readouterr().err
