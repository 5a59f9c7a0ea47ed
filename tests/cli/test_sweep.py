"""`sim sweep`: its table, its JSON, its files, and that a row is what a replay of its own would say."""

from __future__ import annotations

import json
import math
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars
import pytest

from flashmoe_sim import api
from flashmoe_sim.cli.common import print_table
from flashmoe_sim.cli.main import main
from flashmoe_sim.io.sections import Table
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import WITHOUT_FILE
from flashmoe_sim.schema import COUNTS, IDENTITY, RESULT_COLUMNS, TIMING
from flashmoe_sim.sweep.summary import ranked
from flashmoe_sim.trace.bundled import catalog
from tests.support import document, printed_by, refusal

COMMAND = "from flashmoe_sim.cli.main import entry; entry()"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A trace of no known model: 30 tokens, 2 layers of 8 experts, 2 a token."""
    path = tmp_path / "pairs.jsonl"
    tokens = [[[0, n % 8], [0, (n + 1) % 8], [1, n * n % 8], [1, (n * n + 3) % 8]] for n in range(30)]
    path.write_text("".join(f"{json.dumps(token)}\n" for token in tokens))
    return path


def test_without_a_trace_the_first_bundled_one_is_swept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--bank", "16..256"]) == 0
    printed = capsys.readouterr()
    first = next(iter(catalog()))
    assert printed.out.startswith(f"{first}: ")
    cells = [line.split() for line in printed.out.splitlines()]
    assert [row[0] for row in cells if row[1:2] == ["lru"]] == ["16", "32", "64", "128", "256"]
    assert "sim: banks 16, 32, 64, 128, 256; 5 setups x 1 trace: the bundled python-256, since" in printed.err
    assert "slot aliasing" not in printed.err
    assert "slots are recorded: --contract runtime reproduces the counts of their engine" in printed.out
    assert main(["sweep", "--bank", "16..256", "--contract", "runtime"]) == 0
    printed = capsys.readouterr()
    assert "slot aliasing in 4 of 5 rows" in printed.err
    assert "slots are recorded" not in printed.out


def test_json_rows_have_the_columns_of_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    rows = document(capsys, "sweep", "python-256", "--bank", "16,64", "--policy", "lru,static")["rows"]
    types = {"str": str, "int": int, "float": float}
    assert [(row["bank"], row["policy"]) for row in rows] == [
        ("16", "lru"),
        ("16", "static"),
        ("64", "lru"),
        ("64", "static"),
    ]
    for row in rows:
        assert list(row) == [column.name for column in RESULT_COLUMNS]
        for column in (*IDENTITY, *COUNTS):
            unknown = column.name in ("bank_bytes", "prefetch_precision", "prefetch_recall")  # slots, no predictor
            assert type(row[column.name]) is (type(None) if unknown else types[column.dtype]), column.name
        assert all(row[column.name] is None for column in TIMING)
        assert row["hits"] + row["misses"] == row["requests"]
        assert row["hit_rate"] <= row["best_hit_rate"]
    assert len({row["id"] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "options",
    [
        ["--policy", "lru,static,min", "--scope", "global", "--bank", "1MiB,3MiB"],
        ["--policy", "lru,fifo", "--prefetch", "none,markov,eam:width=4", "--bank", "16,100"],
        ["--policy", "lru:stamp=last,random:seed=7", "--io-split", "2", "--bank", "16,100"],
    ],
    ids=" ".join,
)
def test_a_row_is_what_a_replay_says(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    """Of every word that is given; tests/residency/test_many.py asks this of every policy and contract."""
    rows = document(capsys, "sweep", "prose-256", *options)["rows"]
    assert {row["bank"] for row in rows} == set(options[-1].split(","))
    trace = api.load_trace("prose-256")
    for row in rows:
        named = {name: row[name] for name in ("bank", "policy", "contract", "scope", "prefetch", "io_split")}
        alone = api.replay(trace, **named).row(0, named=True)
        for column in (*IDENTITY, *COUNTS):
            if not column.name.startswith("best_"):  # what other replays counted
                assert row[column.name] == alone[column.name], column.name


def defined_under(contract: str) -> list[str]:
    """The policies that are swept under a contract: min as well, under its own."""
    return [name for name, policy in POLICIES.items() if contract in policy.contracts or name == "min"]


def test_all_policies_are_those_that_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    """min is counted under atomic, for which it is defined; a predictor leaves out the banks that never install."""
    rows = document(capsys, "sweep", "--bank", "16", "--policy", "all", "--contract", "atomic")["rows"]
    assert [row["policy"] for row in rows] == list(POLICIES)
    rows = document(capsys, "sweep", "--bank", "16", "--policy", "all")["rows"]
    assert [row["policy"] for row in rows] == defined_under("protected")
    assert {row["policy"] for row in rows if row["contract"] == "atomic"} == {"min"}
    rows = document(capsys, "sweep", "--bank", "16", "--policy", "all", "--prefetch", "temporal")["rows"]
    assert {row["policy"] for row in rows} == set(defined_under("protected")) - {
        "demand",
        "static",
        "static:global",
        "placed",
    }
    assert {row["prefetch"] for row in rows if row["contract"] == "protected"} == {"temporal"}


def test_several_predictors(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with each policy, but min under its own contract without; `all` leaves out what cannot be."""
    chosen = ["sweep", "--bank", "16", "--policy", "min,lru", "--contract", "protected"]
    rows = document(capsys, *chosen, "--prefetch", "none, eam,none")["rows"]
    assert [(row["policy"], row["prefetch"]) for row in rows] == [("min", "none"), ("lru", "none"), ("lru", "eam")]
    assert len({row["id"] for row in rows}) == 3
    rows = document(capsys, "sweep", "--bank", "16", "--policy", "lru,static", "--prefetch", "all")["rows"]
    assert [row["prefetch"] for row in rows] == [*WITHOUT_FILE, "none"]
    rows = document(capsys, "sweep", "--bank", "16", "--contract", "sequential", "--prefetch", "all")["rows"]
    assert [row["prefetch"] for row in rows] == ["none"]


