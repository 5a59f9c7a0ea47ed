"""Recorded runs as anchors: misses of a token, equations, and what cannot be an anchor."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed
from flashmoe_sim.machines.anchors import Anchor, Installs
from flashmoe_sim.machines.fitting import Fitted
from native_bridge.engines.flashmoe.fit import anchors_of
from native_bridge.engines.read import find_run_model, fit_runs, read_run
from tests.native_bridge.recorded_runs import GPU, TIMED, copy, edit_flags, edit_log

MODEL = load_model(TIMED / "manifest.json")
EXPERT = 1_671_168


def misses_of_decoded_calls(trace: Path) -> tuple[float, float]:
    """Misses of a decoded token, and those of its calls that missed, from the slots that the runtime wrote down.

    A miss is an expert that its slot did not hold before the call. The last 119 steps of these runs are decode, as 120
    tokens were asked for and the prompt gives the first.
    """
    held: dict[tuple[int, int], int] = {}
    steps: list[list[int]] = []
    for line in gzip.decompress(trace.read_bytes()).splitlines():
        record = json.loads(line)
        if record["layer"] == 0:
            steps.append([])
        pairs = list(zip(record["experts"], record["slots"], strict=True))
        missed = [(expert, slot) for expert, slot in pairs if held.get((record["layer"], slot)) != expert]
        steps[-1].append(len(missed))
        held |= {(record["layer"], slot): expert for expert, slot in missed}
    decoded = [calls for step in steps[-119:] for calls in step]
    return sum(decoded) / 119, sum(n > 0 for n in decoded) / 119


@pytest.mark.parametrize("name", ["warm-bank12", "warm-bank24", "warm-bank64"])
def test_misses_of_a_token(name: str) -> None:
    run = read_run(TIMED / name)
    assert run.trace is not None
    (anchor,) = anchors_of([run], MODEL)
    assert (anchor.misses, anchor.stalled) == pytest.approx(misses_of_decoded_calls(run.trace))
    assert (anchor.layers, anchor.top_k, anchor.tok_s) == (12, 8, run.log.decode_tok_s)
    assert anchor.bytes_read == pytest.approx(anchor.misses * EXPERT)
    assert anchor.reads == pytest.approx(anchor.misses * 12)
    assert anchor.installs.count == run.log.routed.misses
    assert anchor.installs.bytes_read == run.log.routed.misses * EXPERT
    assert anchor.installs.reads == run.log.routed.reads


def test_without_a_model_the_log_tells_bytes_and_reads() -> None:
    runs = [read_run(TIMED / name) for name in ("warm-bank12", "warm-allhit")]
    for by_log, known in zip(anchors_of(runs, None), anchors_of(runs, MODEL), strict=True):
        assert (by_log.layers, by_log.top_k, by_log.misses) == (known.layers, known.top_k, known.misses)
        assert by_log.bytes_read == pytest.approx(known.bytes_read, rel=1e-5)
        assert by_log.reads == pytest.approx(known.reads)


def test_weights_that_a_token_streams(tmp_path: Path) -> None:
    """Experts of all layers by the run's own top-k, and everything else; nothing if the model does not record that."""
    runs = [read_run(TIMED / "warm-allhit"), read_run(copy("cold-allhit", tmp_path, topk=2))]
    dense = replace(MODEL, dense_bytes=10**8)
    assert [anchor.weight_bytes for anchor in anchors_of(runs, MODEL)] == [None, None]
    assert [anchor.weight_bytes for anchor in anchors_of(runs, dense)] == [
        12 * 8 * EXPERT + 10**8,
        12 * 2 * EXPERT + 10**8,
    ]
    with_table = replace(dense, embedding_bytes=4 * 10**7)  # of which a token reads a row, as it does when it is timed
    assert anchors_of(runs, with_table)[0].weight_bytes == 12 * 8 * EXPERT + 6 * 10**7


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    other = copy("warm-allhit", tmp_path)
    anchors = anchors_of([read_run(folder) for folder in (TIMED / "warm-allhit", other, TIMED / "warm-stock")], MODEL)
    assert [anchor.name for anchor in anchors] == [str(TIMED / "warm-allhit"), str(other), "warm-stock"]


