"""`sim replay`: one trace, one bank, one policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import (
    force_option,
    interruptible,
    json_option,
    lenient_option,
    message,
    print_json,
    print_table,
)
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import in_chunks_option, slots_hint, with_trace
from flashmoe_sim.io.cells import Column, count, pairs, percent, table
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sizes import size
from flashmoe_sim.question import bank_text
from flashmoe_sim.verbs.replay import Replay

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.timeline.timed import Timed
    from flashmoe_sim.trace.routing import RoutingTrace

LAYER_ROWS = 16
LEAST_SHARE = 0.0005
BOTTLENECKS = {
    "compute": "computing: layers, experts, finding slots",
    "upload": "uploads and installs",
    "read": "reads",
    "cpu": "misses computed on the CPU",
    "none": "nothing",
}


@click.command(name="replay")
@of_verb(Replay)
@click.option(
    "--timeline",
    "timeline_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a timeline of every resource, for ui.perfetto.dev.",
)
@force_option
@click.option("--all-layers", is_flag=True, help="A row for every layer, not only for the worst.")
@in_chunks_option
@lenient_option
@json_option
def command(
    asked: Replay,
    *,
    timeline_file: Path | None,
    force: bool,
    all_layers: bool,
    in_chunks: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Replay TRACE against one bank and count hits, misses and evictions exactly.

    --machine adds the decode speed and where the time goes.

    TRACE is a file, or a name from `sim trace catalog`.

    \b
    Examples:  sim replay python-256 --bank 64 --policy lru
               sim replay gpt-oss-120b --bank 32 --machine m3-max-48
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.residency.setup import why_not_on_disk
    from flashmoe_sim.sweep.plan import plan

    if in_chunks:
        if asked.machine is not None or timeline_file is not None:
            raise BadInput("--in-chunks only counts; leave out --machine and --timeline, or replay the trace in memory")
        if reason := why_not_on_disk(plan(asked)[0]):
            raise BadInput(reason)
    if asked.machine is None and timeline_file is not None:
        raise BadInput("--timeline shows the seconds of a machine; give --machine, see `sim machine list`")
    if timeline_file is not None:
        refuse_existing(timeline_file, force=force)
    asked = with_trace(asked, lenient=lenient, in_chunks=in_chunks)
    with working("replaying") as progress:
        found = interruptible(asked.count, progress)
    if asked.machine is not None:
        with working("timing"):
            found = found.time(record=timeline_file is not None)
    task, timed, counts = found.task, found.timed, found.counts
    total, layers = counts.total(), counts.by_layer()
    warn_of_aliasing(total)
    if timed is not None and timeline_file is not None:
        from flashmoe_sim.timeline.perfetto import write_perfetto

        write_perfetto(timed.timeline, timed.work, timeline_file, layers=task.workload.trace.layers, force=force)
        message(f"wrote {timeline_file}; open it in ui.perfetto.dev")
    if as_json:
        timing = None
        if timed is not None and task.machine is not None:
            timing = timed.as_json() | found.seconds | {"notes": list(task.machine.notes)}
        print_json({"identity": task.identity(), "counts": total, "layers": layers, "timing": timing})
        return
    _print_total(task.workload.trace, task.setup, total)
    if timed is not None and task.machine is not None:
        seconds = found.seconds
        print_timing(timed, task.machine, execution=seconds["execution"], bottleneck=seconds["bottleneck"])
    _print_layers(layers, all_layers=all_layers)


def warn_of_aliasing(total: dict[str, Any]) -> None:
    """One line on stderr if two experts of one call shared a slot."""
    if aliased := total["aliased_refs"]:
        message(
            f"slot aliasing: {aliased:,} of {total['requests']:,} requests ({aliased / total['requests']:.1%}) lost "
            "their slot to another expert of the same call, and the runtime computes them with that expert's weights; "
            "--contract protected avoids it"
        )


def _print_total(trace: RoutingTrace, setup: Setup, total: dict[str, Any]) -> None:
    rows = [
        ("routed calls", f"{total['calls']:,}"),
        ("references", f"{total['refs']:,}"),
        ("requests", f"{total['requests']:,}"),
        ("hits", f"{total['hits']:,}  ({total['hit_rate']:.1%})"),
        ("misses", f"{total['misses']:,}"),
        ("  cold installs", f"{total['cold_installs']:,}"),
        ("  evictions", f"{total['evictions']:,}"),
        ("  served without install", f"{total['bypassed']:,}"),
        ("calls without a miss", f"{total['full_hit_calls']:,}  ({total['full_hit_rate']:.1%})"),
        ("aliased references", f"{total['aliased_refs']:,}"),
    ]
    if total["misses_per_token"] is not None:
        rows.append(("misses per token", f"{total['misses_per_token']:.2f}"))
    if total["bytes_read"] is not None:
        rows.append(("bytes the misses read", f"{size(total['bytes_read'])} in {total['read_ops']:,} reads"))
        if total["bytes_per_token"] is not None:
            rows.append(("bytes per token", size(total["bytes_per_token"])))
        rows.append(("memory of the banks", size(total["resident_bytes"])))
    useful, issued = total["prefetch_useful"], total["prefetch_issued"]
    if setup.prefetch.name != "none":
        rows.append(("prefetched", f"{issued:,} of {total['prefetch_requests']:,} asked for; {useful:,} used"))
    elif issued:
        rows.append(("loaded between steps", f"{issued:,}; {useful:,} of them used"))
    title = f"{trace.name}: {setup.policy.spec}, {bank_text(setup)}, contract {setup.contract}"
    print_table(pairs(rows, title=title, caption=slots_hint(trace, setup.contract)))


def _print_layers(layers: list[dict[str, Any]], *, all_layers: bool) -> None:
    shown = layers
    if len(layers) > LAYER_ROWS and not all_layers:
        shown = sorted(layers, key=lambda row: (-row["misses"], row["layer"]))[:LAYER_ROWS]
    columns: list[Column] = [
        ("layer", "right", lambda row: str(row["layer"])),
        ("calls", "right", lambda row: count(row["calls"])),
        ("requests", "right", lambda row: count(row["requests"])),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("misses", "right", lambda row: count(row["misses"])),
        ("cold", "right", lambda row: count(row["cold_installs"])),
        ("evicted", "right", lambda row: count(row["evictions"])),
        ("aliased", "right", lambda row: count(row["aliased_refs"])),
        ("read", "right", lambda row: size(row["bytes_read"])),
    ]
    left_out = len(layers) - len(shown)
    caption = f"the {len(shown)} layers with most misses; --all-layers shows all {len(layers)}" if left_out else ""
    print_table(table(columns, shown, caption=caption, dispensable=("aliased", "calls", "cold")))


def speed(tok_s: float | None, lo: float | None = None, hi: float | None = None) -> str:
    """`8.1 tok/s (7.6 to 8.7)`."""
    if tok_s is None:
        return "-"
    interval = "" if lo is None or hi is None else f" ({three(lo)} to {three(hi)})"
    return f"{three(tok_s)} tok/s{interval}"


def print_timing(timed: Timed, machine: Machine, *, execution: str, bottleneck: str) -> None:
    """Print speed, steps, and where a token's time goes."""
    from flashmoe_sim.timeline.names import PART_WORDS

    timing = timed.timing
    rows = [("decode", speed(timing.tok_s, timed.tok_s_lo, timed.tok_s_hi))]
    if timing.warm_up_tok_s is not None:
        rows.append(("  while the bank fills", speed(timing.warm_up_tok_s)))
        rows.append(("  then", speed(timing.steady_tok_s)))
    if timing.prompt_tok_s is not None:
        rows.append(("prompt", speed(timing.prompt_tok_s)))
    steps = [ms for ms in (timing.step_ms_p50, timing.step_ms_p95, timing.step_ms_p99) if ms is not None]
    if steps:
        rows.append(("a step, P50 / P95 / P99", " / ".join(map(three, steps)) + " ms"))
    per_token = sum(timing.part_ms_per_token.values())
    if timing.part_ms_per_token:
        rows.append(("a token", f"{three(per_token)} ms"))
    for name, ms in timing.part_ms_per_token.items():
        if ms > LEAST_SHARE * per_token:
            rows.append((f"  {PART_WORDS[name]}", f"{three(ms)} ms  ({ms / per_token:.0%})"))
    rows.append(("what holds it back most", BOTTLENECKS[bottleneck]))
    rows.append(("read from storage", size(timed.storage_bytes)))
    rows.append(("read from the page cache", size(timed.page_cache_bytes)))
    title = f"on {machine.name}: {machine.title}; {execution}"
    caption = "in brackets the 90% interval: the machine, the luck of the trace, and the spread between runs"
    print_table(pairs(rows, title=title, caption="; ".join((caption, *machine.notes))))
