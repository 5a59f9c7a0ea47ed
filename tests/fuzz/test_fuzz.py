"""Every door for a moment: valid documents, damaged ones, and all that broke something before."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashmoe_sim.io.errors import BadInput, SimError
from tests.fuzz.memory import Peak
from tests.fuzz.mutate import KINDS, Edit, apply, edits
from tests.fuzz.target import PROJECT, Target, Verdict, judge
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
KEPT = sorted(path.relative_to(CORPUS) for path in CORPUS.glob("*/*"))
WITH_DOCUMENTS = [name for name, target in TARGETS.items() if target.documents]
SLOW = {"command-line": 6, "log-flashmoe": 10, "trace-store": 20}  # examples; the others have 30
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def judged(target: Target, data: bytes) -> Verdict:
    with TemporaryDirectory() as folder:
        return judge(target, data, Path(folder))


@cache
def warm(name: str) -> Target:
    """A door whose kernels are compiled, and whose modules are imported."""
    for data in TARGETS[name].first:
        judged(TARGETS[name], data)
    return TARGETS[name]


@pytest.mark.parametrize("name", TARGETS)
def test_the_first_inputs_are_accepted(name: str) -> None:
    found = [judged(warm(name), data) for data in TARGETS[name].first]
    assert [str(one) for verdict in found for one in verdict.findings] == []
    assert sum(verdict.accepted for verdict in found) > len(found) / 2
    assert not any(verdict.skipped for verdict in found)


@pytest.mark.parametrize("path", KEPT, ids=str)
def test_what_broke_something_once(path: Path) -> None:
    assert judged(warm(path.parts[0]), (CORPUS / path).read_bytes()).findings == []


@pytest.mark.parametrize("name", WITH_DOCUMENTS)
def test_valid_documents_read_as_they_were_made(name: str) -> None:
    target = warm(name)
    assert target.documents is not None

    @settings(max_examples=SLOW.get(name, 30), suppress_health_check=QUIET)
    @given(document=target.documents())
    def read_back(document: tuple[bytes, Any]) -> None:
        data, expected = document
        with TemporaryDirectory() as folder:
            assert target.same(target.read(data, Path(folder)), expected)

    read_back()


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_documents_are_refused_in_one_line_or_read(name: str) -> None:
    target = warm(name)
    start = st.sampled_from(target.first)
    if target.documents is not None:
        start |= target.documents().map(lambda document: document[0])

    @settings(max_examples=SLOW.get(name, 30), suppress_health_check=QUIET)
    @given(data=start, damage=edits(target.words))
    def no_finding(data: bytes, damage: list[Edit]) -> None:
        assert [str(one) for one in judged(target, apply(data, damage)).findings] == []

    no_finding()


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_of_any_kind(name: str) -> None:
    target = warm(name)

    @settings(max_examples=SLOW.get(name, 15), suppress_health_check=QUIET)
    @given(data=st.binary(max_size=300))
    def no_finding(data: bytes) -> None:
        assert [str(one) for one in judged(target, data).findings] == []

    no_finding()


def test_damage_of_a_store_with_its_checksum_changes_no_count() -> None:
    """Of a store as it was written: refused, or equal."""
    target = warm("trace-store")
    assert target.documents is not None

    @settings(max_examples=40, suppress_health_check=QUIET)
    @given(document=target.documents(), damage=edits(()))
    def equal_or_refused(document: tuple[bytes, Any], damage: list[Edit]) -> None:
        with TemporaryDirectory() as folder:
            try:
                found = target.read(apply(document[0], damage), Path(folder))
            except SimError:
                return
        assert target.same(found, document[1])

    equal_or_refused()


# ----------------------------------------------------------------------------------------------------- the judge itself


def planted(data: bytes, _: Path) -> int:
    """A door with a fault of each kind."""
    if data == b"crash":
        raise KeyError("x")
    if data == b"memory":
        return len(bytearray(100 << 20).replace(b"\0", b"\1"))
    if data == b"nameless":
        raise BadInput("wrong; expected right")
    if data == b"no advice":
        raise BadInput("f.txt: wrong")
    if data == b"long":
        raise BadInput(f"f.txt: {'x' * 3000}; expected less")
    if data == b"lines":
        error = BadInput("f.txt: expected")
        error.args = ("f.txt: \x1b[2J expected",)
        raise error
    return len(data)


def right(_: bytes, value: int, __: Path) -> None:
    assert value != 3, "three"


FAULTS = {
    b"crash": "crash: KeyError: 'x' (tests/fuzz/test_fuzz.py:planted)",
    b"memory": "memory: ",
    b"nameless": "message: does not name the file",
    b"no advice": "message: does not say what to do",
    b"long": "message: 3,",
    b"lines": "message: has control characters",
    b"abc": "wrong: three",
}


@pytest.mark.parametrize("data", FAULTS)
def test_the_judge_finds_what_is_planted(data: bytes) -> None:
    if data == b"memory" and not Peak().before:
        pytest.skip("this system does not say how much memory a process takes")
    found = judged(Target("planted", planted, list, file="f.txt", holds=right), data).findings
    assert len(found) == 1
    assert str(found[0]).startswith(FAULTS[data])


def test_every_kind_of_damage_does_something() -> None:
    data = b"one,2,three"
    made = {kind: apply(data, [Edit(kind, 0.4, b"XY")]) for kind in KINDS}
    assert data not in made.values()
    assert made["token"] == b"one,XY,three"
    assert made["cut"] == b"one,"


def test_a_door_is_fed_by_hand() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "fio", "--seconds", "1", "--json"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)
    assert row["target"] == "fio"
    assert row["tried"] > 10
    assert row["findings"] == []
