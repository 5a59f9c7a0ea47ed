"""`sim replay`: one trace, one bank, one policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import (
    force_option,
    interruptible,
    json_option,
    lenient_option,
    message,
    percent,
    print_json,
    print_table,
)
from flashmoe_sim.cli.options import CONDITIONS, SIZED, asks
from flashmoe_sim.cli.timing import print_timing
from flashmoe_sim.cli.workload import (
    bank_text,
    in_chunks_option,
    load_workload,
    model_option,
    read_long,
    slots_hint,
    trace_argument,
)
from flashmoe_sim.io.sizes import size

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.trace.routing import RoutingTrace

LAYER_ROWS = 16
# What other packages say about a trace, if anything, before it is replayed on a machine.
NOTES: list[Callable[[Path, Machine], str | None]] = []


@click.command(name="replay", context_settings={"help_option_names": ["-h", "--help"]})
@trace_argument
@asks(*SIZED, "machine", *CONDITIONS)
@model_option
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
    trace: str,
    model: str | None,
    timeline_file: Path | None,
    force: bool,
    all_layers: bool,
    in_chunks: bool,
    lenient: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Replay TRACE against one bank and count hits, misses and evictions exactly.

    --machine adds the decode speed and where the time goes.

    TRACE is a file, or a name from `sim trace catalog`.

    \b
    Examples:  sim replay python-256 --bank 64 --policy lru
               sim replay gpt-oss-120b --bank 32 --machine m3-max-48
    """
    from flashmoe_sim.cli.progress import replaying, working
    from flashmoe_sim.io.errors import BadInput
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.question import Question
    from flashmoe_sim.residency.replay import replay
    from flashmoe_sim.sweep.plan import plan
    from flashmoe_sim.sweep.row import seconds
    from flashmoe_sim.sweep.task import Task
    from flashmoe_sim.timeline.timed import time_replay

    machine = asked["machine"]
    setup, conditions_of = plan(Question(**asked))
    if in_chunks:
        if machine is not None or timeline_file is not None:
            raise BadInput("--in-chunks only counts; leave out --machine and --timeline, or replay the whole trace")
        _replay_in_chunks(trace, setup, model, all_layers=all_layers, lenient=lenient, as_json=as_json)
        return
    workload = load_workload(trace, model, lenient=lenient)
    conditions = conditions_of(workload.geometry)
    if machine is None and timeline_file is not None:
        raise BadInput("--timeline shows the seconds of a machine; give --machine, see `sim machine list`")
    runs_on = None if machine is None else load_machine(machine)
    if timeline_file is not None:
        refuse_existing(timeline_file, force=force)
    if runs_on is not None:
        for note in filter(None, (says(Path(trace), runs_on) for says in NOTES)):
            message(note)
    with replaying() as progress:
        replayed = interruptible(replay, workload, setup, record=runs_on is not None, progress=progress)
    timed = None
    if runs_on is not None:
        with working("timing"):
            timed = time_replay(workload, setup, replayed, runs_on, conditions, record=timeline_file is not None)
    task = Task(workload, setup) if runs_on is None else Task(workload, setup, runs_on, conditions)
    columns = {} if timed is None else seconds(task, timed)
    total, layers = replayed.counts.total(), replayed.counts.by_layer()
    warn_of_aliasing(total)
    if timed is not None and timeline_file is not None:
        from flashmoe_sim.timeline.perfetto import write_perfetto

        write_perfetto(timed.timeline, timed.work, timeline_file, layers=workload.trace.layers, force=force)
        message(f"wrote {timeline_file}; open it in ui.perfetto.dev")
    if as_json:
        timing = None
        if timed is not None and runs_on is not None:
            timing = timed.as_json() | columns | {"notes": list(runs_on.notes)}
        print_json({"identity": task.identity(), "counts": total, "layers": layers, "timing": timing})
        return
    _print_total(workload.trace, setup, total)
    if timed is not None and runs_on is not None:
        print_timing(timed, runs_on, execution=columns["execution"], bottleneck=columns["bottleneck"])
    _print_layers(layers, all_layers=all_layers)


def _replay_in_chunks(
    trace: str, setup: Setup, model: str | None, *, all_layers: bool, lenient: bool, as_json: bool
) -> None:
    from flashmoe_sim.residency.long import replay_chunks
    from flashmoe_sim.residency.workload import find_geometry

    geometry = find_geometry(trace, model)
    with read_long(trace, lenient=lenient) as long:
        counts = interruptible(replay_chunks, long, [setup], geometry)[setup]
    total, layers = counts.total(), counts.by_layer()
    warn_of_aliasing(total)
    if as_json:
        print_json({"trace": long.head.name, "counts": total, "layers": layers})
        return
    _print_total(long.head, setup, total)
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
    print_table((("", "left"), ("", "right")), rows, title=title, caption=slots_hint(trace, setup.contract))


def _print_layers(layers: list[dict[str, Any]], *, all_layers: bool) -> None:
    shown = layers
    if len(layers) > LAYER_ROWS and not all_layers:
        shown = sorted(layers, key=lambda row: (-row["misses"], row["layer"]))[:LAYER_ROWS]
    columns = [("layer", "right"), ("calls", "right"), ("requests", "right"), ("hit %", "right"), ("misses", "right")]
    columns += [("cold", "right"), ("evicted", "right"), ("aliased", "right"), ("read", "right")]
    rows = [
        (
            str(row["layer"]),
            f"{row['calls']:,}",
            f"{row['requests']:,}",
            percent(row["hit_rate"]),
            f"{row['misses']:,}",
            f"{row['cold_installs']:,}",
            f"{row['evictions']:,}",
            f"{row['aliased_refs']:,}",
            size(row["bytes_read"]),
        )
        for row in shown
    ]
    left_out = len(layers) - len(rows)
    caption = f"the {len(rows)} layers with most misses; --all-layers shows all {len(layers)}" if left_out else ""
    print_table(columns, rows, caption=caption)
