"""`sim policy victims`: how good the choices of policies are."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from flashmoe_sim.io.errors import Unsupported, unknown_name
from flashmoe_sim.io.sections import Column, Section, count, percent, table
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import SeveralOptions
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.residency.victims import VictimCounts
    from flashmoe_sim.residency.workload import Setup, Workload
    from flashmoe_sim.sweep.left_out import LeftOut
    from flashmoe_sim.verbs.given import Model, Read, Trace


@dataclass(frozen=True, eq=False)
class VictimsFound:
    """rows: of schema.VICTIMS. left_out: what has no row, and why. trace: its name."""

    rows: list[dict[str, Any]]
    left_out: list[LeftOut]
    trace: str

    def table(self) -> polars.DataFrame:
        """schema.VICTIMS."""
        from flashmoe_sim.schema import VICTIMS, frame

        return frame(self.rows, VICTIMS)


@dataclass(frozen=True, kw_only=True)
class Victims(SeveralOptions, Verb[VictimsFound]):
    """Judge each choice of a victim by hindsight: whether it is the resident that is used latest.

    >>> table = victims("python-256", bank=32, policy="lru,min:forced", contract="atomic")
    >>> table.select("policy", "victims", polars.col("optimal_victims", "victim_rank").round(3)).rows()
    [('lru', 19934, 0.085, 0.485), ('min:forced', 12143, 1.0, 0.0)]

    A row of docs/reference/columns.md for each bank and policy, or for each layer of them. The contract decides among
    which residents a policy may choose; of two that are never used again neither is better.
    Raises BadInput for a bank that does not fit the trace, and for a policy that chooses no victims unless it comes
    from `all`.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Judge each choice of a victim by hindsight: whether it is the resident that is used latest.

    TRACE is a file, or a name from `sim trace catalog`. Policies that choose no victims, such as static, have none.

    \b
    Examples:  sim policy victims gpt-oss-120b --bank 12.5% --policy all
               sim policy victims my.jsonl --bank 32 --policy mine:Gap --by layer
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    by: Literal["policy", "layer"] = option_field(
        "policy", "BY", "policy: a row for each; layer: a row for each layer of each."
    )
    model: Model | None = field(default=None, metadata=MODEL)

    def run(self, progress: Progress | None = None, read: Read | None = None) -> VictimsFound:
        """Replay the trace under every policy. read: how a trace is read."""
        from flashmoe_sim.ceilings.optimum import ceiling_setup
        from flashmoe_sim.residency.victims import victims, why_not_watched
        from flashmoe_sim.sweep.left_out import LeftOut
        from flashmoe_sim.sweep.plan import plan_sweep
        from flashmoe_sim.verbs.given import workload_of

        if self.by not in ("policy", "layer"):
            raise unknown_name("--by", self.by, ("policy", "layer"))
        left_out: list[LeftOut] = []
        setups, _ = plan_sweep(self, left_out=left_out)
        reasons = {setup: why for setup in setups if (why := why_not_watched(setup))}
        chosen = [setup for setup in setups if setup not in reasons]
        if not chosen:
            raise Unsupported(next(iter(reasons.values())))
        left_out += dict.fromkeys(LeftOut.of(setup, why) for setup, why in reasons.items())
        workload, rows = (read or workload_of)(self.trace, self.model), []
        fewest = cache(partial(_fewest_misses, workload))
        for number, setup in enumerate(chosen):
            least = fewest(ceiling_setup(workload, setup))
            rows += _rows(workload, setup, victims(workload, setup), least, by_layer=self.by == "layer")
            if progress is not None:
                progress(number + 1, len(chosen))
        return VictimsFound(rows, left_out, workload.trace.name)

    def document(self, found: VictimsFound) -> dict[str, Any]:
        """What `--json` prints."""
        return {"warnings": self.notes(found), "rows": found.rows}

    def sections(self, found: VictimsFound) -> list[Section]:
        """A row for each bank and policy, or for each layer of them."""
        columns: list[Column] = [
            ("bank", "right", lambda row: row["bank"]),
            ("policy", "left", lambda row: row["policy"]),
            ("hit %", "right", lambda row: percent(row["hit_rate"])),
            ("over min", "right", lambda row: count(row["misses_over_min"])),
            ("victims", "right", lambda row: f"{row['victims']:,}"),
            ("optimal %", "right", lambda row: percent(row["optimal_victims"])),
            ("used later %", "right", lambda row: percent(row["victim_rank"])),
        ]
        if self.by == "layer":
            columns.insert(2, ("layer", "right", lambda row: count(row["layer"])))
        elsewhere = {
            f"{row['policy']}: {row['contract']}": None for row in found.rows if row["contract"] != self.contract
        }
        contracts = f"{self.contract} ({', '.join(elsewhere)})" if elsewhere else self.contract
        caption = (
            f"contract {contracts}; over min: misses minus the fewest possible; optimal: victims whose next use is "
            "the latest of all candidates; used later: mean share of the other candidates whose next use is later"
        )
        return [Section("", (table(columns, found.rows, title=found.trace, caption=caption),))]

    def notes(self, found: VictimsFound) -> list[str]:
        """What is left out."""
        from flashmoe_sim.sweep.left_out import reasons

        return reasons(found.left_out)


def _fewest_misses(workload: Workload, best: Setup | None) -> list[int] | None:
    """The optimum's misses by layer; None if the optimum is unknown."""
    from flashmoe_sim.residency.many import count

    return None if best is None else [int(row["misses"]) for row in count(workload, best).by_layer()]


def _rows(
    workload: Workload, setup: Setup, banks: list[VictimCounts], least: list[int] | None, *, by_layer: bool
) -> list[dict[str, Any]]:
    layers: list[int | None] = list(workload.trace.layers) if setup.scope == "layer" else [None]
    who = {
        "trace": workload.trace.name,
        "bank": str(setup.bank),
        "policy": setup.policy.spec,
        "contract": setup.contract,
    }
    if by_layer and setup.scope == "layer":
        of_layers = [None] * len(banks) if least is None else least
        return [
            who | {"layer": layer} | _row([one], fewest)
            for layer, one, fewest in zip(layers, banks, of_layers, strict=True)
        ]
    return [who | {"layer": None} | _row(banks, None if least is None else sum(least))]


def _row(banks: list[VictimCounts], least: int | None) -> dict[str, Any]:
    from flashmoe_sim.residency.victims import total

    one = total(banks)
    return {
        "hit_rate": 1 - one.misses / one.requests if one.requests else None,
        "misses": one.misses,
        "misses_over_min": None if least is None else one.misses - least,
        "victims": one.chosen,
        "optimal_victims": one.optimal_share,
        "victim_rank": one.rank,
    }
