"""Recorded runs: what the log measured, in every mode, and one line for whatever is wrong with a folder."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import mean, stdev

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import BadInput, Malformed, Unusable
from native_bridge.engines.read import read_run
from tests.native_bridge.recorded_runs import GPU, RUNS, SUMMARY, TIMED, copy, edit_flags, edit_log
from tests.support import refused


def test_a_streamed_run() -> None:
    run = read_run(TIMED / "warm-bank12")
    assert (run.mode, run.bank, run.ubatch, run.top_k, run.n_predict, run.threads) == ("slot-bank", 12, 1, 0, 120, 2)
    assert (run.replay_of, run.extra, run.place) == (None, (), {})
    assert run.trace == TIMED / "warm-bank12" / "trace.jsonl.gz"
    log, routed = run.log, run.log.routed
    assert (log.prompt_tok_s, log.decode_tok_s, log.backend, log.prime) == (13.7, 14.0, "", None)
    assert (log.settings["cache-io-split"], log.settings["n_gpu_layers"], len(log.settings)) == ("4", "-1", 28)
    assert log.settings["gpu-bank"] == "off (compiled=off, env-disable=off)"
    assert (routed.calls, routed.refs, routed.requests, routed.misses) == (2068, 16544, 16544, 144 + 13219)
    assert (routed.bytes_read, routed.reads, routed.io_split) == (20.80 * 2**30, 160356, 4)
    assert (routed.install_ms, routed.upload_ms) == (5917.227, 0)
    assert (routed.topk_ms, routed.resolve_ms, routed.slotwr_ms) == (2.779, 3.289, 2.165)
    assert routed.other_ms == 3.166
    assert routed.call_s == pytest.approx((2.779 + 3.289 + 2.165 + 3.166) / 1000 / 2068)
    assert [line.layer for line in log.layers] == [0, 1, 3, 4, 5, 6, 7, 10]
    tenth = log.layers[-1]
    assert (tenth.misses, tenth.install_ms) == (1143, 652.040)
    assert tenth.bytes_read == 1821.66 * 2**20
    each = [line.install_ms / line.misses for line in log.layers]
    assert run.install_error == pytest.approx(stdev(each) / mean(each) / 8**0.5)
    least, most = run.install_bytes or (0, 0)
    assert least < 1_671_168 < most < least * 1.00001


def test_an_all_hit_run() -> None:
    run = read_run(TIMED / "cold-allhit")
    assert (run.mode, run.replay_of, run.trace) == ("oracle-all-hit", "warm-bank64-rep2", None)
    assert (run.log.prime.installs, run.log.prime.total_ms) == (768, 2225.816)
    assert (run.log.routed.misses, run.log.routed.reads, run.install_error) == (0, 0, None)
    least, most = run.install_bytes or (0, 0)
    assert least < 1_671_168 < most


def test_a_stock_run_has_speeds_only() -> None:
    run = read_run(TIMED / "warm-stock")
    assert (run.log.prompt_tok_s, run.log.decode_tok_s) == (25.5, 24.3)
    assert (run.log.routed, run.log.settings, run.log.layers, run.install_bytes) == (None, {}, (), None)


def test_what_the_model_wrote_is_not_taken_for_the_log(tmp_path: Path) -> None:
    run = copy("warm-bank12", tmp_path)
    edit_log(run, "mode       : ", "  cache-io-split   = 8\nSee ggml_cuda_init: below\n[ Prompt: 9 t/s\nmode       : ")
    assert read_run(run).log == read_run(TIMED / "warm-bank12").log
    (run / "log.txt").write_bytes((run / "log.txt").read_bytes().replace(b"odeupeat", b"\xe9\xff\x00"))
    assert read_run(run).log == read_run(TIMED / "warm-bank12").log


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        (GPU, "cuda"),
        ("ggml_metal_init: allocating\n", "metal"),
        ("load_backend: loaded CPU backend from libggml-cpu.so\n", ""),
        (f"{GPU}load_backend: loaded CPU backend from libggml-cpu.so\n", "cuda"),
    ],
)
def test_the_backend_is_what_the_log_names(tmp_path: Path, line: str, backend: str) -> None:
    run = edit_log(copy("warm-bank12", tmp_path), "Flash-MoE settings:", f"{line}Flash-MoE settings:")
    assert read_run(run).log.backend == backend


PREDICTS = ("prefetch-temporal", "predict-prev-token", "predict-top1-prev")


@pytest.mark.parametrize(
    ("on", "mode"),
    [
        ((), ""),
        (PREDICTS[:1], "prefetch-temporal"),
        (PREDICTS[:2], "predict-prev-token"),
        (PREDICTS[2:], "predict-top1-prev"),
    ],
)
def test_the_settings_of_the_log_tell_the_prefetch_mode(tmp_path: Path, on: tuple[str, ...], mode: str) -> None:
    """The flags are those of any mode: a predicting one takes the place of temporal, and `--no-` ends each."""
    flags = ["--moe-prefetch-temporal", "--moe-predict-top1-prev", "--no-moe-predict-prev-token"]
    run = copy("warm-bank12", tmp_path, extra=flags)
    for setting in PREDICTS:
        edit_log(run, f"{setting} = off", f"{setting} = {'on' if setting in on else 'off'}")
    assert read_run(run).log.reads_ahead == mode
    for setting in PREDICTS:
        edit_log(run, f"  {setting} =", f"  was-{setting} =")
    assert read_run(run).log.reads_ahead == "predict-top1-prev"


@pytest.mark.parametrize("flag", ["--moe-router-only", "--moe-shared-only"])
def test_a_run_that_leaves_routed_experts_out_has_a_whole_log(tmp_path: Path, flag: str) -> None:
    run = copy("warm-bank12", tmp_path, extra=[flag])
    edit_log(run, "log_runtime_summary: ", "nothing: ")
    assert (read_run(run).log.routed, read_run(run).log.bypass) == (None, flag)
    (run / "run.json").write_text((run / "run.json").read_text().replace(flag, flag.replace("--", "--no-")))
    with pytest.raises(Malformed, match="not the whole log of the run"):
        read_run(run)
    if flag == "--moe-shared-only":
        edit_log(run, "shared-only      = off", "shared-only      = on")
        assert read_run(run).log.bypass == flag


@pytest.mark.parametrize(("printed", "chunks"), [(1, 1), (8, 8), (9, 8), (100, 8)])
def test_any_io_split_cuts_into_8_at_most(tmp_path: Path, printed: int, chunks: int) -> None:
    routed = read_run(edit_log(copy("warm-bank12", tmp_path), "iosplit=4", f"iosplit={printed}")).log.routed
    assert (routed.io_split, routed.chunks) == (printed, chunks)


def test_bytes_of_run_json_that_are_no_text(tmp_path: Path) -> None:
    run = copy("warm-bank12", tmp_path, prompt="ab")
    (run / "run.json").write_bytes((run / "run.json").read_bytes().replace(b'"ab"', b'"a\xff"'))
    assert read_run(run).document["prompt"] == "a\ufffd"


def test_the_machine_a_run_names(tmp_path: Path) -> None:
    assert read_run(copy("warm-stock", tmp_path, machine="vm", host="a")).place == {"machine": "vm", "host": "a"}


FLAGS = {
    "failed": ("not cold", "the run failed: not cold; run it again"),
    "environment": ({"A": 3}, "environment is {'A': 3}; expected an object of texts"),
    "rc": (1, "rc is 1: the run failed; run it again, or leave it out"),
    "engine": ("other", "engine is 'other'; known: flashmoe"),
    "mode": ("slots", "mode is 'slots'; known: stock, resident"),
    "bank": (10**30, "bank is 1e+30; expected an integer from 1 to 2147483647"),
    "ubatch": (None, "ubatch is missing; expected rc, mode"),
    "topk": (-1, "topk is -1; expected an integer from 0"),
    "threads": ("two", "threads is 'two'; expected an integer from 1"),
    "n_predict": (True, "n_predict is True; expected an integer"),
    "batch": ("\ud800", "not JSON (no low surrogate in string"),
    "extra": ("--temp", "extra is '--temp'; expected a list of flags"),
    "host": (3, "host is 3; expected a text"),
    "replay_of": ([], "replay_of is []; expected a text"),
}


@pytest.mark.parametrize("key", FLAGS)
def test_flags_that_cannot_be(tmp_path: Path, key: str) -> None:
    value, message = FLAGS[key]
    run = copy("warm-bank12", tmp_path, **{key: value})
    with refused(BadInput, begins=f"{run / 'run.json'}: {message}"):
        read_run(run)


LOGS = {  # what stands in the log, what instead, and what is said
    "crashed": ("[ Prompt: 13.7", "( Prompt: 13.7", ": no line `[ Prompt: … t/s | Generation: … t/s ]`: the run did"),
    "failed": ("14.0 t/s", "0.0 t/s", ": line 44: 0 t/s: the run failed"),
    "no speed": ("14.0 t/s", "1.4.0 t/s", ": line 44: [ Prompt: 13.7 t/s | Generation: 1.4.0 t/s ]; expected two num"),
    "very slow": ("14.0 t/s", "0.01 t/s", ": line 44: [ Prompt: 13.7 t/s | Generation: 0.01 t/s ]; expected speeds"),
    "very fast": ("14.0 t/s", f"{'9' * 400} t/s", "; expected speeds from 0.1 to 1e+09 t/s"),
    "no summary": (f"{SUMMARY}routed", "routed", ": no line `Flash-MoE routed src=…`: not the whole log"),
    "no residency": (f"{SUMMARY}residency", "residency", ": no line `Flash-MoE residency cold=…`"),
    "other misses": ("evict=13219", "evict=1321", "1465 misses in 2068 calls, but the summary says 6.46 a call"),
    "no install": ("install=5917.227 ms", "", ": line 30: no `install=`; expected the log of the patched runtime"),
    "nan": ("install=5917.227", "install=nan", ": line 30: install=nan; expected a number from 0"),
    "negative": ("install=652.040", "install=-1", "install=-1; expected a number from 0"),
    "half": ("miss=1143", "miss=1143.5", "miss=1143.5; expected a whole number"),
    "no calls": ("calls=2068", "calls=0", ": line 30: calls=0: nothing was routed"),
}


@pytest.mark.parametrize("case", LOGS)
def test_logs_that_are_not_whole(tmp_path: Path, case: str) -> None:
    old, new, message = LOGS[case]
    run = edit_log(copy("warm-bank12", tmp_path), old, new)
    with refused(BadInput, message, begins=f"{run / 'log.txt'}: "):
        read_run(run)


def test_a_key_twice_in_run_json(tmp_path: Path) -> None:
    folder = copy("warm-bank12", tmp_path)
    flags = folder / "run.json"
    flags.write_text(flags.read_text().rstrip().removesuffix("}") + ', "bank": 12}')
    with pytest.raises(Malformed, match=r"run\.json: not JSON \(key 'bank' occurs twice\)"):
        read_run(folder)


def test_pipes_are_never_waited_for(tmp_path: Path) -> None:
    """As the trace of a run, as its log, and as the model that run.json names."""
    folder = copy("warm-bank12", tmp_path)
    os.mkfifo(tmp_path / "model.gguf")
    edit_flags(folder, model={"path": str(tmp_path / "model.gguf")})
    for name in ("trace.jsonl.gz", "trace.jsonl"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    run = read_run(folder)
    assert (run.trace, run.model) == (None, None)
    with pytest.raises(Unusable, match=r"model\.gguf: is a pipe"):
        load_model(tmp_path / "model.gguf")
    (folder / "log.txt").unlink()
    os.mkfifo(folder / "log.txt")
    with pytest.raises(Unusable, match=r"log\.txt: is not a regular file"):
        read_run(folder)


def test_folders_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    for name, text in (("no-log", '{"rc": 0}'), ("list", "[]"), ("torn", '{"rc": ')):
        Path(name).mkdir()
        Path(name, "run.json").write_text(text)
    copy("warm-stock", tmp_path)
    os.truncate("warm-stock/log.txt", 0)
    copy("warm-bank12", tmp_path)
    Path("warm-bank12/log.txt").unlink()
    for given, message in (
        ("none", "none: no such folder; give the folder of a run, with run.json and log.txt"),
        ("file", "file: is not a folder"),
        ("nul\0", "'nul\\x00': cannot be the name of a run's folder"),
        (".", "run.json: no such file; give the path of the flags of a run as JSON"),
        ("list", "list/run.json: is []; expected an object with the flags of a run"),
        ("torn", "torn/run.json: not JSON (unexpected end of data: line 1 column 8 (char 7)); expected"),
        ("no-log", "no-log/run.json: mode is missing"),
        ("warm-stock", "warm-stock/log.txt: is empty; expected the log of a run"),
        ("warm-bank12", "warm-bank12/log.txt: no such file; give the path of the log of a run"),
        (str(RUNS / "runs" / "prose-ub4-bank16-overflow"), "log.txt: line 47: 0 t/s: the run failed"),
    ):
        with refused(BadInput, message):
            read_run(given)


def test_settings_after_text_without_a_line_end(tmp_path: Path) -> None:
    """What the model wrote last and the heading can come out as one line."""
    whole = read_run(copy("warm-bank12", tmp_path / "whole"))
    joined = copy("warm-bank12", tmp_path / "joined")
    edit_log(joined, "Flash-MoE settings:", "and so onFlash-MoE settings:")
    assert read_run(joined).log.settings == whole.log.settings != {}
