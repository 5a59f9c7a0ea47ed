"""Every recorded run is exact, in every mode; and whatever is damaged is found and named."""

from __future__ import annotations

import gzip
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.trace.load import load_trace
from native_bridge.check.counts import CountCheck, check_counts
from native_bridge.check.folder import open_folders
from native_bridge.engines.flashmoe.modes import PREFETCH
from native_bridge.engines.flashmoe.predicted import predict_slot_bank
from native_bridge.engines.read import read_run
from native_bridge.engines.runs import first_calls
from native_bridge.fixture import bundled_model
from tests.native_bridge.engines.flashmoe.test_run_log import LOGS
from tests.native_bridge.recorded_runs import ALL, RUNS, copies, edit_flags, edit_log, edit_record

WITHOUT_SLOTS = ("prose-stock", "prose-resident-bank", "warm-stock", "stock")


RECORDED = Path(__file__).parents[1] / "recorded"  # of the small model, with no manifest beside them


def recorded(name: str, place: Path = RECORDED) -> CountCheck:
    among = open_folders([place / name], model=str(bundled_model()))
    return check_counts(among.given[0], among)


def exact(name: str) -> CountCheck:
    found = recorded(name)
    assert found.passed, (found.unlike, *map(str, found.differences))
    return found


def checked(folder: Path, *others: Path) -> CountCheck:
    among = open_folders([folder, *others], model=None)
    return check_counts(among.given[0], among)


def test_there_are_all_the_runs() -> None:
    assert len(ALL) == 72


@pytest.mark.parametrize("run", ALL, ids=lambda run: f"{run.parent.name}/{run.name}")
def test_every_recorded_run(run: Path) -> None:
    found = checked(run)
    assert found.passed, (found.unlike, *map(str, found.differences))
    assert found.compared == (run.name not in WITHOUT_SLOTS)
    if (run / "trace.jsonl.gz").exists():
        assert found.slots > 100
    if found.compared:
        assert found.counters >= 61


@pytest.mark.parametrize("run", ["prose-stock", "prose-resident-bank"])
def test_all_resident_writes_what_a_full_bank_writes(run: str) -> None:
    assert checked(RUNS / "runs" / run).same_text_as == "prose-bank64"


def test_the_oracle_modes_and_the_bank_in_memory_have_no_trace_of_their_own() -> None:
    for name in ("prose-allhit", "prose-oracle-prefetch-bank16", "prose-resident-slot-bank24"):
        assert checked(RUNS / "runs" / name).notes == ("counted on the trace of prose-bank24",)


def test_the_overflow() -> None:
    """The failing call is not in the trace: its requests come from a run with a larger bank."""
    found = checked(RUNS / "runs" / "prose-ub4-bank16-overflow")
    assert found.notes == ("fails in call 8 (layer 0), as predicted: 23 experts by the trace of prose-ub4-bank40",)
    assert (found.slots, found.calls) == (120, 8)
    assert found.predicted.lines["overflow"] == {"layer": "0", "slots": "16"}
    assert (found.predicted.lines["routed"]["calls"], found.predicted.lines["routed"]["refs"]) == ("9", "152")


def test_a_call_of_more_experts_than_slots() -> None:
    """The runtime gets through it if two experts share a slot, and so does the simulator, slot for slot."""
    found = exact("prose-ub4-bank26")
    assert (found.slots, found.calls, found.aliased) == (9712, 486, 431)
    trace = load_trace(RECORDED / "prose-ub4-bank26" / "trace.jsonl.gz")
    unions = [len(set(trace.expert[a:b].tolist())) for a, b in pairwise(trace.offset.tolist())]
    assert max(unions) == 29 > found.folder.run.bank


