"""What is counted along a growing trace is what a replay of the same bytes counts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import Malformed, OutOfRange, Unsupported
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.sweep.plan import plan_setups
from flashmoe_sim.sweep.watch import Look, Watcher
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.write_jsonl import write_jsonl
from tests.residency.builders import geometry_of, random_calls, trace_of
from tests.residency.test_growing import assert_same

SETUPS = [
    *plan_setups("2,4,16", policy="lru"),
    *plan_setups("3", policy="lru,lfu", contract="atomic"),
    *plan_setups("3", policy="lru", contract="runtime"),
    *plan_setups("3", policy="fifo", contract="atomic", scope="global"),
]


def written(path: Path, seed: int) -> list[bytes]:
    """The lines of a random trace, in which wide calls, further layers and larger ids come late."""
    rng = np.random.default_rng(seed)
    calls = random_calls(rng, n_experts=4, layers=2, steps=20, width=2, missing=0.1)
    calls += [(5, [9, 1], 1), (0, [0, 1, 2, 3], 2)]
    calls += random_calls(rng, n_experts=12, layers=2, steps=20, width=2, idle=0.1)
    write_jsonl(trace_of(calls, dict.fromkeys((0, 1, 5), 16)), path, force=True)
    return path.read_bytes().splitlines(keepends=True)


def assert_replayed(seen: Look, path: Path) -> None:
    """Every row is what `replay` counts of the file, or its refusal."""
    trace = load_trace(path)
    assert (seen.calls, seen.tokens) == (trace.calls, trace.tokens)
    for row in seen.rows:
        if row.whole is None:
            assert row.reason
            with pytest.raises(OutOfRange):
                replay(prepare(trace), row.setup)
        else:
            assert_same(row.whole, replay(prepare(trace), row.setup).counts)
            assert not row.reason


@pytest.mark.parametrize("seed", range(2))
def test_at_any_moment(tmp_path: Path, seed: int) -> None:
    data = b"".join(written(tmp_path / "all.jsonl", seed))
    rng = np.random.default_rng(seed)
    path = tmp_path / "t.jsonl"
    path.touch()
    watch, at, refused = Watcher(path, SETUPS, window_tokens=5), 0, 0
    while at < len(data):
        more = int(rng.integers(1, 400))
        with path.open("ab") as stream:
            stream.write(data[at : at + more])
        at += more
        seen = watch.look(float(at))
        if seen.calls:
            assert_replayed(seen, path)
            refused += sum(row.whole is None for row in seen.rows)
    assert refused
    assert any(row.whole is not None for row in seen.rows)


def test_the_window_is_what_the_last_tokens_added(tmp_path: Path) -> None:
    lines = [b'{"layer":%d,"experts":[%d]}\n' % (layer, n * n % 7) for n in range(300) for layer in (0, 1)]
    path = tmp_path / "t.jsonl"
    path.touch()
    watch, spans = Watcher(path, plan_setups("2,3"), window_tokens=32), []
    cuts = [0, 3, 10, 11, 40, 200, 201, 230, 300]  # tokens
    for first, end in pairwise(cuts):
        with path.open("ab") as stream:
            stream.write(b"".join(lines[2 * first : 2 * end]))
        seen = watch.look(float(end))
        spans.append(seen.window_tokens)
        before = tmp_path / "before.jsonl"
        before.write_bytes(b"".join(lines[: 2 * (end - seen.window_tokens)]))
        for row in seen.rows:
            now = replay(prepare(load_trace(path)), row.setup).counts
            assert row.window is not None
            if end == seen.window_tokens:
                assert_same(row.window, now)
            else:
                assert_same(row.window, now.since(replay(prepare(load_trace(before)), row.setup).counts))
    assert spans[:3] == [3, 10, 11]
    assert all(32 <= span <= 36 for span in spans[4:])


def test_overlap_of_one_window_with_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    watch, overlaps = Watcher(path, plan_setups("2"), window_tokens=16), []
    for experts in ((0, 1), (0, 1), (0, 2), (5, 6)):
        with path.open("ab") as stream:
            stream.write(b'{"layer":0,"n_expert_used":2,"n_tokens":1,"experts":[%d,%d]}\n' % experts * 16)
        overlaps.append(watch.look(0).overlap)
    assert overlaps == [None, 1.0, 0.5, 0.0]


def test_tokens_per_second_are_of_the_last_ten_in_which_it_grew(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line, rates = b'{"layer":0,"experts":[1]}\n', []
    path.write_bytes(line * 1000)
    watch = Watcher(path, plan_setups("1"))
    for now_s, more in ((0, 0), (2, 10), (4, 10), (14, 0), (24, 0), (24, 10)):
        with path.open("ab") as stream:
            stream.write(line * more)
        seen = watch.look(now_s)
        rates.append((seen.tokens_per_s, seen.still_s))
    assert rates == [(None, 0), (5.0, 0), (5.0, 0), (5.0, 10), (5.0, 20), (0.5, 0)]
    watch.forget_rate()
    assert (watch.look(30).tokens_per_s, watch.look(40).tokens_per_s) == (None, None)


def test_it_begins_again_with_another_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    watch = Watcher(path, SETUPS, window_tokens=5)
    assert not watch.look(0).there
    lines = written(path, 1)
    assert_replayed(watch.look(1), path)
    path.write_bytes(b"".join(lines[:9]))
    seen = watch.look(2)
    assert seen.event.startswith("it was cut")
    assert_replayed(seen, path)
    path.unlink()
    assert watch.look(3).tokens == seen.tokens
    path.write_bytes(b"")
    assert (watch.look(4).head, watch.look(5).rows) == (None, [])


def test_bytes_and_recorded_aliasing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"layer":0,"n_expert_used":2,"n_tokens":1,"experts":[0,1],"slots":[3,3]}\n' * 4)
    seen = Watcher(path, plan_setups("2"), geometry=geometry_of({0: 100}, {0: 8})).look(0)
    assert seen.aliased == 4
    assert seen.rows[0].whole.total()["bytes_read"] == 200
    with pytest.raises(Malformed, match="layer 0 asks for expert 1"):
        Watcher(path, plan_setups("1"), geometry=geometry_of({0: 100}, {0: 1})).look(0)


@pytest.mark.parametrize("policy", ["min", "static", "hot-window"])
def test_what_needs_the_whole_trace_is_refused(policy: str) -> None:
    with pytest.raises(Unsupported, match=f"policy {policy}"):
        Watcher(Path("t.jsonl"), plan_setups("2", policy=policy, contract="atomic"))