def test_several_predictors_are_named_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["sweep", "--bank", "16", "--policy", "min,lru", "--contract", "protected"]
    out = printed_by(capsys, *chosen, "--prefetch", "none,oracle-1", quiet=False)
    assert "contract protected; best" in out
    shown = [line.split() for line in out.splitlines() if line.split()[:1] == ["16"]]
    assert [row[1:3] for row in shown] == [["min*", "none"], ["lru", "none"], ["lru", "oracle-1"]]
    assert shown[2][-4:-2] == ["0", "B"]  # read on demand, and then as much ahead as without on demand
    assert shown[2][-2:] == shown[1][-4:-2]
    out = printed_by(capsys, *chosen, "--prefetch", "oracle-1", quiet=False)
    assert "predictor" not in out
    assert "contract protected, prefetch oracle-1;" in out


@pytest.mark.parametrize(
    ("contract", "bank"), [("protected", ["16..256"]), ("atomic", ["1MiB..16MiB", "--scope", "global"])]
)
def test_names_of_all_policies_are_whole(capsys: pytest.CaptureFixture[str], contract: str, bank: list[str]) -> None:
    out = printed_by(capsys, "sweep", "--policy", "all", "--contract", contract, "--bank", *bank, quiet=False)
    shown = {line.split()[1].rstrip("*") for line in out.splitlines() if "iB " in line}
    assert shown >= set(defined_under(contract))


def test_a_name_too_long_for_its_column_goes_on_in_the_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    name = "my_policies.evict:Oldest:with=" + "9" * 60
    print_table(Table([("policy", "left"), ("hits", "right")], [(name, "1,000"), ("lru", "2")], title="x" * 100))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert name in "".join(line.split()[0] for line in lines if line)
    assert [line.split()[1] for line in lines if line.endswith(("1,000", "2"))] == ["1,000", "2"]


