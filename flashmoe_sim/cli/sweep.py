"""`sim sweep`: many bank sizes and policies, one table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import (
    force_option,
    json_option,
    lenient_option,
    message,
    percent,
    print_json,
    print_table,
    size,
)
from flashmoe_sim.cli.machine_options import condition_options
from flashmoe_sim.cli.workload import bank_meaning, load_workload, prefetches_option, setup_options, slots_hint
from flashmoe_sim.numbers import three

if TYPE_CHECKING:
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.residency.workload import Workload

COLUMNS = (
    ("bank", "right"),
    ("policy", "left"),
    ("hits", "right"),
    ("misses", "right"),
    ("evicted", "right"),
    ("hit %", "right"),
    ("best %", "right"),
    ("read/tok", "right"),
    ("memory", "right"),
)
COLUMNS_OF_PREDICTORS = (
    *COLUMNS[:2],
    ("predictor", "left"),
    *(column for column in COLUMNS[2:-1] if column[0] != "evicted"),
    ("ahead/tok", "right"),
)
COLUMNS_OF_MACHINES = (
    *COLUMNS[:2],
    ("machine", "left"),
    ("hit %", "right"),
    ("read/tok", "right"),
    ("memory", "right"),
    ("tok/s", "right"),
    ("90 % interval", "right"),
)
LISTED_BANKS = 12


@click.command(name="sweep", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("traces", nargs=-1, metavar="[TRACE]...")
@click.option(
    "--bank",
    required=True,
    metavar="SIZES",
    help="16..256 (a range), 16,24,64 (a list); slots of each layer, or bytes altogether (4GiB..16GiB).",
)
@click.option("--bank-step", default="auto", show_default=True, metavar="S", help="Steps of a range: auto, 16, or x2.")
@click.option(
    "--policy", "policies", default="lru", show_default=True, metavar="P,P", help="Eviction policies, or all, ranked."
)
@click.option("--topk", "top_ks", metavar="K,K", help="Cut each trace to these experts per token.")
@setup_options
@prefetches_option
@click.option(
    "--machine",
    "machines",
    metavar="X,X",
    help="Say how fast it runs on these machines: names from `sim machine list`, or files.",
)
@condition_options
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write results.parquet, .csv and .png there."
)
@force_option
@lenient_option
@json_option
def command(
    traces: tuple[str, ...],
    bank: str,
    bank_step: str,
    policies: str,
    top_ks: str | None,
    model: str | None,
    contract: str,
    scope: str,
    prefetch: str,
    io_split: int,
    machines: str | None,
    execution: str | None,
    dense: str | None,
    kv: str | None,
    direct_io: bool,
    hot: bool,
    out: Path | None,
    force: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Say what banks of many sizes would hit, and how far that is from the best any policy could do.

    TRACE is a file, or a name from `sim trace catalog`; without one the first of the catalogue is used.

    \b
    Examples:  sim sweep --bank 16..256
               sim sweep my.jsonl --model sidecar/ --bank 16,64 --policy lru,min
               sim sweep gpt-oss-120b --bank 16,32 --machine m3-max-48,rtx-4090
    """
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.sweep.collect import sweep
    from flashmoe_sim.sweep.plan import cut_to_top_ks, need_machine, plan_conditions, plan_setups
    from flashmoe_sim.trace.bundled import catalog

    need_machine(machines, execution=execution, dense=dense, kv=kv, direct_io=direct_io, hot=hot)
    setups = plan_setups(
        bank,
        bank_step=bank_step,
        policy=policies,
        contract=contract,
        scope=scope,
        prefetch=prefetch,
        io_split=io_split,
    )
    runs_on = [load_machine(name.strip()) for name in machines.split(",")] if machines else []
    how = partial(plan_conditions, execution=execution, dense=dense, kv=kv, direct_io=direct_io, hot=hot)
    if out is not None:
        from flashmoe_sim.sweep.store import check_folder

        check_folder(out, force=force)
    workloads = [
        cut
        for trace in traces or [next(iter(catalog()))]
        for cut in cut_to_top_ks(load_workload(trace, model, lenient=lenient), top_ks)
    ]
    plan = f"banks {_listed(setups)}; {_count(len(setups), 'setup')} x {_count(len(workloads), 'trace')}"
    with replaying() as update:

        def progress(done: int, total: int) -> None:
            if not done:
                message(plan)  # not before: every setup fits every trace now
            update(done, total)

        rows = sweep(workloads, setups, machines=runs_on, conditions=how, progress=progress)
    if out is not None:
        from flashmoe_sim.report.hit_curve import draw
        from flashmoe_sim.sweep.store import write_results

        write_results(rows, out, draw=draw)
    if as_json:
        print_json({"rows": rows})
    else:
        for number, workload in enumerate(workloads):
            of_workload = len(setups) * max(len(runs_on), 1)
            own = rows[number * of_workload : (number + 1) * of_workload]
            if runs_on:
                _print_speeds(workload, own, contract)
                continue
            _print_rows(workload, _ranked(own) if policies == "all" else own, setups, contract)
    _warn_of_aliasing(rows)
    if out is not None:
        message(f"wrote results.parquet, results.csv and results.png to {out}")


