"""`sim replay`: the JSON document and the tables of one replay."""

from __future__ import annotations

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.schema import COUNTS, IDENTITY
from tests.support import document, printed_by

ADDITIVE = ("calls", "refs", "requests", "hits", "misses", "cold_installs", "evictions", "bypassed", "aliased_refs")
ADDITIVE += ("full_hit_calls", "bytes_read", "read_ops", "prefetch_issued", "prefetch_bytes", "prefetch_wasted_bytes")


@pytest.mark.parametrize(
    "options",
    [["--policy", "lru"], ["--policy", "static"], ["--prefetch", "predict-prev"], ["--scope", "global"]],
    ids=" ".join,
)
def test_json_has_identity_counts_layers_and_timing(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    found = document(capsys, "replay", "python-256", "--bank", "16", *options)
    assert list(found) == ["identity", "counts", "layers", "timing", "version"]
    assert set(found["identity"]) == {column.name for column in IDENTITY}
    assert set(found["counts"]) == {column.name for column in COUNTS if not column.name.startswith("best_")}
    assert found["timing"] is None
    assert [row["layer"] for row in found["layers"]] == list(range(6))
    for name in ADDITIVE:
        assert sum(row[name] for row in found["layers"]) == found["counts"][name], name
    assert set(found["layers"][0]) - {"layer"} < set(found["counts"])


def test_the_table_says_what_the_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["python-256", "--bank", "64", "--contract", "runtime"]
    counts = document(capsys, "replay", *asked)["counts"]
    assert main(["replay", *asked]) == 0
    printed = capsys.readouterr()
    words = " ".join(printed.out.split())
    assert words.startswith("python-256: lru, bank 64 (slots of each layer), contract runtime routed calls 6,031")
    for label, name in (("hits", "hits"), ("misses", "misses"), ("cold installs", "cold_installs")):
        assert f"{label} {counts[name]:,} " in words
    assert "reads layer calls" not in words
    assert f"in {counts['read_ops']:,} reads" in words
    assert f"slot aliasing: {counts['aliased_refs']:,} of 48,248 requests" in printed.err


def test_what_comes_between_steps_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["python-256", "--bank", "16", "--policy", "hot-window", "--contract", "atomic"]
    counts = document(capsys, "replay", *arguments)["counts"]
    assert main(["replay", *arguments]) == 0
    line = f"loaded between steps {counts['prefetch_issued']:,}; {counts['prefetch_useful']:,} of them used"
    assert line in " ".join(capsys.readouterr().out.split())
    words = " ".join(printed_by(capsys, "sweep", *arguments, quiet=False).split())
    assert "read/tok excludes prefetches and installs between steps" in words


def test_only_the_worst_layers_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "replay", "deepseek-v2-lite", "--bank", "16")
    assert "the 16 layers with most misses; --all-layers shows all 26" in out
    assert main(["replay", "deepseek-v2-lite", "--bank", "16", "--all-layers"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    layers = [int(row[0]) for row in rows if row and row[0].isdecimal()]
    assert layers == list(range(1, 27))


def test_no_line_about_aliasing_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "python-256", "--bank", "16"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "bank 16 (slots of each layer), contract protected" in printed.out
    assert "slots are recorded: --contract runtime reproduces the counts of their engine" in printed.out
    assert main(["replay", "deepseek-v2-lite", "--bank", "16"]) == 0  # which has none
    assert "slots are recorded" not in capsys.readouterr().out
