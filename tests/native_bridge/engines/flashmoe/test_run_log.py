"""The log of a run: every line of every version and backend, and what the numbers of one log say of each other."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput, Malformed, Unusable
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.systems.slot_bank_flags import COMMIT
from native_bridge.engines.flashmoe.log.parse import read_log
from native_bridge.engines.flashmoe.log.summary import AHEAD
from native_bridge.engines.flashmoe.modes import KNOWN_FLAGS
from native_bridge.engines.run_log import DeviceMemory, Overflow, RunLog
from tests.native_bridge.recorded_runs import RUNS

LOGS = Path(__file__).parent / "logs"
RECORDED = {path.parent.name: path for path in sorted(RUNS.glob("*/*/log.txt")) if "-gpu" not in path.parts[-3]}
RECORDED |= {"/".join(path.parts[-3:-1]): path for path in sorted(RUNS.glob("runs-gpu*/*/log.txt"))}
GEMMA4 = ("runs-gpu/", "runs-gpu-timed/")  # two families an expert, as gate and up are one
WHOLE = ("temporal", "predict", "batched", "resident-64", "allhit", "oracle-prefetch", "stock")


def text_of(name: str) -> str:
    return (LOGS / f"{name}.txt").read_bytes().decode("utf-8", "replace")


def read(text: str, mode: str = "slot-bank", *, where: str = "log.txt", failed_too: bool = False) -> RunLog:
    return read_log(text, mode=mode, where=where, extra=(), failed_too=failed_too)


def log_of(name: str, mode: str = "slot-bank") -> RunLog:
    return read(text_of(name), mode, where=f"{name}.txt")


def recorded(name: str) -> RunLog:
    path = RECORDED[name]
    mode = json.loads((path.parent / "run.json").read_text())["mode"]
    return read(path.read_bytes().decode("utf-8", "replace"), mode, failed_too=True)


def number(text: str) -> float:
    """A printed number, or the quotient of two."""
    above, _, below = text.partition("/")
    return float(above) / float(below or 1) if above[0].isdigit() else 0.0


@pytest.mark.parametrize("name", RECORDED)
def test_no_line_of_a_recorded_run_is_left_unread(name: str) -> None:
    log = recorded(name)
    assert log.unread == ()
    assert (log.failure is not None) == (name == "prose-ub4-bank16-overflow")


@pytest.mark.parametrize("name", [f"cpu-{name}" for name in WHOLE] + ["cuda", "cuda-gemma4", "metal", "older"])
def test_no_line_of_another_version_or_backend_is_left_unread(name: str) -> None:
    assert log_of(name, "stock" if name == "cpu-stock" else "slot-bank").unread == ()


@pytest.mark.parametrize(
    "name", [*RECORDED, *(f"cpu-{name}" for name in WHOLE), "cuda", "cuda-gemma4", "metal", "older"]
)
def test_the_numbers_of_a_log_agree(name: str) -> None:
    log = recorded(name) if name in RECORDED else read(text_of(name), failed_too=True)
    routed = log.routed
    if routed is None:
        assert name in ("warm-stock", "cpu-stock", "prose-stock", "prose-resident-bank", "runs-gpu-timed/stock")
        return
    assert routed.misses == routed.cold_installs + routed.evictions
    numbers = {line: {key: number(text) for key, text in values.items()} for line, values in log.lines.items()}
    assert sum(numbers.get("install", {}).values()) == pytest.approx(routed.bytes_read / GIB, abs=0.0251)
    layers = [values for line, values in numbers.items() if line.startswith("layer ")]
    if sum(line["calls"] for line in layers) == routed.calls:  # the log shows all of them
        sums = {key: sum(line[key] for line in layers) for key in ("uniq", "miss", "cold", "evict")}
        assert list(sums.values()) == [routed.requests, routed.misses, routed.cold_installs, routed.evictions]
        assert sum(line.bytes_read for line in log.layers) == pytest.approx(routed.bytes_read, abs=0.01 * GIB)
        assert sum(line.install_ms for line in log.layers) == pytest.approx(routed.install_ms, abs=0.01)
    for line in layers:
        assert line["miss"] == line["cold"] + line["evict"]
    ahead = [numbers[line] for line in AHEAD if line in numbers]
    for line in [numbers["routed"] | {"miss": routed.misses}, *layers, *ahead]:
        assert line["hit"] == pytest.approx(100 * (1 - line["miss"] / line["uniq"]), abs=0.0501)
    reads_each = routed.reads // routed.misses if routed.misses else None
    assert reads_each is None or routed.reads == reads_each * routed.misses
    families = 2 if name.startswith(GEMMA4) else 3
    for line in ahead:
        assert line["pread"] + line["rcopy"] == (reads_each or families) * line["miss"]
        if "overlap" in line:
            assert line["precision"] == pytest.approx(100 * line["overlap"], abs=0.051)


def test_a_prefetching_run() -> None:
    log = log_of("cpu-temporal")
    assert (log.lines["routed"]["src"], log.routed.calls, log.routed.misses) == ("pread-slot-bank", 476, 192 + 595)
    assert (log.build, log.backend, log.prefetched) == ("b8456-64e25509b", "", 46)
    assert log.settings["mixed-slot-buffer"] == "off"
    assert len(log.settings) == 30
    ahead = log.lines["prefetch"]
    assert (ahead["calls"], ahead["miss"], ahead["pread"], ahead["rcopy"]) == ("495", "46", "138", "0")
    assert log.lines.keys().isdisjoint({"predict-prev-token", "repaired"})


@pytest.mark.parametrize("after", ["  mode ", "  n_gpu_layers ", "  metal-disable-mm-id "])
def test_settings_that_other_output_comes_between(after: str) -> None:
    """As where the settings go to stderr while the text goes to stdout; and the text may look like settings."""
    whole = text_of("cpu-temporal")
    text = "Once\n  upon = a time\n  slot-bank\n  x-y = z\n  mode = of transport\n\n"
    at = whole.index("\n", whole.index(after)) + 1
    log = read(whole[:at] + text + whole[at:])
    assert log == log_of("cpu-temporal")


def test_settings_whose_heading_stands_alone() -> None:
    whole = text_of("cpu-temporal")
    at = whole.index("\n", whole.index("Flash-MoE settings:")) + 1
    assert read(f"{whole[:at]}Once upon a time\n{whole[at:]}") == log_of("cpu-temporal")


def test_colours_times_and_levels_are_no_part_of_a_line() -> None:
    plain, coloured = log_of("cpu-temporal"), log_of("cpu-predict")
    assert coloured.settings == plain.settings | {"prefetch-temporal": "off", "predict-prev-token": "on"}
    judged = {"overlap": "1321/3744", "precision": "35.3", "coverage": "35.3", "layers": "468"}
    assert judged.items() <= coloured.lines["predict-prev-token"].items()
    assert coloured.prefetched == 46
    assert (coloured.routed.misses, coloured.routed.reads) == (plain.routed.misses, plain.routed.reads)


def test_what_was_installed_before_the_run() -> None:
    resident = log_of("cpu-resident-64", "resident-slot-bank")
    assert resident.prime is None
    prime = resident.lines["resident-slot-bank prime"]
    assert (prime["installs"], prime["rcopy"]) == ("512", "1536")
    all_hit = log_of("cpu-allhit", "oracle-all-hit")
    assert all_hit.prime.installs == 405
    assert "install" not in all_hit.lines


def test_repairs_of_a_replay() -> None:
    log = log_of("cpu-oracle-prefetch", "oracle-prefetch")
    assert (log.lines["routed"]["src"], log.lines["repaired"]) == ("oracle-prefetch", {"records": "42"})
    assert int(log.lines["prefetch"]["calls"]) == int(log.lines["routed"]["calls"]) + 42


@pytest.mark.parametrize(
    ("parallel", "batched", "io_split", "execution"),
    [
        (False, False, 4, "split-install"),
        (None, None, 1, "split-install"),
        (True, True, 1, "parallel-install"),
        (True, None, 4, "parallel-install"),
        (True, False, 1, "async-upload"),
    ],
)
def test_the_switches_say_in_which_order_a_run_installs(
    parallel: bool | None, batched: bool | None, io_split: int, execution: str
) -> None:
    routed = log_of("cpu-batched").routed
    assert (routed.parallel_reads, routed.batched_reads, routed.execution) == (True, True, "parallel-install")
    routed = replace(routed, parallel_reads=parallel, batched_reads=batched, io_split=io_split)
    assert routed.execution == execution


def test_cuda() -> None:
    log = log_of("cuda")
    assert (log.backend, log.gpu_layers, log.build) == ("cuda", (49, 49), "b8456-64e25509b")
    assert log.settings["sidecar"] == "my models/side car"
    assert (log.settings["mixed-slot-buffer"], log.settings["gpu-bank"][:3]) == ("on", "off")
    assert log.lines["install"]["gate_up"] == "0.78"
    ahead = {"calls": "960", "uniq": "960", "miss": "96", "bytes": "0.12", "pread": "192", "rcopy": "0"}
    assert ahead.items() <= log.lines["predict-top1-prev"].items()


def test_where_the_bank_is_on_cuda() -> None:
    """The settings and the mapping say otherwise; the buffers that were allocated decide."""
    host, device = log_of("cuda").placement, log_of("cuda-gemma4").placement
    assert (host.follows_layers, host.bank, host.bank_in_host) == (True, ("CPU_Mapped",), True)
    assert (device.follows_layers, device.bank, device.bank_in_host) == (True, ("CUDA0",), False)
    assert host.memory == (
        DeviceMemory("CUDA0", 2560, 96, 300, total_mib=81168, free_mib=77612),
        DeviceMemory("CUDA1", 0, 0, 0, total_mib=24576, free_mib=24600),
        DeviceMemory("Host", 8307, 0, 12),
    )


def test_where_the_bank_is_of_a_build_for_the_host_and_of_a_log_without_the_lines() -> None:
    line = "slot-bank routed expert tensors are using CPU/host-backed virtual buffers in this build"
    text = text_of("cuda").replace("Flash-MoE GPU-bank placement is enabled in this build", line)
    assert read(text).placement.follows_layers is False
    short = read(f"load_tensors: {line}; --n-gpu-layers …", failed_too=True).placement
    assert (short.bank, short.bank_in_host) == ((), True)
    assert log_of("cpu-temporal").placement.bank_in_host is None
    assert log_of("cpu-batched").placement.bank == ("CPU_Mapped",)
    assert [memory.place for memory in log_of("cpu-predict").placement.memory] == ["Host"]


def test_a_model_that_is_loaded_twice_is_where_it_was_loaded_last() -> None:
    text = text_of("cuda")
    twice = text[text.index("load_tensors: loading model") : text.index("llama_context: ")] + text
    assert read(twice).placement == log_of("cuda").placement


def test_other_makers_of_gpus() -> None:
    text = "ggml_cuda_init: found 1 ROCm devices:\n  Device 0: AMD Radeon RX 7900, gfx1100 (0x1100), VMM: no, Wave: 32"
    log = read(text, "stock", failed_too=True)
    assert log.backend == "rocm"
    text = "ggml_vulkan: 0 = AMD Radeon 8060S (RADV GFX1151) (radv) | uma: 1 | fp16: 1 | bf16: 0 | warp size: 64\n"
    log = read(text, "stock", failed_too=True)
    assert log.backend == "vulkan"


def test_metal() -> None:
    log = log_of("metal", "resident-slot-bank")
    assert log.backend == "metal"
    assert log.build.startswith("8456 (64e25509b) with Apple clang")
    assert log.lines["resident-slot-bank prime"] == {"installs": "5120", "bytes": "18.00", "rcopy": "15360"}
    assert (log.gpu_layers, log.placement.bank, log.placement.bank_in_host) == ((41, 41), ("MTL0_Mapped",), False)


def test_the_names_of_an_older_version() -> None:
    log, routed = log_of("older"), log_of("older").routed
    assert (log.lines["routed"]["src"], routed.requests, routed.misses) == ("pread-slot-bank", 640, 160)
    assert (routed.slotwr_ms, routed.reads, routed.io_split) == (3, 480, 1)
    assert (routed.parallel_reads, routed.batched_reads) == (True, None)
    assert [(line.layer, line.misses) for line in log.layers] == [(0, 60), (1, 100)]
    assert (log.lines["layer 0"]["peak"], log.lines["layer 1"]["peak"]) == ("50", "50")
    assert log.layers[1].bytes_read == 130 * MIB
    assert (log.prefetched, log.lines["prefetch"]["pread"]) == (30, "90")
    assert log.prime is not None


def test_a_version_without_what_a_fit_needs_is_one_line() -> None:
    with pytest.raises(Malformed, match=r"^oldest.txt: no line `Flash-MoE residency cold=…`: not the whole log"):
        log_of("oldest")
    assert read(text_of("oldest"), failed_too=True).decode_tok_s == 10


def test_of_a_later_version_all_that_is_known_is_read() -> None:
    log = log_of("later")
    assert (log.lines["routed"]["src"], log.routed.calls, log.routed.misses) == ("pread-slot-bank", 80, 160)
    assert log.prefetched == 0
    assert [line.split("Flash-MoE ")[1].split("=")[0] for line in log.unread] == [
        "routed src",
        "prefill dedup saved",
        "prefetch calls",
    ]


TOKENS = " [ tokens - prefill: 38, decode: 24 ]"
LATER_OVERFLOW = (
    "need at least 11 slots for this routed batch (configured 4, tokens=2, topk=8, theoretical max unique=16). "
    "Increase --moe-slot-bank, or reduce -ub/--ubatch-size or --moe-topk"
)


def with_tokens(text: str) -> str:
    """A log as the builds since April 2026 end it."""
    return re.sub(r"(\[ Prompt: .* t/s \])$", rf"\1{TOKENS}", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["cpu-temporal", "cpu-predict", "cpu-allhit", "cpu-resident-64"])
def test_speeds_with_the_numbers_of_tokens(name: str) -> None:
    text = with_tokens(text_of(name))
    assert TOKENS in text
    assert read(text) == log_of(name)


def test_an_overflow_as_later_builds_say_it() -> None:
    old = "need more than 4 resident experts for this batch"
    text = with_tokens(text_of("cpu-overflow"))
    assert old in text
    found = read(text.replace(old, LATER_OVERFLOW), failed_too=True)
    assert found.overflow == Overflow(0, 4)
    assert found.lines == read(text_of("cpu-overflow"), failed_too=True).lines


def test_the_summary_of_a_prompts_scratch_is_not_the_runs() -> None:
    """Later builds print one for the scratch of a layer-major prompt, with lines that look like the run's own."""
    text = text_of("cpu-temporal")
    first = text.index("log_runtime_summary: Flash-MoE routed")
    scratch = (
        text[first:].replace("pread-slot-bank", "prefill-layer-major").replace("cold=192 evict=595", "cold=9 evict=0")
    )
    assert read(f"{text}\n{scratch}").lines == log_of("cpu-temporal").lines
    assert read(text[:first] + scratch + text[first:]).lines == log_of("cpu-temporal").lines