def test_equations() -> None:
    installs = Installs(100, bytes_read=2e9, first_bytes=5e8, reads=300, read_s=0.5, upload_s=0.2, relative_sd=0.03)
    primed = Installs(50, bytes_read=1e9, first_bytes=1e9, reads=150, read_s=0.4, upload_s=0.0, relative_sd=0.05)
    anchor = Anchor("a", 10.0, 12, 8, 5, 1e8, 2e7, 15, 3, 4e9, call_s=1e-4, installs=installs, primed=primed)
    token, reads, prime, uploads = anchor.observations
    assert token.seconds == pytest.approx(0.1 - 12e-4)
    assert token.terms == pytest.approx(
        {"layer_us": 12e-6, "read_gb_s": 0.1, "first_touch_gb_s": 0.02, "request_us": 15e-6, "pinned_gb_s": 0.1}
        | {"weights_gb_s": 4, "resume_us": 3e-6}
    )
    assert (reads.seconds, reads.terms) == (0.5, {"read_gb_s": 2, "first_touch_gb_s": 0.5, "request_us": 300e-6})
    assert (prime.seconds, prime.terms) == (0.4, {"read_gb_s": 1, "first_touch_gb_s": 1, "request_us": 150e-6})
    assert (prime.name, prime.relative_sd) == ("a: prime", 0.05)
    assert (uploads.seconds, uploads.terms, uploads.relative_sd) == (0.2, {"pinned_gb_s": 2.0}, 0.03)
    assert token.relative_sd == pytest.approx((0.05**2 + 0.01**2 / 12) ** 0.5)


def fit(*folders: Path, **options: object) -> Fitted:
    return fit_runs(folders, name="test", command="", **options)  # type: ignore[arg-type]


def test_uploads_make_a_link(tmp_path: Path) -> None:
    """A fifth of the install time of a GPU build: reads take what is left. Two equations weigh more than one did."""
    shutil.copy(TIMED / "manifest.json", tmp_path)
    streamed = edit_log(copy("warm-bank12", tmp_path), "upload=0.000", "upload=1183.4454")
    fitted = fit(streamed, copy("warm-allhit", tmp_path))
    machine, plain = fitted.machine, fit(TIMED / "warm-bank12", TIMED / "warm-allhit").machine
    assert fitted.fit.parameters == ("layer_us", "read_gb_s", "resume_us", "pinned_gb_s")
    assert not any(one.name.endswith("prime") for one in fitted.fit.observations)  # the bank is not in RAM
    assert (machine.cpu, machine.unified, machine.memory) == (None, False, None)
    assert machine.link.pageable_gb_s.estimated
    assert machine.link.pinned_gb_s.value == pytest.approx(plain.storage.read_gb_s.value / 0.2, rel=0.03)
    assert machine.storage.read_gb_s.value == pytest.approx(plain.storage.read_gb_s.value / 0.8, rel=0.03)
    assert machine.gpu.layer_us.value == pytest.approx(fitted.fit.value[0], rel=1e-4)


def first_fills(trace: Path) -> int:
    """From the slots that the runtime wrote down: how many of them ever held an expert."""
    records = [json.loads(line) for line in gzip.decompress(trace.read_bytes()).splitlines()]
    return len({(record["layer"], slot) for record in records for slot in record["slots"]})


@pytest.mark.parametrize("name", ["warm-bank24", "warm-bank64"])
def test_slots_filled_for_the_first_time(name: str) -> None:
    run = read_run(TIMED / name)
    assert run.trace is not None
    (anchor,) = anchors_of([run], MODEL)
    assert anchor.installs.first_bytes == first_fills(run.trace) * EXPERT
    assert anchor.first_bytes <= anchor.bytes_read


def test_memory_that_was_never_written_by_what_filled_the_bank_of_an_all_hit_run() -> None:
    """768 installs in 0.587 s; in the streamed run 13,363 in 5.917 s, 144 of them into slots that had held nothing."""
    fitted = fit(TIMED / "warm-bank12", TIMED / "warm-allhit")
    assert fitted.fit.parameters == ("layer_us", "read_gb_s", "first_touch_gb_s", "resume_us")
    prime = next(one for one in fitted.fit.observations if one.name == "warm-allhit: prime")
    assert (prime.seconds, prime.terms["first_touch_gb_s"]) == (0.586736, 768 * EXPERT / 1e9)
    machine = fitted.machine
    each_s = 1e-3 * 5917.227 / 13363
    expected = 768 * EXPERT / 1e9 / (0.586736 - 768 * each_s)
    assert machine.host.first_touch_gb_s.value == pytest.approx(expected, rel=0.1)
    assert not fitted.notes


