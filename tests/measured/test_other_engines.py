"""Speeds as engines other than llama.cpp, and benchmarks of servers, print them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.measured import Measured, read_measured, read_with_notes
from flashmoe_sim.measured.value import mlx_quant_of
from flashmoe_sim.measured.which import model_that_ran

FILES = Path(__file__).parent / "files"
BMOE_CSV = Path(__file__).parents[2] / "data" / "bigmoeonedge" / "qwen_stream.csv"
Row = tuple[bool, float, int | None, int]  # of a prompt, tokens a second, tokens, depth

BATCHED_HEAD = """main: n_kv_max = 8192, n_batch = 2048, n_ubatch = 512, flash_attn = 1, is_pp_shared = 0

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
"""
BATCHED = (
    BATCHED_HEAD
    + "|   512 |    128 |    1 |    640 |    0.256 |  2000.00 |    1.600 |    80.00 |    1.856 |   344.83 |\n"
)
SEVERAL = (
    BATCHED_HEAD
    + "|   512 |    128 |    4 |   2560 |    1.024 |  2000.00 |    3.200 |   160.00 |    4.224 |   606.06 |\n"
)
SWEEP_JSON = (
    '{"n_kv_max": 4096, "n_ubatch": 512, "pp": 512, "tg": 128, "n_kv": 1024, "speed_pp": 900.5, "speed_tg": 45.25}\n'
)
BLOCK = """python3 -m vllm bench serve --model openai/gpt-oss-120b
============ Serving Benchmark Result ============
Successful requests:                     32
Maximum request concurrency:             {at_once}
Total input tokens:                      32768
Total generated tokens:                  4096
Mean TPOT (ms):                          12.50
==================================================
"""
KOBOLD = """Loading Text Model: /models/Qwen3-30B-A3B-Q4_K_M.gguf
CtxLimit:1320/8192, Amt:120/512, Init:0.01s, Process:6.00s (200.00T/s), Generate:12.00s (10.00T/s), Total:18.01s
"""
KOBOLD_BENCHMARK = """Benchmark Completed - v1.90 Results:
======
Layers: 99
Model: Qwen3-30B-A3B-Q4_K_M
MaxCtx: 8192
GenAmount: 100
-----
ProcessingTime: 8.092s
ProcessingSpeed: 1000.00T/s
GenerationTime: 2.500s
GenerationSpeed: 40.00T/s
TotalTime: 10.592s
"""
LMS = """Prediction Stats:
  Stop Reason: eosFound
  Tokens/Second: 51.44
  Time to First Token: 0.111s
  Prompt Tokens: 24
  Predicted Tokens: 300
  Total Tokens: 324
"""
LM_STUDIO_API = """{"model": "openai/gpt-oss-20b", "usage": {"prompt_tokens": 24, "completion_tokens": 300},
 "stats": {"tokens_per_second": 51.44, "time_to_first_token": 0.111, "generation_time": 5.83},
 "model_info": {"arch": "gpt-oss", "quant": "MXFP4", "format": "gguf", "context_length": 4096}}
"""
LM_STUDIO_SDK = """{"stats": {"tokensPerSecond": 51.44, "promptTokensCount": 24, "predictedTokensCount": 300},
 "model_info": {"quant": "4bit", "format": "mlx"}}