@pytest.mark.parametrize(
    ("extra", "setting", "why"),
    [
        (("--moe-prefetch-temporal-sparse",), "", "--moe-prefetch-temporal-sparse: this prefetch is not known"),
        ((), "prefetch-temporal-sparse = on", "--moe-prefetch-temporal-sparse: this prefetch is not known"),
        (("--moe-predict-two-back", "4"), "", "--moe-predict-two-back: this prefetch is not known"),
        (("--moe-prefill-layer-major",), "", "--moe-prefill-layer-major: the experts of its prompt are read layer by"),
        ((), "prefill-layer-major = on", "--moe-prefill-layer-major: the experts of its prompt are read layer by"),
        (("--moe-demand-stripe=5:1:1",), "", "--moe-demand-stripe: this flag is not known"),
        (("--secondary-sidecar", "there"), "", "--secondary-sidecar: this flag is not known"),
        (("--moe-x", "--no-moe-x"), "prefetch-temporal-sparse = off", ""),
        (("--moe-sort-decode-expert-ids", "--moe-force-expert", "3", "--n-cpu-moe", "4"), "sort-decode-ids = on", ""),
    ],
)
def test_flags_whose_effect_is_not_known(extra: tuple[str, ...], setting: str, why: str) -> None:
    text = text_of("cpu-temporal").replace(
        "  trace-harness ", f"  {setting}\n  trace-harness " if setting else "  trace-harness "
    )
    unknown = read_log(text, mode="slot-bank", where="log.txt", extra=extra).unknown
    assert unknown.startswith(why)
    assert bool(unknown) == bool(why)


