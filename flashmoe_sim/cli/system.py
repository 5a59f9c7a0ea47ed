"""`sim system`: the real systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import json_option, print_described, print_json, print_result
from flashmoe_sim.io.sections import Table

if TYPE_CHECKING:
    from flashmoe_sim.systems.facts import EngineFacts


@click.group(name="system")
def command() -> None:
    """List and explain the systems that `sim compare` puts side by side."""


@command.command(name="list", short_help="All systems in a table.")
@json_option
def list_(as_json: bool) -> None:
    """List every system with what it keeps and where its misses go."""
    from flashmoe_sim.reference import describe_system
    from flashmoe_sim.systems.table import SYSTEMS

    described = [describe_system(kind) for kind in SYSTEMS.values()]
    rows = [(one["name"], one["keeps"], one["misses"]) for one in described]
    listed = Table([("system", "left"), ("keeps", "left"), ("misses", "left")], rows)
    hint = "`sim system show NAME` gives settings, needs and source; `sim compare` runs them."
    print_result({"systems": described}, listed, hint, as_json=as_json)


def _facts(facts: EngineFacts) -> list[tuple[str, str]]:
    """What is known of the engine, and how to get it."""
    archs, get = facts.archs, facts.get
    lines = [
        ("state", f"{facts.state.words} ({facts.state.source})"),
        ("licence", f"{facts.licence.name or 'none in its repository'} ({facts.licence.source})"),
        ("runs on", f"{'; '.join(facts.where) or 'any system'} ({facts.platform.source})"),
        ("reads", f"{', '.join(facts.formats.quants or facts.formats.reads)} ({facts.formats.source})"),
        ("serves", f"{', '.join(archs.served)} ({archs.source})"),
    ]
    if facts.reported is not None:
        lines.append(("reported", f"{'; '.join(facts.reported.says)} ({facts.reported.source})"))
    if get is None:
        return lines
    ready = [("ready made", get.downloads)] if get.downloads else []
    return [*lines, *ready, ("weights", get.weights), ("built as in", get.source)]


@command.command(short_help="One system: rule, settings, needs, source.")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show everything about the system NAME: one of `sim system list`, or your own as module:Class."""
    from flashmoe_sim.parameters import find
    from flashmoe_sim.reference import describe_system, shown_cost
    from flashmoe_sim.systems.base import Cost, System
    from flashmoe_sim.systems.table import SYSTEMS

    kind = find("system", name, SYSTEMS, System)
    one, facts = describe_system(kind), kind.facts_of_engine()
    if as_json:
        print_json(one)
        return
    lines = [
        ("engine", one["engine"]),
        ("keeps", one["keeps"]),
        ("misses", one["misses"]),
        ("needs", one["needs"] or "any machine"),
        ("source", one["source"]),
        *([] if facts is None else _facts(facts)),
        *(("cost of its own", shown_cost(Cost(**cost))) for cost in one["costs"]),
        ("settings", f"given as {one['name']}:key=value" if one["parameters"] else "none"),
        *((f"  {key}={value}", one["meanings"][key]) for key, value in one["parameters"].items()),
    ]
    print_described(f"{one['name']}: {one['title']}", one["rule"], lines)
    if facts is None or facts.get is None:
        return
    for api in facts.get.build:
        click.echo(f"\nget it and build it for {api}:")
        click.echo("\n".join(f"    {line}" for line in facts.get.lines(api)))
