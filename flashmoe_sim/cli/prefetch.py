"""`sim prefetch`: the predictors, and their value in a bank."""

from __future__ import annotations

import click

from flashmoe_sim.cli.common import json_option, print_json, print_result
from flashmoe_sim.cli.policy import print_rule
from flashmoe_sim.io.sections import Table


@click.group(name="prefetch")
def command() -> None:
    """List and explain the predictors, and judge them by what they save."""


@command.command(name="list", short_help="All predictors in a table.")
@json_option
def list_(as_json: bool) -> None:
    """List every predictor with its lead: how long before its use an expert is predicted."""
    from flashmoe_sim.prefetchers.table import PREFETCHERS
    from flashmoe_sim.reference import describe

    described = [describe(predictor) for predictor in PREFETCHERS.values()]
    rows = [(one["name"] + "*" * one["hindsight"], one["lead"] or "-", one["summary"]) for one in described]
    columns = (("predictor", "left"), ("lead", "left"), ("what it does", "left"))
    hint = (
        "`sim prefetch show NAME` gives parameters and source. A predictor of your own is `mine:Guess`: the "
        "class Guess in mine.py, in the current folder or on Python's path."
    )
    listed = Table(columns, rows, caption="*: knows the future")
    print_result({"predictors": described}, listed, hint, as_json=as_json)


@command.command(short_help="One predictor: rule, lead, parameters, source.")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show everything about the predictor NAME: one of `sim prefetch list`, or your own as module:Class."""
    from flashmoe_sim.parameters import find
    from flashmoe_sim.prefetchers.base import Prefetcher
    from flashmoe_sim.prefetchers.table import PREFETCHERS
    from flashmoe_sim.reference import describe

    described = describe(find("predictor", name, PREFETCHERS, Prefetcher))
    if as_json:
        print_json(described)
    else:
        print_rule(described)
