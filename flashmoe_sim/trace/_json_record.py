"""The slow reader for one line of the patched runtime's trace: it gets the lines that the kernels refuse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import shortened
from flashmoe_sim.trace._json_kernels import KEY_NAMES, LARGEST, N_EXPERT_USED, PHASE
from flashmoe_sim.trace.calls import ID_MAX

_SMALLEST = {N_EXPERT_USED: 1}
_NUMBERS = KEY_NAMES[: len(LARGEST)]
_REQUIRED = ("layer", "experts")
_PHASES = {"unknown": 0, "prompt": 1, "decode": 2}
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
# What an entry of a list is, its types, its limits, and what is expected in words.
_LISTS: dict[str, tuple[str, set[type], float, float, str]] = {
    "experts": ("expert id", {int}, 0, ID_MAX, f"an integer from 0 to {ID_MAX}"),
    "slots": ("slot", {int}, -1, ID_MAX, f"an integer from -1 to {ID_MAX}"),
    "weights": ("weight", {int, float}, -_LARGEST_WEIGHT, _LARGEST_WEIGHT, "a 32-bit float"),
}


class BadRecord(Exception):
    """A line is not a routed call: says what was found and what was expected."""


class NotJson(BadRecord):
    """A line is not even JSON, such as the last line of a file that is still being written."""


def read_record(line: bytes) -> dict[str, Any]:
    """The known keys of a line with their checked values: integers, and lists of integers or of floats (weights).

    Optional keys with the value null are left out, and so are `slots` without a slot.

    Raises NotJson if the line is not one JSON value, BadRecord if it is not a routed call.
    """
    value = _json(line)
    if strict_json.repeats_a_key(line, value):
        _refuse_twice(line)
    if not isinstance(value, dict):
        raise BadRecord(f"found {_shown(value)}, expected an object with {' and '.join(_REQUIRED)}")
    record = {name: value[name] for name in KEY_NAMES if name in value}
    for name in _REQUIRED:
        if name not in record:
            raise BadRecord(f'found no "{name}", expected an object with {" and ".join(_REQUIRED)}')
    record = {name: item for name, item in record.items() if item is not None or name in _REQUIRED}
    if record.get("slots") == [] and record["experts"] != []:
        del record["slots"]  # of a call whose experts were in no slots
    for column, name in enumerate(_NUMBERS):
        if name in record:
            if column == PHASE and isinstance(record[name], str):
                record[name] = _PHASES.get(record[name], record[name])
            _check_number(name, record[name], _SMALLEST.get(column, 0), int(LARGEST[column]))
    if not isinstance(record["experts"], list):
        raise BadRecord(f"found experts {_shown(record['experts'])}, expected a list of expert ids")
    for name in _LISTS:
        if name in record:
            _check_list(name, record)
    return record


def _json(line: bytes) -> Any:
    if b"\0" in line:
        raise NotJson(f"found NUL bytes (column {line.index(0) + 1}), expected one JSON object")
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        reason, column = error.msg, error.colno
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"found bytes that are not UTF-8 (column {error.start + 1}), expected one JSON object") from None
    raise NotJson(f"found invalid JSON ({reason}, column {column}), expected one JSON object")


def _refuse_twice(line: bytes) -> None:
    """Raise BadRecord if a known key occurs twice, even if written with escapes; other keys are ignored."""
    try:
        pairs = json.loads(line, object_pairs_hook=list)
    except RecursionError:
        raise BadRecord("found values nested too deeply, expected one JSON object") from None
    keys = [pair[0] for pair in pairs if isinstance(pair, tuple)]
    for name in KEY_NAMES:
        if keys.count(name) > 1:
            raise BadRecord(f'found "{name}" twice, expected each key once')


def _shown(value: Any) -> str:
    """A value as JSON, short."""
    if isinstance(value, list | dict):
        return f"a list of {len(value)}" if isinstance(value, list) else "an object"
    return shortened(orjson.dumps(value).decode(), 40)


def _check_number(name: str, value: Any, smallest: int, largest: int) -> None:
    if type(value) is not int or not smallest <= value <= largest:
        words = ', "prompt" or "decode"' if name == "phase" else ""
        raise BadRecord(f"found {name} {_shown(value)}, expected an integer from {smallest} to {largest}{words}")


def counts_of(record: dict[str, Any]) -> tuple[int, int]:
    """n_expert_used and n_tokens of a record; one follows from the other and the number of experts, else it is one
    token.

    Raises BadRecord if the experts do not divide evenly.
    """
    used, tokens, experts = record.get("n_expert_used"), record.get("n_tokens"), len(record["experts"])
    if used and tokens is not None:
        return used, tokens
    if tokens == 0:
        raise BadRecord("found n_tokens 0 without n_expert_used, expected both")
    given = used or tokens or 1
    if not experts or experts % given:
        name = "n_expert_used" if used else "n_tokens"
        expected = f"a multiple of {name} {given}" if given > 1 else "at least one"
        raise BadRecord(f"found {experts} experts, expected {expected}")
    return (used, experts // used) if used else (experts // given, given)


def _check_list(name: str, record: dict[str, Any]) -> None:
    values, (used, tokens) = record[name], counts_of(record)
    if not isinstance(values, list):
        raise BadRecord(f"found {name} {_shown(values)}, expected a list of {used * tokens}")
    if len(values) != used * tokens:
        raise BadRecord(
            f"found {len(values)} {name}, expected {used * tokens} (n_expert_used {used} x n_tokens {tokens})"
        )
    what, kinds, low, high, expected = _LISTS[name]
    if not values or (kinds.issuperset(map(type, values)) and low <= min(values) and max(values) <= high):
        return
    for i, value in enumerate(values):
        if type(value) not in kinds or not low <= value <= high:
            raise BadRecord(f"found {what} {_shown(value)} (entry {i + 1} of {name}), expected {expected}")
