"""A machine as a TOML file that loads back to an equal machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.printable import UNPRINTABLE
from flashmoe_sim.io.provenance import program
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.machines.attention_rates import without_estimates
from flashmoe_sim.machines.keys import SECTIONS, default_interval
from flashmoe_sim.machines.machine import Card, Machine, Quantity
from flashmoe_sim.machines.reads import MeasuredRead

WIDTH = 100


def write_machine(machine: Machine, path: str | Path, *, force: bool = False) -> None:
    """Write the machine to `path`, all at once.

    A default interval is left out, so that it follows the value if that is edited.
    Raises BadInput if `path` exists without force, or cannot be written.
    """
    with atomic_writer(Path(path), force=force) as file:
        file.write(f"# Written by {program()}.\n{toml(machine)}".encode())


def toml(machine: Machine) -> str:
    """The machine as a TOML document."""
    return "\n".join(_lines(machine)) + "\n"


def _lines(machine: Machine) -> Iterator[str]:
    yield f"name = {_text(machine.name)}"
    yield f"title = {_text(machine.title)}"
    yield f"unified = {str(machine.unified).lower()}"
    if machine.api:
        yield f"api = {_text(machine.api)}"
    if machine.gpus > 1:
        yield f"gpus = {machine.gpus}"
    if machine.machines > 1:
        yield f"machines = {machine.machines}"
    for name in ("os", "gpu_maker", "gpu_compute"):
        if text := getattr(machine, name):
            yield f"{name} = {_text(text)}"
    if machine.cpu_features is not None:
        yield f"cpu_features = [{', '.join(map(_text, machine.cpu_features))}]"
    if machine.cpu_cores:
        yield f"cpu_cores = {machine.cpu_cores}"
    if machine.sockets > 1:
        yield f"sockets = {machine.sockets}"
    if machine.socket_mode:
        yield f"socket_mode = {_text(machine.socket_mode)}"
    quantities = dict((machine if machine.learnt else without_estimates(machine)).quantities())
    for section, keys in SECTIONS.items():
        for key in keys:
            path = f"{section}.{key.name}"
            if path in quantities:
                quantity = quantities[path]
                default = default_interval(key, quantity.value, estimated=quantity.estimated)
                yield from ("", f"[{path}]  # {key.meaning}", *_quantity(quantity, *default))
        if section == "storage":
            for point in machine.storage.measured:
                yield from ("", "[[storage.measured]]")
                yield from _fields(point)
    for card in machine.cards:
        yield from ("", "[[cards]]")
        yield from _fields(card)
    if machine.anchors is not None:
        yield from ("", "[anchors]")
        yield "runs = [" + "".join(f"\n    {_text(run)}," for run in machine.anchors.runs) + "\n]"
        for name in ("model", "date", "command"):
            yield f"{name} = {_text(getattr(machine.anchors, name))}"
        if machine.anchors.routed_bytes is not None:
            yield f"routed_bytes = {machine.anchors.routed_bytes}"
    if (learnt := machine.learnt) is not None:
        yield from ("", "[learnt]  # what was measured on it, and what that taught of all unknowns together")
        yield from _list("notes", map(_text, learnt.notes))
        yield from _list("names", map(_text, learnt.names))
        yield f"mean = {_row(learnt.mean)}"
        yield from _list("covariance", map(_row, learnt.covariance))


def _fields(row: Card | MeasuredRead) -> Iterator[str]:
    for item in fields(row):
        value = getattr(row, item.name)
        yield f"{item.name} = {_text(value) if isinstance(value, str) else _number(value)}"


def _list(name: str, items: Iterable[str]) -> Iterator[str]:
    yield f"{name} = [" + "".join(f"\n    {item}," for item in items) + "\n]"


def _row(values: NDArray[np.float64]) -> str:
    return f"[{', '.join(map(_number, values.tolist()))}]"


def _quantity(quantity: Quantity, lo: float, hi: float) -> Iterator[str]:
    yield f"value = {_number(quantity.value)}"
    if quantity.lo != lo:
        yield f"lo = {_number(quantity.lo)}"
    if quantity.hi != hi:
        yield f"hi = {_number(quantity.hi)}"
    if quantity.estimated:
        yield "estimated = true"
    if quantity.guessed:
        yield "guessed = true"
    yield f"source = {_text(quantity.source)}"
    yield f"condition = {_text(quantity.condition)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _text(text: str) -> str:
    """The text in quotes; a long text is broken at spaces into several lines, which TOML joins again."""
    escaped = re.sub(rf'[\\"\t\n]|{UNPRINTABLE.pattern}', lambda found: f"\\u{ord(found[0]):04x}", text)
    escaped = escaped.replace("\\u0022", '\\"').replace("\\u005c", "\\\\")
    if len(escaped) <= WIDTH or escaped.startswith(" "):
        return f'"{escaped}"'
    lines = [""]
    for word in re.findall("[^ ]+ *", escaped):
        if lines[-1] and len(lines[-1]) + len(word) > WIDTH:
            lines.append("")
        lines[-1] += word
    return '"""\\\n' + "\\\n".join(lines) + '"""'