def _listed(setups: list[Setup]) -> str:
    banks = list(dict.fromkeys(str(setup.bank) for setup in setups))
    if len(banks) > LISTED_BANKS:
        banks = [*banks[:3], "...", f"{banks[-1]} ({len(banks)} sizes)"]
    return ", ".join(banks)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print_rows(workload: Workload, rows: list[dict[str, Any]], setups: list[Setup], contract: str) -> None:
    trace = workload.trace
    predictors = list(dict.fromkeys(setup.prefetch.spec for setup in setups if setup.contract == contract))
    several = len(predictors) > 1
    model = workload.geometry.name if workload.geometry else "unknown model, so no bytes: give --model"
    title = f"{trace.name}: {trace.tokens:,} tokens, {len(trace.layers)} layers ({model})"
    cells = [
        (
            row["bank"],
            row["policy"] + ("*" if row["contract"] != contract else ""),
            *([row["prefetch"]] if several else []),
            f"{row['hits']:,}",
            f"{row['misses']:,}",
            *([] if several else [f"{row['evictions']:,}"]),
            percent(row["hit_rate"]),
            percent(row["best_hit_rate"]),
            size(row["bytes_per_token"]),
            size(_ahead_per_token(row, trace.tokens) if several else row["resident_bytes"]),
        )
        for row in rows
    ]
    prefetching = "" if several or predictors in ([], ["none"]) else f", prefetch {predictors[0]}"
    caption = f"bank: {bank_meaning(setups[0])}; contract {contract}{prefetching}; best: min with bypass, event-atomic"
    if any(row["contract"] != contract for row in rows):
        caption += "; *: under atomic"
    if any(row["policy"].startswith(("static", "hot-profile")) for row in rows):
        caption += "; static banks and hot profiles are loaded before the run"
    if any(row["prefetch_issued"] for row in rows):
        caption += "; read/tok is without what is prefetched or comes between steps"
    if any(row["prefetch_issued"] and row["hit_rate"] > (row["best_hit_rate"] or 1) for row in rows):
        caption += ", with which a bank can hit more than the best"
    caption = "\n".join(filter(None, (caption, slots_hint(trace, contract))))
    print_table(COLUMNS_OF_PREDICTORS if several else COLUMNS, cells, title=title, caption=caption)
    if not several:
        _print_gap(rows, contract)


def _print_speeds(workload: Workload, rows: list[dict[str, Any]], contract: str) -> None:
    """A row for each machine, with the speed; of banks that do not fit a machine, that they do not."""
    cells = [
        (
            row["bank"],
            row["policy"] + ("*" if row["contract"] != contract else ""),
            row["machine"],
            percent(row["hit_rate"]),
            size(row["bytes_per_token"]),
            size(row["resident_bytes"]),
            "-" if row["tok_s"] is None else three(row["tok_s"]),
            "does not fit" if row["tok_s"] is None else f"{three(row['tok_s_lo'])} to {three(row['tok_s_hi'])}",
        )
        for row in rows
    ]
    executions = ", ".join(dict.fromkeys(row["execution"] for row in rows))
    caption = f"contract {contract}; {executions}"
    if any(row["contract"] != contract for row in rows):
        caption += "; *: under atomic"
    title = f"{workload.trace.name}: {workload.trace.tokens:,} tokens, {len(workload.trace.layers)} layers"
    print_table(COLUMNS_OF_MACHINES, cells, title=title, caption=caption)


def _ranked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of each bank with the most hits first; equal ones stay as they were."""
    banks = list(dict.fromkeys(row["bank"] for row in rows))
    return sorted(rows, key=lambda row: (banks.index(row["bank"]), -row["hits"]))


def _print_gap(rows: list[dict[str, Any]], contract: str) -> None:
    """What parts LRU from the optimum in each bank, where the rows tell: choosing victims, and admitting every miss."""
    from flashmoe_sim.policies.base import EvictingPolicy
    from flashmoe_sim.policies.table import POLICIES

    cells = []
    for bank in dict.fromkeys(row["bank"] for row in rows):
        of_bank = {row["policy"]: row for row in rows if row["bank"] == bank}
        if not {"lru", "min", "min:forced"} <= of_bank.keys():
            return
        lru, forced, best = (of_bank[name]["misses"] for name in ("lru", "min:forced", "min"))
        online = [
            row
            for name, row in of_bank.items()
            if name in POLICIES and issubclass(POLICIES[name], EvictingPolicy) and not POLICIES[name].hindsight
        ]
        first = min(online, key=lambda row: row["misses"])
        gap = lru - best
        parts = [percent(part / gap if gap else None) for part in (lru - forced, forced - best, lru - first["misses"])]
        points = f"{100 * gap / of_bank['lru']['requests']:.1f}"
        cells.append((bank, percent(of_bank["lru"]["hit_rate"]), points, *parts[:2], first["policy"], parts[2]))
    columns = [("bank", "right"), ("lru %", "right"), ("to min", "right"), ("victims %", "right")]
    columns += [("admitting %", "right"), ("best without hindsight", "left"), ("closes %", "right")]
    print_table(
        columns,
        cells,
        title="What parts lru from the optimum",
        caption="to min: points of hit rate; of these, what better victims would give (min:forced) and what not "
        f"admitting every miss would (min, event-atomic); the rest under {contract}",
    )


def _ahead_per_token(row: dict[str, Any], tokens: int) -> float | None:
    return row["prefetch_bytes"] / tokens if tokens and row["prefetch_bytes"] is not None else None


def _warn_of_aliasing(rows: list[dict[str, Any]]) -> None:
    aliased = [row for row in rows if row["aliased_refs"]]
    if aliased:
        worst = max(aliased, key=lambda row: row["aliased_refs"] / row["requests"])
        message(
            f"slot aliasing in {len(aliased)} of {len(rows)} rows, at worst {worst['aliased_refs']:,} of "
            f"{worst['requests']:,} requests (bank {worst['bank']}): there the runtime computes experts with the wrong "
            "weights; --contract protected shows the banks without it"
        )
