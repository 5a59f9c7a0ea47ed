"""How `sim policy` and `sim prefetch` list and explain what there is."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from flashmoe_sim.cli.common import wrapped
from flashmoe_sim.errors import unknown_name


def describe(name: str, kind: type[Any], *facts: str) -> dict[str, Any]:
    """What is known of a policy or predictor: its rule, its parameters with their defaults, and these class variables."""
    rule = inspect.getdoc(kind) or ""
    return {
        "name": name,
        "summary": rule.partition("\n")[0],
        "rule": rule,
        "parameters": {item.name: item.default for item in fields(kind)},
        **{fact: getattr(kind, fact) for fact in facts},
    }


def check_known(what: str, name: str, table: Mapping[str, Any]) -> None:
    """Raises BadInput for a name that is not in the table."""
    if name not in table:
        raise unknown_name(what, name, table)


def print_described(described: dict[str, Any], labelled: Sequence[tuple[str, str]]) -> None:
    """The rule, the parameters, and then what stands in `labelled`."""
    name = described["name"]
    rule = "\n\n".join(wrapped(" ".join(part.split())) for part in described["rule"].split("\n\n"))
    click.echo(f"{name}\n\n{rule}\n")
    parameters = ", ".join(f"{key}={value}" for key, value in described["parameters"].items())
    shown = f"{parameters} (after the name: {name}:key=value)" if parameters else "none"
    for label, text in (("parameters", shown), *labelled):
        click.echo(wrapped(f"{label + ':':18}{text}", indent=18))