def test_memory_that_was_never_written_by_a_bank_that_fills() -> None:
    """Without an all-hit run: 768 installs in 0.992 s, each into a slot that had held nothing."""
    fitted = fit(TIMED / "warm-bank12", TIMED / "warm-stock", TIMED / "warm-bank64")
    each_s = 1e-3 * 5917.227 / 13363
    expected = 768 * EXPERT / 1e9 / (0.992 - 768 * each_s)
    assert fitted.machine.host.first_touch_gb_s.value == pytest.approx(expected, rel=0.1)
    few = fit(TIMED / "warm-bank12", TIMED / "warm-stock", TIMED / "warm-bank48")  # 13% of its installs
    assert "first_touch_gb_s" not in few.fit.parameters


def test_repeats_weigh_as_one_anchor(tmp_path: Path) -> None:
    """Repeats share the same errors: two of them reveal no more about these than one."""
    streamed, all_hit = TIMED / "warm-bank12", TIMED / "warm-allhit"
    shutil.copy(TIMED / "manifest.json", tmp_path)
    again = [copy(run.name, tmp_path) for run in (streamed, all_hit)]
    anchors = anchors_of([read_run(run) for run in (streamed, all_hit, again[1])], MODEL)
    assert [anchor.repeats for anchor in anchors] == [1, 2, 2]
    first, once = anchors[1].observations[0], replace(anchors[1], repeats=1).observations[0]
    assert first.relative_sd == pytest.approx(2**0.5 * once.relative_sd)
    alone, twice = fit(streamed, all_hit).fit, fit(streamed, all_hit, *again).fit
    assert twice.value == pytest.approx(alone.value)
    for parameter in ("layer_us", "read_gb_s", "first_touch_gb_s"):
        assert twice.interval(parameter) == pytest.approx(alone.interval(parameter), rel=0.2)


def test_the_model_that_a_run_names(tmp_path: Path) -> None:
    run = copy("warm-bank12", tmp_path)
    for named, found in (
        ({"path": "gone.gguf", "sidecar": str(TIMED / "manifest.json")}, MODEL),
        ({"path": "gone.gguf"}, None),
        ("gone.gguf", None),
    ):
        edit_flags(run, model=named)
        assert find_run_model([read_run(run)], None) == found


def test_calls_that_wait_for_their_reads() -> None:
    """In the cold run a token takes longer than the layers of the all-hit run and its reads do: shared by its calls."""
    run = read_run(TIMED / "cold-bank12")
    (anchor,) = anchors_of([run], MODEL)
    machine = fit(TIMED / "cold-bank12", TIMED / "cold-allhit").machine
    took_us = 1e6 / anchor.tok_s - 12 * (machine.cpu.layer_us.value + machine.host.call_us.value)
    read_us = anchor.bytes_read / machine.storage.read_gb_s.value / 1e3
    assert machine.host.resume_us.value == pytest.approx((took_us - read_us) / anchor.stalled, rel=1e-3)
    warm = fit(TIMED / "warm-bank12", TIMED / "warm-allhit").machine.host.resume_us
    assert warm.lo == warm.value == 0 < warm.hi


def test_a_bank_that_filled_as_fast_as_slots_change(tmp_path: Path) -> None:
    shutil.copy(TIMED / "manifest.json", tmp_path)
    prime = "total=586.736 ms install=586.736"
    all_hit = edit_log(copy("warm-allhit", tmp_path), prime, prime.replace("586.736", "286.736"))
    fitted = fit(TIMED / "warm-bank12", all_hit)
    assert fitted.machine.host.first_touch_gb_s is None
    assert fitted.notes[0].startswith("first_touch_gb_s: filling a slot for the first time took no longer than")


