"""`sim policy`: the eviction policies there are."""

from __future__ import annotations

from typing import Any

import click

from flashmoe_sim.cli.common import json_option, print_json, print_table, wrapped


@click.group(name="policy", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List and explain the eviction policies."""


@command.command(name="list", short_help="All policies in a table.")
@json_option
def list_(as_json: bool) -> None:
    """List every policy with the contracts it is defined under."""
    from flashmoe_sim.policies.base import ALL_CONTRACTS
    from flashmoe_sim.policies.table import POLICIES

    if as_json:
        print_json([_describe(name) for name in POLICIES])
        return
    rows = []
    for name, policy in POLICIES.items():
        contracts = "all" if policy.contracts == ALL_CONTRACTS else ", ".join(policy.contracts)
        rows.append((name, contracts, _describe(name)["summary"]))
    print_table((("policy", "left"), ("contracts", "left"), ("what it does", "left")), rows)
    click.echo(wrapped("`sim policy show NAME` tells parameters, ties and source; `module:Class` names your own."))


@command.command(short_help="One policy: rule, parameters, ties, source.")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Say all there is to know about the policy NAME."""
    from flashmoe_sim.errors import unknown_name
    from flashmoe_sim.policies.table import POLICIES

    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    described = _describe(name)
    if as_json:
        print_json(described)
        return
    rule = "\n\n".join(wrapped(" ".join(part.split())) for part in described["rule"].split("\n\n"))
    click.echo(f"{name}\n\n{rule}\n")
    parameters = ", ".join(f"{key}={value}" for key, value in described["parameters"].items())
    for label, text in (
        ("parameters", f"{parameters} (after the name: {name}:key=value)" if parameters else "none"),
        ("ties", described["ties"]),
        ("contracts", ", ".join(described["contracts"])),
        ("knows the future", "yes" if described["hindsight"] else "no"),
        ("source", described["source"]),
    ):
        click.echo(wrapped(f"{label + ':':18}{text}", indent=18))


def _describe(name: str) -> dict[str, Any]:
    import inspect
    from dataclasses import fields

    from flashmoe_sim.policies.table import POLICIES

    policy = POLICIES[name]
    rule = inspect.getdoc(policy) or ""
    return {
        "name": name,
        "summary": rule.partition("\n")[0],
        "rule": rule,
        "parameters": {item.name: item.default for item in fields(policy)},
        "ties": policy.ties,
        "contracts": list(policy.contracts),
        "hindsight": policy.hindsight,
        "source": policy.source,
    }
