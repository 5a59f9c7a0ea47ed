"""`sim compare` and `sim system`: tables, JSON, files and errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars
import pytest

from flashmoe_sim import api
from flashmoe_sim.cli.main import main
from flashmoe_sim.machines.basis import basis
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.schema import COMPARED
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.tune.pays import LIKELY_KEYS
from tests.support import document, printed_by, refusal

pytestmark = pytest.mark.usefixtures("answered_once")

ASKED = ["compare", "python-256", "--machine", "rtx-3090", "--kv", "1GiB"]


def test_the_table_has_the_systems_their_flags_and_what_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ASKED) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert max(len(line) for line in printed.out.splitlines() if not line.startswith("    ")) <= 80
    assert "\n    llama-server -m MODEL.gguf -ngl 99 --n-cpu-moe " in printed.out
    assert "cannot run here:\n" in printed.out
    assert "  flash-moe: needs a GPU that shares the RAM" in printed.out


def test_json_has_the_documented_columns(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, *ASKED)
    assert (answer["model"], answer["machine"], answer["kv_bytes"]) == ("tiny256", "rtx-3090", 2**30)
    assert {row["system"] for row in answer["rows"]} == set(SYSTEMS)
    for row in answer["rows"]:
        memory = row.pop("memory")
        more = {"environment", "get", "published_speeds", *LIKELY_KEYS}
        assert set(row) == {column.name for column in COMPARED} | more
        kept = sum(share["bytes"] for share in memory if share["where"] != "mapped")
        assert kept == (row["gpu_bytes"] or 0) + (row["ram_bytes"] or 0)


def test_the_context_of_a_named_model(capsys: pytest.CaptureFixture[str]) -> None:
    """12 of 24 layers keep 32,768 tokens of 2,048 bytes, 12 keep 768; rows and budget have the same bytes."""
    asked = ["compare", "--model", "gpt-oss-20b", "--machine", "rtx-3090", "--system", "all-gpu", "--hit-rate", "0.5"]
    answer = document(capsys, *asked, "--context", "32768")
    context = 12 * 2048 * (32768 + 768)
    assert (answer["context"], answer["kv_bytes"], answer["notes"]) == (
        32768,
        context,
        [
            basis(load_machine("rtx-3090")).removesuffix("."),
            "room for a context of 32,768 tokens, 786 MiB; speeds are at an empty one",
        ],
    )
    assert {share["what"]: share["bytes"] for share in answer["rows"][0]["memory"]}["context"] == context
    assert {term["what"]: term["bytes"] for term in answer["budget"]}["context"] == context
    assert document(capsys, *asked)["context"] == 4096
    by_type = document(capsys, *asked, "--kv-type", "q8_0", "--buffers", "2GiB", "--reserve", "9GiB")
    budget = {term["what"]: term["bytes"] for term in by_type["budget"]}
    assert (budget["compute buffers"], budget["system"]) == (2 * 2**30, 9 * 2**30)
    assert budget["context"] == 12 * 1088 * (4096 + 768)


def test_the_api_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows = document(capsys, *ASKED)["rows"]
    table = api.compare("python-256", machine="rtx-3090", kv="1GiB")
    assert table.columns == [column.name for column in COMPARED]
    assert table.to_dicts() == [{name: row[name] for name in table.columns} for row in rows]


def test_a_model_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", "--model", "olmoe-1b-7b", "--machine", "rtx-3090", "--system", "all-gpu"]
    answer = document(capsys, *asked)
    assert "no trace of olmoe-1b-7b:q4_k_m is at hand" in answer["notes"][0]
    with pytest.warns(UserWarning, match="no trace of olmoe-1b-7b:q4_k_m is at hand"):
        api.compare(model="olmoe-1b-7b", machine="rtx-3090", systems="all-gpu")
    assert document(capsys, *asked, "--hit-rate", "80%")["rows"][0]["hit_rate"] == 1.0


def test_what_the_machine_was_taken_as_is_the_first_note(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("compare", "--model", "deepseek-v2-lite", "--system", "cpu", "--hit-rate", "80%", "--machine")
    answer = document(capsys, *asked, "RTX 3060 12GB + 64GB")
    assert answer["notes"][0].startswith("Given: rtx-3060 and 64GiB; assumed: a pcie4x16 link; guessed: the CPU (")
    named = document(capsys, *asked, "rtx-3060 + ryzen-5600 + ddr4-3200 + 64GiB + nvme-gen4")
    assert not any("guessed" in note for note in named["notes"])
    assert document(capsys, *asked, "rtx-3060")["notes"][0].startswith("From the preset rtx-3060: 32 GiB of RAM at 45")
    lines = printed_by(capsys, *asked, "rtx-3060").splitlines()
    assert sum(line.startswith("From the preset rtx-3060: ") for line in lines) == 1


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_rows_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"rows{suffix}"
    assert main([*ASKED, "--system", "all-gpu,placed", "--out", str(out)]) == 0
    table = polars.read_csv(out) if suffix == ".csv" else polars.read_parquet(out)
    assert set(table["system"]) == {"all-gpu", "placed"}
    assert "exists" in refusal(capsys, *ASKED, "--out", str(out))


@pytest.mark.parametrize("size", ["238pt", "238", "238x200"])
def test_a_picture_is_as_wide_as_a_column(capsys: pytest.CaptureFixture[str], tmp_path: Path, size: str) -> None:
    asked, out = [*ASKED, "--system", "all-gpu,placed", "--size", size], tmp_path / "systems.svg"
    assert main([*asked, "--out", str(out)]) == 0
    assert re.search(r"<svg[^>]* width=\"238pt\"", out.read_text("utf-8"))
    assert "is of a picture; give --out FILE.pdf" in refusal(capsys, *asked)
    wrong = [*ASKED, "--size", "5", "--out", str(tmp_path / "other.svg")]
    assert "expected 36 to 7200 points" in refusal(capsys, *wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["systems.svg"]


def test_systems_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["name"] for one in document(capsys, "system", "list")["systems"]] == list(SYSTEMS)
    assert main(["system", "list"]) == 0
    for name in SYSTEMS:
        assert main(["system", "show", name]) == 0
        answer = document_after(capsys, name)
        assert answer["source"]
        assert all(answer["meanings"].values())
    assert main(["system", "show", "nothing"]) == 2


def document_after(capsys: pytest.CaptureFixture[str], name: str) -> Any:
    assert f"\n{name}: " in "\n" + capsys.readouterr().out
    return document(capsys, "system", "show", name)


def test_caches_are_held_against_the_best_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Not at one hit rate for all: whole layers then hit as often as a cache."""
    asked = ["gpt-oss-120b", "--machine", "rtx-4090", "--system", "placed,hot-cache"]
    answer = document(capsys, "compare", *asked)
    rows = {row["system"]: row["p_faster_than_plain"] for row in answer["rows"]}
    assert answer["plain"].startswith("placed:")
    assert rows["placed"] is None
    assert rows["hot-cache"] > 0.75
    assert main(["compare", *asked]) == 0
    assert f"Probability that a cache is faster than {answer['plain']}" in " ".join(capsys.readouterr().out.split())
    fixed = document(capsys, "compare", "--model", *asked, "--hit-rate", "80%")
    assert fixed["plain"] is None
    assert {row[key] for row in fixed["rows"] for key in LIKELY_KEYS} == {None}
