"""What is tried only if the text may change, and what else makes settings of its own: drafts, cuts, pinned threads."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.measured.read import read_measured
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.tune.grid import Grid, grid
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import Trial
from native_bridge import host
from native_bridge.cli.main import main
from native_bridge.tuning.launch import cases
from tests.native_bridge.conftest import MODEL
from tests.native_bridge.tuning import fake_bench, fake_server, stand_in, test_patched
from tests.native_bridge.tuning.stand_in import MACHINE, SIZE, lines, printed, started
from tests.support import refusal

MORE = """  -C, --cpu-mask <hex,hex>
  --cpu-strict <0|1>
  -ctk, --cache-type-k <t>
  -ctv, --cache-type-v <t>
"""


def test_only_if_it_may_does_anything_change_the_text() -> None:
    machine = load_machine("2x rtx-3090 + epyc-7532 + ddr4-3200x8 + 128GiB + nvme-gen4")
    on = resolve(
        workload=None,
        model=load_model("qwen3.5-122b-a10b"),
        machine=machine,
        systems="placed",
        memory=MemoryOptions(depth=16_384),
    )
    workload = on.workload
    assert workload is not None

    def trials(*, may: bool) -> Grid:
        others = cases(on.case, may_change_text=may)
        knobs = {"cores": ("", "pinned")}
        return grid(workload, on.case, on.systems, Objective(), knobs=knobs, others=others, borrowed=True)

    kept, more = trials(may=False), trials(may=True)
    assert {*kept.trials} < {*more.trials}
    assert not any("kv" in dict(one.knobs) for one in kept.trials)
    quantized = [one for one in more.trials if ("kv", "q8_0") in one.knobs]
    assert quantized
    for one in quantized:
        launch = more.of(one).launch
        assert launch is not None
        assert "-ctk q8_0 -ctv q8_0" in launch.line
    cut = [one for one in kept.trials if getattr(one.system, "ts", "")]
    assert cut
    for one in cut:
        ours, own = kept.of(one).launch, kept.of(Trial(replace(one.system, ts=""), one.knobs)).launch
        assert ours is not None
        assert own is not None
        assert ours.line != own.line
        assert "-ts" in ours.words
    assert {one.knobs for one in kept.trials} == {(), (("cores", "pinned"),)}


def test_how_many_tokens_are_drafted_makes_cases_of_their_own() -> None:
    machine, model = load_machine("rtx-4090 + ryzen-7950x + 96GiB"), load_model("gpt-oss-20b")
    memory = MemoryOptions(draft=4, accept=0.7, drafter="ngram")
    case = resolve(workload=None, model=model, machine=machine, systems="placed", memory=memory).case
    found = cases(case, may_change_text=False)
    assert {knob: None if one.drafts is None else one.drafts.count for knob, one in found.items()} == {
        ("draft", "0"): None,
        ("draft", "1"): 1,
        ("draft", "2"): 2,
        ("draft", "3"): 3,
    }


def bench(folder: Path, *more: object) -> int:
    behaviour = {"speed": 5.0, "model_bytes": SIZE, "help": fake_bench.HELP + MORE, "cores": "0x3f"}
    engine = stand_in.write(folder / "llama-bench", "fake_bench", behaviour)
    return stand_in.tune(engine, *more)


def test_threads_are_pinned_where_the_build_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("native_bridge.tuning.launch.core_mask", lambda threads: hex((1 << threads) - 1))
    assert bench(tmp_path, "--json", "--system", "all-gpu") == 0
    found = printed(capsys)
    assert re.search(r"threads=6 mmap=\w+ cores=pinned$", found["best"])
    assert "-t 6" in found["command"]
    assert "--cpu-mask 0x3f --cpu-strict 1" in found["command"]


def test_the_cores_of_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5})
    siblings = {0: "0,3", 3: "0,3", 1: "1,4", 4: "1,4", 2: "2,5", 5: "2,5"}
    monkeypatch.setattr(host, "_lines", lambda path: [siblings[int(re.findall(r"cpu(\d+)", str(path))[0])]])
    assert host.core_mask(2) == host.core_mask(3) == "0x7"
    assert host.core_mask(4) == "0x3f"
    monkeypatch.setattr("sys.platform", "darwin")
    assert host.core_mask(2) == ""


def test_quantized_keys_and_values_are_run_and_learnt_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--system", "all-gpu", "--may-change-text")
    assert bench(tmp_path, "--json", *asked) == 0
    found = printed(capsys)
    assert found["best"].endswith(" kv=q8_0")
    assert "-ctk q8_0 -ctv q8_0" in found["command"]
    assert {one.settings["type_k"] for one in read_measured(Path("out"))} == {"q8_0"}
    assert bench(tmp_path, *asked) == 0
    assert "It changes the text: keys and values in q8_0." in " ".join(capsys.readouterr().out.split())


def test_fewer_experts_are_tried_only_if_they_may(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert test_patched.tune(tmp_path, "--minutes", "1", "--may-change-text") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "It changes the text: it uses 4 of the model's 8 experts a token." in out
    assert any("--moe-topk" in words for words, _ in started(tmp_path))
    asked = ("tune", MODEL, "--engine", tmp_path / "llama-cli", "--machine", MACHINE, "--system", "slot-bank:top_k=4")
    assert "changes the text: it uses 4 of the model's 8 experts a token; add --may" in refusal(capsys, *asked)


def test_drafts_of_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drafts = "--spec-type N\n--spec-ngram-simple-size-m N\n"
    behaviour: dict[str, Any] = {"speed": 5.0, "help": fake_server.HELP + "\n" + drafts}
    engine = stand_in.write(tmp_path / "llama-server", "fake_server", behaviour)
    asked = ["tune", MODEL, "--engine", engine, "--machine", MACHINE, "--system", "all-gpu", "--out", "out"]
    asked += ["--draft", "4", "--accept", "0.7"]
    assert main([*map(str, asked), "--json", "--drafter", "ngram"]) == 0
    found = printed(capsys)
    assert any(re.search(r" draft=[0123]$", run["setting"]) for run in found["runs"])
    assert "by n-gram lookup" in lines()[0]["draft"]
    assert "runs draft by mtp or ngram" in refusal(capsys, *asked, "--drafter", "0.6GiB")
    assert "is of another search: draft" in refusal(capsys, *asked[:-4], "--out", "out")
