"""`sim prefetch`: the predictors, and their value in a bank."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import (
    interruptible,
    json_option,
    lenient_option,
    print_json,
    print_table,
    wrapped,
)
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.policy import print_described
from flashmoe_sim.cli.workload import with_trace
from flashmoe_sim.io.cells import Column, count, interval, percent, speed, table
from flashmoe_sim.io.sections import Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.question import bank_text
from flashmoe_sim.verbs.judge import Judge

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.ahead_value import AheadValue, BreakEven
    from flashmoe_sim.sweep.task import Task


@click.group(name="prefetch", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List and explain the predictors, and judge them by what they save."""


@command.command(short_help="What each predictor costs and saves in a bank.")
@of_verb(Judge)
@lenient_option
@json_option
def judge(asked: Judge, *, lenient: bool, as_json: bool) -> None:
    """Judge predictors by the reads they cost and the stalls they save, not by accuracy.

    TRACE is a file, or a name from `sim trace catalog`. The last table shows how accurate any predictor must be to pay
    off. With --machine, the first also has the speed, which each predictor's own cost_us slows.

    \b
    Examples:  sim prefetch judge python-256 --bank 16
               sim prefetch judge gpt-oss-120b --bank 32 --machine rtx-4090 \\
               --prefetch markov,markov:cost_us=50
    """
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.verbs.given import task_of

    asked = with_trace(asked, lenient=lenient)
    with replaying() as progress:
        found = interruptible(asked.run, progress)
    task = task_of(asked)
    if as_json:
        print_json({"identity": task.identity(), **_document(found.values, found.needed)})
        return
    _print_values(task, found.values)
    _print_break_even(found.needed)


@command.command(name="list", short_help="All predictors in a table.")
@json_option
def list_(as_json: bool) -> None:
    """List every predictor with its lead: how long before its use an expert is predicted."""
    from flashmoe_sim.prefetchers.table import PREFETCHERS
    from flashmoe_sim.reference import describe

    described = [describe(predictor) for predictor in PREFETCHERS.values()]
    if as_json:
        print_json({"predictors": described})
        return
    rows = [(one["name"] + "*" * one["hindsight"], one["lead"] or "-", one["summary"]) for one in described]
    columns = (("predictor", "left"), ("lead", "left"), ("what it does", "left"))
    print_table(Table(columns, rows, caption="*: knows the future"))
    click.echo(
        wrapped(
            "`sim prefetch show NAME` gives parameters and source. A predictor of your own is `mine:Guess`: the "
            "class Guess in mine.py, in the current folder or on Python's path."
        )
    )


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
        print_described(described)


def _document(values: list[AheadValue], needed: BreakEven) -> dict[str, Any]:
    from flashmoe_sim.ceilings.ahead_value import RECALLS

    return {
        "predictors": [asdict(value) | {"worth": value.worth} for value in values],
        "break_even": {
            "price": needed.price,
            "recalls": RECALLS,
            "extras": [
                {"extra": extra, "worth": [value.worth for value in row], "needed_recall": recall}
                for extra, row, recall in zip(needed.extras, needed.grid, needed.needed, strict=True)
            ],
        },
    }


def _print_values(task: Task, values: list[AheadValue]) -> None:
    columns: list[Column] = [
        ("predictor", "left", lambda one: one.prefetch + "*" * one.hindsight),
        ("recall", "right", lambda one: percent(one.recall)),
        ("prec.", "right", lambda one: percent(one.precision)),
        ("ahead/tok", "right", lambda one: f"{one.read_ahead / one.tokens:.1f}" if one.tokens else "-"),
        ("useful", "right", lambda one: percent(one.useful / one.read_ahead if one.read_ahead else None)),
        ("late", "right", lambda one: percent(one.late / one.useful if one.useful else None)),
        ("misses", "right", lambda one: count(one.misses)),
        ("saved", "right", lambda one: count(one.saved)),
        ("read/tok", "right", _read_per_token),
        ("worth", "right", lambda one: "-" if one.worth is None else f"{one.worth:.2f}"),
    ]
    setup, on = task.setup, ""
    if task.machine is not None and task.conditions is not None:
        on = f"; {task.conditions.execution.name} on {task.machine.name}"
        columns += [
            ("tok/s", "right", lambda one: speed(one.tok_s)),
            ("90% interval", "right", lambda one: interval(one.tok_s_lo, one.tok_s_hi)),
        ]
    title = f"{task.workload.trace.name}: {setup.policy.spec}, {bank_text(setup)}, contract {setup.contract}{on}"
    caption = (
        "recall, prec., useful and late in %; what is prefetched but not useful is wasted; late: useful, but asked for "
        "by the very next call; read/tok: demand reads and prefetches; worth: misses saved per expert prefetched; *: "
        "knows the future"
    )
    dispensable = ("late", "useful", "saved", "prec.", *(("read/tok", "ahead/tok", "recall", "misses") if on else ()))
    print_table(table(columns, values, title=title, caption=caption, dispensable=dispensable))


def _read_per_token(one: AheadValue) -> str:
    return size(None if one.bytes_read is None or not one.tokens else one.bytes_read / one.tokens)


def _print_break_even(needed: BreakEven) -> None:
    from flashmoe_sim.ceilings.ahead_value import RECALLS

    columns = [("wrong per call", "right"), *((f"recall {recall:.0%}", "right") for recall in RECALLS)]
    columns.append((f"worth {needed.price:g} from", "right"))
    cells = [
        (
            str(extra),
            *("-" if value.worth is None else f"{value.worth:.2f}" for value in row),
            "never" if recall is None else f"{recall:.0%}",
        )
        for extra, row, recall in zip(needed.extras, needed.grid, needed.needed, strict=True)
    ]
    caption = (
        "worth of a predictor that names each expert of the next step with this chance, and this many wrong ones "
        f"for each call; last: the least recall that pays if a prefetch costs {needed.price:g} of a read that stalls"
    )
    print_table(Table(columns, cells, title="How right must a predictor be?", caption=caption))
