"""Speeds and command lines of every system are those that are frozen."""

from __future__ import annotations

import pytest

from flashmoe_sim.systems.table import SYSTEMS
from tests.frozen_answers import ASKED, Answers, answers, by_labels, load, moves

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of borrowed traces


def test_every_system_is_frozen() -> None:
    assert {labels[2] for labels in load()} == set(SYSTEMS)


@pytest.mark.parametrize(("model", "machine"), ASKED)
def test_answers_are_as_frozen(model: str, machine: str) -> None:
    frozen = {labels: row for labels, row in load().items() if labels[:2] == (model, machine)}
    today = by_labels(answers(model, machine))
    assert list(moves(frozen, today)) == [], "if it should be so, run python -m tests.frozen_answers --write"


def test_what_moved_is_said_with_both() -> None:
    labels = ("a", "b", "cpu")
    before: Answers = {labels: {"tok_s": "10", "command": "run"}}
    assert list(moves(before, {labels: {"tok_s": "10.0005", "command": "run"}})) == []
    assert list(moves(before, {labels: {"tok_s": "11", "command": "run"}})) == [
        "a, b, cpu: was 10 tok/s by `run`, is 11 tok/s by `run`"
    ]
    assert list(moves(before, {labels: {"tok_s": "10", "command": "walk"}})) == [
        "a, b, cpu: was 10 tok/s by `run`, is 10 tok/s by `walk`"
    ]
    assert list(moves({}, before)) == ["a, b, cpu: was none, is 10 tok/s by `run`"]
