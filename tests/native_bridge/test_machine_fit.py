"""`sim machine fit`: the file it writes, what it prints, and one line for whatever it cannot use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flashmoe_sim.machines.load import load_machine
from native_bridge.cli.main import main
from tests.native_bridge.recorded_runs import GPU, RUNS, TIMED, copy, edit_log
from tests.support import refusal

TABLES = Path(__file__).parents[2] / "data" / "published"
QWEN, KIMI = str(TABLES / "anemll_qwen35_35b_bank.csv"), str(TABLES / "anemll_kimi_k25_bank.csv")
STREAMED, ALL_HIT = str(TIMED / "warm-bank12"), str(TIMED / "warm-allhit")
ROWS = ("--row", "bank=16", "--row", "bank=128", "--model", "qwen3.5-35b-a3b:ud-iq2_m")


pytestmark = pytest.mark.usefixtures("own_folder")


def fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["machine", "fit", *arguments, "--out", "mine.toml"]) == 0
    return capsys.readouterr().out


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = fit(capsys, STREAMED, ALL_HIT)
    assert max(map(len, out.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "cpu.layer_us 3416 3124 to 3701 warm-bank12, warm-allhit" in lines
    assert "storage.read_gb_s 3.87 3.579 to 4.233 warm-bank12, warm-allhit" in lines
    assert "host.first_touch_gb_s 5.012 3.474 to 8.929 warm-bank12, warm-allhit" in lines
    assert "host.resume_us 0 0 to 348 warm-bank12" in lines
    assert "host.call_us 5.512 4.961 to 6.063 warm-bank12" in lines
    assert "warm-bank12 tok/s 14 13.38 -4.4%" in lines
    assert "warm-bank12 ms an install, reads 0.4428 0.4354 -1.7%" in lines
    assert "warm-allhit tok/s 23.7 24.36 +2.8%" in lines
    assert "warm-allhit ms an install, prime 0.764 0.7653 +0.2%" in lines


def test_the_file_says_where_it_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    fit(capsys, STREAMED, ALL_HIT, "--model", str(TIMED))
    machine = load_machine("mine.toml")
    assert (machine.name, machine.title) == ("mine", "Fitted on 2 anchors of mid")
    assert (machine.memory, machine.link, machine.gpu) == (None, None, None)
    assert (machine.storage.lanes.value, machine.storage.request_us.value, machine.host.install_us.value) == (1, 0, 0)
    assert (machine.cpu.weights_gb_s, machine.cpu.knee_tokens.estimated) == (None, True)
    whole, _, condition = machine.storage.read_gb_s.condition.partition("; ")
    assert whole == "the whole reading pool as the anchors saw it, page cache included"
    ran = "the CPU computes, 2 threads, top-8, io-split 4, split-install"
    assert condition == machine.cpu.layer_us.condition == ran
    assert machine.anchors.runs == (STREAMED, ALL_HIT)
    assert machine.anchors.model == "mid"
    assert machine.anchors.command == f"sim machine fit {STREAMED} {ALL_HIT} --model {TIMED} --out mine.toml"
    first = Path("mine.toml").read_bytes()
    assert main([*machine.anchors.command.split()[1:], "--force"]) == 0
    assert Path("mine.toml").read_bytes() == first
    assert main(["machine", "show", "mine.toml"]) == 0


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(fit(capsys, STREAMED, ALL_HIT, "--json"))
    machine = load_machine("mine.toml")
    by_name = {row["parameter"]: row for row in document["fitted"]}
    assert list(by_name) == ["layer_us", "read_gb_s", "first_touch_gb_s", "resume_us"]
    read = machine.storage.read_gb_s
    assert by_name["read_gb_s"] == {
        "parameter": "read_gb_s",
        "path": "storage.read_gb_s",
        "value": read.value,
        "lo": read.lo,
        "hi": read.hi,
        "anchors": ["warm-bank12", "warm-allhit"],
    }
    assert document["machine"]["storage"]["read_gb_s"]["value"] == read.value
    assert document["machine"]["memory"] is None
    assert [row["of"] for row in document["residuals"]] == ["token", "reads", "token", "prime"]
    for row in document["residuals"]:
        assert row["fitted_s"] == pytest.approx(row["measured_s"] * (1 + row["relative"]))
    assert document["correlation"][0][0] == pytest.approx(1)
    assert document["correlation"][0][1] == document["correlation"][1][0] < 0
    assert document["anchors"][0]["misses_per_token"] == pytest.approx(77.5, abs=1)
    assert document["notes"] == []


def test_anchors_that_do_not_agree(capsys: pytest.CaptureFixture[str]) -> None:
    out = fit(capsys, STREAMED, ALL_HIT, str(TIMED / "warm-bank64-rep2"))
    assert max(map(len, out.splitlines())) <= 80
    assert "note: warm-bank64-rep2: reads took 3.148 s" in out


def test_files_among_the_folders_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("README.md").write_text("What lies here.\n")
    assert main(["machine", "fit", "README.md", STREAMED, ALL_HIT, "--out", "mine.toml"]) == 0
    assert "sim: README.md: not the folder of a run; left out\n" in capsys.readouterr().err
    assert load_machine("mine.toml").anchors.runs == (STREAMED, ALL_HIT)  # type: ignore[union-attr]


def test_rows_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Two rows and two numbers: both come out as measured, whatever is fitted."""
    lines = [" ".join(line.split()) for line in fit(capsys, QWEN, *ROWS).splitlines()]
    assert "bank=16 tok/s 46.9 46.9 +0.0%" in lines
    assert "bank=128 tok/s 53 53 +0.0%" in lines
    assert any(line.startswith("note: read_gb_s: the anchors hardly tell its time from zero") for line in lines)
    machine = load_machine("mine.toml")
    install_s = (1 / 46.9 - 1 / 53.0) / (40 * (1.68 - 0.64))
    assert machine.storage.read_gb_s.value == pytest.approx(942080 / install_s / 1e9, rel=1e-4)
    assert machine.gpu.layer_us.value == pytest.approx((1 / 53.0 / 40 - 0.64 * install_s) * 1e6, rel=1e-4)
    assert machine.anchors.runs == (f"{QWEN}: bank=16", f"{QWEN}: bank=128")
    assert machine.storage.read_gb_s.condition.endswith("-ub 1; -n 120")