def test_every_flag_of_the_verified_build_is_known() -> None:
    options = (
        Path(__file__).parents[3] / "systems" / "options" / f"Anemll_anemll-flash-llama.cpp_{COMMIT}.txt"
    ).read_text()
    flags = set(re.findall(r"--moe-[\w-]+", options))
    assert flags - KNOWN_FLAGS == set()
    assert KNOWN_FLAGS - flags == {"--moe-sort-decode-expert-ids"}


OVERFLOWED = "Flash-MoE slot-bank overflow in layer 0: need more than 4 resident experts for this batch"
REFUSED = "Flash-MoE oracle-all-hit needs 9 slots in layer 0, but only 8 are configured"
FAILED = {
    "cpu-overflow": ("slot-bank", OVERFLOWED, Overflow(0, 4)),
    "cpu-allhit-small": ("oracle-all-hit", REFUSED, Overflow(0, 8)),
    "cpu-no-sidecar": ("slot-bank", "failed to open Flash-MoE manifest: none/manifest.json", None),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_run_is_read_as_far_as_it_goes(name: str) -> None:
    mode, failure, overflow = FAILED[name]
    log = read(text_of(name), mode, failed_too=True)
    assert (log.failure, log.overflow, log.decode_tok_s, log.unread) == (failure, overflow, 0, ())
    assert log.settings["mode"] == mode
    with pytest.raises(Unusable):
        read(text_of(name), mode)


def test_a_run_that_overflowed_still_tells_what_it_counted() -> None:
    log = recorded("prose-ub4-bank16-overflow")
    assert log.overflow == Overflow(0, 16)
    assert (log.routed.calls, log.routed.requests, log.routed.misses) == (9, 64, 64)
    assert len(log.layers) == 8


def test_a_torn_log_is_read_as_far_as_it_goes() -> None:
    text = text_of("cpu-temporal")
    for end in range(0, len(text), 61):
        log = read(text[:end], failed_too=True)
        assert (log.failure is None) == (log.decode_tok_s > 0)
    torn = read(text[: text.index("resolve=")], failed_too=True)
    assert (torn.routed, torn.failure) == (
        None,
        "log.txt: no line `[ Prompt: … t/s | Generation: … t/s ]`: the run did not finish; run it again",
    )


def test_what_the_model_wrote_is_no_failure() -> None:
    text = text_of("cpu-temporal").replace("### Anding", "Error: none\nError: CUDA\nFlash-MoE is a runtime")
    log = read(text)
    assert (log.failure, log.routed) == (None, log_of("cpu-temporal").routed)
    assert log.unread == ("Flash-MoE is a runtime",)


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("src/ggml-cuda.cu:98: GGML_ASSERT(ptr == 0) failed", "GGML_ASSERT(ptr == 0) failed"),
        ("CUDA error: out of memory", "CUDA error: out of memory"),
        ("Error: none\nCUDA error: out of memory\nGGML_ASSERT(ok) failed", "CUDA error: out of memory"),
        (
            "common_init_result: Flash-MoE sidecar runs with GPU offload must keep --fit on in this fork …; remove …",
            "Flash-MoE sidecar runs with GPU offload must keep --fit on in this fork …; remove …",
        ),
        ("  what():  std::bad_alloc", "std::bad_alloc"),
        ("error: invalid argument: --moe-mode", "invalid argument: --moe-mode"),
        ("", "log.txt: no line `[ Prompt: … t/s | Generation: … t/s ]`: the run did not finish; run it again"),
    ],
)
def test_how_a_run_that_prints_nothing_else_failed(line: str, failure: str) -> None:
    log = read(line, failed_too=True)
    assert (log.failure, log.routed, log.settings) == (failure, None, {})


@pytest.mark.parametrize("damage", ["1.2.3", "9" * 500, "-", "nan", "", "1e400"])
def test_damaged_numbers_of_any_line_raise_nothing_where_a_failed_run_is_read(damage: str) -> None:
    for name in ("cuda", "metal", "older", "cpu-temporal", "cpu-allhit", "cpu-oracle-prefetch"):
        text = re.sub(r"(?<=[=: ])\d[\d.]*", damage, text_of(name))
        log = read(text, failed_too=True)
        assert log.routed is None
        assert log.failure is not None
        with pytest.raises(BadInput):
            read(text)


def test_a_long_line_is_text_with_at_most_a_line_of_the_log_at_its_end() -> None:
    text = text_of("cpu-temporal").replace("```llama_memory", "x" * 10**6 + "=" + "9" * 10**6 + "llama_memory")
    text = text.replace("log_runtime_summary: Flash-MoE routed", "-" * 10**6 + "log_runtime_summary: Flash-MoE routed")
    assert read(text) == log_of("cpu-temporal")
