"""Commands that run or read programs, with bad input: one line that says what is wrong, and nothing written."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

import pytest

from flashmoe_sim.field.rows import COLUMNS
from native_bridge.capture import llama_cpp
from native_bridge.fixture import bundled_model
from tests.field.builders import DEFAULTS
from tests.geometry.conftest import gguf, key, tensor, text
from tests.native_bridge.conftest import MODEL, RECORDED, STAND_IN
from tests.native_bridge.recorded_runs import GPU, RUNS, TIMED, copy, edit_log
from tests.support import refusal
from tests.support.cases import refused_in, rows

DENSE = gguf([key("general.architecture", 8, text("llama"))], [tensor("output.weight", (32, 2), 0)], data_bytes=256)
FILES = {
    "file": b"",
    "mine.txt": b"",
    "note.txt": b"Dear diary",
    "dense.gguf": DENSE,
    "latin.txt": b"caf\xe9",
    "old.jsonl": b"",
    "hf/config.json": b"{}",
    "there.html": b"mine",
    "there.toml": b"mine",
    "no-log/run.json": (RECORDED / "prose-bank24" / "run.json").read_bytes(),
    "torn/run.json": b"{",
    "small.gguf": b"abc",
}
WORDS = {
    "timed": TIMED,
    "tiny": RECORDED,
    "streamed": TIMED / "warm-bank12",
    "all_hit": TIMED / "warm-allhit",
    "model": MODEL,
    "python": sys.executable,
    "qwen": RUNS / "published" / "anemll_qwen35_35b_bank.csv",
    "kimi": RUNS / "published" / "anemll_kimi_k25_bank.csv",
    "quick": "--seconds 2 --max-bytes 32MiB --no-fio --no-gpu",
    "probe": "machine probe --folder folder --out mine.toml --seconds 2 --max-bytes 32MiB --no-fio --no-gpu",
    "calibrate": "bridge calibrate --out mine.toml",
}
# Arguments of `sim`, and what its one line contains.
TABLE = """
bridge run --out new --mode fast | unknown mode 'fast'; known:
bridge run --out new --bank 4 | --bank 4: tiny-moe-64x8 uses 8 experts a token
bridge run --out new --bank 1GiB | --bank 1GiB: the runtime counts a bank in slots of each layer, from 1; give such as
bridge run --out new --bank 16,0 | --bank 16,0: the runtime counts a bank in slots of each layer, from 1; give such as
bridge run --out new --bank 24..16 | bank range '24..16' goes down
bridge run --out new --mode stock --prefetch temporal | --prefetch temporal: no given mode supports it; add
bridge run --out new --bank 24 -- -fast | -fast after --: the runtime has no such flag; see its --help
bridge run --out new --bank 24 -- -t 2 | -t after --: is recorded by an option of its own; give --threads
bridge run --out new --bank 24 16 | '16': not an option; flags of the runtime come after --, such as -- -fa off
bridge run --out new --bank 24 --prompt a --prompt-file b | --prompt and --prompt-file; give one of them
bridge run --out new --bank 24 --prompt-file /nowhere | /nowhere: no such file
bridge run --out new --bank 24 --model /nowhere.gguf | /nowhere.gguf: no such file
bridge run --out new --bank 24 --sidecar /nowhere | a sidecar without its model; give --model, too
bridge run --out new --bank 24 --mode oracle-prefetch | replays a run of slot-bank; add that mode
bridge run --out new --bank 24 --runtime / | --runtime: /: is a folder, not a program
bridge check | no RUN_FOLDER; give the folders of runs, or --runtime to make some
bridge check none | none: no such folder; give the folder of a run, with run.json and log.txt
bridge check file | file: is not a folder; give the folder of a run
bridge check empty | empty: no run.json in it, and no folder with one; give the folder of a run, or of several
bridge check no-log | no-log/log.txt: no such file; give the path of the log of a run
bridge check torn | torn/run.json: not JSON
bridge check {timed} --out check.txt | check.txt: the report is a web page; give --out a name that ends in .html
bridge check {timed} --out there.html | there.html: exists; give --force to overwrite it
bridge check {streamed} --out none/check.html | none/check.html: cannot be written
bridge check {timed} --model none.gguf | 'none.gguf': no such file
bridge check {timed} {tiny} --model {timed}/manifest.json | bytes or layers differ; check the runs of each model by
bridge check {timed} --anchor none | none: no such folder
bridge check {timed} --runtime llama-cli | --runtime with RUN_FOLDER: runs are made or given; leave it out
bridge check {timed} --gpu-layers 9 | --gpu-layers with RUN_FOLDER: runs are made or given; leave it out
bridge check --runtime none/llama-cli | none/llama-cli: no such file
{calibrate} --runtime none | none: no such file
{calibrate} {timed} | a folder without --from; give --from
{calibrate} --from {timed} | runs with the page cache cold and warm are of two machines; give --cache cold
{calibrate} --from {streamed} | no all-hit or stock run of this machine
{calibrate} --from {timed}/warm-stock | no streamed run (slot-bank, with its trace, without prefetch)
{calibrate} --from {timed}/warm-stock --cache cold | --cache cold: none of these runs is; found warm
{calibrate} --from {streamed} {tiny}/prose-stock | is of another machine, build or model than
{calibrate} --from none | none: no such folder
bridge calibrate --from {timed} --cache warm --out there.toml | there.toml: exists; give --force to overwrite it
{calibrate} --from {timed} --cache warm --parameter none | unknown parameter 'none'; known:
{calibrate} --from {timed} --cache warm --parameter request_us | request_us needs a run like warm-bank12 with another
{calibrate} --from {timed} --cache warm --parameter weights_gb_s | weights_gb_s needs a run like warm-allhit with
{calibrate} --from {timed} --runs here | --runs with --from: nothing is run; leave one of them out
{probe} --folder none | none: no such folder
{probe} --file mine.txt | --folder and --file: give one of them
{probe} --folder mine.txt | mine.txt: is not a folder
{probe} --max-bytes 1MiB | --max-bytes 1.00 MiB: too few; these reads need a file of 32.0 MiB
{probe} --max-bytes 8 | --max-bytes '8': expected a size
{probe} --expert-bytes -3 | --expert-bytes '-3': expected a size
{probe} --expert-bytes 64KiB --model gpt-oss-120b | give one of them
{probe} --expert-bytes 0B | --expert-bytes 0: expected 1 B to 1 GiB
{probe} --model none | 'none'
{probe} --seconds 0 | 0 is not in the range
{probe} --seconds nan | 'nan' is not a finite number
{probe} --out . | is not a regular file
{probe} --out none/mine.toml | its folder does not exist
machine probe --out mine.toml {quick} --file none.gguf | none.gguf: no such file; give a large one
machine probe --out mine.toml {quick} --file small.gguf | small.gguf: has 3 B, and these reads need 32.0 MiB
model make-fixture --out new --size tiny --topk 2 | --topk: the tiny model is as it is
model make-fixture --out new --experts 0 | experts 0: expected 2 to 512
model make-fixture --out new --quant Q4_K | unknown quant 'Q4_K'; known: F16, MXFP4, Q4_0, Q8_0
model make-fixture --out new --layers 512 --experts 512 --width 16384 | MiB are free there
model verify-sidecar empty --model {model} | no manifest.json in this folder
model make-sidecar none.gguf --out new | none.gguf: no such file
referee rows.csv --estimator 'python3 x.py' | expected NAME=COMMAND, such as mine='python3 mine.py'
referee rows.csv --estimator 'mine=nowhere x.py' | no program nowhere; give its path
referee rows.csv --estimator 'llmfit 1={python}' --estimator 'llmfit 1={python}' | have one name
referee rows.csv --estimator flashmoe-sim={python} | that name is taken; give another one
referee rows.csv | no row has a decode_tok_s
machine fit {streamed} {all_hit} {timed}/cold-bank12 | the anchors contradict each other
machine fit warm cold | cold is a cold run and warm a warm one: reads from storage
machine fit {streamed} | 1 anchor; expected two or more: the speed of one run does not separate
machine fit {streamed} {streamed}/ | warm-bank12: given twice; give another anchor
machine fit none {streamed} | none: no such folder; give the folder of a run
machine fit {qwen} | anemll_qwen35_35b_bank.csv: a table without --row; choose its rows: --row bank=16
machine fit {streamed} {all_hit} --topk 4 | --topk without --row; a run records its own top-k
machine fit {streamed} {all_hit} --parameter read | unknown parameter 'read'; known: first_touch_gb_s, layer_us
machine fit {streamed} {all_hit} --model none.json | 'none.json': no such file
machine fit {all_hit} stock | the anchors cannot separate read_gb_s and first_touch_gb_s: read_gb_s needs a streamed
machine fit {streamed} {all_hit} --parameter request_us | the anchors cannot separate read_gb_s and request_us:
machine fit {streamed} {all_hit} --parameter pinned_gb_s | no anchor determines pinned_gb_s: pinned_gb_s needs
machine fit {streamed} {all_hit} --parameter weights_gb_s | weights_gb_s: mid does not record its dense weights, which
machine fit {streamed} topk4 | the anchors use 4 and 8 experts a token, which take different times
machine fit {kimi} --row bank=16 --row bank=128 --model kimi-k2.5:ud-tq1_0 | read_gb_s: the anchors with more of it
machine fit rc {streamed} | rc/run.json: rc is -9: the run failed
machine fit temporal {streamed} | temporal: --moe-prefetch-temporal: its time includes prefetches
machine fit packed {streamed} | packed: mode resident-slot-bank cannot be an anchor; known: stock
machine fit untraced {all_hit} | untraced: no trace.jsonl.gz, which has the misses of its tokens
machine fit swapped {all_hit} | swapped/trace.jsonl.gz: a replay of it misses 10,330 times, the log 13,363
machine fit cut {all_hit} | cut/trace.jsonl: it does not show which steps are decode
machine fit uploaded {all_hit} | uploaded/log.txt: install=5917.227 ms, upload=5917.227 ms: nothing is left
machine fit threads {all_hit} | {all_hit}: threads is 2, but 4 in threads: the anchors come from two
machine fit cuda {all_hit} | {all_hit}: backend is none that the log names, but cuda in cuda
machine fit ngl {all_hit} | {all_hit}: n_gpu_layers is -1, but 99 in ngl
machine fit split {all_hit} | {all_hit}: cache-io-split is 4, but 1 in split
machine fit async {all_hit} | {all_hit}: async-upload is off, but on in async
machine fit phone vm | vm: machine is vm, but phone in phone: the anchors come from two machines
machine fit {streamed} {tiny}/prose-bank64 --model {timed} | prose-bank64: threads is 1, but 2 in
machine fit {streamed} smaller | warm-bank12: an install has 1,671,169 bytes, but 838,861 in smaller
machine fit other/warm-bank24 {streamed} | manifest.json: bytes per expert or layers differ from those of
machine fit bare/warm-bank12 {all_hit} --model halved.json | bare/warm-bank12/log.txt: 20.80 GiB in 13,363 installs,
machine fit reads {all_hit} | reads/log.txt: 40,089 reads, but the model and io-split 4 make it 160,356
machine fit bare/warm-allhit bare/warm-stock | bare/warm-allhit: no trace among the anchors gives the layers
machine fit {streamed} {all_hit} --out there.toml | there.toml: exists; give --force to overwrite it
trace capture --model none.gguf --prompt x | none.gguf: no such file
trace capture --model note.txt --prompt x | note.txt: at byte 0: begins with b'Dear' | a GGUF file?
trace capture --model dense.gguf --prompt x | dense.gguf: not a mixture-of-experts model | llama
trace capture --model folder --prompt x | folder: a folder without config.json; give a GGUF file
trace capture --model hf --prompt x --gpu-layers 3 | --gpu-layers is for GGUF files
trace capture --model {model} | give the text to begin with: either --prompt or --prompt-file
trace capture --model {model} --prompt x --prompt-file note.txt | either --prompt or
trace capture --model {model} --prompt ' ' | the prompt is empty; give a text
trace capture --model {model} --prompt-file none.txt | none.txt: no such file; give a text file
trace capture --model {model} --prompt-file folder | folder: cannot be read (Is a directory)
trace capture --model {model} --prompt-file latin.txt | latin.txt: is not UTF-8 (byte 3)
trace capture --model {model} --prompt x --out t.parquet | t.parquet: the name tells no format
trace capture --model {model} --prompt x --out old.jsonl | old.jsonl: exists; give --force
trace capture --model {model} --prompt x --out no/t.jsonl | no/t.jsonl: cannot be written
trace capture --model {model} --prompt x --ubatch 0 | '--ubatch'
"""
# The rows of a CSV file, between slashes; `sim machine fit` of some of them, and its line.
HEAD, TWO = "bank,decode_tok_s,misses_per_call,condition", "--row bank=1 --row bank=2"
TABLES = """
HEAD | TWO | table.csv: a table does not give layers and bytes; give --model
HEAD | table.csv TWO | sim: 2 anchors with --row; expected one CSV file
HEAD | --row bank=1 | sim: 1 anchor; expected two or more
HEAD | --row bank=1 --row bank=1 | sim: bank=1: given twice
HEAD/1,5,2,x/2,6,1,x | TWO --row decode_tok_s=5 | line 2 is chosen twice
HEAD/1,5,2,x/3,6,1,x | TWO | table.csv: --row bank=2: no such row; bank is one of 1, 3
HEAD/1,5,2,x/1,6,1,x | TWO | table.csv: --row bank=1: 2 rows (lines 2, 3); choose
HEAD/1,5,2,x | --row slots=1 TWO | --row slots=1: expected COLUMN=VALUE with a
HEAD/1,5,2,x | --row bank TWO | --row bank: expected COLUMN=VALUE with a column of bank,
bank,hit_pct,condition/1,5,x | TWO | no column decode_tok_s or tok_s; found: bank, hit_pct, condition
bank,tok_s,condition/1,5,x | TWO | table.csv: no column misses_per_call or hit_pct; found: bank
bank,tok_s,hit_pct/1,5,3 | TWO | table.csv: no column condition, which names the machine
HEAD/1,5,2,x/2,6,1,y | TWO | line 3: condition is 'y', but 'x' in line 2: the rows are of two
HEAD/1,fast,2,x/2,6,1,x | TWO | table.csv: line 2: decode_tok_s is 'fast'; expected a number
HEAD/1,nan,2,x/2,6,1,x | TWO | line 2: decode_tok_s is 'nan'; expected a number
HEAD/1,5,9,x/2,6,1,x | TWO | line 2: misses_per_call is '9'; expected a number
HEAD/1,5,2 | TWO | table.csv: line 2: 3 cells; expected 4, as in the header
HEAD/1,5,2,"x | TWO | table.csv: line 2: not CSV (unexpected end of data)
HEAD | TWO | table.csv: no rows under its header
- | TWO | table.csv: is empty; expected a table as CSV
bank,é | TWO | table.csv: is not UTF-8 text (at byte 5)
HEAD/1,5,2,x/2,6,1,x | TWO --topk 9 | 9 experts a token, but qwen3.5-35b-a3b:ud-iq2_m routes
HEAD/1,5,2,x/2,6,2,x | TWO | sim: the anchors cannot separate layer_us and read_gb_s
HEAD/1,5,2,x/2,5,1,x | TWO | sim: read_gb_s: the anchors with more of it are no slower, so
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command lines run in."""
    place = tmp_path_factory.mktemp("place")
    for name in ("folder", "empty", "hf", "no-log", "torn"):
        (place / name).mkdir()
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    with (place / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerow(DEFAULTS | {"decode_tok_s": ""})
    make_runs(place)
    return place


def make_runs(here: Path) -> None:
    """The runs that the table names, each with its fault, and what lies beside them."""
    shutil.copy(TIMED / "manifest.json", here)
    halved = (TIMED / "manifest.json").read_text().replace("557056", "278528").replace("35651584", "17825792")
    (here / "halved.json").write_text(halved)

    def renamed(name: str, source: str = "warm-bank12", **flags: object) -> Path:
        return copy(source, here, **flags).rename(here / name)

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
        (here / folder).mkdir()
    shutil.copy(here / "halved.json", here / "other" / "manifest.json")
    copy("warm-bank24", here / "other")
    for name in ("warm-bank12", "warm-allhit", "warm-stock"):
        copy(name, here / "bare")


@pytest.mark.parametrize("case", rows(TABLE, **WORDS), ids=lambda case: case[0].replace(str(RUNS), "")[:70])
def test_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: list[str]
) -> None:
    monkeypatch.delenv("FLASHMOE_RUNTIME", raising=False)
    if case[0].startswith("bridge run"):
        monkeypatch.setenv("FLASHMOE_RUNTIME", str(STAND_IN))
    out = " --out out.toml" if case[0].startswith("machine fit") and "--out" not in case[0] else ""
    refused_in(place, capsys, [case[0] + out, *case[1:]])


@pytest.mark.parametrize(("content", "arguments", "message"), rows(TABLES))
def test_tables_that_cannot_be_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, arguments: str, message: str
) -> None:
    lines = content.strip("-").replace("HEAD", HEAD).replace("/", "\n")
    (tmp_path / "table.csv").write_bytes(f"{lines}\n".encode("latin-1") if lines else b"")
    model = "" if "give --model" in message else "--model qwen3.5-35b-a3b:ud-iq2_m"
    words = f"machine fit table.csv {arguments.replace('TWO', TWO)} {model} --out out.toml"
    refused_in(tmp_path, capsys, [words, message])


@pytest.mark.parametrize(
    ("package", "model", "command"),
    [
        ("llama_cpp", str(bundled_model()), "CMAKE_ARGS=-DGGML_NATIVE=OFF pip install '.[capture]'"),
        ("torch", "hf", "pip install '.[capture-hf]'"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str,
    model: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hf").mkdir()
    Path("hf/config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, package, None)
    llama_cpp._library.cache_clear()
    line = refusal(capsys, "trace", "capture", "--model", model, "--prompt", "x", "--out", "t.jsonl")
    assert "is not installed" in line
    assert command in line
    assert not Path("t.jsonl").exists()
