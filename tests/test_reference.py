"""The reference text of policies and predictors comes from their docstrings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar

import pytest

from flashmoe_sim.policies.base import EvictingPolicy, Policy
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.reference import Kind, describe, first_sentence, markdown, systems_markdown

KINDS = [*POLICIES.values(), *PREFETCHERS.values()]


@dataclass(frozen=True)
class Base(Policy):
    """A base.

    depth: inherited,
        over two lines. Width: not a parameter.
    """

    depth: int = 3


@dataclass(frozen=True)
class Explained(Base):
    """Say what it does: so.

    More of the rule. rate: is a word here.

    rate: how fast; see
    the rule. seed: of the draw.
    """

    name: ClassVar[str] = "explained"
    contracts: ClassVar[tuple[str, ...]] = ("atomic", "protected")

    rate: float = 0.5
    seed: int = 1


def test_parameters_are_taken_out_of_the_docstring() -> None:
    described = describe(Explained)
    assert described["summary"] == "Say what it does: so."
    assert described["rule"] == "Say what it does: so.\n\nMore of the rule. rate: is a word here."
    assert described["parameters"] == {"depth": 3, "rate": 0.5, "seed": 1}
    assert described["meanings"] == {
        "depth": "inherited, over two lines. Width: not a parameter.",
        "rate": "how fast; see the rule.",
        "seed": "of the draw.",
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_parameter_is_explained_also_in_a_section_of_the_page(kind: Kind) -> None:
    described = describe(kind)
    assert set(described["meanings"]) == {item.name for item in fields(kind)}
    assert [name for name, meaning in described["meanings"].items() if not meaning] == []
    assert described["rule"].startswith(described["summary"])
    _, _, section = markdown().partition(f"\n### `{kind.name}`\n")
    section = section.partition("\n## ")[0].partition("\n### ")[0]
    assert section.startswith(f"\n{described['summary']}")
    assert ("(future)" in section) == described["hindsight"]
    for name, default in described["parameters"].items():
        shared = name == "cost_us" or (issubclass(kind, EvictingPolicy) and name in ("stamp", "warm", "minor"))
        assert (f"- `{name}={default}`: {first_sentence(described['meanings'][name])}" in section) != shared
    assert described["source"] in section


def test_the_page_shortens_a_parameter_to_its_first_sentence() -> None:
    meaning = "share of the bank, e.g. 0.1 of it; 0: none. Slots are rounded down. More."
    assert first_sentence(meaning) == "share of the bank, e.g. 0.1 of it; 0: none."
    assert first_sentence("as for `static`.") == "as for `static`."


@pytest.mark.parametrize("page", [markdown, systems_markdown])
def test_links_lead_to_one_heading_each(page: Callable[[], str]) -> None:
    """As GitHub makes them: lower case, without punctuation, spaces as hyphens."""
    text = page()
    headings = [re.sub(r"[^\w\- ]", "", line.lower()).strip() for line in re.findall("^#+ (.*)$", text, re.MULTILINE)]
    anchors = [heading.replace(" ", "-") for heading in headings]
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r"\(#([^)]*)\)", text)) <= set(anchors)