@pytest.mark.parametrize(
    ("name", "idle"),
    [("next-bank16", 27), ("next-temporal-bank16", 27), ("next-ub2-predict-prev-bank29", 13)],
)
def test_an_architecture_that_writes_calls_without_tokens(name: str, idle: int) -> None:
    found = exact(name)
    trace = load_trace(RECORDED / name / "trace.jsonl.gz")
    without = np.flatnonzero(~trace.has_refs)
    assert len(without) == idle
    assert set(trace.layer[without].tolist()) == {7}
    assert (found.slots, found.calls) == (trace.refs, trace.calls)
    assert found.calls == 8 * len(np.unique(trace.steps))  # no layer lacks a call in any step
    assert found.counters >= 79
    assert (found.tokens, found.notes) == (16, ())
    assert recorded("next-oracle-prefetch-bank16").passed


def test_calls_without_tokens_are_missed(tmp_path: Path) -> None:
    """Without them the slots are the same, but not the calls, nor what is read ahead and judged."""
    name = "next-ub2-predict-prev-bank29"
    shutil.copytree(RECORDED / name, tmp_path / name)
    trace = tmp_path / name / "trace.jsonl.gz"
    lines = [line for line in gzip.decompress(trace.read_bytes()).splitlines() if b'"n_tokens":0' not in line]
    trace.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    where = [str(one.where).partition(", ")[2] for one in recorded(name, tmp_path).differences]
    ahead = {f"line `predict-prev-token`, {counter}" for counter in ("calls", "uniq", "overlap")}
    assert {"line `routed`, calls", "line `layer 7`, calls", *ahead} <= set(where)
    assert not any("reference" in one for one in where)


@pytest.mark.parametrize(
    ("name", "counters"), [("sea-outlived-allhit", 79), ("sea-outlived-oracle-prefetch-bank24", 85)]
)
def test_a_replay_that_outlives_its_trace_is_compared_up_to_there(name: str, counters: int) -> None:
    found = exact(name)
    assert found.counters == counters
    assert found.predicted.lines["exhausted"] == {"layer": "0", "calls": "167"}
    assert "it went on after the 167 calls of the trace, and failed: compared up to there" in found.notes
    assert found.tokens is None


def test_a_replay_that_says_it_outlived_another_trace(tmp_path: Path) -> None:
    for name in ("sea-bank24", "sea-outlived-allhit"):
        shutil.copytree(RECORDED / name, tmp_path / name)
    edit_log(tmp_path / "sea-outlived-allhit", "at layer 0 after 167", "at layer 0 after 166")
    (difference,) = recorded("sea-outlived-allhit", tmp_path).differences
    assert difference.where.endswith("line `exhausted`, calls")


def test_predictions_that_were_never_compared() -> None:
    """The run fails in the first call that one was made for: the log has no line that judges any."""
    found = exact("overflow-ub2-predict-prev-bank12")
    assert "overlap" not in found.predicted.lines["predict-prev-token"]
    assert found.predicted.lines["predict-prev-token"]["calls"] == "8"


def test_nothing_is_read_ahead_in_a_first_step_that_fails() -> None:
    trace = first_calls(load_trace(RECORDED / "sea-bank24" / "trace.jsonl.gz"), 3)
    for setting, _ in PREFETCH.values():
        found = predict_slot_bank(
            trace, None, slots=24, reads_ahead=setting, io_split=1, from_ram=False, failing=(3, 16)
        )
        assert not found.lines.keys() & {line for _, line in PREFETCH.values()}


def test_a_full_bank_in_memory_that_reads_ahead() -> None:
    found = exact("full-resident-slot-bank64-predict-prev")
    line = found.predicted.lines["predict-prev-token"]
    assert (line["hit"], line["miss"], line["rcopy"]) == ("100.0", "0", "0")
    assert int(line["calls"]) > 100


def test_a_run_that_ended_before_its_tokens_had_come() -> None:
    found = checked(RUNS / "runs" / "python-topk4-bank32")
    assert (found.tokens, found.short, found.notes) == (9, True, ("it ended after 9 of 300 tokens",))
    whole = checked(RUNS / "runs" / "prose-allhit")
    assert (whole.tokens, whole.short) == (300, False)
    assert checked(RUNS / "runs" / "prose-stock").tokens is None


