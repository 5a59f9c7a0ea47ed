"""Every refusal has a code."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import CODED, BadInput, Malformed, SimError, UnknownName, unknown_name
from flashmoe_sim.machines.written import UnknownPart
from flashmoe_sim.timeline.assemble import DoesNotFit
from tests.support import refused

ROOT = Path(__file__).parents[2]
PROGRAM = [file for folder in ("flashmoe_sim", "native_bridge") for file in sorted((ROOT / folder).rglob("*.py"))]


def test_codes_and_names_are_unique() -> None:
    codes = [kind.code for kind in (SimError, BadInput, *CODED)]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    assert [kind for kind in BadInput.__subclasses__() if kind.__module__ == BadInput.__module__] == list(CODED)
    classes = [
        node.name
        for file in PROGRAM
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert [classes.count(kind.__name__) for kind in CODED] == [1] * len(CODED)


def test_only_errors_with_a_code_are_raised() -> None:
    """What raises another's error again with more context keeps its class: `type(error)(...)`."""
    plain = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in PROGRAM
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "BadInput"
    ]
    assert plain == []


def test_parts_of_an_error() -> None:
    error = Malformed("has no rows", where="a.csv", advice="write it again")
    assert str(error) == "a.csv: has no rows; write it again"
    again = pickle.loads(pickle.dumps(error))  # as from a worker
    assert (type(again), again.code, again.where) == (Malformed, "malformed", "a.csv")
    assert (again.found, again.advice, str(again)) == ("has no rows", "write it again", str(error))


def test_narrower_errors_have_the_codes_of_their_kinds() -> None:
    assert (UnknownPart("rtx").code, DoesNotFit("bank 9").code) == ("unknown-name", "too-large")
    with refused(UnknownName, "known: lru, min"):
        raise unknown_name("policy", "x", ["min", "lru"])


@pytest.mark.parametrize("kind", CODED)
def test_a_kind_says_in_one_line_when_it_is_raised(kind: type[BadInput]) -> None:
    docstring = kind.__doc__ or ""
    assert docstring.endswith(".")
    assert "\n" not in docstring
    assert kind.exit_code == BadInput.exit_code