def test_a_setting_too_long_for_its_column_is_cut_after_its_commas(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "slot-bank:bank=16,prefetch=temporal,io_split=4,install=deferred,experts=6,pages=no,batch=512"
    print_table(Table([("", "left"), ("note", "left")], [(f"{spec} threads=2", "another program ran " * 3)]))
    *cut, last, threads = [word for word in capsys.readouterr().out.split() if "=" in word]
    assert "".join([*cut, last]) == spec
    assert cut
    assert all(word.endswith(",") for word in cut)
    assert threads == "threads=2"


def test_a_long_list_of_banks_is_shortened(capsys: pytest.CaptureFixture[str], pairs: Path) -> None:
    assert main(["sweep", "--bank", "8..256", "--bank-step", "1", "--contract", "atomic"]) == 0
    assert "sim: banks 8, 9, 10, ..., 256 (249 sizes); 249 setups x 1 trace: the" in capsys.readouterr().err
    assert main(["sweep", str(pairs), str(pairs), "--bank", "2..8", "--bank-step", "x2", "--contract", "atomic"]) == 0
    assert "sim: banks 2, 4, 8; 3 setups x 2 traces\n" in capsys.readouterr().err


def test_a_trace_of_no_known_model(capsys: pytest.CaptureFixture[str], pairs: Path) -> None:
    out = printed_by(capsys, "sweep", str(pairs), "--bank", "4", quiet=False)
    assert "unknown model, so no bytes: give --model" in out
    row = next(line.split() for line in out.splitlines() if line.split()[1:2] == ["lru"])
    assert row[-2:] == ["-", "-"]
    parsed = document(capsys, "sweep", str(pairs), "--bank", "4")["rows"][0]
    unknown = {"model", "bytes_read", "bytes_per_token", "read_ops", "resident_bytes", "best_bytes_per_token"}
    unknown |= {"prefetch_bytes", "prefetch_read_ops", "prefetch_wasted_bytes"} | {column.name for column in TIMING}
    unknown |= {"prefetch_precision", "prefetch_recall", "bank_bytes"}  # without a predictor; a bank in slots
    assert {name for name, value in parsed.items() if value is None} == unknown


def test_several_traces_and_cuts_of_them(capsys: pytest.CaptureFixture[str], pairs: Path) -> None:
    arguments = ["sweep", str(pairs), "python-256", "--bank", "8", "--topk", "1,2,1"]
    rows = document(capsys, *arguments)["rows"]
    assert [row["trace"] for row in rows] == [
        "pairs, top-1",
        "pairs, top-2",
        "python-256, top-1",
        "python-256, top-2",
    ]
    assert [row["refs"] for row in rows] == [60, 120, 6031, 12062]
    assert rows[1]["trace_id"] == document(capsys, "sweep", str(pairs), "--bank", "8")["rows"][0]["trace_id"]
    out = printed_by(capsys, *arguments, quiet=False)
    assert all(f"{row['trace']}: " in out for row in rows)


def test_a_file_is_meant_before_a_bundled_trace(
    capsys: pytest.CaptureFixture[str], pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.rename(pairs.with_name("python-256"))
    monkeypatch.chdir(pairs.parent)
    assert document(capsys, "sweep", "python-256", "--bank", "4")["rows"][0]["refs"] == 120


def test_notes_of_the_reader_go_to_stderr(capsys: pytest.CaptureFixture[str], pairs: Path) -> None:
    with pairs.open("a") as stream:
        stream.write("[[0,")
    assert main(["sweep", str(pairs), "--bank", "4", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["rows"][0]["refs"] == 120
    assert f"sim: {pairs}: the last line (31) is torn and was dropped\n" in printed.err


def test_out_writes_parquet_csv_and_png(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "new" / "results"
    rows = document(capsys, "sweep", "--bank", "16..64", "--policy", "lru,min", "--out", str(out))["rows"]
    names = ["ledger.ndjson", "results.csv", "results.parquet", "results.png"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert (out / "results.png").read_bytes().startswith(PNG)
    table = polars.read_parquet(out / "results.parquet")
    types = {"str": polars.String, "int": polars.Int64, "float": polars.Float64}
    assert dict(table.schema) == {column.name: types[column.dtype] for column in RESULT_COLUMNS}
    assert table.to_dicts() == rows
    assert polars.read_csv(out / "results.csv", schema=table.schema).equals(table)

    assert main(["sweep", "--bank", "32", "--out", str(out), "--force"]) == 0
    assert f"sim: wrote results.parquet, results.csv and results.png to {out}\n" in capsys.readouterr().err
    assert polars.read_parquet(out / "results.parquet")["bank"].to_list() == ["32"]


def test_the_values_of_one_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Experts 0 1 0 2 0 in a bank of two: 0 and 1 are cold, 0 hits, 2 evicts 1, 0 hits; min does the same."""
    path = tmp_path / "five.jsonl"
    path.write_text("[[0, 0]]\n[[0, 1]]\n[[0, 0]]\n[[0, 2]]\n[[0, 0]]\n")
    row = document(capsys, "sweep", str(path), "--bank", "2", "--contract", "atomic")["rows"][0]
    expected = {"calls": 5, "refs": 5, "requests": 5, "hits": 2, "misses": 3, "cold_installs": 2, "evictions": 1}
    assert {name: row[name] for name in expected} == expected
    assert (row["full_hit_calls"], row["hit_rate"], row["best_hit_rate"]) == (2, 0.4, 0.4)
    assert math.isclose(row["misses_per_token"], 0.6)


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_quick_work_shows_no_progress_on_a_terminal(pairs: Path) -> None:
    """Stderr is a terminal here, stdout is not."""
    terminal, end = pty.openpty()
    arguments = [sys.executable, "-c", COMMAND, "sweep", str(pairs), "--bank", "4", "--contract", "atomic"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=end, env={**os.environ, "TERM": "xterm"}) as child:
        os.close(end)
        table = child.stdout.read()
    shown = b""
    while select.select([terminal], [], [], 0)[0]:
        try:
            shown += os.read(terminal, 1 << 16)
        except OSError:  # what Linux says at the end
            break
    os.close(terminal)
    assert child.returncode == 0
    assert shown == b"sim: banks 4; 1 setup x 1 trace\r\n"
    assert b"\x1b" not in table


RUNS = Path(__file__).parents[2] / "data"
MICRO_BATCHES = RUNS / "runs" / "prose-ub8-bank64" / "trace.jsonl.gz"


def cells_of(out: str, heading: str) -> list[list[str]]:
    """The cells below the first line with this heading, up to the line that is not indented like them."""
    lines = out.splitlines()
    first = next(number for number, line in enumerate(lines) if heading in line.split())
    rows = []
    for line in lines[first + 2 :]:
        if not line[:1].isspace() and not line[:1].isdigit():
            break
        rows.append(line.split())
    return rows


@pytest.mark.parametrize("columns", ["80", "100", "140"])
def test_no_two_rows_on_machines_look_alike(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    asked = ["sweep", "prose-256", "--bank", "16,32", "--contract", "protected", "--dense", "1MiB"]
    asked += ["--policy", "lru,demand", "--prefetch", "all", "--machine", "vm-2core,m2-16"]
    out = printed_by(capsys, *asked, quiet=False)
    assert max(map(len, out.splitlines())) <= int(columns)
    rows = cells_of(out, "predictor")
    assert len({tuple(row[:5]) for row in rows}) == len(rows) == 2 * 2 * (len(WITHOUT_FILE) + 1)
    head = next(line for line in out.splitlines() if "predictor" in line).split()
    assert head[:5] == ["bank", "policy", "predictor", "machine", "execution"]
    assert "tok/s" in head
    if columns == "140":
        assert {"best", "read/tok", "ahead/tok", "memory"} <= set(head)
        assert "too wide" not in out
    else:
        assert "too wide to show here: " in " ".join(out.split())


def test_what_does_not_vary_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", "prose-256", "--bank", "16,32", "--contract", "protected", "--dense", "1MiB"]
    out = printed_by(capsys, *asked, "--prefetch", "oracle-1", "--machine", "vm-2core", quiet=False)
    head = next(line for line in out.splitlines() if "tok/s" in line)
    assert not {"predictor", "machine", "execution"} & set(head.split())
    assert "(tiny256) on vm-2core\n" in out
    assert "contract protected, prefetch oracle-1, split-install; best" in " ".join(out.split())
    assert "ahead/tok" in head


def test_all_is_ranked_by_speed_on_machines() -> None:
    same = {"bank": "16", "hit_rate": 0.5}
    asked = [("a", "m1", 3.0), ("a", "m2", None), ("b", "m1", 5.0), ("b", "m2", 1.0)]
    rows = [same | {"policy": policy, "machine": machine, "tok_s": speed} for policy, machine, speed in asked]
    found = [(row["policy"], row["machine"]) for row in ranked(rows, "tok/s")]
    assert found == [("b", "m1"), ("a", "m1"), ("b", "m2"), ("a", "m2")]
    unknown = {"machine": None, "tok_s": None}
    hits = [
        unknown | {"bank": bank, "policy": policy, "hit_rate": rate}
        for bank in ("8", "16")
        for policy, rate in (("a", 0.25), ("b", 0.75), ("c", 0.25))
    ]
    assert [row["policy"] for row in ranked(hits, "hits")] == ["b", "a", "c"] * 2


def test_rows_are_ranked_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the CPU computes misses, fewer installs are faster than more hits."""
    asked = ["sweep", "gpt-oss-120b", "--bank", "22", "--contract", "atomic", "--policy", "lru,second-miss"]
    timed = [*asked, "--machine", "rtx-3090", "--execution", "hot-cold"]
    order = {by: [row["policy"] for row in document(capsys, *timed, "--rank", by)["rows"]] for by in ("tok/s", "hits")}
    assert order == {"tok/s": ["second-miss", "lru"], "hits": ["lru", "second-miss"]}
    for wrong in ("tok/s", "speed"):
        assert "--rank" in refusal(capsys, *asked, "--rank", wrong)


@pytest.mark.parametrize("traces", [["python-256"], ["python-256", "prose-256"]], ids=len)
def test_policies_that_evict_alike_are_named(traces: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *traces, "--bank", "16,32", "--policy", "lru,fifo,least-stale"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "lru and least-stale evict alike: equal in every row" in text
    assert text.count("alike") == len(traces) * 2 - 1
    assert main(["sweep", *traces, "--bank", "16,32", "--policy", "lru,fifo"]) == 0
    assert "alike" not in capsys.readouterr().out


def test_what_all_leaves_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", "--bank", "16", "--contract", "runtime"]
    parsed = document(capsys, *asked, "--policy", "all", "--prefetch", "temporal")
    missing = {name for name in POLICIES if name not in {row["policy"] for row in parsed["rows"]}}
    assert {one["policy"] for one in parsed["left_out"]} == missing
    assert {(one["trace"], one["bank"], one["prefetch"]) for one in parsed["left_out"]} == {(None, None, "temporal")}
    undefined = next(line for line in parsed["warnings"] if "undefined under" in line)
    assert "bounded-lru" in undefined
    assert "static" not in undefined
    assert any("static:global" in line and "never installs" in line for line in parsed["warnings"])
    assert main([*asked, "--policy", "lru,static", "--prefetch", "all"]) == 0
    printed = capsys.readouterr()
    assert " ".join(printed.out.split()).endswith("; left out: static in part; too wide to show here: memory")
    assert "sim: left out: static with 10 predictors: predictor temporal cannot work" in printed.err


def test_banks_that_overflow_are_left_out_and_the_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", "python-256", "--policy", "lru,static", "--contract", "protected"]
    assert main([*asked, "--bank", "4..24"]) == 0
    printed = capsys.readouterr()
    rows = cells_of(printed.out, "policy")
    assert [row[0] for row in rows if row[1] == "lru"] == ["8", "10", "12", "14", "16", "18", "20", "22", "24"]
    assert [row[0] for row in rows if row[1] == "static"][:2] == ["4", "6"]
    assert "; left out: bank 4 in part, 6 in part slots are recorded: " in " ".join(printed.out.split())
    assert "sim: left out of python-256: bank 4, 6 with lru: bank 4: call " in printed.err
    assert "slot-bank overflow; the largest call needs 8 slots" in printed.err
    parsed = document(capsys, *asked, "--bank", "4,16,257")
    assert [(one["bank"], one["policy"]) for one in parsed["left_out"]] == [
        ("4", "lru"),
        ("257", "lru"),
        ("257", "static"),
    ]
    assert {one["trace"] for one in parsed["left_out"]} == {"python-256"}
    assert [row["bank"] for row in parsed["rows"]] == ["4", "16", "16"]
    assert sum("left out of python-256" in line for line in parsed["warnings"]) == 2


def test_banks_that_overflow_one_trace_run_on_the_other(capsys: pytest.CaptureFixture[str], pairs: Path) -> None:
    parsed = document(capsys, "sweep", "python-256", str(pairs), "--bank", "4", "--contract", "protected")
    assert [row["trace"] for row in parsed["rows"]] == ["pairs"]
    assert [one["trace"] for one in parsed["left_out"]] == ["python-256"]
    asked = ["--bank", "4,8", "--contract", "protected", "--dense", "1MiB", "--machine", "vm-2core"]
    parsed = document(capsys, "sweep", "python-256", *asked)
    assert [(row["bank"], row["tok_s"] > 0) for row in parsed["rows"]] == [("8", True)]


def test_the_best_counts_requests_as_the_rows_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Under sequential, one reference at a time: min is at its own ceiling, and lru is not above."""
    asked = ["sweep", str(MICRO_BATCHES), "--bank", "8,64", "--policy", "lru,min", "--contract", "sequential"]
    rows = document(capsys, *asked)["rows"]
    assert all(row["hit_rate"] <= row["best_hit_rate"] for row in rows)
    assert all(row["hit_rate"] == row["best_hit_rate"] for row in rows if row["policy"] == "min")
    assert "(min with bypass, by reference)" in " ".join(printed_by(capsys, *asked, quiet=False).split())


def test_a_bank_has_numbers_beside_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    row = document(capsys, "sweep", "python-256", "--bank", "16")["rows"][0]
    assert (row["bank"], row["bank_slots"], row["bank_bytes"]) == ("16", 16, None)
    row = document(capsys, "sweep", "python-256", "--bank", "3MiB", "--contract", "atomic")["rows"][0]
    assert (row["bank"], row["bank_slots"], row["bank_bytes"]) == ("3MiB", None, 3 << 20)


def test_traces_of_one_name_have_names_of_their_own(
    capsys: pytest.CaptureFixture[str], pairs: Path, tmp_path: Path
) -> None:
    """A recorded run is named by its folder; files of one name get their folders; one file twice, a number."""
    content = pairs.read_bytes()
    files = [tmp_path / name for name in ("a/trace.jsonl", "b/trace.jsonl", "a/x.jsonl", "b/x.jsonl", "c/b/x.jsonl")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    asked = ["sweep", *map(str, [*files, files[0]]), "--bank", "4", "--contract", "atomic"]
    rows = document(capsys, *asked)["rows"]
    expected = ["a", "b", "a/x", f"{tmp_path.name}/b/x", "c/b/x", "a (2)"]
    assert [row["trace"] for row in rows] == expected
    out = printed_by(capsys, *asked, quiet=False)
    assert all(f"\n{name}: 30 tokens" in f"\n{out}" for name in expected)


def test_several_traces_have_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", "python-256", "prose-256", "--bank", "16,64", "--policy", "lru,min", "--contract", "atomic"]
    parsed = document(capsys, *asked)
    rates = [row["hit_rate"] for row in parsed["rows"] if (row["bank"], row["policy"]) == ("16", "lru")]
    first = parsed["summary"][0]
    assert (first["bank"], first["bank_slots"], first["policy"], first["traces"]) == ("16", 16, "lru", 2)
    assert first["hit_rate"] == pytest.approx(sum(rates) / 2)
    assert (first["hit_rate_min"], first["hit_rate_max"], first["wins"]) == (min(rates), max(rates), 2)
    assert parsed["summary"][1]["wins"] is None  # min knows the future
    out = printed_by(capsys, *asked, quiet=False)
    assert out.count("tokens, ") == 2
    assert "2 traces: python-256; prose-256\n" in out
    assert [row[:2] for row in cells_of(out[out.index("2 traces") :], "wins")] == [
        ["16", "lru"],
        ["16", "min"],
        ["64", "lru"],
        ["64", "min"],
    ]
    assert "summary" not in document(capsys, "sweep", "python-256", "--bank", "16")


def test_many_rows_of_several_traces_are_summed_up_only(capsys: pytest.CaptureFixture[str], pairs: Path) -> None:
    asked = ["sweep", str(pairs), str(pairs), "--bank", "2..8", "--bank-step", "1", "--contract", "atomic"]
    assert main([*asked, "--policy", "lru,fifo,clock,random,demand"]) == 0
    printed = capsys.readouterr()
    assert "tokens, " not in printed.out
    assert printed.out.startswith("2 traces: pairs; pairs (2)\n")
    assert "sim: 70 rows: too many to print; --out DIR or --json has them\n" in printed.err


def test_json_says_what_its_rows_are_and_what_to_beware_of(capsys: pytest.CaptureFixture[str], pairs: Path) -> None:
    with pairs.open("a") as stream:
        stream.write("[[0,")
    parsed = document(capsys, "sweep", str(pairs), "python-256", "--bank", "2,16", "--contract", "runtime")
    assert list(parsed) == ["identity", "warnings", "left_out", "summary", "rows", "version"]
    identity = parsed["identity"]
    assert identity["trace"] == ["pairs", "python-256"]
    assert (identity["bank"], identity["contract"], identity["machine"]) == (["2", "16"], ["runtime"], [None])
    assert any("pairs: the last line (31) is torn" in line for line in parsed["warnings"])
    assert any(line.startswith("slot aliasing in ") for line in parsed["warnings"])
    assert any("left out of pairs: bank 16" in line for line in parsed["warnings"])


def test_names_with_dollars_are_drawn_as_they_are(
    capsys: pytest.CaptureFixture[str], pairs: Path, tmp_path: Path
) -> None:
    odd = pairs.rename(tmp_path / r"a $\foo$ b.jsonl")
    out = tmp_path / "o"
    assert main(["sweep", str(odd), "--bank", "4", "--contract", "atomic", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(r"a $\foo$ b: 30 tokens")
    assert (out / "results.png").read_bytes().startswith(PNG)


def test_a_picture_that_cannot_be_drawn_loses_no_results(
    capsys: pytest.CaptureFixture[str], pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("no such glyph")

    out = tmp_path / "o"
    asked = ["sweep", str(pairs), "--contract", "atomic", "--out", str(out)]
    assert main([*asked, "--bank", "4"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("flashmoe_sim.report.figures.results.draw", broken)
    assert main([*asked, "--bank", "8", "--force"]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("pairs: 30 tokens")
    assert printed.err.splitlines()[-1] == (
        f"sim: {out}: results.png could not be drawn (ValueError: no such glyph); results.parquet and .csv are written"
    )
    assert sorted(path.name for path in out.iterdir()) == ["ledger.ndjson", "results.csv", "results.parquet"]
    assert polars.read_parquet(out / "results.parquet")["bank"].to_list() == ["8"]


def test_without_the_extra_there_is_no_picture(
    capsys: pytest.CaptureFixture[str], pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is an older one kept, which would show other rows."""
    out = tmp_path / "o"
    asked = ["sweep", str(pairs), "--contract", "atomic", "--out", str(out)]
    assert main([*asked, "--bank", "4"]) == 0
    assert (out / "results.png").exists()
    monkeypatch.setitem(sys.modules, "altair", None)
    assert main([*asked, "--bank", "8"]) == 0
    message = (
        f"wrote results.parquet and results.csv to {out}; no results.png: figures need the package altair: pip install"
    )
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == ["ledger.ndjson", "results.csv", "results.parquet"]


def test_a_reader_that_stops_early_costs_no_results(pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    arguments = ["sweep", str(pairs), "--bank", "4", "--contract", "atomic", "--json", "--out", str(out)]
    read, write = os.pipe()
    os.close(read)
    subprocess.run([sys.executable, "-c", COMMAND, *arguments], check=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (out / "results.parquet").exists()


def test_columns_that_do_not_fit_are_left_out_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (("bank", "right"), ("hits", "right"), ("memory", "right"))
    cells = [("16", "1,000", "1.20 MiB")]
    for width, left_out in (("19", ""), ("18", "memory"), ("10", "memory"), ("9", "hits, memory")):
        monkeypatch.setenv("COLUMNS", width)
        print_table(Table(columns, cells, caption="below", dispensable=("memory", "hits")))
        head, *lines = capsys.readouterr().out.splitlines()
        assert head.split() == [heading for heading, _ in columns if heading not in left_out]
        output = " ".join(lines)
        assert output.endswith(f"below; too wide to show here: {left_out} " if left_out else "below ")
    print_table(Table(columns, cells, dispensable=("memory", "hits")))
    assert " ".join(capsys.readouterr().out.split()).endswith("16 too wide to show here: hits, memory")


def test_no_trace_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--bank", "16", "--contract", "atomic"]
    assert main(["sweep", *asked]) == 0
    message = "sim: banks 16; 1 setup x 1 trace: the bundled python-256, since none was given\n"
    assert capsys.readouterr().err == message


def test_what_may_be_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """Options for several values, and words that only look like options."""
    assert main(["recommend", "none", "--also", "a", "--also", "b", "--machine", "x"]) == 2
    assert main(["trace", "inspect", "--", "--json", "--json"]) == 2
    assert "given twice" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "gone"),
    [(80, ""), (74, "; too wide to show here: GPU"), (60, "; too wide to show here: GPU, shown by")],
)
def test_a_name_with_its_settings_stays_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, gone: str
) -> None:
    """Other columns go first, and with them what the caption says of them alone."""
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "big-moe-on-edge:cache_mib=52224"
    headings = [("", "left"), ("tok/s", "right"), ("90%", "right"), ("faster in", "right"), ("GPU", "right")]
    cells = [(name, "12.5", "4.25-16.8", "45%", "17,200.0 GiB", "unproven")]
    explained = {"GPU": "GPU: GiB kept", "faster in": "faster in: draws", "shown by": "shown by: speeds"}
    left_out = gone.partition("here: ")[2].split(", ")
    caption = "; ".join(text for heading, text in explained.items() if heading not in left_out)
    print_table(
        Table(
            [*headings, ("shown by", "left")],
            cells,
            caption="; ".join(explained.values()),
            dispensable=("GPU", "shown by"),
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[0] == name
    assert max(map(len, lines)) <= columns
    assert " ".join(lines[3:]).rstrip() == caption + gone