def test_an_overflow_alone(tmp_path: Path) -> None:
    found = checked(copies(tmp_path, "prose-ub4-bank16-overflow") / "prose-ub4-bank16-overflow")
    assert found.passed
    assert found.notes == ("fails in call 8; no other run shows what it asks for",)


def test_an_overflow_that_is_not_predicted(tmp_path: Path) -> None:
    """By the longer trace a bank of 30 fails in no call."""
    place = copies(tmp_path, "prose-ub4-bank16-overflow", "prose-ub4-bank40")
    edit_flags(place / "prose-ub4-bank16-overflow", bank=30)
    found = checked(place / "prose-ub4-bank16-overflow")
    assert (
        "the runtime failed in call 8, but by the trace of prose-ub4-bank40 a bank of 30 fails in none" in found.unlike
    )


def test_a_slot(tmp_path: Path) -> None:
    run = copies(tmp_path, "prose-bank24") / "prose-bank24"
    edit_record(run, 2001, slots=lambda slots: [*slots[:5], (slots[5] + 1) % 24, *slots[6:]])
    found = checked(run)
    (difference,) = found.differences
    assert difference.where.startswith(f"{run / 'trace.jsonl.gz'}, line 2001 (layer ")
    assert ", reference 5, expert " in difference.where
    assert difference.simulator.endswith("(1 of 26,992 slots differ)")
    assert int(difference.runtime.split()[-1]) == (int(difference.simulator.split()[1]) + 1) % 24


@pytest.mark.parametrize(
    ("run", "old", "new", "where"),
    [
        ("prose-bank24", "calls=3374", "calls=3375", "line `routed`, calls"),
        ("prose-bank24", "refs=26992", "refs=26991", "line `routed`, refs"),
        ("prose-bank24", "hit=68.5%", "hit=68.6%", "line `routed`, hit"),
        ("prose-bank24", "pread=25527", "pread=25524", "line `routed`, pread"),
        ("prose-bank24", "bytes=0.10 GiB", "bytes=0.11 GiB", "line `routed`, bytes"),
        ("prose-bank24", "cold=192 evict=8317", "cold=191 evict=8318", "line `residency`, cold"),
        ("prose-bank24", "gate=17.035 ms / 0.03", "gate=17.035 ms / 0.04", "line `install`, gate"),
        ("prose-bank24", "hit=72.4% miss=970", "hit=72.4% miss=971", "line `layer 3`, miss"),
        ("prose-bank24", "evict=946 peak=24", "evict=946 peak=23", "line `layer 3`, peak"),
        ("prose-bank24", "bytes=12.08 MiB", "bytes=12.09 MiB", "line `layer 3`, bytes"),
        ("prose-temporal-bank24", "prefetch calls=3511", "prefetch calls=3510", "line `prefetch`, calls"),
        ("prose-temporal-bank24", "miss=558", "miss=559", "line `prefetch`, miss"),
        ("prose-predict-prev-bank24", "overlap=8230", "overlap=8231", "line `predict-prev-token`, overlap"),
        ("prose-predict-prev-bank24", "coverage=30.6", "coverage=30.7", "line `predict-prev-token`, coverage"),
    ],
)
def test_a_counter(tmp_path: Path, run: str, old: str, new: str, where: str) -> None:
    place = copies(tmp_path, run) / run
    edit_log(place, old, new)
    found = checked(place)
    assert f"{place / 'log.txt'}, {where}" == found.differences[0].where
    assert not found.passed


