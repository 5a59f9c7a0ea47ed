"""`sim prefetch`: the list of the predictors, and their value."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.prefetchers.table import PREFETCHERS, WITHOUT_FILE, parse_prefetcher
from tests.support import document, printed_by


def test_list_names_every_predictor_and_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed_by(capsys, "prefetch", "list").splitlines()
    names = [line.split()[0].rstrip("*") for line in lines if line[:1].isalpha()]
    assert [name for name in names if name in PREFETCHERS] == list(PREFETCHERS)
    assert max(map(len, lines)) <= 80
    assert next(line for line in lines if line.startswith("oracle-1*")).split()[1:3] == ["one", "call"]


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    listed = document(capsys, "prefetch", "list")["predictors"]
    assert [entry["name"] for entry in listed] == list(PREFETCHERS)
    for entry in listed:
        kind = PREFETCHERS[entry["name"]]
        assert entry["parameters"] == {item.name: item.default for item in fields(kind)}
        assert (entry["hindsight"], entry["lead"]) == (kind.hindsight, kind.lead)
        for key, value in entry["parameters"].items() if entry["name"] in WITHOUT_FILE else ():
            assert parse_prefetcher(f"{entry['name']}:{key}={value}") == kind()


@pytest.mark.parametrize("verb", ["replay", "sweep"])
def test_help_names_every_predictor(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    words = "".join(printed_by(capsys, verb, "--help-all").split())  # names are broken at their hyphens
    assert f": {', '.join(PREFETCHERS)}.".replace(" ", "") in words


def test_judge_has_a_row_for_each_predictor_and_first_none(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed_by(capsys, "prefetch", "judge", "python-256", "--bank", "16").splitlines()
    assert max(map(len, lines)) <= 80
    begin = next(number for number, line in enumerate(lines) if line.startswith("none "))
    shown = [line.split()[0] for line in lines[begin : begin + len(WITHOUT_FILE)]]
    assert shown == [name + "*" * PREFETCHERS[name].hindsight for name in WITHOUT_FILE]
    assert lines[0] == "python-256: lru, bank 16 (slots of each layer), contract protected"
    assert "How right must a predictor be?" in lines
    assert any(line.endswith("never") for line in lines)
    assert "*: knows the future" in " ".join(lines)
    assert "*:" not in printed_by(capsys, "prefetch", "judge", "python-256", "--bank", "16", "--prefetch", "temporal")


@pytest.mark.parametrize(
    ("trace", "options"),
    [
        ("python-256", ["--bank", "16", "--contract", "runtime", "--prefetch", "predict-prev,none,eam:width=4"]),
        ("qwen3-30b-phone", ["--bank", "6GiB", "--contract", "atomic", "--scope", "global", "--prefetch", "oracle-w"]),
    ],
)
def test_judge_says_what_replays_say(capsys: pytest.CaptureFixture[str], trace: str, options: list[str]) -> None:
    found = document(capsys, "prefetch", "judge", trace, *options, "--policy", "fifo")
    wanted = options.pop().split(",")
    options.pop()
    assert [row["prefetch"] for row in found["predictors"]] == ["none", *(name for name in wanted if name != "none")]
    without = found["predictors"][0]["misses"]
    for row in found["predictors"]:
        assert main(["replay", trace, *options, "--policy", "fifo", "--prefetch", row["prefetch"], "--json"]) == 0
        counts = json.loads(capsys.readouterr().out)["counts"]
        for name, column in (("precision", "prefetch_precision"), ("read_ahead", "prefetch_issued")):
            assert row[name] == counts[column]
        assert (row["misses"], row["saved"]) == (counts["misses"], without - counts["misses"])
        assert row["useful"] + row["wasted"] == row["read_ahead"]
        assert row["bytes_read"] == counts["bytes_read"] + counts["prefetch_bytes"]
        assert row["worth"] == (row["saved"] / row["read_ahead"] if row["read_ahead"] else None)
    assert {name: found["identity"][name] for name in ("trace", "policy")} == {"trace": trace, "policy": "fifo"}


def test_on_a_machine_judge_has_the_speeds_of_replays(capsys: pytest.CaptureFixture[str]) -> None:
    """And a predictor's own time slows it."""
    options = ("gpt-oss-120b", "--bank", "32", "--machine", "rtx-4090")
    named = "markov,markov:cost_us=50"
    rows = document(capsys, "prefetch", "judge", *options, "--prefetch", named)["predictors"]
    assert main(["sweep", *options, "--prefetch", f"none,{named}", "--json"]) == 0
    expected = {row["prefetch"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    for row in rows:
        for name in ("tok_s", "tok_s_lo", "tok_s_hi"):
            assert row[name] == pytest.approx(expected[row["prefetch"]][name], rel=1e-9)
    plain, slower = rows[1:]
    assert (slower["misses"], slower["read_ahead"]) == (plain["misses"], plain["read_ahead"])
    assert 1 / slower["tok_s"] - 1 / plain["tok_s"] == pytest.approx(36 * 50e-6, rel=0.05)
    shown = printed_by(capsys, "prefetch", "judge", *options, "--prefetch", named, quiet=False)
    assert max(map(len, shown.splitlines())) <= 80
    assert "tok/s 90% interval" in shown
    assert "split-install on rtx-4090" in shown


def test_where_calls_wait_for_what_is_read_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    """What is named as a step begins comes too late for its first layers, not for its last; layers that are not named
    wait for nothing."""
    words = "prefetch judge gpt-oss-120b --bank 32 --machine m3-max-48 --execution overlap-prefetch"
    named = ("synthetic:recall=0.8", "synthetic:recall=0.8:layers=3", "temporal")
    found = document(capsys, *words.split(), "--prefetch", ",".join(named))["predictors"]
    late = {row["prefetch"]: row["late_layers"] for row in found}
    assert late["none"] == late["temporal"] == []
    assert {0, 1, 2} <= set(late[named[0]]) < set(range(18))
    assert late[named[1]] == [0, 1, 2]
    assert document(capsys, *words.split()[:5])["predictors"][0]["late_layers"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--machine rtx-4090", True),
        ("--machine rtx-4090 --execution parallel-install", True),
        ("--machine rtx-4090 --execution overlap-prefetch", False),
        ("", False),
    ],
)
def test_an_execution_that_waits_for_reads_ahead_is_named(
    capsys: pytest.CaptureFixture[str], options: str, said: bool
) -> None:
    """Even one that knows the next call gains nothing there."""
    assert main(f"prefetch judge gpt-oss-120b --bank 32 {options} --prefetch oracle-1".split()) == 0
    assert ("calls wait for reads ahead as for misses" in capsys.readouterr().err) == said


def test_a_predictor_of_drafts_says_that_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    words = "prefetch judge python-256 --bank 16 --prefetch"
    for named, said in (("synthetic:drafted=True", True), ("synthetic", False)):
        assert main([*words.split(), named]) == 0
        assert ("no pass verifies drafts" in capsys.readouterr().err) == said


def test_break_even_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "prefetch", "judge", "prose-256", "--bank", "32", "--prefetch", "none", "--price", "0.2")[
        "break_even"
    ]
    assert (found["price"], found["recalls"]) == (0.2, [0.25, 0.5, 0.75, 1.0])
    assert [row["extra"] for row in found["extras"]] == [0, 2, 4, 8, 16]
    for row in found["extras"]:
        assert len(row["worth"]) == len(found["recalls"])
        paying = [recall for recall, worth in zip(found["recalls"], row["worth"], strict=True) if worth >= 0.2]
        assert (row["needed_recall"] is None) == (not paying)
        assert not paying or paying[0] - 0.25 < row["needed_recall"] <= paying[0]


def test_a_trace_of_no_known_model_has_no_bytes(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"[[0, {n % 5}], [1, {n * n % 4}]]\n" for n in range(40)))
    out = printed_by(capsys, "prefetch", "judge", str(path), "--bank", "2")
    row = next(line.split() for line in out.splitlines() if line.startswith("markov"))
    assert row[-2] == "-"
    (value,) = document(capsys, "prefetch", "judge", str(path), "--bank", "2", "--prefetch", "none")["predictors"]
    assert value["bytes_read"] is None
