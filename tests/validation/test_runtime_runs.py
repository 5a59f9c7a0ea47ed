"""Real runs of the patched runtime: every slot it assigned and every counter it logged, total and per layer.

`runs/SET/NAME/` has the runtime's own trace, its log and its flags; `runs/SET/manifest.json` the sidecar manifest.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.load import load_trace

DATA = Path(__file__).parents[2] / "data"
RUNS = sorted(path.parent for path in DATA.glob("*/*/trace.jsonl.gz"))
OVERFLOW = DATA / "runs" / "prose-ub4-bank16-overflow"
COUNTED = [run for run in RUNS if run != OVERFLOW]
PREFETCH = {
    "--moe-prefetch-temporal": "temporal",
    "--moe-predict-prev-token": "predict-prev",
    "--moe-predict-top1-prev": "predict-top1",
}
GIB, MIB = 1 << 30, 1 << 20


def name(run: Path) -> str:
    return f"{run.parent.name}/{run.name}"


def flags(run: Path) -> tuple[int, str]:
    given = json.loads((run / "run.json").read_text())
    return given["bank"], next((found for flag, found in PREFETCH.items() if flag in given["extra"]), "none")


def aliased_in(trace_file: Path) -> int:
    aliased = 0
    for line in gzip.decompress(trace_file.read_bytes()).splitlines():
        record = json.loads(line)
        owner: dict[int, int] = {}
        for expert, slot in dict(zip(record["experts"], record["slots"], strict=True)).items():
            aliased += owner.setdefault(slot, expert) != expert
    return aliased


def test_there_are_all_the_runs() -> None:
    assert len(COUNTED) == 57


@pytest.mark.parametrize("run", COUNTED, ids=name)
def test_every_slot(run: Path) -> None:
    bank, prefetch = flags(run)
    trace = load_trace(run / "trace.jsonl.gz")
    setup = Setup(Bank(slots=bank), contract="runtime", prefetch=parse_prefetcher(prefetch))
    replayed = replay(prepare(trace, load_model(run.parent / "manifest.json")), setup, record=True)
    assert replayed.slot is not None
    np.testing.assert_array_equal(replayed.slot, trace.slot)


@pytest.mark.parametrize("run", COUNTED, ids=name)
def test_every_counter_of_the_log(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank, prefetch = flags(run)
    model = str(run.parent / "manifest.json")
    asked = ["replay", str(run / "trace.jsonl.gz"), "--bank", str(bank), "--contract", "runtime", "--model", model]
    extra = json.loads((run / "run.json").read_text())["extra"]
    split = extra[extra.index("--moe-cache-io-split") + 1] if "--moe-cache-io-split" in extra else "4"
    assert main([*asked, "--prefetch", prefetch, "--io-split", split, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    counts, log = document["counts"], (run / "log.txt").read_text()

    routed = re.search(r"routed src=\S+ calls=(\d+) refs=(\d+) uniq=(\d+) hit=([\d.]+)% miss/call=([\d.]+) "
                       r"bytes=([\d.]+) GiB .* pread=(\d+) ", log)  # fmt: skip
    assert routed
    cold, evicted = map(int, re.search(r"residency cold=(\d+) evict=(\d+)", log).groups())  # type: ignore[union-attr]
    assert [counts["calls"], counts["refs"], counts["requests"]] == [int(part) for part in routed.groups()[:3]]
    assert (counts["cold_installs"], counts["evictions"], counts["misses"]) == (cold, evicted, cold + evicted)
    assert counts["hits"] == counts["requests"] - counts["misses"]
    assert f"{counts['hit_rate'] * 100:.1f}" == routed[4]
    assert f"{counts['misses_per_call']:.2f}" == routed[5]
    assert f"{counts['bytes_read'] / GIB:.2f}" == routed[6]
    copied = re.search(r"routed src=resident-packed .* rcopy=(\d+) ", log)  # from RAM, a copy of each family
    assert copied or counts["read_ops"] == int(routed[7])
    assert not copied or counts["misses"] * 2 == int(copied[1])  # gemma4 has two families
    assert counts["aliased_refs"] == aliased_in(run / "trace.jsonl.gz")

    if prefetch != "none":
        logged = re.search(r"(?:prefetch|predict-\S+) calls=(\d+) uniq=(\d+) hit=[\d.]+% miss=(\d+) "
                           r"bytes=([\d.]+) GiB .* pread=(\d+) ", log)  # fmt: skip
        assert logged
        assert f"{counts['prefetch_bytes'] / GIB:.2f}" == logged[4]
        assert [
            counts[key] for key in ("prefetch_calls", "prefetch_requests", "prefetch_issued", "prefetch_read_ops")
        ] == [int(logged[place]) for place in (1, 2, 3, 5)]

    by_layer = {row["layer"]: row for row in document["layers"]}
    logged_layers = re.findall(r"layer=(\d+) calls=(\d+) uniq=(\d+) hit=([\d.]+)% miss=(\d+) cold=(\d+) evict=(\d+) "
                               r"peak=\d+ bytes=([\d.]+) MiB", log)  # fmt: skip
    assert logged_layers
    for layer, calls, requests, hit, misses, cold_layer, evict_layer, read in logged_layers:
        row = by_layer[int(layer)]
        assert (row["calls"], row["requests"], row["misses"]) == (int(calls), int(requests), int(misses))
        assert (row["cold_installs"], row["evictions"]) == (int(cold_layer), int(evict_layer))
        assert f"{row['hit_rate'] * 100:.1f}" == hit
        assert f"{row['bytes_read'] / MIB:.2f}" == read


def test_a_bank_smaller_than_a_call_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The runtime failed at a call of more experts than 16, which its trace does not have; all before it fit."""
    model = str(OVERFLOW.parent / "manifest.json")
    asked = ["replay", str(OVERFLOW / "trace.jsonl.gz"), "--model", model]
    assert main([*asked, "--bank", "16"]) == 0
    assert main([*asked, "--bank", "7"]) == 2
    message = capsys.readouterr().err
    assert "call 0" in message
    assert "layer 0" in message
    assert "needs 8 slots" in message
