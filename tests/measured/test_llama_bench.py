"""llama-bench in each format that it prints."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashmoe_sim.io.errors import BadInput, Malformed
from flashmoe_sim.measured import Measured, missing, read_measured, read_with_notes, with_layers
from flashmoe_sim.systems.llama_flags import system_of
from tests.measured.bench import WRITTEN, any_rows, as_json, row
from tests.support import refused

FILES = Path(__file__).parent / "files"


def read(folder: Path, text: str) -> list[Measured]:
    (folder / "b.txt").write_text(text, "utf-8")
    return read_measured(folder / "b.txt")


@pytest.mark.parametrize("kind", WRITTEN)
def test_every_format_says_the_same(kind: str, tmp_path: Path) -> None:
    (found,) = read(tmp_path, WRITTEN[kind]([row()]))
    assert (found.engine, found.system, found.unplaced) == ("llama.cpp", "placed:cpu_layers=31", "")
    assert (found.prompt, found.tokens, found.depth) == (False, 128, 0)
    assert (found.tok_s, found.sd) == (16.0, pytest.approx(0.01))
    assert found.quant == "MXFP4"
    assert found.model_bytes == pytest.approx(63375933440, rel=1e-4)
    assert found.settings["threads"] == "6"


@given(st.lists(any_rows(), min_size=1, max_size=4), st.sampled_from(sorted(WRITTEN)))
def test_any_tests_in_any_format(rows: list[dict[str, object]], kind: str) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        found = read(Path(folder), WRITTEN[kind](rows))
        expected = read(Path(folder), as_json(rows))
    assert [(one.system, one.prompt, one.tokens, one.depth, one.tok_s) for one in found] == [
        (one.system, one.prompt, one.tokens, one.depth, one.tok_s) for one in expected
    ]
    for one, written in zip(found, rows, strict=True):
        assert one.tok_s == written["avg_ts"]
        assert one.tokens == (written["n_prompt"] or written["n_gen"])
        assert bool(one.system) != bool(one.unplaced)


def test_the_readme_example() -> None:
    prompt, decode = read_measured(FILES / "bench-readme.csv")
    assert (prompt.prompt, prompt.tok_s, prompt.tokens) == (True, 7285.676949, 512)
    assert (decode.prompt, decode.tok_s, decode.tokens) == (False, 119.915244, 128)
    assert decode.sd == pytest.approx(0.430617 / 119.915244)
    assert (decode.system, decode.model_bytes, decode.quant) == ("all-gpu", 4677120000, "Q4_K_M")


@pytest.mark.parametrize("apart", [",", ";"])
def test_a_csv_that_a_spreadsheet_saved_again(apart: str, tmp_path: Path) -> None:
    """With quotes around the names of columns too, or semicolons."""
    lines = list(csv.reader((FILES / "bench-readme.csv").read_text("utf-8").splitlines()))
    path = tmp_path / "again.csv"
    path.write_text("".join(apart.join(f'"{cell}"' for cell in line) + "\n" for line in lines))
    again, first = read_measured(path), read_measured(FILES / "bench-readme.csv")
    assert [(one.prompt, one.tok_s, one.system) for one in again] == [
        (one.prompt, one.tok_s, one.system) for one in first
    ]


def test_sizes_with_a_comma(tmp_path: Path) -> None:
    path = tmp_path / "bench.md"
    path.write_text(
        "| model | size | params | backend | ngl | test | t/s |\n| --- | --- | --- | --- | --- | --- | --- |\n"
        "| qwen3moe 30B.A3B Q4_K - Medium | 17,28 GiB | 30,53 B | CUDA | 99 | tg128 | 131,74 ± 0,55 |\n"
    )
    (found,) = read_measured(path)
    assert (found.model_bytes, found.model_weights, found.tok_s) == (18_554_258_718, 30_530_000_000, 131.74)


def test_a_table_and_its_placements() -> None:
    found = read_with_notes(FILES / "bench.md")
    assert [one.system for one in found.measured] == [
        "all-gpu",
        "placed:cpu_layers=20:ubatch=1024",
        "placed:ot=exps=CPU",
        "",
        "cpu",
        "",
    ]
    assert [one.sd is None for one in found.measured] == [
        False,
        False,
        True,
        False,
        False,
        False,
    ]  # 0.00 is no deviation
    assert found.measured[1].depth == 8192
    assert "pp512+tg128 is a prompt and its answer together" in found.left_out[0]
    partial, prompt_beside_a_gpu = found.measured[3], found.measured[5]
    assert "n_gpu_layers 40, which may be all layers or a part of them" in missing(partial)
    assert with_layers(partial, 48).unplaced.startswith("has 40 of 49 layers on the GPU")
    assert with_layers(partial, 39).system == "all-gpu"
    assert "a GPU still takes prompts" in prompt_beside_a_gpu.unplaced


def test_tables_of_ik_llama_cpp() -> None:
    """The table has its own columns, and a test after a prompt is at that depth."""
    prompt, decode, deep = read_measured(FILES / "bench-ik.md")
    assert {one.engine for one in (prompt, decode, deep)} == {"ik_llama.cpp"}
    assert (decode.quant, decode.settings["type_k"]) == ("UD-Q2_K_XL", "q8_0")
    assert with_layers(decode, 61).system == "all-gpu"
    assert (deep.system, deep.depth, deep.tokens, deep.prompt) == ("cpu-ik", 8192, 64, False)


def test_ik_llama_cpp_places_with_overrides(tmp_path: Path) -> None:
    """Its formats have a field for each backend, and none for --n-cpu-moe."""
    fields = row(cuda=True, vulkan=False, mla_attn=0, fused_moe=True, override_tensor="exps=CPU", test="tg64@pp512")
    fields |= {"n_prompt": 512, "n_gen": 64}
    for name in ("backends", "n_cpu_moe", "tensor_buft_overrides", "n_depth"):
        del fields[name]
    (found,) = read(tmp_path, as_json([fields]))
    assert (found.system, found.depth, found.tokens) == ("placed-ik:ot=exps=CPU", 512, 64)


@pytest.mark.parametrize(
    ("changed", "system", "unplaced"),
    [
        ({"backends": "CPU"}, "cpu", ""),
        ({"backends": "BLAS", "n_gpu_layers": 99}, "cpu", ""),
        ({"devices": "none"}, "cpu", ""),
        ({"n_cpu_moe": 0, "backends": "MTL,BLAS"}, "all-gpu", ""),
        ({"tensor_split": "3.00/1.00"}, "placed:cpu_layers=31:ts=3/1", ""),
        ({"n_cpu_moe": 0, "tensor_buft_overrides": "a=CPU;b=CUDA0"}, "placed:ot=a=CPU,b=CUDA0", ""),
        ({"tensor_buft_overrides": "exps=CPU"}, "", "places experts by n_cpu_moe and by overrides"),
        ({"n_cpu_moe": 0, "tensor_buft_overrides": "(?:a|b)=CPU"}, "placed:ot=(a|b)=CPU", ""),
        ({"n_cpu_moe": 0, "tensor_buft_overrides": "a:b=CPU"}, "", "has an override with a colon"),
        ({"no_kv_offload": True}, "", "has the context in RAM"),
        ({"fit_target": 512}, "", "was placed by --fit-target"),
        ({"backends": "CUDA,RPC"}, "", "ran on several machines"),
        ({"n_gpu_layers": 20}, "", "has n_gpu_layers 20"),
        ({"n_ubatch": -5}, "", "has settings that no system takes"),
    ],
)
def test_placements(changed: dict[str, object], system: str, unplaced: str, tmp_path: Path) -> None:
    (found,) = read(tmp_path, as_json([row(**changed)]))
    assert found.system == system
    assert found.unplaced.startswith(unplaced)
    assert bool(found.unplaced) == bool(unplaced)
    assert bool(missing(found)) == bool(unplaced)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"avg_ts": 0}, "test 1: decode speed of 0.0 tok/s; expected more than 0"),
        ({"avg_ts": 100_001}, "expected more than 0, and at most 100,000"),
        ({"n_gen": 0}, "has no tokens in n_prompt and n_gen"),
        ({"n_gen": 1.5}, "n_gen is '1.5', expected a whole number"),
        ({"n_depth": -1}, "n_depth is '-1', expected 0 or more"),
        ({"avg_ts": None}, "has no avg_ts; give the whole output"),
        ({"n_prompt": 512}, "pp512+tg128 is a prompt and its answer together"),
    ],
)
def test_bad_numbers_are_one_line(changed: dict[str, object], line: str, tmp_path: Path) -> None:
    with refused(Malformed, line, "b.txt"):
        read(tmp_path, as_json([row(**changed)]))


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_file_that_is_cut_off(kind: str, tmp_path: Path) -> None:
    """Cut anywhere in its last test, a file is refused, or the tests before the cut are read as they were."""
    whole = WRITTEN[kind]([row(), row(n_gen=64, avg_ts=17.25)])
    both = [replace(one, where="") for one in read(tmp_path, whole)]
    for at in range(whole.rindex("0eca4d490" if kind != "md" else "gpt-oss"), len(whole.rstrip())):
        found, message = both, "cut off or damaged"
        try:
            found = [replace(one, where="") for one in read(tmp_path, whole[:at])]
        except BadInput as error:
            message = str(error)
        assert "cut off or damaged" in message or kind == "md"
        assert found in (both[:1], both), whole[:at][-40:]


def test_what_windows_writes(tmp_path: Path) -> None:
    """`>` of PowerShell writes UTF-16, and a console of another code page breaks the sign of the deviation."""
    table = WRITTEN["md"]([row()])
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe" + table.replace("\n", "\r\n").encode("utf-16-le"))
    assert read_measured(tmp_path / "b.txt")[0].tok_s == 16.0
    for sign in ("Â±", "┬▒", "�"):
        (found,) = read(tmp_path, table.replace("±", sign))
        assert (found.tok_s, found.sd) == (16.0, pytest.approx(0.01))


@pytest.mark.parametrize(
    ("settings", "mapped"),
    [
        ({}, "yes"),
        ({"mmap": "on"}, "yes"),
        ({"mmap": "off"}, "no"),
        ({"load_mode": "auto", "mmap": "off"}, "yes"),
        ({"load_mode": "none"}, "no"),
        ({"load_mode": "dio"}, "no"),
    ],
)
def test_whether_the_file_was_mapped(settings: dict[str, str], mapped: str) -> None:
    """It decides how fast prompts are copied, and nothing else."""
    of = {"n_gpu_layers": "99", "n_cpu_moe": "7"} | settings
    assert system_of(of, engine="llama.cpp", prompt=True)[0] == f"placed:cpu_layers=7:mmap={mapped}"
    assert system_of(of, engine="llama.cpp", prompt=False)[0] == "placed:cpu_layers=7"
