"""The file of a timeline: what readers of the Trace Event Format rely on."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import Exists, OutOfRange
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.names import KINDS
from flashmoe_sim.timeline.perfetto import write_perfetto
from flashmoe_sim.timeline.run import Timeline, simulate
from flashmoe_sim.timeline.work import Work
from tests.timeline.cases import costs_of, random_case, work_of

KEYS = {
    "M": {"ph", "pid", "tid", "name", "args"},
    "X": {"ph", "pid", "tid", "name", "ts", "dur", "args"},
    "C": {"ph", "pid", "name", "ts", "args"},
}


def events_of(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.name.endswith(".gz") else data)["traceEvents"]  # type: ignore[no-any-return]


def two_tokens() -> tuple[Work, Timeline]:
    """Two tokens of two layers; 1 s of dense work each, 1 s to read a miss on one of two lanes."""
    work = work_of(
        [
            {"step": 5, "row": 0, "requests": 2, "misses": 2},
            {"step": 5, "row": 1, "requests": 2},
            {"step": 6, "row": 0, "requests": 2, "misses": 1},
            {"step": 6, "row": 1, "requests": 2},
        ]
    )
    costs = costs_of(rows=2, dense_s=1.0, chunk_s=1.0)
    return work, simulate(work, costs, parse_execution("parallel-install"), record=True)


def test_by_hand(tmp_path: Path) -> None:
    work, timeline = two_tokens()
    write_perfetto(timeline, work, tmp_path / "t.json", layers=[3, 7])
    events = events_of(tmp_path / "t.json")
    steps = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert steps == [
        ("token 5", 0, 3e6),
        ("layer 3", 0, 2e6),
        ("layer 7", 2e6, 1e6),
        ("token 6", 3e6, 3e6),
        ("layer 3", 3e6, 2e6),
        ("layer 7", 5e6, 1e6),
    ]
    reads = [(e["tid"], e["ts"], e["dur"], e["args"]) for e in events if e["name"] == "read"]
    first, second = {"call": 0, "layer": 3}, {"call": 2, "layer": 3}
    assert reads == [(2001, 1e6, 1e6, first), (2002, 1e6, 1e6, first), (2001, 4e6, 1e6, second)]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 2}
    assert names == {1: "compute", 2001: "storage, lane 0", 2002: "storage, lane 1"}
    counted = [(e["name"], e["ts"], *e["args"].values()) for e in events if e["ph"] == "C"]
    rates = [("misses", 0, 2), ("hit rate", 0, 50.0), ("misses", 3e6, 1), ("hit rate", 3e6, 75.0), ("misses", 6e6, 0)]
    assert counted == rates


@pytest.mark.parametrize("name", EXECUTION_MODELS)
def test_structure(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    for number in range(5):
        work, costs = random_case(rng)
        timeline = simulate(work, costs, parse_execution(name), record=True)
        path = tmp_path / f"{number}.json.gz"
        write_perfetto(timeline, work, path)
        tracks = defaultdict(list)
        named = set()
        for event in events_of(path):
            assert event.keys() == KEYS[event["ph"]]
            if event["ph"] == "M":
                named.add((event["pid"], event["tid"]))
            if event["ph"] == "X":
                assert event["ts"] >= 0
                assert event["dur"] >= 0
                assert event["ts"] * 8 == int(event["ts"] * 8)
                tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
        assert tracks.keys() <= named
        for (pid, _), spans in tracks.items():
            if pid == 2:  # one thing at a time, in order of time
                assert all(before[1] <= after[0] for before, after in pairwise(spans))
                assert {span[2] for span in spans} <= set(KINDS)
            else:  # routed calls follow each other within their step
                begin, end = 0.0, 0.0
                for first, last, what in spans:
                    if what.startswith("layer"):
                        assert (first, last <= end) == (begin, True)
                        begin = last
                    else:
                        assert first == begin == end
                        end = last
                assert begin == end


def test_some_steps(tmp_path: Path) -> None:
    work, timeline = two_tokens()
    write_perfetto(timeline, work, tmp_path / "t.json", steps=range(6, 100))
    complete = [event for event in events_of(tmp_path / "t.json") if event["ph"] == "X"]
    assert [event["name"] for event in complete if event["pid"] == 1] == ["token 6", "layer 0", "layer 1"]
    assert min(event["ts"] for event in complete) == 3e6
    with pytest.raises(OutOfRange, match="none of the steps to write is in the run, which has 5 to 6"):
        write_perfetto(timeline, work, tmp_path / "other.json", steps=range(5))
    assert not (tmp_path / "other.json").exists()


def test_nothing_is_overwritten_or_half_written(tmp_path: Path) -> None:
    work, timeline = two_tokens()
    path = tmp_path / "t.json"
    write_perfetto(timeline, work, path)
    before = path.read_bytes()
    with pytest.raises(Exists, match="--force"):
        write_perfetto(timeline, work, path)
    with pytest.raises(IndexError):  # in the middle of writing: the second row has no layer
        write_perfetto(timeline, work, path, layers=[3], force=True)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]
    with pytest.raises(ValueError, match="record=True"):
        write_perfetto(simulate(work, costs_of(rows=2), parse_execution("resident")), work, tmp_path / "u.json")


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    work, timeline = two_tokens()
    for name in ("a.json.gz", "b.json.gz"):
        write_perfetto(timeline, work, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
