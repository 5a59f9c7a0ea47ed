"""The profile of a trace: by hand, read back by the strict reader, and chosen from as the trace itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.api import sweep
from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.policies._perf_profile import read_profile
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.perf_profile import write_perf_profile
from flashmoe_sim.trace.routing import RoutingTrace
from tests.residency.builders import trace_of


@pytest.fixture
def by_hand() -> RoutingTrace:
    """Two layers; the prompt of layer 1 outputs nothing, so that its first call has no token."""
    calls = [(0, [3, 1, 3, 2], 2), (1, [], 0), (0, [3, 1], 1), (1, [0, 7], 1)]
    return trace_of(calls, n_experts=8).with_(top_k=2)


def test_by_hand(by_hand: RoutingTrace, tmp_path: Path) -> None:
    """Layer 0: expert 3 three times, 1 twice, 2 once, in two calls. Layer 1: one call of 0 and 7."""
    write_perf_profile(by_hand, tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["schema"] == "llama.cpp.moe_layer_opt_perf.v1"
    assert (document["n_expert"], document["n_expert_used"], document["updates"]) == (8, 2, 2)
    assert document["summary"]["layer_calls"] == 3
    first, second = document["layers"]
    assert (first["layer"], first["calls"], first["cold_slots_total"], first["cold_slots_per_call"]) == (0, 2, 6, 3.0)
    assert first["experts"] == first["cold_experts"] == [[1, 2], [2, 1], [3, 3]]
    assert (second["layer"], second["calls"], second["experts"]) == (1, 1, [[0, 1], [7, 1]])
    assert first["hot_experts"] == second["hot_experts"] == []


def test_a_layer_that_uses_nothing_is_left_out(tmp_path: Path) -> None:
    write_perf_profile(trace_of([(0, [1, 2], 1), (5, [], 0)], n_experts=4), tmp_path / "p.json")
    assert [layer["layer"] for layer in json.loads((tmp_path / "p.json").read_text())["layers"]] == [0]


@pytest.mark.parametrize("name", sorted(catalog())[:6])
def test_the_strict_reader_reads_it_back(name: str, tmp_path: Path) -> None:
    trace = load_trace(catalog()[name].path)
    write_perf_profile(trace, tmp_path / "p.json")
    read = read_profile(tmp_path / "p.json")
    assert list(read) == [int(layer) for layer in trace.layers]
    for number, layer in read.items():
        uses = np.bincount(trace.expert[np.repeat(trace.layer == number, np.diff(trace.offset))])
        assert layer.hits == {int(expert): int(uses[expert]) for expert in np.flatnonzero(uses)}
        assert (layer.hot_hits, layer.moe_time) == ({}, 0)
        assert layer.pressure == pytest.approx(uses.sum() / np.count_nonzero((trace.layer == number) & trace.has_refs))


def test_no_reference_no_profile(tmp_path: Path) -> None:
    with pytest.raises(Incomplete, match="uses no expert"):
        write_perf_profile(trace_of([(0, [], 0)], n_experts=4), tmp_path / "p.json")
    assert not (tmp_path / "p.json").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.json"
    assert main(["trace", "profile", "prose-256", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: ")
    assert main(["trace", "profile", "prose-256", str(out)]) == 2
    assert capsys.readouterr().err == f"sim: {out}: exists; give --force to overwrite it\n"
    assert main(["trace", "profile", "prose-256", str(out), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == out.stat().st_size


def test_a_profile_chooses_as_hindsight_does_where_a_call_has_one_token(tmp_path: Path) -> None:
    """References are requests then: `hot-profile` with the profile of a trace is `hot-profile` without one."""
    write_perf_profile(load_trace(catalog()["prose-256"].path), tmp_path / "p.json")
    policies = ["hot-profile", f"hot-profile:profile={tmp_path / 'p.json'}"]
    for bank in (16, 64):
        rows = sweep("prose-256", bank=bank, policy=policies, contract="atomic")
        assert rows["hits"].n_unique() == 1
