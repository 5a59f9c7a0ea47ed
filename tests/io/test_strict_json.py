"""JSON documents: what is read, and what is refused although most readers accept it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.io import strict_json

LONG = "{a:" * (30 * strict_json.LONG_STRING)  # strings of which no copy is made
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text('a":{}\\\n', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab:"{\\', max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=300)
def test_documents_read_as_they_were_written(value: Any) -> None:
    for indent in (None, 1):
        for ascii_only in (True, False):
            for written in (value, [value, LONG]):
                assert (
                    strict_json.loads(json.dumps(written, indent=indent, ensure_ascii=ascii_only).encode()) == written
                )


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'[{"x":[{"a":1,"a":2}]}]',
        b'{"a":{"b":1},"c":[{"a":0 , "a" : {}}]}',
        b'{"":0,":":1,"\\"":2,"b":3,"a\\"":4,"b":5,"a":6,"a":7}',
    ],
)
def test_a_key_twice(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"key '[ab]' occurs twice"):
        strict_json.loads(text)
    with pytest.raises(ValueError, match=r"key '[ab]' occurs twice"):
        strict_json.loads(b"[" + text + b',"' + LONG.encode() + b'"]')


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[NaN]",
        b"[Infinity]",
        b'"\xff"',
        b'"\\ud800"',
        b"[1,]",
        b"{}{}",
        b"[" * 5000 + b"]" * 5000,
        b"1e999",
    ],
)
def test_what_is_not_json(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # orjson's own words
        strict_json.loads(text)