@pytest.mark.parametrize(("line", "unified"), [(GPU, False), ("ggml_metal_init: allocating\n", True)])
def test_a_gpu_that_the_logs_name(tmp_path: Path, line: str, unified: bool) -> None:
    shutil.copy(TIMED / "manifest.json", tmp_path)
    runs = [copy(name, tmp_path) for name in ("warm-bank12", "warm-allhit")]
    for run in runs:
        edit_log(run, "Flash-MoE settings:", f"{line}Flash-MoE settings:")
    machine = fit(*runs).machine
    assert (machine.cpu, machine.link, machine.unified) == (None, None, unified)
    assert machine.host.first_touch_gb_s is not None  # a bank in RAM, as it uploads nothing


def on_cuda(folder: Path, bank: str = "CPU_Mapped") -> list[Path]:
    """Two runs with the lines of a CUDA build, whose slots are in this buffer."""
    shutil.copy(TIMED / "manifest.json", folder)
    runs = [copy(name, folder) for name in ("warm-bank12", "warm-allhit")]
    text = (Path(__file__).parent / "logs" / "cuda.txt").read_text().replace("CPU_Mapped", bank)
    for run in runs:
        loaded = text[text.index("load_tensors: loading") : text.index("llama_context: ")]
        edit_log(run, "Flash-MoE settings:", f"{GPU}{loaded}Flash-MoE settings:")
    return runs


def test_slots_in_the_host_s_memory_make_no_link_and_are_noted(tmp_path: Path) -> None:
    fitted = fit(*on_cuda(tmp_path))
    assert fitted.machine.link is None
    assert fitted.notes[-1].startswith(
        "warm-bank12, warm-allhit: by the log the slots are in the host's memory: nothing"
    )
    assert fitted.machine.gpu.layer_us.condition.startswith("cuda computes, its experts on the CPU, 2 threads")


def test_slots_on_the_gpu_are_not_noted(tmp_path: Path) -> None:
    fitted = fit(*on_cuda(tmp_path, bank="CUDA0"))
    assert not any("host's memory" in note for note in fitted.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("offloaded 49/49", "offloaded 20/49", "layers on the GPU is 20, but 49 in"),
        ("CPU_Mapped model", "CUDA0 model", "bank in is CUDA0, but CPU_Mapped in"),
        ("", "-fa off", "flags is -fa off, but none in"),
    ],
)
def test_runs_that_were_placed_otherwise_are_not_of_one_machine(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    first, second = on_cuda(tmp_path)
    if old:
        edit_log(second, old, new)
    for run, flags in ((first, []), (second, [] if old else new.split())):
        edit_flags(run, flags=flags)
    with pytest.raises(Conflict, match=message):
        fit(first, second)


def test_a_log_whose_host_takes_longer_than_its_tokens(tmp_path: Path) -> None:
    run = edit_log(copy("warm-bank12", tmp_path), "topk=2.779", "topk=999999999999999")
    with pytest.raises(
        Malformed, match=r"log.txt: topk, resolve, slotwr and other take 5.\d*e\+09 s a token, the whole"
    ):
        fit(run, TIMED / "warm-allhit", model=str(TIMED / "manifest.json"))


def test_the_cost_of_a_request_from_two_io_splits(tmp_path: Path) -> None:
    """The same run as if each family had been one read, in 0.01 ms less for each of the nine reads spared."""
    shutil.copy(TIMED / "manifest.json", tmp_path)
    other = copy("warm-bank12", tmp_path)
    for old, new in (
        ("cache-io-split   = 4", "cache-io-split   = 1"),
        ("iosplit=4", "iosplit=1"),
        ("pread=160356", "pread=40089"),
        ("install=5917.227", f"install={5917.227 - 13363 * 9 * 0.010:.3f}"),
    ):
        edit_log(other, old, new)
    anchors = (TIMED / "warm-bank12", other, TIMED / "warm-allhit")
    with pytest.raises(Conflict, match="cache-io-split is 1, but 4 in"):
        fit(*anchors)
    fitted = fit(*anchors, parameters=["request_us"])
    assert fitted.fit.parameters == ("layer_us", "read_gb_s", "first_touch_gb_s", "resume_us", "request_us")
    assert fitted.machine.storage.request_us.lo < 10 < fitted.machine.storage.request_us.hi
    with pytest.raises(Incomplete, match="the anchors cannot separate read_gb_s and request_us"):
        fit(TIMED / "warm-bank12", TIMED / "warm-allhit", parameters=["request_us"])
