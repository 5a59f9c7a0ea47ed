"""Logs of llama.cpp's programs, and lines of programs for chatting."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.measured import Measured, missing, read_measured, read_with_notes
from flashmoe_sim.systems.llama_flags import settings_of_command

FILES = Path(__file__).parent / "files"


def test_a_server_with_its_command_line() -> None:
    """A prompt of 971 tokens and 100 decoded; 200 more at the end of 4,200; two requests at once; a short prompt."""
    found = read_with_notes(FILES / "server.log")
    prompt, decode, later = found.measured
    assert prompt.system == "placed:cpu_layers=33:ubatch=1024:mmap=yes"  # as llama.cpp does unless told otherwise
    assert {decode.system, later.system} == {"placed:cpu_layers=33:ubatch=1024"}
    assert (prompt.prompt, prompt.tokens, prompt.depth) == (True, 971, 0)
    assert prompt.tok_s == pytest.approx(971 / 8.73421)
    assert (decode.prompt, decode.tokens, decode.depth, decode.tok_s) == (False, 100, 970, 16.0)
    assert (later.depth, later.tokens) == (4000, 200)
    assert (prompt.quant, prompt.model[-5:]) == ("MXFP4", ".gguf")
    assert prompt.settings["gpu"] == "NVIDIA GeForce RTX 3080 Ti"
    assert prompt.settings["type_k"] == "q8_0"
    reasons = [line.partition("server.log: ")[2] for line in found.left_out]
    assert reasons == [
        "line 25: the prompt has 12 tokens; at least 64 say how fast it was",
        "line 32: this request shared the engine with others; measure one at a time",
        "line 35: this request shared the engine with others; measure one at a time",
    ]


def test_drafts_name_no_system() -> None:
    prompt, decode = read_measured(FILES / "server-drafts.log")
    assert (decode.tok_s, decode.depth) == (pytest.approx(412 / 18.27424), 33465 - 412)
    assert prompt.depth == 33465 - 412 - 7008
    assert decode.unplaced == "was measured with drafts (0.59231 accepted)"
    assert "how many layers were on the GPU" in missing(prompt)


def test_overridden_tensors_place_the_experts() -> None:
    prompt, decode = read_measured(FILES / "cli.log")
    assert decode.system == r"placed:ot=blk\.(0|1)\.ffn_(gate|up|down|gate_up)_exps=CPU"
    assert (decode.tok_s, decode.tokens, decode.depth, decode.quant) == (40.0, 100, 100, "Q4_K_M")
    assert (prompt.tok_s, prompt.tokens) == (200.0, 100)


def test_an_old_log_of_a_mac() -> None:
    prompt, decode = read_measured(FILES / "cli-old-mac.log")
    assert (decode.system, decode.model, decode.quant) == ("all-gpu", "mixtral-8x7b-instruct", "Q4_K_M")
    assert (decode.tok_s, prompt.tok_s) == (40.0, 100.0)


def test_the_short_line_of_llama_cli() -> None:
    prompt, decode = read_measured(FILES / "cli-short.log")
    assert (prompt.tok_s, decode.tok_s, decode.tokens) == (45.1, 22.7, None)
    assert (decode.system, decode.quant, decode.settings["threads"]) == ("placed:ot=exps=CPU", "UD-Q4_K_XL", "6")


LOADED = "llama_model_loader: loaded meta data with 35 key-value pairs and 579 tensors from m.gguf (version GGUF V3)\n"
TIMED = "eval time =  2500.00 ms /   100 runs   (   25.00 ms per token,    40.00 tokens per second)\n"


def log(folder: Path, *lines: str) -> Measured:
    (folder / "l.log").write_text(LOADED + "".join(f"{line}\n" for line in lines) + TIMED)
    return read_measured(folder / "l.log")[-1]


def buffers(cpu: float, **others: float) -> list[str]:
    sizes = {"CPU_Mapped": cpu, **others}
    return [f"load_tensors: {name} model buffer size = {mib:.2f} MiB" for name, mib in sizes.items()]


ON_GPU = "load_tensors: offloaded 49/49 layers to GPU"
OVERRIDE = "tensor blk.{}.ffn_{}_exps.weight (72 MiB q4_K) buffer type overridden to {}"


@pytest.mark.parametrize(
    ("lines", "system", "unplaced"),
    [
        (buffers(17000), "cpu", ""),
        ([ON_GPU, *buffers(300, CUDA0=17000)], "all-gpu", ""),
        ([ON_GPU, *buffers(9000, CUDA0=8000)], "", "has 8.8 GiB of the model in RAM"),
        (["load_tensors: offloaded 30/49 layers to GPU", *buffers(300, CUDA0=17000)], "", "has 30 of 49 layers"),
        (["load_tensors: offloaded 0/49 layers to GPU", *buffers(17000, CUDA0=0)], "cpu", ""),
        ([ON_GPU, *(OVERRIDE.format(0, part, "CUDA1") for part in ("up", "down"))], "all-gpu", ""),
        (
            [ON_GPU, *(OVERRIDE.format(0, part, "CUDA1") for part in ("up", "down")), *buffers(1, CUDA0=9)],
            "",
            "has the experts of a layer in several places",
        ),
        (
            [
                ON_GPU,
                *(OVERRIDE.format(*one, "CPU") for one in ((0, "up"), (0, "down"), (1, "up"))),
                *buffers(1, CUDA0=9),
            ],
            "",
            "has the experts of a layer in several places",
        ),
    ],
)
def test_what_a_log_tells_of_the_placement(lines: list[str], system: str, unplaced: str, tmp_path: Path) -> None:
    found = log(tmp_path, *lines)
    assert found.system == system
    assert found.unplaced.startswith(unplaced)
    assert bool(found.unplaced) == bool(unplaced)


def test_the_last_loading_counts(tmp_path: Path) -> None:
    """--fit loads the model to measure it, and again to run it."""
    first, last = [ON_GPU, *buffers(9000, CUDA0=8000)], [ON_GPU, *buffers(300, CUDA0=17000)]
    assert log(tmp_path, *first, LOADED.strip(), *last).system == "all-gpu"


MAIN = "/models/gpt-oss-120b-mxfp4-00001-of-00003.gguf"
LOADING = (
    "llama_model_loader: loaded meta data with 35 key-value pairs and 459 tensors from {} (version GGUF V3 (latest))"
)
ANSWERS = [LOADING.format(MAIN), "print_info: general.name = Gpt Oss 120B", ON_GPU, *buffers(500, CUDA0=59000)]
DRAFTS = [
    LOADING.format("/models/gpt-oss-20b-mxfp4.gguf"),
    "print_info: general.name = Gpt Oss 20B",
    *buffers(9, CUDA0=9000),
]
SEES = [LOADING.format("/models/mmproj-Qwen3-30B-A3B-F16.gguf"), "clip_ctx: CLIP using CUDA0 backend"]
COMMAND = f"$ llama-server -m {MAIN} -ngl 99"


@pytest.mark.parametrize(
    ("lines", "system"),
    [
        ([COMMAND, *ANSWERS, *SEES], "all-gpu"),
        ([*ANSWERS, *SEES], "all-gpu"),
        ([*ANSWERS, *DRAFTS], ""),
        ([*DRAFTS, *ANSWERS], ""),
        ([f"{COMMAND} -md /models/gpt-oss-20b-mxfp4.gguf", *ANSWERS, *DRAFTS], ""),
        ([*ANSWERS, "srv load_model: loading draft model", *DRAFTS], ""),
        ([*ANSWERS, "n_drafted = 120"], ""),
        ([*DRAFTS, TIMED.strip(), *ANSWERS], "all-gpu"),
        ([*DRAFTS, "build: 6500 (0123abc) with cc", *ANSWERS], "all-gpu"),
        ([COMMAND.replace(MAIN, "$MODEL"), *ANSWERS], "all-gpu"),
    ],
)
def test_the_model_is_the_one_that_answers(lines: list[str], system: str, tmp_path: Path) -> None:
    """Beside one that drafts or sees, or after another one."""
    (tmp_path / "l.log").write_text("\n".join([*lines, TIMED]))
    found = read_measured(tmp_path / "l.log")[-1]
    assert (found.model, found.system) == (MAIN, system)
    assert (found.unplaced == "was measured with drafts") == (not system)


@pytest.mark.parametrize("prefix", ["[4202{}] ", "server{}-1  | ", "Jan 02 03:04:05 host llama-server[{}]: "])
def test_two_servers_in_one_log(prefix: str, tmp_path: Path) -> None:
    one, other = prefix.format(1), prefix.format(2)
    lines = [*(one + line for line in ANSWERS), *(other + line for line in DRAFTS), one + TIMED]
    (tmp_path / "l.log").write_text("\n".join(lines))
    assert read_measured(tmp_path / "l.log")[-1].model == MAIN


@pytest.mark.parametrize(
    ("file", "name", "model"),
    [
        ("/root/.ollama/models/blobs/sha256-" + "ab" * 32, "Gpt Oss 120B", "Gpt Oss 120B"),
        ("/models/model.gguf", "Gpt Oss 120B", "Gpt Oss 120B"),
        ("/models/gpt-oss-20b.gguf", "Gpt Oss 120B", "/models/gpt-oss-20b.gguf"),
        ("/models/mine.gguf", "My own", "/models/mine.gguf"),
    ],
)
def test_the_title_counts_if_the_file_says_nothing(file: str, name: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "l.log").write_text("\n".join([LOADING.format(file), f"print_info: general.name = {name}", TIMED]))
    assert read_measured(tmp_path / "l.log")[-1].model == model


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("$ ./llama-imatrix -m a.gguf -f x.txt", "is of llama-imatrix, not of one prompt"),
        ("perplexity: calculating perplexity over 561 chunks, n_ctx=512", "is of perplexity, 561 chunks of 512 tokens"),
        ("llama_context: n_ctx = 512", "102,400 tokens in a context of 512 are not one prompt"),
        ("$ llama-server -m DeepSeek-R1-Q4_K_M.gguf -ser 6,1", "computes fewer experts than the model (-ser 6,1)"),
    ],
)
def test_what_is_no_answer_to_a_prompt(line: str, reason: str, tmp_path: Path) -> None:
    prompt = "prompt eval time = 32000.00 ms / 102400 tokens ( 0.31 ms per token, 3200.00 tokens per second)"
    (tmp_path / "l.log").write_text(f"{line}\n{prompt}\n")
    found = read_with_notes(tmp_path / "l.log")
    assert (found.measured, len(found.left_out)) == ([], 1)
    assert reason in found.left_out[0]


SLOT = "slot update_slots: id  0 | task 7 | "
OLD = '| tid="1" timestamp=1 id_slot=0 id_task=7'


@pytest.mark.parametrize(
    "lines",
    [
        [f"{SLOT}kv cache rm [8800, end)", f"{SLOT}kv cache rm [8900, end)"],
        [f"{SLOT}n_tokens = 8800, memory_seq_rm [8800, end)"],
        [f"{SLOT}new prompt, n_ctx_slot = 16384, n_keep = 0, n_prompt_tokens = 9000"],
        [f"{SLOT}new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 9000"],
        [
            f"{SLOT}prompt processing progress, n_tokens = 8900, batch.n_tokens = 100",
            f"{SLOT}prompt done, n_past = 9000",
        ],
        ["slot      release: id  0 | task 7 | stop processing: n_past = 9400, truncated = 0"],
        ["slot      release: id  0 | task 7 | stop processing: n_tokens = 9400, truncated = 0"],
        [f"INFO [  update_slots] kv cache rm [p0, end) {OLD} p0=8800"],
        [f"INFO [  release_slots] slot released {OLD} n_ctx=16384 n_past=9400 n_system_tokens=0 n_cache_tokens=9400"],
    ],
)
def test_the_depth_of_a_cached_prompt(lines: list[str], tmp_path: Path) -> None:
    """As llama.cpp has printed it since 2024: 8,800 tokens were cached, 200 read and 400 decoded."""
    timings = [
        "prompt eval time = 1000.00 ms / 200 tokens (    5.00 ms per token,   200.00 tokens per second)",
        "       eval time = 8000.00 ms / 400 tokens (   20.00 ms per token,    50.00 tokens per second)",
    ]
    (tmp_path / "l.log").write_text("\n".join([*lines, "slot print_timing: id  0 | task 7 |", *timings]))
    assert [one.depth for one in read_measured(tmp_path / "l.log")] == [8800, 9000]


def test_ik_llama_cpp_by_its_log(tmp_path: Path) -> None:
    lines = ["llama_init_from_model: fused_moe = 1", ON_GPU.replace("load", "llm_load", 1)]
    lines += [OVERRIDE.format(3, part, "CPU").replace("tensor", "Tensor", 1) for part in ("gate", "up", "down")]
    found = log(tmp_path, *lines, *buffers(1, CUDA0=9))
    assert (found.engine, found.system.partition(":")[0]) == ("ik_llama.cpp", "placed-ik")


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("llama-server -m a.gguf --n-cpu-moe=7 -ngl 99", {"model": "a.gguf", "n_cpu_moe": "7", "n_gpu_layers": "99"}),
        ("llama-cli -ot 'a=CPU' -ot b=CUDA0 -ts 3,1", {"overrides": "a=CPU,b=CUDA0", "tensor_split": "3/1"}),
        ("llama-cli -ngl all -t x -ub", {}),
        ("llama-server -dev none -cmoe", {"backend": "CPU", "overrides": "exps=CPU"}),
        ("llama-server --spec-type draft-mtp", {"elsewhere": "was measured with drafts"}),
        ("llama-server --no-mmap", {"mmap": "off"}),
        ("llama-server --load-mode none", {"load_mode": "none"}),
        ("llama-server -m F:\\llm\\a.gguf -fa", {"model": "F:/llm/a.gguf", "flash_attn": "on"}),
        ("llama-server -m $MODEL --no-op-offload -rtr", {"no_op_offload": "on", "repack": "on"}),
        ("GGML_OP_OFFLOAD_MIN_BATCH=4096 llama-server -op 27,1", {"no_op_offload": "on"}),
        ("llama-server -fa -c 5 --override-kv x.expert_used_count=int:4", {"flash_attn": "on", "experts_used": "4"}),
        ("llama-server -nkvo", {"elsewhere": "has the context in RAM (--no-kv-offload), which no system does"}),
        ("llama-server -m 'unclosed -ngl 5", {"model": "'unclosed", "n_gpu_layers": "5"}),
        ("", {}),
    ],
)
def test_a_command_line(line: str, settings: dict[str, str]) -> None:
    assert settings_of_command(line) == settings


def test_ollama() -> None:
    found = read_with_notes(FILES / "ollama.log")
    prompt, decode = found.measured
    assert (prompt.prompt, prompt.tokens, prompt.tok_s, prompt.depth) == (True, 411, 300.0, 0)
    assert (decode.prompt, decode.tokens, decode.tok_s, decode.depth) == (False, 640, 64.0, 411)
    assert (decode.engine, decode.model, decode.quant, decode.system) == (
        "ollama",
        "qwen3:30b-a3b-q4_K_M",
        "Q4_K_M",
        "all-gpu",
    )
    assert len(found.left_out) == 2


@pytest.mark.parametrize(
    ("processor", "system"), [("100% GPU", "all-gpu"), ("100% CPU", "cpu"), ("48%/52% CPU/GPU", "")]
)
def test_where_ollama_ps_says_the_model_is(processor: str, system: str, tmp_path: Path) -> None:
    line = f"gpt-oss:20b    17052f91a42e    14 GB    {processor}    8192    4 minutes from now\n"
    (tmp_path / "o.log").write_text((FILES / "ollama-cpu.log").read_text() + line)
    (found,) = read_measured(tmp_path / "o.log")
    assert (found.system, found.tok_s, found.tokens, found.depth) == (system, 24.61, 120, 11)
    assert bool(found.unplaced) != bool(system)


def test_a_terminal_s_escapes(tmp_path: Path) -> None:
    text = (FILES / "ollama-cpu.log").read_text().replace("eval rate:", "\x1b[1meval rate:\x1b[0m\x1b[K")
    (tmp_path / "o.log").write_text(text)
    assert read_measured(tmp_path / "o.log")[0].tok_s == 24.61


def test_lm_studio() -> None:
    found = read_measured(FILES / "lm-studio.txt")
    assert [(one.tok_s, one.tokens) for one in found] == [(19.08, 10013), (2.28, 476), (26.39, 1681)]
    assert {(one.engine, one.system) for one in found} == {("lmstudio", "")}