"""
OLLAMA_RATE = "eval rate:            40.00 tokens/s\n"
MLX_GENERATE = """Prompt: 512 tokens, 700.125 tokens-per-sec
Generation: 256 tokens, 71.500 tokens-per-sec
Peak memory: 17.2 GB
"""
STRATA_LOG = """[strata] filling the GPU's expert cache (7622 experts, 21.3 GiB)
[strata] reading the prompt: 2,048 of 2,048 tokens
[strata] done: 2000 tokens in 34 s (60.1 tok/s)
"""
STRATA_MATRIX = """{"rows": [{"prompt_tokens": 4096, "reused": 96, "output_tokens": 512,
 "prompt_tok_s": 800.0, "decode_tok_s": 41.5}]}"""
BMOE = """llama-cli -m /models/Qwen3-30B-A3B-Q4_K_M.gguf
generation: 128 tokens, 0.1250 s/token (8.00 tok/s)
prefill: 64 tokens, 4.00 s (16.00 tok/s)
moe-stream: 48 layers
moe-overlap: on
moe-cache: budget 4000 MiB, resident 3998.5 MiB
"""
DS4 = (
    "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps\n4096,4096,310.50,128,25.10\n8192,4096,290.25,128,24.00\n"
)
BENCHY = """| model | test | t/s | peak t/s | ttfr (ms) | est_ppt (ms) | e2e_ttft (ms) |
|:---|---:|---:|---:|---:|---:|---:|
| gpt-oss-120b | pp2048 | 4000.00 ± 10.00 | | 530 | 512 | 530 |
| gpt-oss-120b | tg128 | 50.00 ± 0.50 | 52 | | | |
| gpt-oss-120b | tg128 (c4) | 120.00 ± 0.50 | 130 | | | |
"""
NEURALL = (
    "ts,commit,tps,pp,hit,model,test,ok,n_gen,pl,cmd,args,env,note\n"
    "2026-10-01,abc,30.5,400,0.7,model.gguf,gen,1,256,1,llama-cli --moe-expert-cache -1,,,prompt_n=512\n"
    "2026-10-01,abc,12.0,400,0.7,model.gguf,gen,0,256,1,llama-cli --moe-expert-cache -1,,,\n"
)
RAPID = """{"schema": "rapid_mlx", "rapid_mlx": "0.6", "software": {},
 "model": {"hf_path": "mlx-community/gpt-oss-20b-MXFP4-Q8"},
 "config": {"buckets_spec": {"medium": {"prompt_tokens": 1024, "max_tokens": 256}}},
 "buckets": {"medium": {"prefill_tps": {"median": 1500.0, "stddev": 15.0},
  "decode_tps": {"median": 110.0, "stddev": 1.1}}}}
