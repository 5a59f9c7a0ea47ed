"""`sim policy`: the eviction policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from flashmoe_sim.cli.common import (
    force_option,
    interruptible,
    json_option,
    lenient_option,
    message,
    print_json,
    print_table,
    refuse_table,
    rows_option,
    wrapped,
    write_table,
)
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.io.cells import UNKNOWN, Column, count, percent, speed, table
from flashmoe_sim.io.sections import Table
from flashmoe_sim.verbs.fit_policy import FitPolicy
from flashmoe_sim.verbs.judge_policies import JudgePolicies
from flashmoe_sim.verbs.victims import Victims

LEAST_P = 0.001


@click.group(name="policy", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List, explain, judge and fit the eviction policies."""


@command.command(name="list", short_help="All policies in a table.")
@json_option
def list_(as_json: bool) -> None:
    """List every policy with the contracts under which it is defined."""
    from flashmoe_sim.policies.table import POLICIES
    from flashmoe_sim.reference import describe, shown_contracts

    described = [describe(policy) for policy in POLICIES.values()]
    if as_json:
        print_json({"policies": described})
        return
    rows = [(one["name"], shown_contracts(one["contracts"]), one["summary"]) for one in described]
    print_table(Table([("policy", "left"), ("contracts", "left"), ("what it does", "left")], rows))
    click.echo(
        wrapped(
            "`sim policy show NAME` gives parameters, ties and source. A policy of your own is `mine:Gap`: the "
            "class Gap in mine.py, in the current folder or on Python's path."
        )
    )


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
    print_described(described)


@command.command(short_help="Policies against another one, with intervals.")
@of_verb(JudgePolicies)
@rows_option
@force_option
@lenient_option
@json_option
def judge(asked: JudgePolicies, *, out: Path | None, force: bool, lenient: bool, as_json: bool) -> None:
    """Compare policies with another one: differences in hits, or in speed on a machine, each with an interval.

    TRACE is a file, or a name from `sim trace catalog`. Of several traces the means are printed; --json and --out have
    each.

    \b
    Examples:  sim policy judge my.jsonl --bank 16,32 --policy lfu-decay,mine:Gap
               sim policy judge gpt-oss-120b --bank 16 --policy all \\
                 --machine rtx-3090 --execution hot-cold
    """
    from flashmoe_sim.sweep.left_out import reasons

    if out is not None:
        refuse_table(out, force=force)
    found = _replayed(asked, lenient=lenient)
    rows = found.table()
    if out is not None:
        write_table(rows, out, force=force)
    if as_json:
        asked_for = {"confidence": asked.confidence, "skip_steps": asked.skip_steps}
        warnings = [*found.notes, *reasons(found.left_out), *found.warnings]
        print_json({**asked_for, "warnings": warnings, "rows": rows.to_dicts()})
        return
    print_table(_judged(rows.to_dicts(), asked, found.executions))
    for warning in (*reasons(found.left_out), *found.warnings):
        message(warning)


def _replayed(asked: Any, *, lenient: bool) -> Any:
    """What a verb finds on traces, read and replayed with progress."""
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.cli.workload import load_workload

    with replaying() as progress:
        return interruptible(partial(asked.run, read=partial(load_workload, lenient=lenient)), progress)


def _judged(rows: Sequence[dict[str, Any]], asked: JudgePolicies, executions: Sequence[str]) -> Table:
    """The rows of the one trace, or the means over several."""
    means = [row for row in rows if row["trace"] is None]
    shown, timed = means or rows, rows[0]["gain"] is not None
    level = f"{100 * asked.confidence:g}%"
    columns: list[Column] = [
        ("bank", "right", lambda row: row["bank"]),
        ("policy", "left", lambda row: row["policy"]),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("more", "right", lambda row: _points(row["more_hits"])),
    ]
    if timed:
        columns += [
            ("tok/s", "right", lambda row: speed(row["tok_s"])),
            ("gain", "right", lambda row: _times(row["gain"])),
            (level, "right", lambda row: _ends(row, "gain", _times)),
        ]
    else:
        columns.append((level, "right", lambda row: _ends(row, "more_hits", _points)))
    if means:
        name = "faster" if timed else "ahead"
        columns.append((name, "right", lambda row: f"{row[name]} of {row['traces']}"))
    columns.append(("p", "right", lambda row: _p(row["p"])))
    traces = list(dict.fromkeys(row["trace"] for row in rows if row["trace"] is not None))
    against = rows[0]["against"]
    timed_as = f", {' and '.join(executions)}" if executions else ""
    caption = f"contract {asked.contract}{timed_as}; more: points of hit rate above {against} in the same bank"
    if timed:
        caption += f"; gain: how many times as fast as {against}"
    if means:
        caption += f"; means over the traces; {'faster' if timed else 'ahead'}: on how many of them it is"
    if asked.skip_steps:
        caption += f"; without the first {asked.skip_steps:,} steps"
    caption += "; p: chance of such a difference if there is none"
    if len(shown) > 1:
        caption += f", corrected for {len(shown)} comparisons"
    machine = f" on {asked.machine}" if timed else ""
    return table(columns, shown, title=f"{'; '.join(traces)}: against {against}{machine}", caption=caption)


def _ends(row: dict[str, Any], name: str, shown: Callable[[float], str]) -> str:
    lo, hi = row[f"{name}_lo"], row[f"{name}_hi"]
    return UNKNOWN if lo is None or hi is None else f"{shown(lo)} to {shown(hi)}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-0.0", "+0.0")


def _p(p: float | None) -> str:
    if p is None:
        return UNKNOWN
    return "<0.001" if p < LEAST_P else f"{p:.3f}"


def _times(gain: float) -> str:
    return f"{gain:.3f}"


