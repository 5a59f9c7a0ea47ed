"""`sim policy`: the eviction policies."""

from __future__ import annotations

from typing import Any

import click

from flashmoe_sim.cli.common import json_option, print_described, print_json, print_result
from flashmoe_sim.io.sections import Table


@click.group(name="policy")
def command() -> None:
    """List, explain, judge and fit the eviction policies."""


@command.command(name="list", short_help="All policies in a table.")
@json_option
def list_(as_json: bool) -> None:
    """List every policy with the contracts under which it is defined."""
    from flashmoe_sim.policies.table import POLICIES
    from flashmoe_sim.reference import describe, shown_contracts

    described = [describe(policy) for policy in POLICIES.values()]
    rows = [(one["name"], shown_contracts(one["contracts"]), one["summary"]) for one in described]
    listed = Table([("policy", "left"), ("contracts", "left"), ("what it does", "left")], rows)
    hint = (
        "`sim policy show NAME` gives parameters, ties and source. A policy of your own is `mine:Gap`: the "
        "class Gap in mine.py, in the current folder or on Python's path."
    )
    print_result({"policies": described}, listed, hint, as_json=as_json)


@command.command(short_help="One policy: rule, parameters, ties, source.")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show everything about the policy NAME: one of `sim policy list`, or your own as module:Class."""
    from flashmoe_sim.parameters import find
    from flashmoe_sim.policies.base import Policy
    from flashmoe_sim.policies.table import POLICIES
    from flashmoe_sim.reference import describe

    described = describe(find("policy", name, POLICIES, Policy))
    if as_json:
        print_json(described)
        return
    print_rule(described)


def print_rule(described: dict[str, Any]) -> None:
    """Print the rule of a policy or predictor, then everything else about it."""
    name = described["name"]
    facts = [
        *((fact, described[fact]) for fact in ("ties", "lead") if described[fact]),
        ("contracts", ", ".join(described["contracts"])),
        ("knows the future", "yes" if described["hindsight"] else "no"),
        ("source", described["source"]),
        ("parameters", f"given as {name}:key=value" if described["parameters"] else "none"),
        *((f"  {key}={value}", described["meanings"][key]) for key, value in described["parameters"].items()),
    ]
    print_described(name, described["rule"], facts)