def test_hit_rates_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Without misses_per_call: of 4 experts, what the hit rate leaves; `-ngl 0` makes it the CPU's."""
    table = Path("table.csv")
    table.write_text("hit_pct,tok_s,condition\n50,40,one machine -ngl 0\n90,50,one machine -ngl 0\n")
    fit(
        capsys,
        "table.csv",
        "--row",
        "hit_pct=50",
        "--row",
        "tok_s=50.0",
        "--topk",
        "4",
        "--model",
        "qwen3.5-35b-a3b:ud-iq2_m",
    )
    machine = load_machine("mine.toml")
    install_s = (1 / 40 - 1 / 50) / (40 * 4 * 0.4)
    assert machine.storage.read_gb_s.value == pytest.approx(942080 / install_s / 1e9, rel=1e-4)
    assert machine.gpu is None


RUN_LINES = {
    "warm and cold": (
        [STREAMED, ALL_HIT, str(TIMED / "cold-bank12")],
        "the anchors contradict each other, as runs do with a warm and a cold page cache, or while other programs ran; "
        "fit runs of one kind",
    ),
    "warm and cold, recorded": (["warm", "cold"], "sim: cold is a cold run and warm a warm one: reads from storage"),
    "one anchor": ([STREAMED], "sim: 1 anchor; expected two or more: the speed of one run does not separate"),
    "twice the same": ([STREAMED, f"{STREAMED}/"], "warm-bank12: given twice; give another anchor"),
    "no folder": (["none", STREAMED], "sim: none: no such folder; give the folder of a run"),
    "a table without rows": (
        [QWEN],
        "anemll_qwen35_35b_bank.csv: a table without --row; choose its rows: --row bank=16",
    ),
    "top-k of runs": ([STREAMED, ALL_HIT, "--topk", "4"], "sim: --topk without --row; a run records its own top-k"),
    "no such parameter": (
        [STREAMED, ALL_HIT, "--parameter", "read"],
        "sim: unknown parameter 'read'; known: first_touch_gb_s, layer_us",
    ),
    "no such model": ([STREAMED, ALL_HIT, "--model", "none.json"], "sim: 'none.json': no such file"),
    "two all-hit": (
        [ALL_HIT, "stock"],
        "sim: the anchors cannot separate read_gb_s and first_touch_gb_s: read_gb_s needs a streamed run",
    ),
    "one chunk size": (
        [STREAMED, ALL_HIT, "--parameter", "request_us"],
        "sim: the anchors cannot separate read_gb_s and request_us: read_gb_s needs a streamed run",
    ),
    "no upload": (
        [STREAMED, ALL_HIT, "--parameter", "pinned_gb_s"],
        "sim: no anchor determines pinned_gb_s: pinned_gb_s needs",
    ),
    "no dense weights": (
        [STREAMED, ALL_HIT, "--parameter", "weights_gb_s"],
        "sim: weights_gb_s: mid does not record its dense weights, which every token reads",
    ),
    "two top-k": ([STREAMED, "topk4"], "sim: the anchors use 4 and 8 experts a token, which take different times"),
    "crashed": (["rc", STREAMED], "sim: rc/run.json: rc is -9: the run failed"),
    "reads ahead": (["temporal", STREAMED], "sim: temporal: --moe-prefetch-temporal: its time includes prefetches"),
    "mode": (["packed", STREAMED], "sim: packed: mode resident-slot-bank cannot be an anchor; known: stock"),
    "no trace": (["untraced", ALL_HIT], "sim: untraced: no trace.jsonl.gz, which has the misses of its tokens"),
    "other trace": (
        ["swapped", ALL_HIT],
        "sim: swapped/trace.jsonl.gz: a replay of it misses 10,330 times, the log 13,363",
    ),
    "only prompt": (["cut", ALL_HIT], "sim: cut/trace.jsonl: it does not show which steps are decode"),
    "all upload": (
        ["uploaded", ALL_HIT],
        "sim: uploaded/log.txt: install=5917.227 ms, upload=5917.227 ms: nothing is left",
    ),
    "other threads": (
        ["threads", ALL_HIT],
        f"sim: {ALL_HIT}: threads is 2, but 4 in threads: the anchors come from two",
    ),
    "other backend": (["cuda", ALL_HIT], f"sim: {ALL_HIT}: backend is none that the log names, but cuda in cuda"),
    "other n_gpu_layers": (["ngl", ALL_HIT], f"sim: {ALL_HIT}: n_gpu_layers is -1, but 99 in ngl"),
    "other io split": (["split", ALL_HIT], f"sim: {ALL_HIT}: cache-io-split is 4, but 1 in split"),
    "other uploads": (["async", ALL_HIT], f"sim: {ALL_HIT}: async-upload is off, but on in async"),
    "other machine": (
        ["phone", "vm"],
        "sim: vm: machine is vm, but phone in phone: the anchors come from two machines",
    ),
    "other model": (
        [STREAMED, str(RUNS / "runs" / "prose-bank64"), "--model", str(TIMED)],
        "prose-bank64: threads is 1, but 2 in",
    ),
    "other bytes": ([STREAMED, "smaller"], "warm-bank12: an install has 1,671,169 bytes, but 838,861 in smaller"),
    "other manifest": (
        ["other/warm-bank24", STREAMED],
        "manifest.json: bytes per expert or layers differ from those of",
    ),
    "wrong model": (
        ["bare/warm-bank12", ALL_HIT, "--model", "halved.json"],
        "sim: bare/warm-bank12/log.txt: 20.80 GiB in 13,363 installs, but the model's experts make it 10.40",
    ),
    "wrong reads": (
        ["reads", ALL_HIT],
        "sim: reads/log.txt: 40,089 reads, but the model and io-split 4 make it 160,356",
    ),
    "layers": (
        ["bare/warm-allhit", "bare/warm-stock"],
        "sim: bare/warm-allhit: no trace among the anchors gives the layers",
    ),
    "exists": ([STREAMED, ALL_HIT, "--out", "there.toml"], "sim: there.toml: exists; give --force to overwrite it"),
}


