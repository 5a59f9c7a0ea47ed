"""`verify` and `sim recommend --verify`: which runs are made, in which order, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.cli.commands import command_of
from flashmoe_sim.geometry import read_gguf
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, SimError, Unsupported
from flashmoe_sim.io.sections import Section
from flashmoe_sim.measured.by_hand import read_by_hand
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.flash_moe import FlashMoe
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.verbs.recommend import Recommend
from native_bridge.engines.base import RunRequest, Runtime
from native_bridge.engines.table import ENGINES
from native_bridge.repeats import Series
from native_bridge.verbs.recommend import RecommendAndVerify
from native_bridge.verbs.verify import VerifyOptions
from native_bridge.verified import Claim, Verified
from tests.native_bridge.conftest import MODEL, STAND_IN
from tests.native_bridge.needs import needs_runtime
from tests.native_bridge.recorded_runs import copies, edit_log

# What the recorded runs that the stand-in replays came to: 1567.8, 1368.5 and 1190.4 tokens a second.
CLAIMS: list[tuple[System, float, float, float]] = [
    (SlotBank(slots=64), 1500.0, 1400.0, 1600.0),
    (SlotBank(slots=16), 1350.0, 1300.0, 1400.0),
    (SlotBank(slots=32), 1200.0, 1195.0, 1300.0),
]


def verified(place: Path | None, claims: Any = CLAIMS, *, force: bool = False, **options: Any) -> Verified:
    return VerifyOptions(gguf=MODEL, runs=place, **options).verified([Claim(*one) for one in claims], force=force)


def request_of(system: System, runtime: Runtime, **options: Any) -> RunRequest:
    return ENGINES["flashmoe"].request_of(system, read_gguf(MODEL), runtime, prompt="x", **options)


@pytest.mark.usefixtures("stand_in")
def test_the_order_held_and_an_interval_did_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = verified(tmp_path)
    assert [one.tok_s for one in found.settings] == [(1567.8,) * 3, (1368.5,) * 3, (1190.4,) * 3]
    assert [one.held for one in found.settings] == [True, True, False]
    assert [one.counts for one in found.settings] == ["equal"] * 3
    assert min(one.counted for one in found.settings) > 3 * 1000
    assert (found.lost, found.out_of_order, found.failed) == (0, [], [])
    assert found.settings[1].hit_rate == pytest.approx(0.5, abs=0.2)
    assert capsys.readouterr().err == (
        "sim: 3 rounds of slot-bank:slots=64, slot-bank:slots=16, slot-bank:slots=32 with tiny-moe-64x8, page cache "
        f"warm; kept in {tmp_path}\n"
    )


@pytest.mark.usefixtures("stand_in")
def test_a_round_begins_with_another_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = Series.run_each

    def run_each(series: Series, planned: Any, progress: Any) -> Any:
        made.extend(one.folder.name for one in planned)
        return real(series, planned, progress)

    monkeypatch.setattr(Series, "run_each", run_each)
    verified(tmp_path)
    slots = (64, 16, 32, 16, 32, 64, 32, 64, 16)
    assert made == [f"slot-bank-slots-{each}-rep{1 + number // 3}" for number, each in enumerate(slots)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*made, "sidecar"])


@pytest.mark.usefixtures("stand_in")
def test_runs_that_are_there_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = verified(tmp_path, CLAIMS[:1])
    monkeypatch.setenv("STAND_IN_DOES", "fail")
    assert verified(tmp_path, CLAIMS[:1]) == first
    assert verified(tmp_path, CLAIMS[:1], force=True).failed


@pytest.mark.usefixtures("stand_in")
def test_nothing_is_kept_without_a_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert verified(None, CLAIMS[:1]).recommended.held
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("stand_in")
def test_a_setting_whose_runs_fail_leaves_the_others(tmp_path: Path) -> None:
    found = verified(tmp_path, [*CLAIMS[:2], (SlotBank(slots=20), 1300.0, 1200.0, 1400.0)])
    assert [len(one.failed) for one in found.settings] == [0, 0, 3]
    assert found.settings[2].tok_s == (None, None, None)
    assert "no recorded run of slot-bank" in found.failed[0]
    assert "2 of 2 speeds" in found.in_short()


def test_counts_that_differ(tmp_path: Path, stand_in: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = copies(tmp_path / "recorded", "prose-bank16", "prose-bank64")
    edit_log(recorded / "prose-bank16", "cold=128", "cold=127")
    monkeypatch.setenv("STAND_IN_RUN", str(recorded))
    found = verified(tmp_path / "runs", CLAIMS[:2])
    assert [one.counts for one in found.settings] == ["equal", "differ"]
    assert len(found.settings[1].differences) == 3
    assert "cold" in found.settings[1].differences[0]
    assert found.in_short().endswith("the counts of slot-bank:slots=16 differ.")


def test_the_settings_become_flags(stand_in: Runtime) -> None:
    system = SlotBank(slots=24, top_k=4, io_split=1, prefetch="temporal", install="futures")
    found = request_of(system, stand_in, n_predict=5, gpu_layers="7")
    assert (found.mode, found.bank, found.top_k, found.io_split) == ("slot-bank", 24, 4, 1)
    assert (found.prefetch, found.n_predict, found.gpu_layers) == ("temporal", 5, "7")
    assert found.environment == (("LLAMA_FLASH_MOE_EXPERIMENTAL_PARALLEL_SLOT_READS", "1"),)
    plain = request_of(SlotBank(), stand_in)
    assert (plain.bank, plain.top_k, plain.prefetch, plain.environment) == (8, 0, None, ())
    assert request_of(SlotBank(top_k=4), stand_in).bank == 4


def test_systems_without_slots(stand_in: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = request_of(Cpu(), stand_in, gpu_layers="7")
    assert (cpu.mode, cpu.bank, cpu.gpu_layers) == ("stock", 64, "0")
    with pytest.raises(Unsupported, match=r"system all-gpu: .* finds no GPU"):
        request_of(AllGpu(), stand_in)
    monkeypatch.setenv("STAND_IN_DOES", "has-a-gpu")
    assert request_of(AllGpu(), ENGINES["flashmoe"].describe(STAND_IN)).gpu_layers == "99"


@pytest.mark.usefixtures("stand_in")
def test_variables_of_a_setting_reach_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(tmp_path, [(SlotBank(slots=16, install="batched"), 1.0, 1.0, 2000.0), CLAIMS[0]])
    kept = [
        json.loads((tmp_path / f"slot-bank-slots-{name}-rep1" / "run.json").read_text())
        for name in ("16-install-batched", "64")
    ]
    assert [len([name for name in run["environment"] if "EXPERIMENTAL" in name]) for run in kept] == [2, 0]
    monkeypatch.setenv("LLAMA_FLASH_MOE_EXPERIMENTAL_PARALLEL_SLOT_READS", "1")
    with pytest.raises(Conflict, match=r"PARALLEL_SLOT_READS is set; .* is a setting of slot-bank; unset it"):
        verified(tmp_path / "none")


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("claims", "options", "message"),
    [
        ([], {}, "0 settings to verify; expected one or more, each once"),
        (CLAIMS[:1] * 2, {}, "2 settings to verify; expected one or more, each once"),
        (CLAIMS, {"rounds": 2}, "2 rounds do not give an order; expected 3 or more"),
        ([(FlashMoe(), 1.0, 1.0, 1.0)], {}, "system flash-moe: .* runs slot-bank, cpu and all-gpu; leave it out"),
        ([(Cpu(), 1.0, 1.0, 1.0)], {"cache": "cold"}, "system cpu: maps its experts, .* give --cache warm"),
        ([(SlotBank(slots=4), 1.0, 1.0, 1.0)], {}, "--bank 4: .* uses 8 experts a token"),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, claims: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        verified(tmp_path, claims, **options)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sim recommend` gives short advice at once, and its settings are CLAIMS."""
    advice = sim.recommend("prose-256", machine="vm-2core", systems="cpu")
    monkeypatch.setattr(Recommend, "run", lambda *_: advice)
    monkeypatch.setattr(Recommend, "sections", lambda *_: [Section("", ("recommended",))])
    monkeypatch.setattr(Recommend, "document", lambda *_: {"recommended": "slot-bank"})
    monkeypatch.setattr("native_bridge.verified.claims_of", lambda _: [Claim(*one) for one in CLAIMS])


