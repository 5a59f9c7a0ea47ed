"""`sim predict`: hit rates to speeds, with the error beside what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim import api
from flashmoe_sim.cli.main import main
from flashmoe_sim.schema import PREDICTED
from reports.fidelity.from_table import PUBLISHED
from tests.support import document, printed_by

MODEL = ["--model", "qwen3.5-35b-a3b:ud-iq2_m", "--machine", "m5-max-128"]
TABLE = str(PUBLISHED / "anemll_qwen35_35b_bank.csv")


def test_a_table_with_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *MODEL, "--table", TABLE, "--topk", "4"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert max(map(len, printed.out.splitlines())) <= 80
    rows = [line.split() for line in printed.out.splitlines() if line.endswith("%") and line.strip()[0].isdigit()]
    assert [row[0] for row in rows] == ["16", "32", "64", "128", "256"]
    assert [row[-2] for row in rows] == ["46.9", "51.9", "53.2", "53", "55.2"]
    assert all(row[-1][0] in "+-" for row in rows)


def test_json_has_the_documented_columns_and_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, "predict", *MODEL, "--table", TABLE, "--topk", "4")
    assert (answer["model"], answer["machine"]) == ("qwen3.5-35b-a3b:ud-iq2_m", "m5-max-128")
    assert answer["execution"] == "split-install"
    for row in answer["rows"]:
        parts = row.pop("ms_per_token_by_part")
        assert list(row) == [column.name for column in PREDICTED]
        assert sum(parts.values()) == pytest.approx(row["ms_per_token"])
        assert row["error"] == pytest.approx(row["tok_s"] / row["measured_tok_s"] - 1)
        assert row["tok_s_lo"] < row["measured_tok_s"] < row["tok_s_hi"]


def test_a_row_that_does_not_fit_says_so_and_the_others_are_predicted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("bank,hit_pct,tok_s\n16,58.8,46.9\n900GiB,99,60\n")
    arguments = [*MODEL, "--table", str(table), "--topk", "4"]
    out = printed_by(capsys, "predict", *arguments)
    assert max(map(len, out.splitlines())) <= 80
    (row,) = [line.split() for line in out.splitlines() if line.strip().startswith("900GiB")]
    assert row == ["900GiB", "4", "99.0", "-", "-", "-", "does", "not", "fit", "60", "-"]
    assert "does not fit: bank 900GiB: 900.0 GiB of slots" in out
    fits, unfit = document(capsys, "predict", *arguments)["rows"]
    assert fits["does_not_fit"] is None
    assert fits["tok_s"] > 0
    assert unfit["does_not_fit"].startswith("bank 900GiB: 900.0 GiB of slots")
    assert (unfit["bank"], unfit["top_k"], unfit["measured_tok_s"]) == ("900GiB", 4, 60.0)
    frame = api.predict(table=table, model="qwen3.5-35b-a3b:ud-iq2_m", machine="m5-max-128", top_k=4)
    assert frame["tok_s"].is_null().to_list() == [False, True]
    assert frame["does_not_fit"].to_list() == [None, unfit["does_not_fit"]]


def test_hit_pct_of_at_most_one_is_noted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("bank,hit_pct\n16,0.5\n")
    note = "hit_pct 0.5 is read as 0.50%; if it means 0 to 1, name the column hit_rate"
    assert main(["predict", *MODEL, "--table", str(table)]) == 0
    assert capsys.readouterr().err == f"sim: {table}: {note}\n"
    with pytest.warns(UserWarning, match=note):
        api.predict(table=table, model="qwen3.5-35b-a3b:ud-iq2_m", machine="m5-max-128")


def test_hit_rates_without_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--hit-rate", "0.588,72.8%", "--topk", "4", "--bank", "32", "--execution", "sync-install"]
    slow, fast = document(capsys, "predict", *MODEL, *arguments)["rows"]
    assert (slow["hit_rate"], fast["hit_rate"]) == (pytest.approx(0.588), pytest.approx(0.728))
    assert slow["tok_s"] < fast["tok_s"]
    assert (slow["bank"], slow["measured_tok_s"], slow["error"]) == ("32", None, None)
    assert "measured" not in printed_by(capsys, "predict", *MODEL, *arguments)


@pytest.mark.parametrize("execution", ["resident", "mapped"])
def test_equal_speeds_say_why(execution: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["predict", "--hit-rate", "0.2,0.9", "--model", "gpt-oss-20b", "--machine", "rtx-3060 + 64GiB"]
    asked += ["--execution"]
    assert main([*asked, execution]) == 0
    assert f"no hit rate changes the speed: under {execution}" in " ".join(capsys.readouterr().out.split())
    assert any("no hit rate changes" in note for note in document(capsys, *asked, execution)["notes"])
    assert main([*asked, "split-install"]) == 0
    assert "no hit rate changes" not in " ".join(capsys.readouterr().out.split())


def test_the_python_function_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows = document(capsys, "predict", *MODEL, "--table", TABLE, "--topk", "4")["rows"]
    table = api.predict(table=TABLE, model="qwen3.5-35b-a3b:ud-iq2_m", machine="m5-max-128", top_k=4)
    assert table.columns == [column.name for column in PREDICTED]
    assert table.to_dicts() == [{name: row[name] for name in table.columns} for row in rows]
    one = api.predict(hit_rate=0.588, model="qwen3.5-35b-a3b:ud-iq2_m", machine="m5-max-128", top_k=4, bank=16)
    assert one.height == 1


def test_ends_of_a_measured_speed_and_rows_without_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("slots,hit_pct,tok_s_lo,tok_s_hi\n32,74.9,3.5,4.1\n64,94.6,,\n")
    words = ["--model", "qwen3-235b-a22b", "--dense", "5GiB", "--machine", "strix-halo-128", "--table", str(path)]
    assert main(["predict", *words]) == 0
    first, second = (line.split() for line in capsys.readouterr().out.splitlines() if line.strip()[:2] in {"32", "64"})
    assert first[-2] == "3.5-4.1"
    assert second[-2:] == ["-", "-"]


def test_lines_of_one_bank_and_top_k_are_numbered(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "modes.csv"
    table.write_text("mode,bank,hit_pct\na,16,50\nb,16,50\n")
    assert main(["predict", *MODEL, "--table", str(table), "--topk", "4"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:4].strip().isdigit()]
    assert [row[:3] for row in rows] == [["2", "16", "4"], ["3", "16", "4"]]
    found = document(capsys, "predict", *MODEL, "--table", str(table), "--topk", "4")["rows"]
    assert [row["source"] for row in found] == [f"{table}: line 2", f"{table}: line 3"]
    assert [(row["bank"], row["bank_slots"], row["bank_bytes"]) for row in found] == [("16", 16, None)] * 2
