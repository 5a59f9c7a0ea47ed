"""`sim field add`: what an engine printed becomes rows that are read again as they were run."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.field.add import machine_columns
from flashmoe_sim.field.asked import Traces, asked_of, system_of
from flashmoe_sim.field.machine import built_of
from flashmoe_sim.field.rows import HEAD, FieldRow, read_rows
from flashmoe_sim.machines.load import load_machine
from reports.field.report import PUBLISHED, TABLES
from tests.field.builders import row
from tests.measured import bench

MACHINE = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4 + linux"
SAID = ("--machine", MACHINE, "--source", "me/my-pc", "--url", "https://example.org/my-pc", "--date", "2026-11-20")


def as_csv(rows: list[bench.Row]) -> str:
    text = io.StringIO()
    text.write(",".join(rows[0]) + "\n")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(one.values() for one in rows)
    return text.getvalue()


def as_table(rows: list[bench.Row]) -> str:
    lines = [
        "| model | size | params | backend | ngl | n_cpu_moe | test | t/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in rows:
        test = f"tg{one['n_gen']}" if one["n_gen"] else f"pp{one['n_prompt']}"
        known = f"{one['model_type']} | 59.02 GiB | 116.83 B | CUDA | {one['n_gpu_layers']} | {one['n_cpu_moe']}"
        lines.append(f"| {known} | {test} | {one['avg_ts']:.2f} ± 0.10 |")
    return "\n".join(lines) + "\n"


RUNS = [bench.row(), bench.row(n_gen=0, n_prompt=512, avg_ts=212.0, stddev_ts=1.0)]
FORMATS = {"json": bench.as_json(RUNS), "jsonl": bench.as_jsonl(RUNS), "csv": as_csv(RUNS), "md": as_table(RUNS)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, text: str, *more: str, said: tuple[str, ...] = SAID) -> list[FieldRow]:
    given, out = folder / "bench.json", folder / "row.csv"
    given.write_text(text)
    assert main(["field", "add", str(given), *said, "--out", str(out), *more]) == 0
    with out.open(newline="") as file:
        assert tuple(next(csv.reader(file))) == HEAD
    return read_rows(out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["field", "add", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_columns_are_those_of_the_tables() -> None:
    for table in TABLES:
        with (PUBLISHED / table).open(newline="") as file:
            assert set(next(csv.reader(file))) <= set(HEAD)


@pytest.mark.parametrize("name", FORMATS)
def test_what_llama_bench_prints_is_one_row(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = written(tmp_path, FORMATS[name])
    assert (one.decode_tok_s, one.prompt_tok_s) == (16.0, 212.0)
    assert (one.engine, one.strategy, one.experts_on_cpu_layers) == ("llama.cpp", "n_cpu_moe", "31")
    assert (one.model, one.quant, one.model_file_gib) == ("gpt-oss-120b", "MXFP4", 59.02)
    assert (one.source, one.date, one.confidence) == ("me/my-pc", "2026-11-20", "A")
    assert system_of(one).spec == "placed:cpu_layers=31"
    capsys.readouterr()
    assert main(["field", "check", str(tmp_path / "row.csv"), "--no-predict"]) == 0


def test_each_setting_and_depth_is_a_row(tmp_path: Path) -> None:
    runs = [bench.row(n_depth=depth, avg_ts=16 - depth / 4096) for depth in (0, 4096)]
    rows = written(tmp_path, bench.as_json(runs))
    assert [(one.id, one.context, one.varies, one.decode_tok_s) for one in rows] == [
        ("my-pc-gpt-oss-120b-geforce-rtx-3060-12-gb-1", "", "context", 16.0),
        ("my-pc-gpt-oss-120b-geforce-rtx-3060-12-gb-2", "4096", "context", 15.0),
    ]
    assert len({one.series for one in rows}) == 1
    assert [asked_of(one, Traces()).case.depth for one in rows] == [0, 4096]
    rows = written(tmp_path, bench.as_json([bench.row(n_cpu_moe=layers) for layers in (31, 33)]), "--force")
    assert [(one.experts_on_cpu_layers, one.varies) for one in rows] == [("31", "setting"), ("33", "setting")]


@pytest.mark.parametrize("said", ["all-gpu", "placed:cpu_layers=20"])
def test_another_system_than_the_file_says(said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "bench.json"
    given.write_text(bench.as_json(RUNS))
    err = refused(capsys, str(given), *SAID, "--system", said)
    assert f"says placed:cpu_layers=31, and --system is {said}; leave out --system" in err
    (one,) = written(tmp_path, bench.as_json(RUNS), "--system", "placed")
    assert one.experts_on_cpu_layers == "31"


def test_repeats_are_one_row(tmp_path: Path) -> None:
    (one,) = written(tmp_path, bench.as_json([bench.row(avg_ts=speed) for speed in (15.0, 16.0, 19.0)]))
    assert one.decode_tok_s == 16.0


def test_a_regular_expression_says_its_layers(tmp_path: Path) -> None:
    override = r"blk\.([0-9]|[12][0-9]|3[01])\.ffn_.*_exps=CPU"
    (one,) = written(tmp_path, bench.as_json([bench.row(n_cpu_moe=0, tensor_buft_overrides=override)]))
    assert (one.strategy, one.experts_on_cpu_layers) == ("ot_regex", "32")
    assert f'-ot "{override}"' in one.flags


@pytest.mark.parametrize(
    "spec",
    [
        "placed:cpu_layers=32",
        "placed-ik:cpu_layers=33",
        "cpu",
        "cached:cache_mib=4096",
        "hot-cache:max_mib=3072",
        "ds4:experts=300",
    ],
)
def test_a_speed_by_hand_is_read_as_its_system(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "row.csv"
    model = "deepseek-v4-flash" if "ds4" in spec else "gpt-oss-120b"
    machine = MACHINE.replace("64GiB", "128GiB")
    words = (f"{spec}=5.5", "--model", model, "--machine", machine, *SAID[2:], "--out", str(out))
    assert main(["field", "add", *words]) == 0
    (one,) = read_rows(out)
    assert (one.confidence, one.decode_tok_s) == ("B", 5.5)
    assert system_of(one).spec == spec


def test_a_folder_of_tune(tmp_path: Path) -> None:
    """Only its undisturbed runs with the knobs of the fastest."""
    folder = tmp_path / "tune-model"
    folder.mkdir()
    runs = []
    for number, layers in enumerate((31, 33)):
        (folder / f"{number}.json").write_text(bench.as_json([bench.row(n_cpu_moe=layers, model_filename="m.gguf")]))
        system = f"placed:cpu_layers={layers}"
        runs.append({"setting": system, "system": system, "seconds": 1.0 + number, "file": f"{number}.json"})
    about = {"model": "gpt-oss-120b-mxfp4", "model_bytes": 63375933440}
    (folder / "tune.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in (about, *runs)))
    out = tmp_path / "row.csv"
    assert main(["field", "add", str(folder), *SAID, "--out", str(out)]) == 0
    assert [one.experts_on_cpu_layers for one in read_rows(out)] == ["31", "33"]


def test_llmfits_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hardware = {"hardwareName": "NVIDIA GeForce RTX 3060", "cpu": "AMD Ryzen 5 5600", "hwClass": "DISCRETE_GPU"}
    result = {"model": "gpt-oss:20b", "provider": "ollama", "avgTps": 30.2, "avgOutputTokens": 128, "avgTotalMs": 9e3}
    given = tmp_path / "llmfit.json"
    given.write_text(json.dumps({"hardware": hardware, "results": [result]}))
    err = refused(capsys, str(given), *SAID)
    assert "give --system: where the experts were" in err
    out = tmp_path / "row.csv"
    assert main(["field", "add", str(given), *SAID, "--system", "placed:cpu_layers=8", "--out", str(out)]) == 0
    (one,) = read_rows(out)
    assert (one.model, one.engine, one.decode_tok_s) == ("gpt-oss-20b", "ollama", 30.2)


def test_an_answer_has_its_prompt_and_a_user_says_which_model_a_file_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Servers time a prompt and the answer behind it, at other depths; the file's name means no known model."""
    timings = {"prompt_n": 463, "prompt_per_second": 200.0, "predicted_n": 200, "predicted_per_second": 25.0}
    response = {"model": "mine.gguf", "timings": timings | {"cache_n": 0}}
    given, out = tmp_path / "response.json", tmp_path / "row.csv"
    given.write_text(json.dumps(response))
    words = (str(given), *SAID, "--system", "placed:cpu_layers=20", "--engine", "llama.cpp", "--out", str(out))
    assert "(the file says 'mine.gguf')" in refused(capsys, *words)
    assert main(["field", "add", *words, "--model", "qwen3-30b-a3b:q4_k_m"]) == 0
    (one,) = read_rows(out)
    assert (one.model, one.prompt_tok_s, one.decode_tok_s, one.context) == ("qwen3-30b-a3b", 200.0, 25.0, "463")
    given.write_text(json.dumps(response | {"model": "gpt-oss-20b-mxfp4.gguf"}))
    err = refused(capsys, *words, "--model", "qwen3-30b-a3b:q4_k_m", "--force")
    assert "says 'gpt-oss-20b-mxfp4.gguf', and --model is qwen3-30b-a3b; leave out --model" in err


