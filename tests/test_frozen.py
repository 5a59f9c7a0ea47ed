"""What is frozen covers what there is, and what moves is said with both numbers."""

from __future__ import annotations

from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.trace.bundled import catalog
from tests.frozen import CHANGED, CHANGELOG, Results, in_changelog, load, moves

LRU = ("python-256", "atomic", "lru", "none", "", "")
FIFO = ("python-256", "atomic", "fifo", "none", "hot-cold", "vm-2core")


def row(misses: int, digest: str, tok_s: str = "") -> dict[str, str]:
    return {"misses": str(misses), "tok_s": tok_s, "digest": digest}


def test_every_trace_policy_and_contract_is_frozen() -> None:
    frozen = {labels[:3] for labels in load()}
    wanted = {
        (trace, contract, name)
        for trace in catalog()
        for name, policy in POLICIES.items()
        for contract in policy.contracts
    }
    assert wanted <= frozen, "run python -m tests.frozen --write"


def test_what_moved_is_shown_before_and_after() -> None:
    before: Results = {LRU: row(10, "aaaaaaaa"), FIFO: row(20, "bbbbbbbb", "3.5")}
    assert list(moves(before, before)) == []
    after = {LRU: row(10, "cccccccc"), FIFO: row(21, "dddddddd", "3.25")}
    assert list(moves(before, after)) == [
        (
            "python-256, atomic, fifo, none, hot-cold, vm-2core",
            "20 misses, 3.5 tok/s (bbbbbb)",
            "21 misses, 3.25 tok/s (dddddd)",
        ),
        ("python-256, atomic, lru, none", "10 misses (aaaaaa)", "10 misses (cccccc)"),
    ]
    assert list(moves({}, {LRU: row(1, "eeeeeeee")})) == [
        ("python-256, atomic, lru, none", "none", "1 misses (eeeeee)")
    ]


def test_what_moved_enters_the_changelog() -> None:
    moved = [("python-256, atomic, lru, none", "10 misses (aaaaaa)", "9 misses (bbbbbb)"), ("other", "none", "none")]
    text = CHANGELOG.read_text()
    once = in_changelog(text, "ties of lru", moved)
    line = "| ties of lru (python-256, atomic, lru, none and 1 more) | 10 misses (aaaaaa) | 9 misses (bbbbbb) |\n"
    assert once.index("## Unreleased") < once.index(line) < once.index("\n## 0")
    twice = in_changelog(once, "ties of arc", moved)
    assert twice.replace(line.replace("lru (", "arc ("), "", 1) == once
    assert once.replace(line, "", 1).replace(CHANGED, "", 1).replace("## Unreleased\n\n", "## Unreleased\n", 1) == text
