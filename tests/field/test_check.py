"""Rows that cannot be are refused with their line and the reason; the rows in use pass."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.field import check
from flashmoe_sim.field.known import Known, known_rows, saying
from flashmoe_sim.field.rows import COLUMNS, read_rows
from reports.field.report import PUBLISHED, TABLES, all_rows

GOOD = {
    "id": "mine-1",
    "source": "me/my-machine",
    "source_url": "https://example.org/my-machine",
    "date": "2026-11-20",
    "engine": "llama.cpp",
    "strategy": "n_cpu_moe",
    "model": "gpt-oss-120b",
    "quant": "MXFP4",
    "model_file_gib": "59.02",
    "total_experts": "128",
    "top_k": "4",
    "moe_layers": "36",
    "gpu": "RTX 3090",
    "gpu_vram_gib": "24",
    "gpu_mem_gb_s": "936",
    "cpu": "Ryzen 9 5950X",
    "ram_gib": "64",
    "ram_gb_s": "51.2",
    "ssd_gb_s": "7",
    "flags": "--n-cpu-moe 28",
    "experts_on_cpu_layers": "28",
    "context": "4096",
    "prompt_tok_s": "410",
    "decode_tok_s": "26.5",
}
BAD = [
    ({"decode_tok_s": "26500"}, "decode_tok_s is 26500; expected 0.005 to 1000: tokens a second"),
    ({"decode_tok_s": "0.001"}, "decode_tok_s is 0.001"),
    ({"decode_tok_s": "-4"}, "decode_tok_s is '-4'; expected a number above 0"),
    ({"decode_tok_s": "fast"}, "decode_tok_s is 'fast'; expected a number"),
    ({"decode_tok_s": "nan"}, "decode_tok_s is 'nan'"),
    ({"decode_tok_s": "", "prompt_tok_s": ""}, "no speed; give decode_tok_s"),
    ({"decode_tok_s": "480"}, "480 tokens a second read "),
    ({"decode_tok_s": "480", "strategy": "cpu_only", "gpu": ""}, "480 tokens a second read "),
    ({"prompt_tok_s": "0.01"}, "prompt_tok_s is 0.01"),
    ({"prompt_tok_s": "900000"}, "prompt_tok_s is 900000"),
    ({"prompt_tok_s": "2"}, "the prompt is read at 2 and the answer written at 26.5: swapped?"),
    ({"gpu_vram_gib": "24576"}, "gpu_vram_gib is 24576; expected 1 to 1600: GiB of all cards together, not MB"),
    ({"gpu_vram_gib": "0.5"}, "gpu_vram_gib is 0.5"),
    ({"gpu_mem_gb_s": "19500"}, "gpu_mem_gb_s is 19500; expected 20 to 10000: GB/s of one card"),
    ({"gpu_mem_gb_s": "9"}, "gpu_mem_gb_s is 9"),
    ({"ram_gib": "65536"}, "ram_gib is 65536; expected 2 to 8192: GiB, not MB"),
    ({"ram_gib": "1"}, "ram_gib is 1;"),
    ({"ram_gb_s": "51200"}, "ram_gb_s is 51200; expected 4 to 2000: GB/s, not MB/s"),
    ({"ram_gb_s": "3200"}, "ram_gb_s is 3200"),
    ({"ssd_gb_s": "7000"}, "ssd_gb_s is 7000; expected 0.03 to 60: GB/s, not MB/s"),
    ({"ssd_gb_s": "0.001"}, "ssd_gb_s is 0.001"),
    ({"model_file_gib": "63387"}, "model_file_gib is 63387; expected 0.5 to 2500"),
    ({"model_file_gib": "120"}, "model_file_gib is 120; MXFP4 of gpt-oss-120b has about 59"),
    ({"model_file_gib": "12"}, "model_file_gib is 12; MXFP4 of gpt-oss-120b has about 59"),
    ({"total_experts": "256"}, "256 experts a layer, but gpt-oss-120b:mxfp4 has 128"),
    ({"total_experts": "12.5"}, "total_experts is"),
    ({"top_k": "200"}, "top_k is 200"),
    ({"top_k": "130", "total_experts": "128"}, "top_k is 130"),
    ({"moe_layers": "96"}, "moe_layers is 96; gpt-oss-120b has 36"),
    ({"moe_layers": "0"}, "moe_layers is '0'"),
    ({"strategy": "gpu"}, "strategy is 'gpu'; expected one of all_gpu"),
    ({"strategy": "all_gpu"}, "all_gpu, but 59 GiB of weights are more than 24 GiB of GPU memory"),
    ({"strategy": "all_gpu", "gpu": ""}, "all_gpu without a GPU"),
    ({"experts_on_cpu_layers": "", "flags": ""}, "n_cpu_moe without a number"),
    ({"gpu": "", "cpu": ""}, "no computer; give gpu, cpu or both"),
    (
        {"gpu": "", "gpu_vram_gib": "", "gpu_mem_gb_s": "", "strategy": "cpu_only"},
        "26.5 tokens a second read 116 GB/s of weights, and the memories give 51",
    ),
    ({"engine": ""}, "no engine; give the program that ran"),
    ({"model": "llama-3.1-70b"}, "llama-3.1-70b"),
    (
        {"model": "qwen3-30b-a3b", "quant": "ZZZ", "model_file_gib": "", "top_k": "8", "moe_layers": "48"},
        "unknown quantization 'ZZZ'",
    ),
    ({"source": ""}, "no source; give who measured it"),
    ({"source_url": "my notes"}, "source_url is 'my notes'; expected the address"),
    ({"source_url": ""}, "source_url is ''"),
    ({"date": "20.11.2026"}, "date is '20.11.2026'; expected the day or month"),
    ({"date": "2031-01-01"}, "date is 2031-01-01, which is before 2023-01-01 or to come"),
    ({"date": "2019-05"}, "date is 2019-05, which is before"),
    ({"hit_rate_pct": "140"}, "hit_rate_pct is '140'; expected at most 100"),
    ({"id": ""}, "id"),
]


def written(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "new.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, "source_url"], restval="")
        writer.writeheader()
        writer.writerows(GOOD | row for row in rows)
    return path


def said(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> tuple[int, str, str]:
    code = main(["field", "check", str(path), *more])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_good_row_stands_beside_its_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {"decode_tok_s": "18"})
    code, out, _ = said(capsys, path)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("mine-1")]
    assert re.fullmatch(r"mine-1 +18 +\d+ \([\d.]+ to \d+\) +\d+% *", line)
    assert all(len(line) <= 80 for line in out.splitlines())
    code, out, _ = said(capsys, path, "--json")
    (one,) = json.loads(out)["predicted"]
    assert one["tok_s_lo"] < one["tok_s"] < one["tok_s_hi"]
    assert not one["outside"]


def test_a_speed_outside_is_named_with_causes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {"decode_tok_s": "4.1"})
    code, out, _ = said(capsys, path)
    assert code == 0
    assert "mine-1: slower than likely; perhaps " in out
    (one,) = json.loads(said(capsys, path, "--json")[1])["predicted"]
    assert (one["outside"], len(one["causes"])) == (True, 2)
    assert one["below"] < 0.05


@pytest.mark.parametrize(
    ("wrong", "says"), BAD, ids=[f"{number}-{next(iter(one))}" for number, (one, _) in enumerate(BAD)]
)
def test_what_cannot_be_is_refused(
    wrong: dict[str, str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, written(tmp_path, wrong))
    assert (code, out) == (2, "")
    assert says in err
    assert "new.csv" in err


def test_at_least_forty_kinds_are_planted() -> None:
    assert len(BAD) >= 40


def test_what_is_there_already_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (known, *_) = read_rows(PUBLISHED / TABLES[0])
    code, _, err = said(capsys, written(tmp_path, {"id": known.id}))
    assert (code, "the id is used already; give another one" in err) == (2, True)
    code, _, err = said(capsys, written(tmp_path, {}, {"id": "mine-2"}))
    assert (code, "mine-2: says the same as mine-1; leave it out" in err) == (2, True)


def test_the_rows_in_use_pass_in_good_time() -> None:
    """What is said of them is what their sources left out, or one of a kind; no number of them is refused."""
    path = PUBLISHED / TABLES[1]
    started = time.process_time()
    found = check.problems(read_rows(path), check.urls_of(path), Known(frozenset(), {}))
    spent = time.process_time() - started
    rows = len(read_rows(path))
    assert spent < 5  # seconds of CPU time for half as many rows as are to take so long
    assert rows > 500
    assert len({one.id for one in found}) < 0.1 * rows
    assert not [one for one in found if " is " in one.says and one.says.split()[0] in check.RANGES]


def test_a_thousand_rows_take_five_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, *({"id": f"mine-{one}", "decode_tok_s": f"{20 + one / 500}"} for one in range(1000)))
    started = time.process_time()
    code, out, _ = said(capsys, path, "--no-predict")
    assert time.process_time() - started < 5
    assert (code, out.strip()) == (0, "1,000 rows, nothing wrong with them")


def test_the_rows_in_use_are_known() -> None:
    """As `python -m reports.field` writes them down."""
    rows = all_rows()
    assert known_rows() == Known(frozenset(row.id for row in rows), {saying(row): row.id for row in rows})