"""


def read(tmp_path: Path, text: str) -> tuple[list[Measured], list[str]]:
    path = tmp_path / "speeds.txt"
    path.write_text(text, encoding="utf-8")
    found = read_with_notes(path)
    return found.measured, found.left_out


def rows(measured: list[Measured]) -> list[Row]:
    return [(one.prompt, round(one.tok_s, 3), one.tokens, one.depth) for one in measured]


@pytest.mark.parametrize(
    ("name", "engine", "expected"),
    [
        (
            "sweep-bench.md",
            "ik_llama.cpp",
            [(True, 1024.0, 512, 0), (False, 50.0, 128, 0), (True, 1000.0, 512, 512), (False, 48.0, 128, 512)],
        ),
        ("vllm-block.txt", "vllm", [(False, 20.0, 128, 128)]),
        ("mlx-benchmark.txt", "mlx", [(True, 1518.24, 512, 0), (False, 101.587, 1000, 512)]),
        ("ktransformers.txt", "ktransformers", [(True, 42.779, 140, 0), (False, 2.863, 300, 140)]),
    ],
)
def test_files_that_people_have(name: str, engine: str, expected: list[Row]) -> None:
    found = read_with_notes(FILES / name)
    assert rows(found.measured) == expected
    assert {one.engine for one in found.measured} == {engine}
    assert found.left_out == []


# by name: the text, the engine, its system, the speeds, and what is left out
PRINTED: dict[str, tuple[str, str, str, list[Row], str]] = {
    "batched": (BATCHED, "llama.cpp", "", [(True, 2000.0, 512, 0), (False, 80.0, 128, 512)], ""),
    "several": (
        BATCHED + SEVERAL,
        "llama.cpp",
        "",
        [(True, 2000.0, 512, 0), (False, 80.0, 128, 512)],
        "4 sequences at",
    ),
    "sweep-json": (SWEEP_JSON, "ik_llama.cpp", "", [(True, 900.5, 512, 1024), (False, 45.25, 128, 1024)], ""),
    "block": (BLOCK.format(at_once=1), "vllm", "", [(False, 80.0, 128, 1024)], ""),
    "kobold": (KOBOLD, "koboldcpp", "", [(True, 200.0, 1200, 0), (False, 10.0, 120, 1200)], ""),
    "kobold-benchmark": (
        KOBOLD_BENCHMARK,
        "koboldcpp",
        "",
        [(True, 1000.0, 8092, 0), (False, 40.0, 100, 8092)],
        "",
    ),
    "lms-chat": (LMS, "lmstudio", "", [(False, 51.44, 300, 24)], ""),
    "lm-studio-lines": (
        "51.44 tok/sec\n300 tokens\n0.11s to first token\n",
        "lmstudio",
        "",
        [(False, 51.44, 300, 0)],
        "",
    ),
    "lm-studio-api": (LM_STUDIO_API, "lmstudio", "", [(False, 51.44, 300, 24)], ""),
    "lm-studio-sdk": (LM_STUDIO_SDK, "lmstudio", "mlx", [(False, 51.44, 300, 24)], ""),
    "ollama-rate": (OLLAMA_RATE, "ollama", "", [(False, 40.0, None, 0)], ""),
    "mlx-generate": (MLX_GENERATE, "mlx", "mlx", [(True, 700.125, 512, 0), (False, 71.5, 256, 512)], ""),
    "strata-log": (STRATA_LOG, "Strata", "strata:experts=7622", [(False, 60.1, 2000, 2048)], ""),
    "strata-matrix": (STRATA_MATRIX, "Strata", "strata", [(True, 800.0, 4000, 96), (False, 41.5, 512, 4096)], ""),
    "bmoe": (BMOE, "BigMoeOnEdge", "big-moe-on-edge:cache_mib=4000", [(False, 8.0, 128, 64), (True, 16.0, 64, 0)], ""),
    "ds4": (
        DS4,
        "ds4",
        "ds4",
        [(True, 310.5, 4096, 0), (False, 25.1, 128, 4096), (True, 290.25, 4096, 4096), (False, 24.0, 128, 8192)],
        "",
    ),
    "benchy": (BENCHY, "", "", [(True, 4000.0, 2048, 0), (False, 50.0, 128, 2048)], "4 requests at once"),
    "neurall": (
        NEURALL,
        "llama.cpp, neurall's fork",
        "neurall",
        [(True, 400.0, 512, 0), (False, 30.5, 256, 512)],
        "1 of its runs failed",
    ),
    "rapid": (RAPID, "Rapid-MLX", "mlx", [(True, 1500.0, 1024, 0), (False, 110.0, 256, 1024)], ""),
}


@pytest.mark.parametrize("name", PRINTED)
def test_what_programs_print(tmp_path: Path, name: str) -> None:
    text, engine, system, expected, left_out = PRINTED[name]
    measured, left = read(tmp_path, text)
    assert rows(measured) == expected
    assert {(one.engine, one.system) for one in measured} == {(engine, system)}
    assert (left_out in "\n".join(left)) if left_out else not left


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("mlx-community/Qwen3-30B-A3B-4bit", "mlx-4bit"),
        ("/models/Qwen3-30B-A3B-Instruct-2507-8bit-DWQ/", "mlx-8bit"),
        ("mlx-community/gpt-oss-20b-MXFP4-Q8", "mxfp4-q8"),
        ("Qwen3-30B-A3B-mxfp4", "mlx-mxfp4"),
        ("Qwen3-30B-A3B", "mlx"),
        ("", "mlx"),
    ],
)
def test_quantizations_of_mlx(name: str, quant: str) -> None:
    assert mlx_quant_of(name) == quant


def test_runs_of_mlx_are_of_its_files_and_without_drafts(tmp_path: Path) -> None:
    """A model in question in another format did not run; a prompt is read alike with drafts."""
    command = "mlx_lm.generate --model mlx-community/Qwen3-30B-A3B-4bit --prompt hello\n"
    (_, decode), _ = read(tmp_path, command + MLX_GENERATE)
    for asked in ("qwen3-30b-a3b", "qwen3-30b-a3b:mlx-4bit", "gpt-oss-20b"):
        assert model_that_ran(decode, named_model(asked)).name == "qwen3-30b-a3b:mlx-4bit"
    with pytest.raises(BadInput, match="mlx of qwen3-30b-a3b, whose size is not known"):
        model_that_ran(replace(decode, quant="mlx"), named_model("qwen3-30b-a3b"))
    drafted, _ = read(tmp_path, command.replace("--prompt", "--draft-model small --prompt") + MLX_GENERATE)
    assert [one.system for one in drafted] == ["mlx", ""]
    assert drafted[1].unplaced == "was measured with drafts"


@pytest.mark.parametrize("at_once", ["8", "None"])
def test_several_requests_at_once_are_no_users_speed(tmp_path: Path, at_once: str) -> None:
    measured, left = read(tmp_path, BLOCK.format(at_once=at_once))
    assert measured == []
    assert "requests at once; measure one at a time: --max-concurrency 1" in left[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_as_powershell_writes_them(tmp_path: Path, encoding: str) -> None:
    for name, (text, _, _, expected, _) in PRINTED.items():
        path = tmp_path / name
        path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
        assert rows(read_with_notes(path).measured) == expected, name


def test_a_row_for_each_token_of_big_moe_on_edge() -> None:
    """The mean of the recorded times; the files do not say how long the prompt was."""
    wall_ms = [float(line.split(",")[2]) for line in BMOE_CSV.read_text().splitlines() if line[:1].isdigit()]
    (found,) = read_with_notes(BMOE_CSV).measured
    assert found.tok_s == pytest.approx(1e3 * len(wall_ms) / sum(wall_ms))
    assert (found.tokens, found.depth, found.system) == (len(wall_ms), 0, "big-moe-on-edge")


@pytest.mark.parametrize("goes_on", ["\\", "^", "`"])
def test_a_command_over_several_lines(tmp_path: Path, goes_on: str) -> None:
    """Its flags may begin on the line below its name. A table below without a command is of a run that is not told."""
    command = f"./llama-sweep-bench {goes_on}\n  -m Qwen3-30B-A3B-IQ4_K.gguf {goes_on}\n  -ngl 99 -ot exps=CPU\n\n"
    table = (FILES / "sweep-bench.md").read_text("utf-8")
    path = tmp_path / "run.md"
    path.write_text(command + table + "\n\nAnother machine:\n\n" + table)
    told, other = read_measured(path)[:4], read_measured(path)[4:]
    assert [one.system for one in told if not one.prompt] == ["placed-ik:ot=exps=CPU"] * 2
    assert {one.model for one in told} == {"Qwen3-30B-A3B-IQ4_K.gguf"}
    assert {(one.system, one.unplaced) for one in other} == {("", "does not say how many layers were on the GPU")}


def test_layers_on_the_gpu_do_not_place_experts_without_the_command(tmp_path: Path) -> None:
    """`-ot exps=CPU` stands in no other line."""
    path = tmp_path / "run.md"
    said = (
        "main: n_kv_max = 4096, n_batch = 2048, n_ubatch = 512, flash_attn = 1, n_gpu_layers = 99, n_threads = 16\n\n"
    )
    path.write_text(said + (FILES / "sweep-bench.md").read_text("utf-8"))
    assert {(one.system, one.unplaced) for one in read_measured(path)} == {
        ("", "does not show its command, which may place experts on the CPU")
    }