@pytest.mark.parametrize(
    ("run", "old", "new", "where"),
    [
        ("prose-allhit", "prime installs=491", "prime installs=490", "line `oracle-all-hit prime`, installs"),
        ("prose-oracle-prefetch-bank24", "repaired 535", "repaired 534", "line `repaired`, records"),
        ("prose-oracle-prefetch-bank24", "miss=9015", "miss=9016", "line `prefetch`, miss"),
        ("prose-resident-slot-bank24", "rcopy=25527", "rcopy=25528", "line `routed`, rcopy"),
    ],
)
def test_a_counter_of_a_run_that_needs_another(tmp_path: Path, run: str, old: str, new: str, where: str) -> None:
    place = copies(tmp_path, run, "prose-bank24") / run
    edit_log(place, old, new)
    (difference,) = checked(place).differences
    assert difference.where == f"{place / 'log.txt'}, {where}"


def test_lines_that_are_missing_or_too_many(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-temporal-bank24", "prose-bank24")
    edit_log(place / "prose-temporal-bank24", "Flash-MoE prefetch ", "Flash-MoE nothing ")
    assert "line `prefetch`: the runtime printed none" in str(checked(place / "prose-temporal-bank24").differences[0])
    edit_log(place / "prose-bank24", "prefetch-temporal = off", "prefetch-temporal = on")
    assert "line `prefetch`: the runtime printed none" in " ".join(
        map(str, checked(place / "prose-bank24").differences)
    )
    shutil.rmtree(place)
    place = copies(tmp_path, "prose-temporal-bank24")
    edit_log(place / "prose-temporal-bank24", "prefetch-temporal = on", "prefetch-temporal = off")
    assert checked(place / "prose-temporal-bank24").differences[-1].simulator == "expects none"


def test_the_trace_of_another_run(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-bank24", "prose-bank32", "python-bank16")
    shutil.copy(place / "prose-bank32" / "trace.jsonl.gz", place / "prose-bank24")
    found = checked(place / "prose-bank24")
    assert "line 1 " not in found.differences[0].where
    assert found.differences[0].where.startswith(str(place / "prose-bank24" / "trace.jsonl.gz"))
    shutil.copy(RUNS / "runs" / "python-bank32" / "trace.jsonl.gz", place / "python-bank16")
    edit_flags(place / "python-bank16", bank=32)
    found = checked(place / "python-bank16")
    assert found.differences[0].where == f"{place / 'python-bank16' / 'log.txt'}, line `routed`, hit"


def test_another_text(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-stock", "prose-bank64")
    text = (place / "prose-stock" / "text.txt").read_text()
    (place / "prose-stock" / "text.txt").write_text(f"{text[:100]}§{text[101:]}")
    (difference,) = checked(place / "prose-stock").differences
    assert difference.where == f"{place / 'prose-stock' / 'text.txt'}, character 101"
    assert "the text of prose-bank64" in difference.simulator


@pytest.mark.parametrize(("layers", "passed"), [("offloaded 9/9 layers", True), ("offloaded 0/9 layers", False)])
def test_another_text_of_a_gpu_is_told_and_no_failure(tmp_path: Path, layers: str, passed: bool) -> None:
    place = copies(tmp_path, "prose-stock", "prose-bank64")
    (place / "prose-stock" / "text.txt").write_text("Another text")
    edit_log(place / "prose-bank64", "\n", f"\nload_tensors: {layers} to GPU\n")
    found = checked(place / "prose-stock")
    assert found.passed == passed
    assert ("its text differs from prose-bank64's from character 1: prose-bank64 had" in found.rounded) == passed


def test_slots_in_the_memory_of_the_host_are_told(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-bank24")
    log = (LOGS / "cuda.txt").read_text()
    edit_log(place / "prose-bank24", "\n", log[log.index("\nload_tensors: loading") : log.index("llama_context: ")])
    found = checked(place / "prose-bank24")
    assert found.passed
    assert found.notes == ("layers were on a GPU, but the slots in the host's memory: the CPU computed the experts",)


def test_prefetch_flags_are_not_believed_where_the_log_says_otherwise(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-predict-prev-bank24", "prose-bank24")
    run = place / "prose-predict-prev-bank24"
    edit_flags(run, extra=["--moe-prefetch-temporal", "--moe-predict-top1-prev", "--moe-predict-prev-token"])
    edit_log(run, "prefetch-temporal = off", "prefetch-temporal = on")
    assert checked(run).passed
    edit_flags(place / "prose-bank24", extra=["--moe-prefetch-temporal", "--no-moe-prefetch-temporal"])
    assert checked(place / "prose-bank24").passed


@pytest.mark.parametrize("printed", ["9", "100"])
def test_an_io_split_above_8(tmp_path: Path, printed: str) -> None:
    place = copies(tmp_path, "warm-bank24", of="runs-timed")
    edit_log(place / "warm-bank24", "iosplit=4", f"iosplit={printed}")
    found = checked(place / "warm-bank24")
    assert found.unlike == ""
    assert {one.where.rpartition(", ")[2] for one in found.differences} == {"pread"}  # they were read in 4 chunks


def test_a_run_without_routed_experts(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-bank24")
    run = place / "prose-bank24"
    edit_flags(run, extra=["--moe-router-only", "--seed", "1"])
    log = run / "log.txt"
    lines = log.read_text(errors="replace").splitlines(keepends=True)
    log.write_text("".join(line for line in lines if "log_runtime_summary" not in line))
    found = checked(run)
    assert (found.passed, found.compared) == (True, False)
    assert found.notes == ("--moe-router-only: no routed expert was computed",)


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        (
            "--moe-prefetch-temporal-sparse",
            "this prefetch is not known, so what it changes in the bank is not predicted",
        ),
        ("--moe-prefill-layer-major", "the experts of its prompt are read layer by layer, beside the bank"),
    ],
)
def test_a_flag_that_is_not_known_is_no_difference(tmp_path: Path, flag: str, why: str) -> None:
    place = copies(tmp_path, "prose-bank24")
    run = place / "prose-bank24"
    edit_flags(run, extra=[flag, "--seed", "1"])
    edit_record(run, 1, slots=lambda _: [])
    found = checked(run)
    assert found.unlike.startswith(f"{run}: {flag}: {why}")
    assert (found.passed, found.differences) == (False, ())
    assert found.folder.unfit.startswith(f"{flag}: ")


def test_an_overflow_of_a_later_build(tmp_path: Path) -> None:
    """It is compared up to the call where it failed, as with the words of the verified build."""
    place = copies(tmp_path, "prose-ub4-bank16-overflow")
    run = place / "prose-ub4-bank16-overflow"
    before = checked(run)
    edit_log(
        run,
        "need more than 16 resident experts for this batch",
        "need at least 17 slots for this routed batch (configured 16, tokens=4, topk=8, theoretical max unique=32). "
        "Increase --moe-slot-bank, or reduce -ub/--ubatch-size or --moe-topk",
    )
    after = checked(run)
    assert (after.passed, after.slots, after.counters) == (before.passed, before.slots, before.counters)
    assert after.passed
    assert after.slots


def test_the_text_of_a_model_is_not_a_failure(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-bank24")
    run = place / "prose-bank24"
    text = "Error: out of slots\nGGML_ASSERT(false) failed\nred OSErroralse bugs"
    (run / "text.txt").write_text(text)
    log = run / "log.txt"
    log.write_text(f"{text}\n{log.read_text(errors='replace')}")
    assert checked(run).passed
    edit_log(run, "[ Prompt: ", "[ Said: ")
    assert "no line `[ Prompt: … t/s" in checked(run).folder.failure


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-allhit", "prose-resident-slot-bank24", "prose-bank12")
    for name, reason in (
        ("prose-allhit", "replays prose-bank24, which is neither beside it nor given; give its folder, too"),
        ("prose-resident-slot-bank24", "no trace.jsonl.gz, nor a run beside it that routes the same; record one"),
    ):
        assert reason in checked(place / name).unlike
    assert checked(place / "prose-allhit", RUNS / "runs" / "prose-bank24").passed
    edit_flags(place / "prose-bank12", rc=-9)
    assert "the run failed: rc is -9; run it again, or leave it out" in checked(place / "prose-bank12").unlike
    edit_flags(place / "prose-allhit", replay_of=None)
    assert "replay_of is missing" in checked(place / "prose-allhit").unlike
    edit_flags(place / "prose-bank12", rc=0, bank=7)
    assert "slot-bank overflow" in checked(place / "prose-bank12").unlike


def test_an_all_hit_replay_that_was_refused(tmp_path: Path) -> None:
    """The runtime's own words for a bank that is too small; the simulator must refuse it too."""
    place = copies(tmp_path, "prose-allhit", "prose-bank24")
    (place / "prose-allhit" / "log.txt").write_text(
        "llama_init_from_model: failed to initialize the context: "
        "Flash-MoE oracle-all-hit needs 61 slots in layer 0, but only 60 are configured\n"
    )
    edit_flags(place / "prose-allhit", rc=1, bank=60)
    found = checked(place / "prose-allhit")
    assert found.passed
    assert "refused, as predicted: prose-bank24: layer 0 uses 64 experts and a bank holds 60" in found.notes[-1]
    edit_flags(place / "prose-allhit", bank=64)
    assert "finds a slot for every expert" in str(checked(place / "prose-allhit").differences[0])


def test_without_a_model_bytes_and_reads_are_left_out(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-bank24")
    (place / "manifest.json").unlink()
    found = checked(place / "prose-bank24")
    assert found.passed
    assert found.notes == ("no manifest.json with it and no --model: bytes and reads are not compared",)
    assert found.counters == 79 - 3 - 4 - 8  # of the summary, of the families, and of eight layers


def test_a_model_that_it_did_not_run() -> None:
    with pytest.raises(Conflict, match=r"is of tiny, not of .*: bytes or layers differ"):
        open_folders([RUNS / "runs" / "prose-bank24"], model=str(RUNS / "runs-timed" / "manifest.json"))


GPU, TIMED_GPU, HOST_BANK = (RUNS / name for name in ("runs-gpu", "runs-gpu-timed", "runs-gpu-host-bank"))


@pytest.mark.parametrize("run", [run for run in ALL if run.parent in (GPU, TIMED_GPU)], ids=lambda run: run.name)
def test_a_bank_on_a_gpu_is_filled_by_uploads(run: Path) -> None:
    """All paths of installs give the slots of the replay, and what was installed in a call went over the link."""
    log = read_run(run).log
    assert log.on_gpu
    if run.name in ("stock", "host-bank8"):
        return
    assert (log.placement.bank, log.host_bank_of_gpu) == (("CUDA0",), False)
    assert (log.routed.upload_ms > 0) == (log.routed.misses > 0)


@pytest.mark.parametrize("run", [run for run in ALL if run.parent == HOST_BANK] + [GPU / "host-bank8"], ids=str)
def test_a_bank_in_the_host_s_memory_uploads_nothing(run: Path) -> None:
    """As CUDA builds place it for every architecture but gemma4, and for gemma4 if the environment says so."""
    log = read_run(run).log
    assert (log.on_gpu, log.routed.upload_ms) == (True, 0)
    assert log.host_bank_of_gpu or run.name == "host-bank8"


def test_the_install_paths_of_a_gpu_are_told_apart() -> None:
    routed = {run.name: read_run(run).log.routed for run in ALL if run.parent == TIMED_GPU}
    paths = {name: (one.parallel_reads, one.chunks) for name, one in routed.items() if one}
    assert paths["slot-bank16"] == (False, 4)
    assert paths["split1-bank16"] == (False, 1)
    assert paths["async-bank16"] == (False, 4)
    assert paths["parallel-bank16"] == (True, 4)
    assert paths["parallel-async-bank16"] == (True, 4)
    assert paths["parallel-split1-bank16"] == (True, 1)
    assert len({(one.misses, one.requests) for name, one in routed.items() if one and name.endswith("bank16")}) == 1
