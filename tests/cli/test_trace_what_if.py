"""`sim trace merge` and `sim trace speculate`, and the other verbs on what they write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.trace import load_trace
from flashmoe_sim.trace.store import write_store
from tests.support import document, refusal
from tests.trace.strategies import trace_of


def test_a_union_of_bundled_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "three.parquet"
    assert main(["trace", "merge", "python-256", "prose-256", "cpp-256", "--how", "union", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{out}: 6,109 calls, 145,464 references, ")
    assert printed.err == (
        f"sim: {out}: union of python-256, prose-256, cpp-256\n"
        f"sim: {out}: 3 of 3 parts begin with the decode that a runtime makes while loading; "
        "`sim trace cut --steps 2:` leaves it out\n"
    )
    described = document(capsys, "trace", "inspect", out)
    assert described["trace"] == "union of python-256, prose-256, cpp-256"
    assert described["notes"][0] == "union of python-256, prose-256, cpp-256"
    assert described["tokens"] == 1026 + 1039 + 1031
    assert described["union"]["max"] == 24
    (row,) = document(capsys, "sweep", out, "--bank", "64", "--contract", "atomic")["rows"]
    assert row["requests"] == described["requests"]
    assert row["hits"] == 85_091
    curve = document(capsys, "curve", out)["curve"]
    assert {point["bank"]: point["hits"] for point in curve}[64] == row["hits"]
    replayed = document(capsys, "replay", out, "--bank", "64", "--contract", "protected")["counts"]
    assert (replayed["hits"], replayed["calls"]) == (row["hits"], 6_109)


def test_turns_and_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns, behind = tmp_path / "turns.parquet", tmp_path / "behind.parquet"
    merge = ["trace", "merge", "python-256", "prose-256"]
    written = document(capsys, *merge, "--how", "interleave", "--every", 50, "--out", turns)
    assert main([*merge, "--how", "concat", "--out", str(behind)]) == 0
    assert (written["calls"], written["tokens"]) == (6_031 + 6_096, 1_026 + 1_039)
    capsys.readouterr()
    hits = {}
    for trace in (turns, behind):
        (row,) = document(capsys, "sweep", trace, "--bank", "64", "--contract", "atomic")["rows"]
        hits[trace] = row["hits"]
    alone = document(capsys, "sweep", "python-256", "prose-256", "--bank", "64", "--contract", "atomic")["rows"]
    assert hits[turns] < hits[behind]
    # each but the first finds the bank as the one before left it
    assert abs(hits[behind] - sum(row["hits"] for row in alone)) < 6 * 64
    begin = document(capsys, "trace", "cut", behind, tmp_path / "first.parquet", "--steps", "0:1026")
    assert begin["refs"] == alone[0]["refs"]


def test_a_staggered_copy_is_read_once_and_goes_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, out = tmp_path / "one.parquet", tmp_path / "two.jsonl"
    write_store(trace_of((0, [1]), (0, [2]), (0, [3]), phase=np.array([2, 2, 2], np.uint8)), one)
    arguments = ["trace", "merge", str(one), str(one), "--how", "union", "--stagger", "1", "--out", str(out)]
    assert main(arguments) == 0
    assert load_trace(out).expert.tolist() == [1, 2, 2, 3, 3, 1]
    assert "no place for phase" in capsys.readouterr().err
    assert "exists; give --force" in refusal(capsys, *arguments)
    assert main([*arguments, "--force", "--to", "parquet"]) == 0
    assert load_trace(out).n_tokens.tolist() == [2, 2, 2]


def test_traces_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a" / "trace.parquet", tmp_path / "b" / "trace.parquet"]
    for layer, path in enumerate(paths):
        path.parent.mkdir()
        write_store(trace_of((layer, [1]), name="trace", notes=("odd",)), path)
    out = tmp_path / "out.parquet"
    assert main(["trace", "merge", *map(str, paths), "--how", "concat", "--out", str(out)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"sim: {paths[0]} and {paths[1]} are of different models: layers 0 and 1; give traces of one model"
    )
    assert not out.exists()
    assert main(["trace", "merge", str(paths[0]), str(paths[0]), "--how", "concat", "--out", str(out)]) == 0
    stderr = capsys.readouterr().err
    assert stderr == f"sim: {paths[0]}: odd\nsim: {out}: concatenation of 2 x trace\n"
    assert load_trace(out).notes == ("trace: odd", "concatenation of 2 x trace")


def test_speculation_on_a_bundled_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "drafted.parquet"
    assert main(["trace", "speculate", "python-256", "--draft", "3", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.err == f"sim: {out}: 899 decode steps became 225, with 3 drafted in each\n"
    described = document(capsys, "trace", "inspect", out)
    # the prompt is as it was: 127 steps of one token
    assert (described["tokens"], described["steps"]) == (1026, 127 + 225)
    assert described["refs"] == document(capsys, "trace", "inspect", "python-256")["refs"]
    options = ["--accept", "0.6", "--rejected", "next", "--seed", "4", "--out", tmp_path / "some.parquet"]
    written = document(capsys, "trace", "speculate", "python-256", "--draft", "3", *options)
    assert written["tokens"] == 1026  # of text
    misses = {}
    for trace in ("python-256", out, tmp_path / "some.parquet"):
        (row,) = document(capsys, "sweep", trace, "--bank", "64", "--contract", "atomic")["rows"]
        misses[trace] = row["misses"]
    assert sorted(misses.values()) == [misses[out], misses[tmp_path / "some.parquet"], misses["python-256"]]


def test_a_server_with_two_seats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "served.parquet"
    merge = ["trace", "merge", "python-256", "prose-256", "cpp-256", "--concurrency", "2"]
    assert main([*merge, "--prefill-chunk", "64", "--out", str(out)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        f"sim: {out}: continuous batching by 2 of python-256, prose-256, cpp-256: 3 requests, "
        "first come, first served; all wait at the start; at most 64 prompt tokens a step"
    )
    described = document(capsys, "trace", "inspect", out)
    assert described["tokens"] == 1026 + 1039 + 1031
    # prompts of 127, 140 and 132 tokens: two steps, three (the first with one token of it) and three
    assert described["steps"] == 2 + 899 + 3 + 899
    behind = tmp_path / "behind.parquet"
    assert main([*merge[:-1], "1", "--out", str(behind)]) == 0
    assert (
        main(["trace", "merge", "python-256", "prose-256", "cpp-256", "--how", "concat", "--out", f"{out}.parquet"])
        == 0
    )
    assert load_trace(behind).content_id == load_trace(f"{out}.parquet").content_id


def test_copies_that_run_in_step_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for traces, in_step in ((["python-256", "python-256"], True), (["python-256", "prose-256"], False)):
        out = tmp_path / f"{in_step}.parquet"
        assert main(["trace", "merge", *traces, "--concurrency", "2", "--out", str(out)]) == 0
        assert ("its copies run in step" in capsys.readouterr().err) == in_step


def test_arrivals_from_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Blank lines are ignored; a server's log has the time in a key."""
    one, log, out = tmp_path / "two.parquet", tmp_path / "log.jsonl", tmp_path / "out.parquet"
    write_store(trace_of((0, [1]), (0, [2]), (0, [3]), sequence=np.array([0, 0, 1], np.int32)), one)
    log.write_text('{"id": "b", "created": 1790000002}\n\n1790000000.0\n')
    merge = ["trace", "merge", str(one), "--concurrency", "2", "--arrivals", str(log), "--out", str(out)]
    assert main([*merge, "--step-ms", "500"]) == 0
    assert load_trace(out).expert.tolist() == [3, 1, 2]
    assert main([*merge, "--step-ms", "5000", "--force"]) == 0
    assert load_trace(out).steps.tolist() == [0, 1, 2]
    capsys.readouterr()
    for text, found in {
        "1\n2\n3\n": "3 arrivals for 2 requests; give one for each",
        "1\nsoon\n": "log.jsonl:2: 'soon' is not a time; expected a number of seconds",
        "1\nNaN\n": "log.jsonl:2: 'NaN' is not a time",
        "1\ntrue\n": "log.jsonl:2: True is not a time",
        '{"at": 1}\n2\n': "log.jsonl:1: none of the keys arrival_time, created; the time of arrival is expected in one",
        "": "log.jsonl: is empty; expected a file with a time in seconds for each request",
    }.items():
        log.write_text(text)
        assert found in refusal(capsys, *merge, "--step-ms", "500", "--force")
