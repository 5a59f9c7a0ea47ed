"""The table of estimates: what its reader refuses, and that every number is used."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashmoe_sim.machines.estimates import estimate, estimates, read_estimates

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads((ROOT / "flashmoe_sim" / "machines" / "estimates.toml").read_text("utf-8"))
ENTRIES = read_estimates(TABLE)
GIVEN = 'unit = "us"\nsource = "a log"\nset = "measured"\n'


def read(text: str) -> None:
    read_estimates(tomllib.loads(text))


def test_an_entry_has_what_its_table_gives() -> None:
    found = read_estimates(tomllib.loads(f'[a.b]\n{GIVEN}c = 2\nd = {{ lo = 1, value = 3, hi = 4, set = "rows" }}'))
    assert [*found] == ["a.b.c", "a.b.d"]
    assert (found["a.b.c"].ends, found["a.b.c"].set) == ((2, 2, 2), "measured")
    assert (found["a.b.d"].ends, found["a.b.d"].set, found["a.b.d"].source) == ((1, 3, 4), "rows", "a log")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"[a]\nvalue = 1\nlow = 0.5\n{GIVEN}", "a: .*'low'"),
        (f"[a]\nvalue = 1\nhi = 0.5\n{GIVEN}", "a: .*expected lo <= value <= hi"),
        (f"[a]\nvalue = nan\n{GIVEN}", "a: .*expected lo <= value <= hi"),
        (f"[a]\nvalue = '1'\nlo = 0\n{GIVEN}", "a: .*expected lo <= value <= hi"),
        (f"[a]\n{GIVEN}b = 'one'", r"a\.b: .*expected lo <= value <= hi"),
        ("[a]\nvalue = 1\nunit = 'us'\nset = 'rows'", "a: .*'source'"),
        ("[a]\nvalue = 1\nunit = 'us'\nsource = 'x'\nset = 'guessed'", "a: .*'guessed'"),
    ],
)
def test_a_wrong_entry_is_named(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong) as error:
        read(text)
    assert "\n" not in str(error.value)


def test_a_key_that_a_table_lacks_has_the_entry_of_all_others() -> None:
    assert estimate("gpu.layer_us", "intel") == estimate("gpu.layer_us.intel")
    assert estimate("gpu.layer_us", "amd") == estimate("gpu.layer_us.other") == estimates("gpu.layer_us")["other"]
    with pytest.raises(KeyError, match=r"storage\.lanes\.other"):
        estimate("storage.lanes", "tape")


def test_every_entry_says_where_it_is_from() -> None:
    for name, one in ENTRIES.items():
        assert len(one.source) >= 8, name
        assert one.unit, name


def test_the_page_on_seconds_counts_those_that_no_row_tests() -> None:
    chapters = sum(one.set == "rows" for one in ENTRIES.values())
    page = " ".join((ROOT / "docs" / "background" / "seconds.md").read_text().split())
    assert f"how each was set: {chapters} of {len(ENTRIES)} by the field report's own speeds" in page


def test_every_entry_is_used() -> None:
    """By its name or its table's, in a line of the program, or of the reports if it is of builds of the past."""
    constants = [node for node in nodes("flashmoe_sim", "native_bridge", "reports") if isinstance(node, ast.Constant)]
    named = {str(node.value).rstrip(".") for node in constants}
    for engine in (ROOT / "flashmoe_sim" / "systems" / "engines").glob("*.toml"):
        for declared in tomllib.loads(engine.read_text("utf-8")).get("systems", {}).values():
            named |= {*declared.get("costs", {}).values()}
    assert [name for name in ENTRIES if not named & {name, *_tables(name)}] == []


def test_the_costs_of_systems_are_entries() -> None:
    made = [node for node in nodes("flashmoe_sim/systems") if isinstance(node, ast.Call)]
    assert [ast.unparse(node) for node in made if ast.unparse(node.func) == "Cost"] == []


def nodes(*folders: str) -> Iterator[ast.AST]:
    for folder in folders:
        for source in (ROOT / folder).rglob("*.py"):
            yield from ast.walk(ast.parse(source.read_text("utf-8")))


def _tables(name: str) -> list[str]:
    """The tables that an entry is in, such as `gpu.layer_us` of `gpu.layer_us.intel`; a word alone names none."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(2, len(words))]
