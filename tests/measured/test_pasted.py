"""Output of programs as people paste it: with something around it, cut, of several models, and in other numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashmoe_sim.measured import read_with_notes
from flashmoe_sim.measured.dress import figure, whole
from flashmoe_sim.measured.value import FoundSpeeds
from tests.measured.bench import WRITTEN, row

PASTED, FILES = Path(__file__).parent / "pasted", Path(__file__).parent / "files"
TABLE = WRITTEN["md"]([row(), row(n_gen=0, n_prompt=512, avg_ts=300.25)])


def read(folder: Path, text: str) -> FoundSpeeds:
    (folder / "pasted.txt").write_text(text, "utf-8")
    return read_with_notes(folder / "pasted.txt")


def speeds(found: FoundSpeeds) -> list[tuple[bool, int | None, int, float]]:
    return [(one.prompt, one.tokens, one.depth, round(one.tok_s, 2)) for one in found.measured]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("bench-and-time.json", [(False, 128, 0, 180.0)]),
        ("bench-unfinished.json", [(False, 128, 0, 180.0), (True, 512, 0, 3000.0)]),
        ("cached-prompt-2025.log", [(True, 200, 8800, 200.0), (False, 400, 9000, 50.0)]),
        ("described-model.md", [(False, 128, 0, 150.3)]),
        ("github-actions.md", [(False, 128, 0, 180.3)]),
        ("lm-studio-comma.txt", [(False, 512, 0, 45.12)]),
        ("ot-with-bars.md", [(False, 128, 0, 120.3)]),
        ("perplexity.log", []),
        ("repacked.md", [(False, 128, 0, 20.0), (True, 512, 0, 120.0), (False, 128, 0, 24.0)]),
        ("several-models.md", [(False, 128, 0, 120.0), (False, 128, 0, 180.3)]),
        ("variable-name.log", [(True, 512, 0, 2438.1), (False, 512, 512, 180.0)]),
        ("windows-path.log", [(True, 512, 0, 2438.1), (False, 512, 512, 180.0)]),
    ],
)
def test_right_values(file: str, expected: list[tuple[bool, int, int, float]]) -> None:
    assert speeds(read_with_notes(PASTED / file)) == expected


def test_an_override_keeps_its_bars() -> None:
    (found,) = read_with_notes(PASTED / "ot-with-bars.md").measured
    assert found.system == r"placed:ot=blk\.(0|1|2)\.ffn_.*_exps=CPU"


@pytest.mark.parametrize("file", ["windows-path.log", "variable-name.log"])
def test_the_name_of_a_path_or_a_variable(file: str) -> None:
    assert {one.model.replace("\\", "/").split("/")[-1] for one in read_with_notes(PASTED / file).measured} == {
        "gpt-oss-20b-mxfp4.gguf"
    }


PREFIXES = {
    "quotation": "> ",
    "continuous integration": "2026-01-02T03:04:05.1234567Z ",
    "its archive": "bench\tRun it\t2026-01-02T03:04:05.1234567Z ",
    "journal": "Jan 02 03:04:05 host bench[123]: ",
    "Kubernetes": "2026-01-02T03:04:05.123456789Z stdout F ",
    "Compose": "bench-1  | ",
    "clock": "[12:34:56] ",
    "indent": "      ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("file", ["bench.md", "bench-readme.csv", "llmfit-m5-max.json", "vllm.json", "ollama-api.json"])
def test_a_prefix_before_each_line_changes_nothing(file: str, prefix: str, tmp_path: Path) -> None:
    text = (FILES / file).read_text("utf-8")
    found = read(tmp_path, "".join(f"{prefix}{line}\n" for line in text.split("\n")))
    assert speeds(found) == speeds(read_with_notes(FILES / file))


@pytest.mark.parametrize("kind", ["json", "jsonl"])
@pytest.mark.parametrize(
    "around",
    [
        "# Results\n```json\n{}```\nreal 0m1.0s\n",
        "<html><body><pre>{}</pre></body></html>",
        "$ llama-bench -o json [a] (b)\n{}\nreal\t0m12.3s\n",
    ],
)
def test_json_with_something_around_it(kind: str, around: str, tmp_path: Path) -> None:
    rows = [row(), row(n_gen=64, avg_ts=17.25)]
    found = read(tmp_path, around.replace("{}", WRITTEN[kind](rows)))
    assert (speeds(found), found.left_out) == ([(False, 128, 0, 16.0), (False, 64, 0, 17.25)], [])


def test_several_lists_and_escapes_of_html(tmp_path: Path) -> None:
    lists = f"main:\n{WRITTEN['json']([row()])}\nand here:\n{WRITTEN['json']([row(avg_ts=17.25)])}"
    assert [one.tok_s for one in read(tmp_path, lists).measured] == [16.0, 17.25]
    escaped = "<pre>" + WRITTEN["jsonl"]([row(), row(avg_ts=17.25)]).replace('"', "&quot;") + "</pre>"
    assert [one.tok_s for one in read(tmp_path, escaped).measured] == [16.0, 17.25]


def test_rows_within_other_json(tmp_path: Path) -> None:
    lines = [{"start": 1, "tokens_per_sec": 1.5, "bench_raw": row(avg_ts=speed)} for speed in (16.0, 17.25)]
    found = read(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    assert [one.tok_s for one in found.measured] == [16.0, 17.25]
    results = [{"name": "a", "predicted_n": 192, "predicted_per_second": 48.5, "draft_n": 0}]
    (one,) = read(tmp_path, json.dumps({"model": "Qwen3-30B-A3B-Q4_K_M", "results": results}, indent=2)).measured
    assert (one.tok_s, one.tokens, one.model, one.unplaced) == (48.5, 192, "Qwen3-30B-A3B-Q4_K_M", "")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.replace("|", "│").replace("-", "─"),
        lambda text: "\n".join(line.strip("| ") for line in text.split("\n")),
        lambda text: text.replace("\n| gpt", "\n======= Repacked 72 tensors\n\nload: a | b\n| gpt"),
        lambda text: text.replace("16.00 ± 0.16", "**16,00 ± 0,16**").replace("300.25", "300,25"),
        lambda text: "\n".join(f"{line[:66]}\n{line[66:]}" if len(line) > 66 else line for line in text.split("\n")),
        lambda text: (
            text.replace("| model", "| nr | model").replace("| ---", "| - | ---").replace("| gpt", "| 1 | gpt")
        ),
    ],
    ids=["no-break spaces", "box", "trimmed", "log lines", "commas", "narrow terminal", "one more column"],
)
def test_tables_in_other_dress(change: object, tmp_path: Path) -> None:
    found = read(tmp_path, change(TABLE))  # type: ignore[operator]
    assert speeds(found) == [(False, 128, 0, 16.0), (True, 512, 0, 300.25)]
    assert {one.model for one in found.measured} == {"gpt-oss 120B MXFP4 MoE"}


def test_a_rendered_table_with_tabs(tmp_path: Path) -> None:
    lines = [line.strip("| ").replace(" | ", "\t") for line in TABLE.split("\n") if "---" not in line]
    assert [one.tok_s for one in read(tmp_path, "\n".join(lines)).measured] == [16.0, 300.25]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("| model | test | t/s | t/s |\n| - | - | - | - |\n| x | tg128 | 5 | 6 |\n", "several columns t/s"),
        ("| model | t/s |\n| - | - |\n| x | 5 |\n", "a table without columns test and t/s"),
        ("| threads | test | t/s |\n| - | - | - |\n| 6 | tg128 | 5 |\n", "1 speeds of tables without the column model"),
        ("| gpt-oss 120B MXFP4 MoE | 59.02 G", "no | at its end"),
        ("| gpt-oss 120B MXFP4 MoE | 59.02 GiB | x | 5 |", "is cut off or damaged (4 values for 11 columns)"),
        ("eval time = 5000.00 ms / 100 runs ( 50.00 ms per token, 20.00 tokens per second)\n", "not read too"),
    ],
)
def test_what_is_not_read_of_a_file_is_said(more: str, reason: str, tmp_path: Path) -> None:
    text = TABLE.partition("\nbuild")[0] + ("" if "59.02" in more else "\n") + more
    found = read(tmp_path, text)
    assert speeds(found) == [(False, 128, 0, 16.0), (True, 512, 0, 300.25)]
    assert [reason in line for line in found.left_out] == [True]


def test_a_table_of_one_column_less_alone(tmp_path: Path) -> None:
    (one,) = read(tmp_path, "| backend | ngl | test | t/s |\n| - | - | - | - |\n| CUDA | 99 | tg128 | 5.5 |\n").measured
    assert (one.model, one.system, one.tok_s) == ("", "all-gpu", 5.5)


@pytest.mark.parametrize(
    ("text", "number", "count"),
    [
        ("45.12", 45.12, None),
        ("45,12", 45.12, None),
        ("1,234.5", 1234.5, None),
        ("1.234,5", 1234.5, None),
        ("1\u202f234,567", 1234.567, 1234567),
        ("1'234.5", 1234.5, None),
        ("1,234,567.8", 1234567.8, None),
        ("1,234", None, 1234),
        ("1 234", None, 1234),
        ("0,123", 0.123, 123),
        ("45.123", 45.123, 45123),
        ("512", 512.0, 512),
        ("1,2,3", None, None),
        ("1.5.26", None, None),
    ],
)
def test_numbers(text: str, number: float | None, count: int | None) -> None:
    assert (figure(text), whole(text)) == (number, count)


@pytest.mark.parametrize(
    ("printed", "tok_s"),
    [
        ("1.045,12 tok/sec • 1.512 tokens", 1045.12),
        ("1\u00a0045,12 tok/sec • 512 tokens", 1045.12),
        ("45,123 tok/sec • 512 tokens", None),
        ("1 045,12 tok/sec • 512 tokens", None),
        ("prompt eval count: 9 token(s)\neval count: 1\u202f120 token(s)\neval rate: 24,61 tokens/s", 24.61),
        ("eval time = 5.000,00 ms / 100 runs ( 50,00 ms per token, 20,00 tokens per second)", 20.0),
        ("[ Prompt: 45,1 t/s | Generation: 22,7 t/s ]", 45.1),
    ],
)
def test_a_number_never_becomes_another_one(printed: str, tok_s: float | None, tmp_path: Path) -> None:
    found = read(tmp_path, printed)
    assert [one.tok_s for one in found.measured][:1] == ([] if tok_s is None else [tok_s])
    assert tok_s is not None or "may be one of two" in found.left_out[0]


@pytest.mark.parametrize("value", [True, False])
def test_a_truth_is_no_number(value: bool, tmp_path: Path) -> None:
    found = read(tmp_path, WRITTEN["json"]([row(avg_ts=value), row()]))
    assert [one.tok_s for one in found.measured] == [16.0]
    assert f"avg_ts is {value}, expected a number" in found.left_out[0]


def test_one_odd_row_is_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, WRITTEN["csv"]([row(), row(avg_ts=0), row(n_gen=64)]))
    assert [one.tokens for one in found.measured] == [128, 64]
    assert "line 3: decode speed of 0.0 tok/s" in found.left_out[0]


@pytest.mark.parametrize(
    ("changed", "unplaced"),
    [
        ({"no_op_offload": 1}, "computed the prompt's experts on the CPU"),
        ({"no_op_offload": 1, "n_cpu_moe": 0}, ""),
        ({"no_op_offload": 1, "n_gpu_layers": 0}, ""),
        ({"repack": True, "fused_moe": True}, "repacked the experts (rtr)"),
        ({"repack": 1}, ""),
    ],
)
def test_where_a_prompt_is_computed(changed: dict[str, object], unplaced: str, tmp_path: Path) -> None:
    found = read(tmp_path, WRITTEN["json"]([row(n_prompt=512, n_gen=0, **changed), row(**changed)]))
    assert [
        one.unplaced.startswith(unplaced) and bool(one.unplaced) == bool(unplaced) for one in found.measured[:1]
    ] == [True]
    assert found.measured[1].unplaced == ""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ser": "4,1"}, "computes fewer experts than the model (ser 4,1)"),
        ({"embeddings": True}, "computes embeddings"),
    ],
)
def test_other_work_is_left_out(changed: dict[str, object], reason: str, tmp_path: Path) -> None:
    found = read(tmp_path, WRITTEN["jsonl"]([row(**changed), row(ser="-1,0")]))
    assert [one.tok_s for one in found.measured] == [16.0]
    assert reason in found.left_out[0]
