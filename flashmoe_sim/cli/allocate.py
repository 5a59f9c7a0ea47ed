"""`sim allocate`: slots by layer in the memory of a bank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import interruptible, json_option, lenient_option, print_json, print_table, wrapped
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import bank_text, with_trace
from flashmoe_sim.io.sections import Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.verbs.allocate import Allocate

if TYPE_CHECKING:
    from flashmoe_sim.tune.layer_speed import LayerSpeed
    from flashmoe_sim.tune.layers import LayerBanks


@click.command(name="allocate", context_settings={"help_option_names": ["-h", "--help"]})
@of_verb(Allocate)
@lenient_option
@json_option
def command(asked: Allocate, *, lenient: bool, as_json: bool) -> None:
    """Distribute a bank's memory over the layers so that TRACE misses the fewest bytes.

    The last line is the value for `sim replay --bank`. No engine of `sim system list` supports slots by layer, so this
    is what a patch would gain. --machine adds the gain in decode speed.

    TRACE is a file, or a name from `sim trace catalog`.

    \b
    Example:  sim allocate gpt-oss-120b --bank 64 --machine m3-max-48
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.verbs.given import task_of

    asked = with_trace(asked, lenient=lenient)
    with working("allocating") as progress:
        found = interruptible(asked.run, progress)
    if as_json:
        print_json({"identity": task_of(asked).identity(), **found.to_dict()})
        return
    _print(found)
    if found.speed is not None:
        click.echo(_speed(found.speed))
    click.echo(f"--bank {found.bank}")


def _print(found: LayerBanks) -> None:
    told, setup = found.to_dict(), found.setup
    columns = [("layer", "right"), ("expert", "right"), ("slots asked", "right"), ("best", "right")]
    columns += [("misses asked", "right"), ("best", "right")]
    rows = [
        (
            str(row["layer"]),
            size(row["expert_bytes"]),
            str(row["asked_slots"]),
            str(row["slots"]),
            f"{row['asked_misses']:,}",
            f"{row['misses']:,}",
        )
        for row in found.as_rows()
    ]
    slots = [f"{sum(some):,}" for some in (found.asked_slots, found.slots)]
    rows.append(("all", "", slots[0], slots[1], f"{told['asked_misses']:,}", f"{told['misses']:,}"))
    caption = f"{found.avoided:.1%} fewer {'bytes' if found.expert_bytes else 'experts'} missed on this trace"
    if found.held_out is not None:
        word = "more" if found.held_out < 0 else "fewer"
        caption += f"; slots chosen on its first half miss {abs(found.held_out):.1%} {word} in the second"
    if not found.every_size:
        caption += "; sizes between the replayed ones were not considered"
    if found.gap:
        caption += f"; another choice may miss up to {size(found.gap)} fewer"
    title = f"{found.trace}: {setup.policy.spec}, {bank_text(setup)}, contract {setup.contract}"
    print_table(Table(columns, rows, title=title, caption=caption))


def _speed(speed: LayerSpeed) -> str:
    from flashmoe_sim.io.numbers import three

    before, after = speed.asked.timing.tok_s, speed.best.timing.tok_s
    if before is None or after is None or speed.gain is None:
        return f"{speed.machine}: no speed, since the trace does not record its tokens"
    return wrapped(
        f"{speed.machine}: {three(before)} tokens a second, by layer {three(after)}: {speed.gain:+.1%}, "
        f"{speed.gain_lo:+.1%} to {speed.gain_hi:+.1%} in 90 % of cases"
    )
