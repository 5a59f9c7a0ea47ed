"""JSON from files, read strictly: UTF-8, no half characters, no NaN, and no key twice in one object.

A key that occurs twice has no agreed meaning: most readers silently take the last value, some the first.
"""

from __future__ import annotations

from typing import Any

LONG_STRING = 4096  # bytes a quote, from which a search is faster than a split


def loads(text: bytes) -> Any:
    """The value of a JSON document.

    Raises ValueError, saying what is wrong, for what is not JSON and for an object that has a key twice.
    """
    import orjson

    value = orjson.loads(text)
    if repeats_a_key(text, value):
        import json

        try:
            json.loads(text, object_pairs_hook=_once)
        except RecursionError:
            raise ValueError("a key occurs twice, deep inside") from None
    return value


def repeats_a_key(text: bytes, value: Any) -> bool:
    """Whether an object in `text`, which was parsed to `value`, has a key twice: it has more colons than keys."""
    if b"\\" in text:  # few texts have escapes; looking for one takes a tenth of replacing two
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    outside = _outside_strings(text)
    keys = len(value) if outside.count(b"{") == 1 and isinstance(value, dict) else _keys(value)
    return outside.count(b":") != keys


def _outside_strings(text: bytes) -> bytes:
    """What is outside of the strings of a document without escaped quotes."""
    if text.count(b'"') * LONG_STRING > len(text):
        return b"".join(text.split(b'"')[::2])
    kept, begin = [], 0
    while begin < len(text) and (quote := text.find(b'"', begin)) >= 0:  # without a copy of long strings
        kept.append(text[begin:quote])
        begin = (text.find(b'"', quote + 1) + 1) or len(text)
    return b"".join([*kept, text[begin:]])


def _keys(value: Any) -> int:
    keys, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            keys += len(item)
            left.extend(item.values())
        elif isinstance(item, list):
            left += [one for one in item if type(one) is dict or type(one) is list]
    return keys


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise ValueError(f"key {twice!r} occurs twice")
    return dict(pairs)