MACHINES = [
    MACHINE,
    "2x rtx-3090 + epyc-7302 + 256GiB",
    "rtx-3060-8gb + i5-12600k + 64GiB ddr4",
    "rtx-4090 + rtx-3060 + ryzen-7950x + ddr5-6000x2 + 96GiB + pcie4x8",
    "2x epyc-9354 + ddr5-4800x12 + 768GiB",
    "rx-7900-xtx + ryzen-5950x + 64GiB + windows",
    "m4-max-64",
    "m3-ultra-512",
    "strix-halo + 128GiB",
    "dgx spark",
    "i7-12700k + ddr5-4800x2 + 64GiB",
]


def test_cards_of_unlike_memory_have_no_bandwidth_in_common() -> None:
    cards = ("rtx-4090", "2x rtx-4090", "rtx-4090 + rtx-3060")
    one, alike, unlike = (machine_columns(f"{those} + 64GiB") for those in cards)
    assert one["gpu_mem_gb_s"] == alike["gpu_mem_gb_s"] != unlike["gpu_mem_gb_s"] == ""


@pytest.mark.parametrize("text", MACHINES)
def test_a_row_is_read_as_the_machine_that_was_given(text: str, tmp_path: Path) -> None:
    cells = machine_columns(text)
    strategy = "all_gpu" if cells["gpu"] else "cpu_only"
    given = {name: value for name, value in cells.items() if value}
    read = built_of(row(tmp_path, **{"strategy": strategy, "gpu": "", "cpu": "", **given})).machine
    wanted = load_machine(text)
    assert (read.gpus, read.sockets, read.unified) == (wanted.gpus, wanted.sockets, wanted.unified)
    of_both = dict(read.quantities()), dict(wanted.quantities())
    near = 0.2 if wanted.unified else 0.02  # chips are read with the speeds of a preset
    for path in ("gpu.memory_gib", "gpu.weights_gb_s", "memory.ram_gib", "memory.bandwidth_gb_s", "link.pinned_gb_s"):
        one, other = (known[path].value if path in known else 0.0 for known in of_both)
        assert one == pytest.approx(other, rel=near), path


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"avg_ts": 900.0}, "900 tokens a second read "),
        ({"n_cpu_moe": 0}, "placed"),
        ({"model_filename": "llama-8b.gguf", "model_type": "llama 8B"}, "quantization, such as gpt-oss-20b:mxfp4 (the"),
        ({"n_gpu_layers": 12}, "12 of 37 layers on the GPU"),
    ],
)
def test_what_cannot_be_is_refused(
    changed: dict[str, object], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "bench.json"
    given.write_text(bench.as_json([bench.row(**changed)]))
    if changed == {"n_cpu_moe": 0}:
        says = "all_gpu, but 59 GiB of weights are more than 12 GiB of GPU memory; nothing was written"
    assert says in refused(capsys, str(given), *SAID, "--out", str(tmp_path / "row.csv"))
    assert not (tmp_path / "row.csv").exists()


def test_the_screen_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    Path("bench.json").write_text(bench.as_json([bench.row(), bench.row(n_cpu_moe=33)]))
    assert main(["field", "add", "bench.json", *SAID]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert re.search(r"^strategy +n_cpu_moe$", out, re.MULTILINE)
    assert "and 1 more, which differ in setting and speed" in out
    assert out.endswith("    sim field check my-pc-gpt-oss-120b-geforce-rtx-3060-12-gb.csv\n")
    assert main(["field", "add", "bench.json", *SAID, "--json", "--force"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == "my-pc-gpt-oss-120b-geforce-rtx-3060-12-gb.csv"
    assert [list(one) for one in found["rows"]] == [list(HEAD)] * 2


def test_a_terminal_is_asked(tmp_path: Path) -> None:
    """For what neither the file nor an option says, one after the other."""
    (tmp_path / "bench.json").write_text(bench.as_json([bench.row()]))
    ours, theirs = pty.openpty()
    code = "import sys; from flashmoe_sim.cli.main import main; sys.exit(main(['field', 'add', 'bench.json']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs
    ) as one:
        os.close(theirs)
        os.write(ours, f"{MACHINE}\nme/my-pc\nhttps://example.org/my-pc\n".encode())
        shown = b""
        while True:
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:
                break
    os.close(ours)
    assert one.returncode == 0, shown.decode()
    assert [b"Machine: the computer's parts" in shown, b"Source: who" in shown, b"Url: the address" in shown] == [
        True
    ] * 3
    (made,) = tmp_path.glob("*.csv")
    assert read_rows(made)[0].source == "me/my-pc"
