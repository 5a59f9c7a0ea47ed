"""`sim curve`: every size as a replay of its own counts it, and a table of some."""

from __future__ import annotations

import pytest

from flashmoe_sim import api
from tests.support import document, printed_by


@pytest.mark.parametrize(
    ("policy", "contract", "first"), [("lru", "atomic", 8), ("lru", "protected", 8), ("min", "atomic", 1)]
)
def test_every_size_is_there_and_is_what_a_replay_says(
    capsys: pytest.CaptureFixture[str], policy: str, contract: str, first: int
) -> None:
    options = ["--policy", policy, "--contract", contract]
    found = document(capsys, "curve", "python-256", *options)
    assert (found["trace"], found["policy"], found["contract"]) == ("python-256", policy, contract)
    assert [row["bank"] for row in found["curve"]] == list(range(first, 257))
    for row in (row for row in found["curve"] if row["bank"] in {first, 16, 77, 256}):
        counts = document(capsys, "replay", "python-256", *options, "--bank", str(row["bank"]))["counts"]
        assert row == {"bank": row["bank"]} | {name: counts[name] for name in row if name != "bank"}


def test_round_sizes_are_shown_with_the_first_and_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "curve", "python-256")
    rows = [line.split() for line in out.splitlines()]
    shown = [int(row[0]) for row in rows if row[-1:] == ["MiB"] or row[-1:] == ["KiB"]]
    assert shown == [8, *range(16, 257, 16)]
    assert "17 of 249 sizes; --json gives all" in out


def test_a_sample_says_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["curve", "qwen3-30b-phone", "--policy", "fifo", "--sample", "0.25", "--seed", "3"]
    found = document(capsys, *asked)
    sample = found["sample"]
    assert (sample["kind"], sample["share"], sample["of"], sample["seed"]) == ("layers", 0.25, 48, 3)
    assert len(set(sample["layers"])) == 12
    table = api.curve("qwen3-30b-phone", policy="fifo", sample=0.25, seed=3)
    assert found["curve"] == table.to_dicts()
    assert all(row["sampled_layers"] == 12 for row in found["curve"])
    out = printed_by(capsys, *asked, quiet=False)
    assert max(map(len, out.splitlines())) <= 80
    assert "estimated from a sample" in out
    assert "replayed in 12 of 48 layers (seed 3)" in out
    assert "90% interval" in out
