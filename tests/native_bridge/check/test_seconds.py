"""Seconds from other runs: the errors of the fidelity report, and never a number from the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from flashmoe_sim.machines.machine import Machine
from native_bridge.check.folder import RunFolder
from native_bridge.check.result import RunCheck, RunChecks, check_folders
from native_bridge.check.seconds import WITHOUT_SLOTS, Machines
from tests.native_bridge.recorded_runs import RUNS, copies, edit_flags, edit_log, edit_record

TIMED = RUNS / "runs-timed"
# Signed errors: of tokens a second, and of the time of all installs; as in reports/fidelity.
ERRORS = {
    "warm-bank24": (-0.006, -0.033),
    "warm-bank48": (-0.014, 0.051),
    "warm-bank64": (0.006, -0.716),  # against the median of its two runs, as below; the report has each by itself
    "warm-bank64-rep2": (0.006, -0.716),
    "cold-bank48": (-0.027, -0.152),
}


@cache
def timed() -> RunChecks:
    return check_folders([TIMED])


@cache
def recorded() -> RunChecks:
    return check_folders([RUNS / "runs"])


@cache
def from_two(state: str) -> RunChecks:
    """From the anchors of the fidelity report."""
    return check_folders([TIMED], anchors=[TIMED / f"{state}-bank12", TIMED / f"{state}-allhit"])


def run(check: RunChecks, name: str) -> RunCheck:
    return next(one for one in check.runs if one.name == name)


@pytest.mark.parametrize("name", ERRORS)
def test_as_in_the_fidelity_report(name: str) -> None:
    state = name.partition("-")[0]
    seconds = run(from_two(state), name).seconds
    assert seconds.anchors == (f"{state}-bank12", f"{state}-allhit")
    assert seconds.error == pytest.approx(ERRORS[name][0], abs=0.001)
    assert seconds.install_error == pytest.approx(ERRORS[name][1], abs=0.001)
    assert seconds.held


def test_a_bank_that_fills_tells_what_first_fills_take() -> None:
    """The runs with 64 slots, of which one met a cold page cache; for themselves the next best."""
    seconds = run(timed(), "warm-bank48").seconds
    assert seconds.anchors == ("warm-bank12", "warm-allhit", "warm-bank64")
    assert seconds.error == pytest.approx(-0.015, abs=0.001)
    assert seconds.install_error == pytest.approx(0.123, abs=0.001)
    assert run(timed(), "warm-bank64").seconds.anchors == ("warm-bank12", "warm-allhit")  # 48 slots fill too seldom


def test_all_resident_and_all_hit() -> None:
    stock, all_hit = run(timed(), "warm-stock").seconds, run(timed(), "warm-allhit").seconds
    assert stock.anchors == ("warm-bank12", "warm-allhit", "warm-bank64")
    assert stock.error == pytest.approx(0.002, abs=0.001)
    assert stock.tok_s_hi > WITHOUT_SLOTS * stock.tok_s
    assert all_hit.anchors == ("warm-bank12", "warm-stock", "warm-bank64")
    assert all_hit.error == pytest.approx(0.040, abs=0.001)
    assert (stock.bytes_read, stock.install_s, all_hit.bytes_read) == (0, None, 0)


def test_no_run_is_predicted_from_itself() -> None:
    for check in (timed(), recorded()):
        assert check.predicted
        for one in check.runs:
            assert one.counts.folder.name not in one.seconds.anchors


def test_an_anchor_is_predicted_from_the_next_best() -> None:
    assert run(timed(), "warm-bank12").seconds.anchors == ("warm-bank24", "warm-allhit", "warm-bank64")
    assert run(timed(), "cold-bank12").seconds.anchors == ("cold-bank48", "cold-allhit")


def test_bytes_from_the_sidecar_are_exact() -> None:
    assert run(timed(), "warm-bank12").seconds.bytes_read == 13363 * 1_671_168


def test_why_there_is_no_number() -> None:
    for name, why in (
        ("prose-resident-slot-bank24", "its installs are copies from RAM, which no anchor measures"),
        ("prose-ub4-bank16-overflow", "the run failed"),
        ("python-topk4-bank8", "no all-hit or stock run of this machine beside python-topk4-bank8 itself"),
    ):
        seconds = run(recorded(), name).seconds
        assert (seconds.tok_s, seconds.error, seconds.held, seconds.why_not) == (None, None, None, why)
    assert (
        run(timed(), "cold-allhit").seconds.why_not
        == "no all-hit or stock run of this machine beside cold-allhit itself"
    )


def test_given_anchors() -> None:
    anchors = [TIMED / "warm-bank24", TIMED / "warm-stock"]
    found = check_folders([TIMED], anchors=anchors)
    assert run(found, "warm-bank48").seconds.anchors == ("warm-bank24", "warm-stock")
    assert run(found, "warm-bank24").seconds.why_not == "it is an anchor, or repeats one"
    assert "anchor warm-bank24 is of another machine, cache state" in run(found, "cold-bank48").seconds.why_not
    alone = check_folders([TIMED / "warm-bank48"], anchors=anchors[:1])
    assert "1 anchor; expected two or more" in alone.runs[0].seconds.why_not


@pytest.mark.parametrize(
    "changes",
    [
        *({"threads": 4}, {"machine": "another"}, {"cache": {"state": "cold"}}, {"topk": 4}),
        {"environment": {"LLAMA_FLASH_MOE_EXPERIMENTAL_PARALLEL_SLOT_READS": "1"}},
    ],
)
def test_runs_that_are_unlike_are_no_anchors(tmp_path: Path, changes: dict) -> None:
    place = copies(tmp_path, "warm-bank12", "warm-bank48", "warm-allhit", "warm-bank64-rep2", of="runs-timed")
    edit_flags(place / "warm-bank48", machine="this one", environment={})
    assert run(check_folders([place]), "warm-bank48").seconds.anchors[:2] == ("warm-bank12", "warm-allhit")
    edit_flags(place / "warm-allhit", **changes)
    assert "no all-hit or stock run" in run(check_folders([place]), "warm-bank48").seconds.why_not


def test_mapped_experts_on_a_cold_page_cache(tmp_path: Path) -> None:
    """They are read while the run decodes: the run is neither predicted nor an anchor, unless it maps nothing."""
    place = copies(tmp_path, "warm-bank12", "warm-bank48", "warm-stock", of="runs-timed")
    for name in ("warm-bank12", "warm-bank48", "warm-stock"):
        edit_flags(place / name, cache={"state": "cold"})
    found = check_folders([place])
    assert "reads its experts while it decodes" in run(found, "warm-stock").seconds.why_not
    assert "no all-hit or stock run" in run(found, "warm-bank48").seconds.why_not
    given = check_folders([place / "warm-bank48"], anchors=[place / "warm-bank12", place / "warm-stock"])
    assert "anchor warm-stock read its experts while it decoded" in given.runs[0].seconds.why_not
    edit_flags(place / "warm-stock", extra=["--no-mmap", "--seed", "1"])
    assert run(check_folders([place]), "warm-bank48").seconds.anchors == ("warm-bank12", "warm-stock")


ENVIRONMENT = {"LLAMA_FLASH_MOE_EXPERIMENTAL_PARALLEL_SLOT_READS": "1"}


@pytest.mark.parametrize("changes", [{"environment": ENVIRONMENT}, {"machine": "another"}, {"failed": "not cold: 40%"}])
def test_runs_that_are_unlike_have_rows_of_their_own(tmp_path: Path, changes: dict) -> None:
    places = [copies(tmp_path / name, "warm-bank12", "warm-bank24", of="runs-timed") for name in ("a", "b")]
    for place in places:
        for folder in ("warm-bank12", "warm-bank24"):
            edit_flags(place / folder, machine="this one", environment={})
    together = check_folders(places)
    assert sorted(map(len, together.settings)) == [2, 2]
    edit_flags(places[1] / "warm-bank12", **changes)
    apart = check_folders(places)
    assert sorted(map(len, apart.settings)) == [1, 1, 2]


def test_counts_that_differ_have_no_seconds(tmp_path: Path) -> None:
    place = copies(tmp_path, "warm-bank12", "warm-bank48", "warm-allhit", of="runs-timed")
    edit_log(place / "warm-bank48", "calls=2068", "calls=2069")
    found = check_folders([place])
    assert run(found, "warm-bank48").seconds.why_not == "its counts differ"
    assert "no streamed run" in run(found, "warm-bank12").seconds.why_not  # nor is it an anchor


def test_a_run_that_was_not_as_cold_as_it_should_be(tmp_path: Path) -> None:
    place = copies(tmp_path, "warm-bank12", "warm-bank48", "warm-allhit", "warm-bank64-rep2", of="runs-timed")
    edit_flags(place / "warm-bank48", failed="not cold: 40%")
    found = run(check_folders([place]), "warm-bank48")
    assert (found.verdict, found.seconds.why_not) == ("exact", "not cold: 40%")


def with_layers_of(monkeypatch: pytest.MonkeyPatch, *, lo: float, value: float, hi: float) -> None:
    """Fitted machines get this time of a layer, as noisy runs of a small model give."""
    fitted_on = Machines.fitted_on

    def changed(machines: Machines, anchors: Sequence[RunFolder]) -> Machine:
        machine = fitted_on(machines, anchors)
        cpu = machine.cpu
        return replace(machine, cpu=replace(cpu, layer_us=replace(cpu.layer_us, lo=lo, value=value, hi=hi)))

    monkeypatch.setattr(Machines, "fitted_on", changed)


def test_a_time_of_0_at_an_end_never_stops_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a layer may take no time, nothing bounds the speed of a run that only has layers."""
    with_layers_of(monkeypatch, lo=0.0, value=900.0, hi=1100.0)
    found = check_folders([TIMED])
    assert [one.verdict for one in found.runs] == [one.verdict for one in timed().runs]
    for name in ("warm-stock", "warm-allhit", "warm-bank48"):
        seconds = run(found, name).seconds
        assert 0 < seconds.tok_s_lo < seconds.tok_s < seconds.tok_s_hi < float("inf")
    assert run(found, "warm-stock").seconds.tok_s_hi > 5 * run(found, "warm-stock").seconds.tok_s


def test_no_time_for_a_layer_gives_no_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with_layers_of(monkeypatch, lo=0.0, value=0.0, hi=0.0)
    found = check_folders([TIMED])
    assert [one.verdict for one in found.runs] == [one.verdict for one in timed().runs]
    assert (
        run(found, "warm-stock").seconds.why_not
        == "its anchors leave no time for a layer: their misses explain all of it"
    )


def test_counts_that_were_not_compared_do_not_differ(tmp_path: Path) -> None:
    place = copies(tmp_path, "warm-bank48", of="runs-timed")
    edit_flags(place / "warm-bank48", extra=["--moe-prefetch-temporal-sparse", "--seed", "1"])
    assert run(check_folders([place]), "warm-bank48").seconds.why_not.startswith("--moe-prefetch-temporal-sparse: ")
    edit_flags(place / "warm-bank48", extra=["--seed", "1"])
    edit_record(place / "warm-bank48", 1, experts=lambda experts: [*experts[:-1], "x"])
    assert run(check_folders([place]), "warm-bank48").seconds.why_not == "its counts were not compared"
