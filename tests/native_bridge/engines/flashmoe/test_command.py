"""Which requests the runtime gets, and which are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry import read_gguf
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.systems import slot_bank_flags
from flashmoe_sim.systems.slot_bank import SlotBank
from native_bridge.engines.base import RunRequest, Runtime
from native_bridge.engines.flashmoe.engine import FlashMoe
from native_bridge.engines.flashmoe.modes import MODES
from tests.native_bridge.conftest import MODEL, PROMPT, RECORDED
from tests.refusals import refused

GEOMETRY = read_gguf(MODEL)
REQUEST = RunRequest("slot-bank", 24, PROMPT)


def words(request: RunRequest) -> list[str]:
    runtime = Runtime("flashmoe", Path("llama-cli"), "1", "0", modes=())
    return FlashMoe().command(request, runtime, model=Path("m.gguf"), sidecar=Path("sc"), trace="t.jsonl")[1:]


def test_every_flag_of_a_run_that_streams() -> None:
    request = replace(
        REQUEST, ubatch=4, top_k=6, prefetch="predict-prev", io_split=8, gpu_layers="all", seed=7, extra=("--temp", "0")
    )
    assert words(request) == [
        *("-m", "m.gguf", "--moe-mode", "slot-bank", "--moe-sidecar", "sc", "--moe-slot-bank", "24"),
        *("--moe-topk", "6", "--moe-trace-harness", "--perf", "--moe-trace", "t.jsonl"),
        *("-b", "64", "-ub", "4", "-n", "100"),
        *(
            "-t",
            "1",
            "-c",
            "256",
            "--no-escape",
            "--no-warmup",
            "--simple-io",
            "-lv",
            "3",
            "--moe-predict-prev-token",
            "--moe-cache-io-split",
            "8",
        ),
        *("-ngl", "all", "--seed", "7", "--temp", "0", "-p", PROMPT),
    ]


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
    with refused(match=message):
        FlashMoe().check_request(replace(REQUEST, **change), GEOMETRY, sidecar=sidecar, replay=None)


@pytest.mark.parametrize(
    "change", [{}, {"top_k": 8, "bank": 8}, {"bank": 64}, {"prefetch": "temporal"}, {"mode": "stock"}]
)
def test_what_can_be_done(sidecar: Path, change: dict[str, Any]) -> None:
    FlashMoe().check_request(replace(REQUEST, **change), GEOMETRY, sidecar=sidecar, replay=None)


def test_a_sidecar_is_needed_and_must_be_the_models(sidecar: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="mode slot-bank reads experts from a sidecar; give --sidecar"):
        FlashMoe().check_request(REQUEST, GEOMETRY, sidecar=None, replay=None)
    with pytest.raises(BadInput, match="is not the sidecar of tiny-moe-64x8"):
        FlashMoe().check_request(
            REQUEST, GEOMETRY, sidecar=RECORDED.parent / "runs-timed" / "manifest.json", replay=None
        )
