"""`sim allocate`: slots by layer in the memory of a bank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sections import Command, Section, Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.options import MODEL, option
from flashmoe_sim.question import MACHINE, BankOptions, ConditionOptions, bank_text

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.tune.layer_speed import LayerSpeed
    from flashmoe_sim.tune.layers import LayerBanks
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, kw_only=True)
class Allocate(ConditionOptions, BankOptions):
    """Distribute a bank's memory over the layers so that the fewest bytes are missed, like `sim allocate`.

    >>> best = allocate("python-256", bank=64)
    >>> sum(best.asked_misses), sum(best.misses)
    (10834, 10688)
    >>> replay("python-256", bank=best.bank)["misses"].item()
    10688

    The slots are chosen for this trace; `held_out` is what slots chosen on its first half avoid in its second half.
    With a machine, `speed` has both banks in seconds. docs/background/why.md explains.
    Raises BadInput for a policy whose layers depend on each other, and for a bank that does not fit.
    """

    help: ClassVar[str] = """Distribute a bank's memory over the layers so that TRACE misses the fewest bytes.

    The last line is the value for `sim replay --bank`. No engine of `sim system list` supports slots by layer, so this
    is what a patch would gain. --machine adds the gain in decode speed.

    TRACE is a file, or a name from `sim trace catalog`.

    \b
    Example:  sim allocate gpt-oss-120b --bank 64 --machine m3-max-48
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    least: int | None = field(
        default=None, metadata=option("N", "Fewest slots of a layer; default: the experts per token.", least=1)
    )
    machine: OneMachine | None = field(default=None, metadata=MACHINE)
    model: Model | None = field(default=None, metadata=MODEL)

    def run(self, progress: Callable[[int, int], None] | None = None) -> LayerBanks:
        """Choose the slots of each layer."""
        from flashmoe_sim.tune.layers import allocate
        from flashmoe_sim.verbs.given import task_of

        task = task_of(self)
        return allocate(
            task.workload,
            task.setup,
            least=self.least,
            machine=task.machine,
            conditions=task.conditions,
            progress=progress,
        )

    def document(self, found: LayerBanks) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.verbs.given import task_of

        return {"identity": task_of(self).identity(), **found.to_dict()}

    def sections(self, found: LayerBanks) -> list[Section]:
        """The slots of each layer, what they gain, and the option that sets them."""
        speeds = () if found.speed is None else (_speed(found.speed),)
        return [Section("", (_table(found), *speeds, Command(f"--bank {found.bank}")))]


def _table(found: LayerBanks) -> Table:
    totals, setup = found.to_dict(), found.setup
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
    rows.append(("all", "", slots[0], slots[1], f"{totals['asked_misses']:,}", f"{totals['misses']:,}"))
    caption = f"{found.avoided:.1%} fewer {'bytes' if found.expert_bytes else 'experts'} missed on this trace"
    if found.held_out is not None:
        word = "more" if found.held_out < 0 else "fewer"
        caption += f"; slots chosen on its first half miss {abs(found.held_out):.1%} {word} in the second"
    if not found.every_size:
        caption += "; sizes between the replayed ones were not considered"
    if found.gap:
        caption += f"; another choice may miss up to {size(found.gap)} fewer"
    title = f"{found.trace}: {setup.policy.spec}, {bank_text(setup)}, contract {setup.contract}"
    return Table(columns, rows, title=title, caption=caption)


def _speed(speed: LayerSpeed) -> str:
    before, after = speed.asked.timing.tok_s, speed.best.timing.tok_s
    if before is None or after is None or speed.gain is None:
        return f"{speed.machine}: no speed, since the trace does not record its tokens"
    return (
        f"{speed.machine}: {three(before)} tokens a second, by layer {three(after)}: {speed.gain:+.1%}, "
        f"{speed.gain_lo:+.1%} to {speed.gain_hi:+.1%} in 90 % of cases"
    )