def run(*arguments: object) -> None:
    command = command_of("recommend", RecommendAndVerify)
    command.main([str(one) for one in ("--machine", "vm-2core", *arguments)], standalone_mode=False)


@pytest.mark.usefixtures("stand_in", "advised")
def test_the_table_and_the_verdict(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run("--model", MODEL, "--verify")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["recommended", ""]
    lines = lines[1:]
    assert max(map(len, lines[1:-1])) <= 80  # the last one is a command
    assert " ".join(lines[2].split()) == "setting predicted 90% measured lo to hi held counts"
    assert [" ".join(line.split()) for line in lines[4:7]] == [
        "slot-bank:slots=64 1,500 1,400 to 1,600 1,570 1,570 to 1,570 yes equal",
        "slot-bank:slots=16 1,350 1,300 to 1,400 1,370 1,370 to 1,370 yes equal",
        "slot-bank:slots=32 1,200 1,200 to 1,300 1,190 1,190 to 1,190 no equal",
    ]
    said = " ".join(" ".join(lines[8:]).split())
    assert said.startswith("slot-bank:slots=64 was the fastest, as recommended; the predicted order held")
    assert "sharper with --measured slot-bank:slots=64=1568 --measured slot-bank:slots=16=1368" in said


@pytest.mark.usefixtures("stand_in", "advised")
def test_one_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Some text.")
    run("--gguf", MODEL, "--verify", "--json", "--runs", tmp_path / "runs", "--prompt-file", tmp_path / "prompt.txt")
    document = json.loads(capsys.readouterr().out)
    assert document["recommended"] == "slot-bank"
    assert document["verified"]["fastest"] == "slot-bank:slots=64"
    learnt = [read_by_hand(option) for option in document["verified"]["measured_options"]]
    assert [(one.system, one.tok_s) for one in learnt] == [
        ("slot-bank:slots=64", 1568),
        ("slot-bank:slots=16", 1368),
        ("slot-bank:slots=32", 1190),
    ]
    kept = json.loads((tmp_path / "runs" / "slot-bank-slots-64-rep3" / "run.json").read_text())
    assert kept["prompt"] == "Some text."


@pytest.mark.usefixtures("stand_in", "advised")
def test_a_failed_run_is_exit_code_1_after_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_DOES", "fail")
    with pytest.raises(SimError, match="no such thing as a slot") as error:
        run("--model", MODEL, "--verify")
    assert error.value.exit_code == 1
    assert "has no speed: its runs failed" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("advised")
def test_without_verify_nothing_changes(capsys: pytest.CaptureFixture[str]) -> None:
    run("--model", "any")
    assert capsys.readouterr().out == "recommended\n"
    with pytest.raises(Conflict, match="--prompt-file without --verify: nothing is run"):
        run("--prompt-file", "x")


@pytest.mark.parametrize("given", [[], ["--model", "qwen3-30b-a3b"]])
def test_a_file_is_needed(given: list[str]) -> None:
    with pytest.raises(Incomplete, match="--verify runs a GGUF file; found --model "):
        run(*given, "--verify")


def test_a_file_of_another_model_is_refused() -> None:
    with pytest.raises(Conflict, match="has 8 layers of 64 experts, top-8; --model qwen3-30b-a3b has 48 layers of 128"):
        run("--model", "qwen3-30b-a3b", "--gguf", MODEL, "--verify")


@pytest.mark.runtime
@needs_runtime
def test_the_real_runtime(tmp_path: Path) -> None:
    """Timings of a small model on a busy machine mean nothing; the test checks that runs are made and counted."""
    systems = [
        SlotBank(slots=24),
        SlotBank(slots=16, install="batched"),
        SlotBank(slots=32, prefetch="temporal"),
        Cpu(),
    ]
    claims = [(system, 1.0, 0.0, 1e9) for system in systems]
    found = verified(tmp_path, claims, tokens=20, threads=1)
    assert found.failed == []
    assert [one.counts for one in found.settings] == ["equal", "equal", "equal", "-"]
    assert all(one.held and len(one.speeds) == 3 for one in found.settings)
    assert (found.out_of_order, found.lost is not None) == ([], True)
