"""The table of predictors."""

from __future__ import annotations

import re

import pytest

from flashmoe_sim.io.errors import UnknownName
from flashmoe_sim.policies.base import ALL_CONTRACTS
from flashmoe_sim.prefetchers.last_call import LastCall
from flashmoe_sim.prefetchers.table import PREFETCHERS, WITHOUT_FILE, parse_prefetcher


@pytest.mark.parametrize("name", PREFETCHERS)
def test_every_predictor_describes_itself(name: str) -> None:
    kind = PREFETCHERS[name]
    assert kind.name == name
    if name in WITHOUT_FILE:
        assert type(parse_prefetcher(name)) is kind
        assert parse_prefetcher(name) == kind()
    assert kind.__doc__
    assert kind.__doc__.strip().splitlines()[0].endswith(".")
    assert kind.contracts
    assert set(kind.contracts) <= set(ALL_CONTRACTS)
    assert kind.source or name == "none"


def test_no_prefetching_is_defined_everywhere() -> None:
    assert set(PREFETCHERS["none"].contracts) == set(ALL_CONTRACTS)


def test_the_runtimes_three() -> None:
    widths = {name: kind.width for name, kind in PREFETCHERS.items() if issubclass(kind, LastCall)}
    assert widths == {"temporal": 0, "predict-prev": 0, "predict-top1": 1}


KNOWN = f"known: {', '.join(sorted(PREFETCHERS))}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", KNOWN),
        ("Temporal", "did you mean 'temporal'?"),
        ("lru", KNOWN),
        ("predict", "did you mean 'predict-"),
    ],
)
def test_unknown_predictors(text: str, says: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(says)):
        parse_prefetcher(text)