def make_runs() -> None:
    """Every run that RUN_LINES names, and what lies beside them."""
    here = Path()
    shutil.copy(TIMED / "manifest.json", here)
    halved = (TIMED / "manifest.json").read_text().replace("557056", "278528").replace("35651584", "17825792")
    Path("halved.json").write_text(halved)
    Path("there.toml").write_text("mine")

    def renamed(name: str, source: str = "warm-bank12", **flags: object) -> Path:
        return copy(source, here, **flags).rename(name)

    renamed("stock", "warm-stock")
    renamed("warm", cache={"state": "warm"})
    renamed("cold", "warm-allhit", cache={"state": "cold"})
    renamed("rc", rc=-9)
    renamed("topk4", "warm-allhit", topk=4)
    edit_log(renamed("temporal"), "prefetch-temporal = off", "prefetch-temporal = on")
    renamed("packed", mode="resident-slot-bank")
    (renamed("untraced") / "trace.jsonl.gz").unlink()
    shutil.copy(TIMED / "warm-bank24" / "trace.jsonl.gz", renamed("swapped", bank=24))
    cut = edit_log(renamed("cut"), "calls=2068", "calls=11")
    (cut / "trace.jsonl.gz").unlink()
    lines = [
        {"seq": n, "layer": n % 11, "n_expert_used": 8, "n_tokens": 1, "experts": list(range(8))} for n in range(11)
    ]
    (cut / "trace.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    edit_log(edit_log(cut, "evict=13219", "evict=0"), "cold=144", "cold=88")
    edit_log(cut, "miss/call=6.46", "miss/call=8")
    edit_log(renamed("uploaded"), "upload=0.000", "upload=5917.227")
    renamed("threads", threads=4)
    edit_log(renamed("cuda"), "Flash-MoE settings:", f"{GPU}Flash-MoE settings:")
    edit_log(renamed("ngl"), "n_gpu_layers     = -1", "n_gpu_layers     = 99")
    edit_log(renamed("split"), "cache-io-split   = 4", "cache-io-split   = 1")
    edit_log(renamed("async"), "async-upload     = off", "async-upload     = on")
    renamed("phone", machine="phone")
    renamed("vm", "warm-allhit", machine="vm")
    edit_log(renamed("smaller", "warm-allhit"), "bytes=1.20 GiB", "bytes=0.60 GiB")
    edit_log(renamed("reads"), "pread=160356", "pread=40089")
    for folder in ("other", "bare"):
        Path(folder).mkdir()
    shutil.copy("halved.json", "other/manifest.json")
    copy("warm-bank24", Path("other"))
    for name in ("warm-bank12", "warm-allhit", "warm-stock"):
        copy(name, Path("bare"))


@pytest.mark.parametrize("case", RUN_LINES)
def test_runs_that_cannot_be_used(capsys: pytest.CaptureFixture[str], case: str) -> None:
    make_runs()
    arguments, message = RUN_LINES[case]
    assert_one_line(capsys, arguments, message)


HEADER = "bank,decode_tok_s,misses_per_call,condition\n"
TWO = ["--row", "bank=1", "--row", "bank=2"]
TABLE_LINES = {
    "no model": (HEADER, TWO, "sim: table.csv: a table does not give layers and bytes; give --model"),
    "two tables": (HEADER, ["table.csv", *TWO], "sim: 2 anchors with --row; expected one CSV file"),
    "one row": (HEADER, TWO[:2], "sim: 1 anchor; expected two or more"),
    "the same selector": (HEADER, TWO[:2] * 2, "sim: bank=1: given twice"),
    "the same row": (f"{HEADER}1,5,2,x\n2,6,1,x\n", [*TWO, "--row", "decode_tok_s=5"], "line 2 is chosen twice"),
    "no row": (f"{HEADER}1,5,2,x\n3,6,1,x\n", TWO, "sim: table.csv: --row bank=2: no such row; bank is one of 1, 3"),
    "several rows": (f"{HEADER}1,5,2,x\n1,6,1,x\n", TWO, "sim: table.csv: --row bank=1: 2 rows (lines 2, 3); choose"),
    "no such column": (f"{HEADER}1,5,2,x\n", ["--row", "slots=1", *TWO], "--row slots=1: expected COLUMN=VALUE with a"),
    "no value": (
        f"{HEADER}1,5,2,x\n",
        ["--row", "bank", *TWO],
        "--row bank: expected COLUMN=VALUE with a column of bank,",
    ),
    "no speed": (
        "bank,hit_pct,condition\n1,5,x\n",
        TWO,
        "no column decode_tok_s or tok_s; found: bank, hit_pct, condition",
    ),
    "no misses": (
        "bank,tok_s,condition\n1,5,x\n",
        TWO,
        "sim: table.csv: no column misses_per_call or hit_pct; found: bank",
    ),
    "no condition": (
        "bank,tok_s,hit_pct\n1,5,3\n",
        TWO,
        "sim: table.csv: no column condition, which names the machine",
    ),
    "two conditions": (
        f"{HEADER}1,5,2,x\n2,6,1,y\n",
        TWO,
        "line 3: condition is 'y', but 'x' in line 2: the rows are of two",
    ),
    "no number": (
        f"{HEADER}1,fast,2,x\n2,6,1,x\n",
        TWO,
        "table.csv: line 2: decode_tok_s is 'fast'; expected a number",
    ),
    "nan": (f"{HEADER}1,nan,2,x\n2,6,1,x\n", TWO, "line 2: decode_tok_s is 'nan'; expected a number"),
    "more misses than experts": (
        f"{HEADER}1,5,9,x\n2,6,1,x\n",
        TWO,
        "line 2: misses_per_call is '9'; expected a number",
    ),
    "ragged": (f"{HEADER}1,5,2\n", TWO, "sim: table.csv: line 2: 3 cells; expected 4, as in the header"),
    "quotes": (f'{HEADER}1,5,2,"x\n', TWO, "sim: table.csv: line 2: not CSV (unexpected end of data)"),
    "header only": (HEADER, TWO, "sim: table.csv: no rows under its header"),
    "empty": ("", TWO, "sim: table.csv: is empty; expected a table as CSV"),
    "latin-1": ("bank,\xe9\n", TWO, "sim: table.csv: is not UTF-8 text (at byte 5)"),
    "top-k": (
        f"{HEADER}1,5,2,x\n2,6,1,x\n",
        [*TWO, "--topk", "9"],
        "9 experts a token, but qwen3.5-35b-a3b:ud-iq2_m routes",
    ),
    "equal misses": (f"{HEADER}1,5,2,x\n2,6,2,x\n", TWO, "sim: the anchors cannot separate layer_us and read_gb_s"),
    "no slower": (
        f"{HEADER}1,5,2,x\n2,5,1,x\n",
        TWO,
        "sim: read_gb_s: the anchors with more of it are no slower, so",
    ),
}


@pytest.mark.parametrize("case", TABLE_LINES)
def test_tables_that_cannot_be_used(capsys: pytest.CaptureFixture[str], case: str) -> None:
    text, arguments, message = TABLE_LINES[case]
    Path("table.csv").write_bytes(text.encode("latin-1"))
    model = [] if case == "no model" else ["--model", "qwen3.5-35b-a3b:ud-iq2_m"]
    assert_one_line(capsys, ["table.csv", *arguments, *model], message)


def test_a_table_that_is_flat_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Published: half the reads, and the same speed. The page cache served what the smaller bank missed."""
    rows = ["--row", "bank=16", "--row", "bank=128", "--model", "kimi-k2.5:ud-tq1_0"]
    assert_one_line(capsys, [KIMI, *rows], "sim: read_gb_s: the anchors with more of it are no slower")


def assert_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    out = [] if "--out" in arguments else ["--out", "out.toml"]
    line = refusal(capsys, "machine", "fit", *arguments, *out)
    assert line.startswith("sim: ")
    assert message in line
    assert not Path("out.toml").exists()
    assert not Path("there.toml").exists() or Path("there.toml").read_text() == "mine"
