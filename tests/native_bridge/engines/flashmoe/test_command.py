"""Which requests the runtime gets, and which are refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry import read_gguf
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, Missing, Unusable
from flashmoe_sim.systems import slot_bank_flags
from flashmoe_sim.systems.slot_bank import SlotBank
from native_bridge.engines import llama_program
from native_bridge.engines.base import RunRequest, Runtime
from native_bridge.engines.flashmoe.end_tokens import end_tokens
from native_bridge.engines.flashmoe.engine import FlashMoeEngine
from native_bridge.engines.flashmoe.modes import MODES
from native_bridge.engines.table import ENGINES, find_runtime
from tests.geometry.conftest import gguf, key, text
from tests.native_bridge.conftest import MODEL, PROMPT, RECORDED, STAND_IN
from tests.support import refused

GEOMETRY = read_gguf(MODEL)
REQUEST = RunRequest("slot-bank", 24, PROMPT)


def words(request: RunRequest) -> list[str]:
    runtime = Runtime("flashmoe", Path("llama-cli"), "1", "0", modes=())
    return FlashMoeEngine().command(request, runtime, model=Path("m.gguf"), sidecar=Path("sc"), trace="t.jsonl")[1:]


def test_every_flag_of_a_run_that_streams() -> None:
    request = replace(
        REQUEST, ubatch=4, top_k=6, prefetch="predict-prev", io_split=8, gpu_layers="all", seed=7, extra=("--temp", "0")
    )
    flags = (
        "-m m.gguf --moe-mode slot-bank --moe-sidecar sc --moe-slot-bank 24 --moe-topk 6 --moe-trace-harness --perf "
        "--moe-trace t.jsonl -b 64 -ub 4 -n 100 -t 1 -c 256 --no-escape --no-warmup --simple-io -lv 3 "
        "--moe-predict-prev-token --moe-cache-io-split 8 -ngl all --seed 7 --temp 0 -p"
    )
    assert words(request) == [*flags.split(), PROMPT]


@pytest.mark.parametrize(
    ("mode", "given"),
    [
        ("stock", ""),
        ("resident-bank", "sidecar"),
        ("resident-slot-bank", "sidecar bank trace"),
        ("slot-bank", "sidecar bank trace"),
        ("oracle-all-hit", "sidecar bank trace"),
        ("oracle-prefetch", "sidecar bank trace"),
    ],
)
def test_what_a_mode_is_given(mode: str, given: str) -> None:
    found = words(replace(REQUEST, mode=mode))
    flags = {"sidecar": "--moe-sidecar", "bank": "--moe-slot-bank", "trace": "--moe-trace"}
    assert " ".join(name for name, flag in flags.items() if flag in found) == given


def test_the_modes_of_the_system_are_modes_of_the_runtime() -> None:
    assert {name: MODES[name].slots for name in slot_bank_flags.MODES} == {
        name: SlotBank(mode=name).has_slots for name in slot_bank_flags.MODES
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "fast"}, "unknown mode 'fast'; known: oracle-all-hit, "),
        ({"bank": 65}, "--bank 65: tiny-moe-64x8 has 64 experts a layer; give at most 64"),
        ({"bank": 7}, "--bank 7: tiny-moe-64x8 uses 8 experts a token, and each needs a slot; give at least 8"),
        ({"bank": 3, "top_k": 4}, "--bank 3: .* uses 4 experts"),
        ({"top_k": 9}, "--topk 9: tiny-moe-64x8 uses 8 experts a token, .* give 1 to 8"),
        ({"prefetch": "psychic"}, "unknown prefetch 'psychic'; known: "),
        ({"mode": "stock", "prefetch": "temporal"}, "--prefetch works in resident-slot-bank and slot-bank"),
        ({"io_split": 9}, "--io-split 9; expected 1 to 8"),
        ({"ubatch": 65}, "micro-batch 65 of 64"),
        ({"n_predict": 0}, "0 tokens"),
        ({"prompt": " \n"}, "the prompt is empty"),
        ({"prompt": "a\0b"}, "the prompt has a NUL"),
        ({"prompt": "é" * 60_000}, "the prompt has more than 100,000 bytes"),
        ({"mode": "oracle-prefetch"}, "mode oracle-prefetch replays a run of slot-bank; add that mode"),
    ],
)
def test_what_cannot_be_done(sidecar: Path, change: dict[str, Any], message: str) -> None:
    with refused(BadInput, match=message):
        FlashMoeEngine().check_request(replace(REQUEST, **change), GEOMETRY, sidecar=sidecar, replay=None)


@pytest.mark.parametrize(
    "change", [{}, {"top_k": 8, "bank": 8}, {"bank": 64}, {"prefetch": "temporal"}, {"mode": "stock"}]
)
def test_what_can_be_done(sidecar: Path, change: dict[str, Any]) -> None:
    FlashMoeEngine().check_request(replace(REQUEST, **change), GEOMETRY, sidecar=sidecar, replay=None)


def test_a_sidecar_is_needed_and_must_be_the_models(sidecar: Path, tmp_path: Path) -> None:
    with pytest.raises(Incomplete, match="mode slot-bank reads experts from a sidecar; give --sidecar"):
        FlashMoeEngine().check_request(REQUEST, GEOMETRY, sidecar=None, replay=None)
    with pytest.raises(Conflict, match="is not the sidecar of tiny-moe-64x8"):
        FlashMoeEngine().check_request(
            REQUEST, GEOMETRY, sidecar=RECORDED.parent / "runs-timed" / "manifest.json", replay=None
        )


def test_the_one_given_then_the_environment_then_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("given", "named", "llama-cli"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FLASHMOE_RUNTIME", str(tmp_path / "named"))
    assert ENGINES["flashmoe"].find(str(tmp_path / "given")) == tmp_path / "given"
    assert ENGINES["flashmoe"].find(None) == tmp_path / "named"
    monkeypatch.delenv("FLASHMOE_RUNTIME")
    assert ENGINES["flashmoe"].find(None) == tmp_path / "llama-cli"
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Missing, match=r"^no llama-cli on the PATH; build the Flash-MoE fork"):
        ENGINES["flashmoe"].find(None)


def test_a_path_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    for given, found in [("none", "no such file"), ("text", "is not a program"), (".", "is a folder, not a program")]:
        with pytest.raises(Unusable, match=rf"--runtime: {tmp_path}.*: {found}"):
            ENGINES["flashmoe"].find(str(tmp_path / given))
    with pytest.raises(Malformed, match="cannot be the name of a file"):
        ENGINES["flashmoe"].find("a\0b")


def test_a_folder_with_a_program_in_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "llama-cli").write_text("")
    with pytest.raises(Unusable, match=rf"is a folder, not a program; give {tmp_path / 'llama-cli'}"):
        ENGINES["flashmoe"].find(str(tmp_path))


def test_what_it_says_of_itself() -> None:
    found = ENGINES["flashmoe"].describe(STAND_IN)
    assert (found.version, found.commit) == ("8456", "64e25509b")
    assert found.compiler == "GNU 12.2.0 for Linux x86_64"
    assert found.backends == ("CPU",)
    assert found.devices == ()
    assert found.modes[0] == "stock"
    assert found.modes[-1] == "oracle-prefetch"
    assert {"-m", "--model", "--n-predict", "--usage", "--no-moe-prefetch-temporal", "-ngl"} <= set(found.flags)
    assert found.flags["--moe-slot-bank"] == "N"
    assert all(flag.startswith("-") and flag.strip("-") for flag in found.flags)


def test_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DOES", "has-a-gpu")
    found = ENGINES["flashmoe"].describe(STAND_IN)
    assert found.backends == ("CPU", "CUDA")
    (device,) = found.devices
    assert (device.name, device.description) == ("CUDA0", "NVIDIA H100 80GB HBM3")
    assert device.free_bytes == 80000 << 20


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("not-patched", "has no flag --moe-mode: a llama-cli that is not patched; build the Flash-MoE fork"),
        ("hang-at-once", "--version does not end within 1 s: not a llama-cli"),
        ("crash-at-once", "--version was ended by signal 4: a llama-cli that does not run on this machine"),
    ],
)
def test_one_that_is_of_no_use(monkeypatch: pytest.MonkeyPatch, does: str, message: str) -> None:
    monkeypatch.setenv("STAND_IN_DOES", does)
    monkeypatch.setattr(llama_program, "ASK_S", 1.0)
    with refused(Unusable, match=message):
        find_runtime(str(STAND_IN))


def test_another_program(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("#!/bin/sh\necho other 1.0\n")
    (tmp_path / "other").chmod(0o755)
    with pytest.raises(Unusable, match=r"--version says 'other 1.0'"):
        find_runtime(str(tmp_path / "other"))


U32, STRING, ARRAY = 4, 8, 9


def strings(name: str, values: list[str]) -> bytes:
    return key(name, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def model(folder: Path, tokens: list[str], *, kind: str = "gpt2", **ids: int) -> Path:
    keys = [key("tokenizer.ggml.model", STRING, text(kind)), strings("tokenizer.ggml.tokens", tokens)]
    keys += [key(f"tokenizer.ggml.{name}_token_id", U32, struct.pack("<I", number)) for name, number in ids.items()]
    path = folder / "m.gguf"
    path.write_bytes(gguf(keys, []))
    return path


def test_the_small_model() -> None:
    assert FlashMoeEngine().go_on_flags(MODEL) == ("--logit-bias", "0-inf")


@pytest.mark.parametrize(
    ("tokens", "ids", "found"),
    [
        (["a", "b", "c"], {"eos": 1}, (1,)),
        (["a", "b", "c"], {"eos": 2, "eot": 0, "eom": 1}, (0, 1, 2)),
        (["a", "<|im_end|>", "<|endoftext|>", "<|file_sep|>", "<|im_start|>"], {"eos": 1}, (1, 2, 3)),
        (["a", "<end_of_turn>", "<eos>"], {"eos": 2, "bos": 0, "padding": 0, "fim_pad": 0}, (0, 1, 2)),
        (["a", "b"], {"eos": 9}, ()),  # not a token: the runtime takes the tokenizer's usual one
        (["a", "<|end|>", "b"], {"eos": 2}, (1, 2)),
        (["a", "<|end|>", "<|return|>", "<|call|>"], {"eos": 2}, (2, 3)),
        (["a", "<|end|>", "<|flush|>", "<|calls|>"], {"eos": 2}, (2, 3)),
        (["a", "<|end|>", "<|return|>", "<|flush|>"], {"eos": 2}, (1, 2, 3)),
    ],
)
def test_by_number_and_by_text(tmp_path: Path, tokens: list[str], ids: dict[str, int], found: tuple[int, ...]) -> None:
    assert end_tokens(model(tmp_path, tokens, **ids)) == found


@pytest.mark.parametrize(("kind", "found"), [("llama", (2,)), ("gpt2", (11,)), ("t5", (1,)), ("rwkv", ())])
def test_a_model_that_names_none(tmp_path: Path, kind: str, found: tuple[int, ...]) -> None:
    assert end_tokens(model(tmp_path, [f"t{number}" for number in range(20)], kind=kind)) == found


def test_a_header_without_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf([key("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2))], []))
    assert FlashMoeEngine().go_on_flags(tmp_path / "m.gguf") == ()
