"""The fields of a question, and what their help lists."""

from __future__ import annotations

from dataclasses import fields

import pytest

from flashmoe_sim.question import CONDITIONS, Asked, AskedConditions, AskedSeveral, Question


@pytest.mark.parametrize("asked", [Asked, AskedSeveral])
def test_the_keywords_are_the_fields_of_a_question(asked: type) -> None:
    """mypy compares their types; the machine is a parameter of the functions that take one."""
    assert {*asked.__annotations__, "machine"} == {item.name for item in fields(Question)}
    assert tuple(AskedConditions.__annotations__) == CONDITIONS