@command.command(short_help="Parameters of a policy, fitted on some text and judged on other.")
@of_verb(FitPolicy)
@rows_option
@force_option
@lenient_option
@json_option
def fit(asked: FitPolicy, *, out: Path | None, force: bool, lenient: bool, as_json: bool) -> None:
    """Fit parameters of a policy on some text, and judge them on other text.

    TRACE is a file, or a name from `sim trace catalog`. Of several traces, each is judged with the parameters that hit
    most on the others; a single one is fitted on its first half and judged on the second.

    \b
    Examples:  sim policy fit my.jsonl --bank 32 --policy lfu-decay \\
                 --values half_life=4,16,64
               sim policy fit python-256 prose-256 --bank 12.5% \\
                 --policy mine:Gap --values gap=1,2,4
    """
    from flashmoe_sim.sweep.left_out import reasons

    if out is not None:
        refuse_table(out, force=force)
    found = _replayed(asked, lenient=lenient)
    rows = found.table()
    if out is not None:
        write_table(rows, out, force=force)
    if as_json:
        asked_for = {"confidence": asked.confidence, "candidates": found.tried}
        print_json({**asked_for, "warnings": [*reasons(found.left_out), *found.warnings], "rows": rows.to_dicts()})
        return
    print_table(_fitted(rows.to_dicts(), asked, found.tried))
    for warning in (*reasons(found.left_out), *found.warnings):
        message(warning)


def _fitted(rows: Sequence[dict[str, Any]], asked: FitPolicy, tried: int) -> Table:
    from flashmoe_sim.sweep.fitted import ITS_FIRST_HALF

    default = rows[0]["against"]
    columns: list[Column] = [
        ("bank", "right", lambda row: row["bank"]),
        ("judged on", "left", lambda row: row["trace"]),
        ("fitted", "left", lambda row: _changed(row["policy"], default)),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("more", "right", lambda row: _points(row["more_hits"])),
        (f"{100 * asked.confidence:g}%", "right", lambda row: _ends(row, "more_hits", _points)),
        ("hindsight", "left", lambda row: _changed(row["best_policy"], default)),
        ("its hit %", "right", lambda row: percent(row["hindsight_hit_rate"])),
    ]
    on = "the other traces" if rows[0]["fitted_on"] != ITS_FIRST_HALF else "the trace's first half, judged on the rest"
    ahead = sum(row["more_hits"] > 0 for row in rows)
    caption = (
        f"contract {asked.contract}; fitted: the best of {tried:,} candidates on {on}; more: points of hit rate above "
        f"{default}, {ahead} of {len(rows)} times; hindsight: the best on the very text it is judged on"
    )
    title = f"{default}: {'; '.join(asked.varied)}"
    return table(columns, rows, title=title, caption=caption, dispensable=("its hit %", "hindsight"))


def _changed(spec: str, default: str) -> str:
    """The parameters of a policy; `as it is` for the policy in the table's title."""
    return "as it is" if spec == default else spec.partition(":")[2] or spec


@command.command(short_help="How often policies evict what is used latest.")
@of_verb(Victims)
@lenient_option
@json_option
def victims(asked: Victims, *, lenient: bool, as_json: bool) -> None:
    """Judge each choice of a victim by hindsight: whether it is the resident that is used latest.

    TRACE is a file, or a name from `sim trace catalog`. Policies that choose no victims, such as static, have none.

    \b
    Examples:  sim policy victims gpt-oss-120b --bank 12.5% --policy all
               sim policy victims my.jsonl --bank 32 --policy mine:Gap --by layer
    """
    from flashmoe_sim.sweep.left_out import reasons

    found = _replayed(asked, lenient=lenient)
    if as_json:
        print_json({"warnings": reasons(found.left_out), "rows": found.rows})
        return
    columns: list[Column] = [
        ("bank", "right", lambda row: row["bank"]),
        ("policy", "left", lambda row: row["policy"]),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("over min", "right", lambda row: count(row["misses_over_min"])),
        ("victims", "right", lambda row: f"{row['victims']:,}"),
        ("optimal %", "right", lambda row: percent(row["optimal_victims"])),
        ("used later %", "right", lambda row: percent(row["victim_rank"])),
    ]
    if asked.by == "layer":
        columns.insert(2, ("layer", "right", lambda row: count(row["layer"])))
    elsewhere = {f"{row['policy']}: {row['contract']}": None for row in found.rows if row["contract"] != asked.contract}
    contracts = f"{asked.contract} ({', '.join(elsewhere)})" if elsewhere else asked.contract
    caption = (
        f"contract {contracts}; over min: misses minus the fewest possible; optimal: victims whose next use is "
        "the latest of all candidates; used later: mean share of the other candidates whose next use is later"
    )
    print_table(table(columns, found.rows, title=found.trace, caption=caption))
    for warning in reasons(found.left_out):
        message(warning)


def print_described(described: dict[str, Any]) -> None:
    """Print the rule of a policy or predictor, then everything else about it."""
    name = described["name"]
    rule = "\n\n".join(wrapped(" ".join(part.split())) for part in described["rule"].split("\n\n"))
    click.echo(f"{name}\n\n{rule}\n")
    lines = [
        *((fact, described[fact]) for fact in ("ties", "lead") if described[fact]),
        ("contracts", ", ".join(described["contracts"])),
        ("knows the future", "yes" if described["hindsight"] else "no"),
        ("source", described["source"]),
        ("parameters", f"given as {name}:key=value" if described["parameters"] else "none"),
        *((f"  {key}={value}", described["meanings"][key]) for key, value in described["parameters"].items()),
    ]
    width = max(len(label) for label, _ in lines) + 2
    for label, text in lines:
        click.echo(wrapped(f"{label + ':':{width}}{text}", indent=width))
