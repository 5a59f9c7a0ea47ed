"""Recorded runs: the logs of engines, and folders with requests and output."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hypothesis import strategies as st

from flashmoe_sim.io.errors import SimError
from native_bridge.engines.read import find_run_model, read_run
from native_bridge.engines.run_log import RunLog
from native_bridge.engines.runs import Run
from native_bridge.engines.table import ENGINES
from tests.fuzz.target import PROJECT, Document, Skip, Target
from tests.fuzz.targets.models import CUT

RUNS = PROJECT / "data" / "runs"
MODES = ("slot-bank", "stock", "oracle-all-hit", "oracle-prefetch", "resident-slot-bank")
GPU_RUNS = PROJECT / "data" / "runs-gpu"


def of_flashmoe(data: bytes, folder: Path) -> RunLog:
    """A log in every mode, as far as it goes; then strictly as a bank's."""
    text = data.decode("utf-8", "replace")
    engine = ENGINES["flashmoe"]
    for mode in MODES:
        engine.read_log(text, mode=mode, where="log.txt", extra=(), failed_too=True)
        engine.complaint(text)
    return engine.read_log(text, mode="slot-bank", where="log.txt", extra=())


def of_hot_cache(data: bytes, folder: Path) -> RunLog:
    text = data.decode("utf-8", "replace")
    engine = ENGINES["hot-cache"]
    engine.read_log(text, mode="cpu-moe", where="log.txt", extra=(), failed_too=True)
    return engine.read_log(text, mode="cpu-moe", where="log.txt", extra=())


def counted(data: bytes, log: RunLog, _: Path) -> None:
    """What was counted stands in the log, and the speeds can be."""
    text = data.decode("utf-8", "replace")
    assert log.routed is not None, "a bank's log without counts"
    assert 0 < log.decode_tok_s < float("inf"), "a speed that cannot be"
    assert log.routed.calls > 0, "no calls"
    for word, count in (("calls", log.routed.calls), ("cold", log.routed.cold_installs)):
        assert f"{word}" in text, f"{count} {word} that the log does not have"
    assert log.routed.misses == log.routed.cold_installs + log.routed.evictions, "misses do not add up"


def of_folder(data: bytes, folder: Path) -> Run:
    if data.count(CUT) != 1:
        raise Skip
    flags, log = data.split(CUT)
    if b"/" in flags or b"\\u002f" in flags.lower():
        raise Skip  # the path of a model on this machine
    (folder / "run.json").write_bytes(flags)
    (folder / "log.txt").write_bytes(log)
    run = read_run(folder, failed_too=True)
    with suppress(SimError):
        find_run_model([run], None)
    return read_run(folder)


@st.composite
def logs(draw: st.DrawFn) -> Document:
    calls, cold, evicted = draw(st.integers(1, 10**6)), draw(st.integers(0, 10**6)), draw(st.integers(0, 10**6))
    decode = draw(st.integers(1, 99_999))
    text = LOG.replace("calls=3374", f"calls={calls}").replace(
        "miss/call=3.66", f"miss/call={(cold + evicted) / calls:.2f}"
    )
    text = text.replace("cold=128 evict=12235", f"cold={cold} evict={evicted}").replace("1368.5", f"{decode / 10}")
    return text.encode(), (calls, cold, evicted, decode / 10)


def as_counted(log: RunLog, expected: object) -> bool:
    routed = log.routed
    return routed is not None and (routed.calls, routed.cold_installs, routed.evictions, log.decode_tok_s) == expected


def recorded() -> list[bytes]:
    names = "bank16 oracle-prefetch-bank16 allhit temporal-bank16 ub4-bank16-overflow stock"
    gpu = sorted(GPU_RUNS.glob("*/log.txt"))[:2]
    return [path.read_bytes() for path in (*(RUNS / f"prose-{name}" / "log.txt" for name in names.split()), *gpu)]


LOG = (RUNS / "prose-bank16" / "log.txt").read_text()
FLAGS = b"""{"rc": 0, "mode": "slot-bank", "bank": 16, "ubatch": 1, "topk": 0, "n_predict": 100, "threads": 4,
 "extra": ["-ngl", "99"], "replay_of": null, "flags": ["--temp", "0"], "environment": {"A": "1"},
 "cache": {"state": "cold"}, "machine": "a", "engine": "flashmoe", "model": {"path": "m.gguf", "arch": "x"}}"""
SERVED = b"""ggml_cuda_init: found 1 CUDA devices
[ Prompt: 12.5 t/s | Generation: 3.5 t/s ]
moe-layer-perf: {"layer":0,"calls":3,"hot_experts":[[1,2]],"cold_experts":[[0,3]]}
moe-layer-perf: {"layer":1,"calls":3,"hot_experts":[],"cold_experts":[[0,3]]}
"""
NUMBERS = b"nan inf -1 1e999 999999999999999999 0.0 calls= hit= bytes= GGML_ASSERT(".split()
WORDS = (*NUMBERS, b"\x1b[31m", b"\r", b"\n", b"\x08", b"log_runtime_summary: Flash-MoE ")
TARGETS = (
    Target("log-flashmoe", of_flashmoe, recorded, WORDS, "log.txt", counted, logs, as_counted),
    Target(
        "log-hot-cache", of_hot_cache, lambda: [SERVED], (*WORDS, b"moe-layer-perf: ", b'"hot_experts":'), "log.txt"
    ),
    Target(
        "run-folder",
        of_folder,
        lambda: [FLAGS + CUT + LOG.encode()],
        (*WORDS, b'"rc":', b'"engine":"hot-cache"', b'"mode":', b"null", b'"replay_of":', b"\xff", CUT),
    ),
)
