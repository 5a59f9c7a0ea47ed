"""`hot-profile` against a real hot cache: a fork of llama.cpp with `--moe-hot-cache` on a GPU (data/hot-cache).

The fork counts the uses of each expert in the hot lane and in the cold lane. Its last layer routes every token of a
prompt, and the trace has only the tokens that are output, so that hits are compared in the layers before it.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.geometry import read_gguf
from flashmoe_sim.policies._perf_profile import read_profile
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.hot_profile import HotProfile
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.perf_profile import write_perf_profile
from flashmoe_sim.trace.routing import RoutingTrace

DATA = Path(__file__).parents[2] / "data" / "hot-cache"
MODEL = Path(__file__).parents[2] / "native_bridge" / "_models" / "tiny-moe" / "tiny.gguf"
PROFILE = DATA / "profile.json"
LAYERS, EXPERTS, LAST = 8, 64, 7
RUNS = ("1-mib", "2-mib", "3-mib", "4-mib", "2-mib-fill", "2-mib-balanced", "2-mib-smooth")
PROBES = 2  # calls of each layer that the server makes once, before its first request


def layers_of(run: str, request: int = 0) -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress((DATA / run / f"perf{request}.json.gz").read_bytes()))
    assert [layer["layer"] for layer in document["layers"]] == list(range(LAYERS))
    layers: list[dict[str, Any]] = document["layers"]
    return layers


def replayed(run: str, trace: RoutingTrace, *, update_rate: float = 0.0) -> Replayed:
    mib, _, rest = run.partition("-mib")
    weighting = rest.removeprefix("-") if rest in ("-balanced", "-smooth") else "flat"
    policy = HotProfile(profile=str(PROFILE), weighting=weighting, update_rate=update_rate)
    setup = Setup(Bank(budget_bytes=int(mib) * 2**20), policy, contract="atomic", scope="global")
    return replay(prepare(trace, read_gguf(MODEL)), setup, record=True)


def test_our_writer_wrote_the_profile_that_the_fork_loaded(tmp_path: Path) -> None:
    write_perf_profile(load_trace(DATA / "trace.jsonl.gz"), tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json") == read_profile(PROFILE)


@pytest.mark.parametrize(("run", "recorded"), [("none", "trace.jsonl.gz"), ("none-cpu", "trace-cpu.jsonl.gz")])
def test_every_use_of_every_expert_is_a_reference_of_the_trace(run: str, recorded: str) -> None:
    """On a GPU and on a CPU: the routing of the same text by the patched runtime, another branch of llama.cpp."""
    trace = load_trace(DATA / recorded)
    compared = 0
    for layer in layers_of(run):
        uses = np.zeros(EXPERTS, np.int64)
        for expert, count in layer["experts"]:
            uses[expert] = count
        ours = np.bincount(trace.expert[np.repeat(trace.layer == layer["layer"], np.diff(trace.offset))], minlength=64)
        assert layer["experts"] == layer["cold_experts"]
        if layer["layer"] == LAST:
            assert (uses >= ours).all()
        else:
            assert uses.tolist() == ours.tolist()
            compared += int(uses.sum())
    assert compared == 7 * 157 * 8


@pytest.mark.parametrize("run", RUNS)
def test_every_use_was_in_the_lane_that_the_policy_says(run: str) -> None:
    result = replayed(run, load_trace(DATA / "trace.jsonl.gz"))
    (resident,) = result.contents
    held = set(resident.tolist())
    assert f"selected {len(held)} hot-cache experts from 417 observed" in (DATA / run / "cache-lines.txt").read_text()
    for layer in layers_of(run):
        hot, cold = (
            {layer["layer"] * EXPERTS + expert for expert, _ in layer[name]} for name in ("hot_experts", "cold_experts")
        )
        assert hot <= held
        assert not cold & held


@pytest.mark.parametrize("run", RUNS)
def test_hits_of_every_layer(run: str) -> None:
    counts = replayed(run, load_trace(DATA / "trace.jsonl.gz")).counts
    for layer, ours in zip(layers_of(run)[:LAST], counts.by_layer()[:LAST], strict=True):
        hot, cold = layer["hot_slots_total"], layer["cold_slots_total"]
        assert (ours["hits"], ours["misses"]) == (hot, cold)


def test_exchanges_after_each_request() -> None:
    """The same request three times at an update rate of 0.2; 31 exchanges are allowed, and fewer are worth it."""
    once = load_trace(DATA / "trace.jsonl.gz")
    trace = three_times(once)
    result = replayed("2-mib", trace, update_rate=0.2)
    assert result.hit is not None
    layer = np.repeat(trace.layer, np.diff(trace.offset))
    assert trace.sequence is not None
    request = np.repeat(trace.sequence, np.diff(trace.offset))
    for number in range(3):
        for real in layers_of("2-mib-rate", number)[:LAST]:
            hits = result.hit[(layer == real["layer"]) & (request == number)]
            assert (int(hits.sum()), len(hits)) == (
                real["hot_slots_total"],
                real["hot_slots_total"] + real["cold_slots_total"],
            )
    exchanged = re.findall(r"exchanged = (\d+)/\1 candidates", (DATA / "2-mib-rate" / "cache-lines.txt").read_text())
    assert exchanged == ["2", "1", "0"]


def three_times(trace: RoutingTrace) -> RoutingTrace:
    """A request three times over; the probes come once."""
    later = trace.steps >= PROBES
    begin = int(np.flatnonzero(later)[0])
    refs, length = int(trace.offset[begin]), np.diff(trace.offset)
    calls = trace.calls - begin
    return trace.with_(
        layer=np.concatenate([trace.layer, trace.layer[begin:], trace.layer[begin:]]),
        n_tokens=np.concatenate([trace.n_tokens, trace.n_tokens[begin:], trace.n_tokens[begin:]]),
        offset=np.cumsum([0, *length, *length[begin:], *length[begin:]]),
        expert=np.concatenate([trace.expert, trace.expert[refs:], trace.expert[refs:]]),
        sequence=np.repeat(np.arange(3, dtype=np.int32), [trace.calls, calls, calls]),
        slot=None,
        step=None,
    )
