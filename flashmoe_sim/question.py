"""What can be asked of a replay: the one place with the name, default and help of each option."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.options import MEASURED, ContextOptions, Several, option, option_field
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.policies.bank import OneBank
    from flashmoe_sim.policies.base import OnePolicy
    from flashmoe_sim.prefetchers.base import OnePredictor
    from flashmoe_sim.residency.workload import Setup
    from flashmoe_sim.trace.routing import RoutingTrace

PREDICTORS, EXECUTIONS = ", ".join(PREFETCHERS), ", ".join(EXECUTION_MODELS)
SIZED = ("bank", "policy", "contract", "scope", "prefetch", "io_split", "warm", "minor")
DRAFTS = ("draft", "accept", "drafter")
CONDITIONS = ("execution", "dense", "context", "depth", "kv", "kv_type", *DRAFTS, "direct_io", "hot")

BANK = option("N", "Slots of each layer (64), bytes of all banks (8GiB), or a share of the experts (12.5%).")
POLICY = option("P", "Eviction policy; see `sim policy list`.")
CONTRACT = option(
    "C",
    "Replay contract: protected, atomic, sequential, or runtime, which is the patched runtime with its slot aliasing.",
)
SCOPE = option("S", "layer: a bank for each layer; global: one for all.")
IO_SPLIT = option("N", "The most chunks in one read of a tensor family.")
SIZES = option(
    "SIZES",
    "16..256 (a range), 16,24,64 (a list): slots of each layer, bytes in total (4GiB..16GiB), or shares of the experts "
    "(1/16..1/2).",
)
RULES = option("P,P", "Eviction policies; all: every one, ranked; mine:Gap: your own.")
WARM = option(
    "PROFILE",
    "Start with the experts used most in a profile: first-100 (the first steps), another trace, or trace (hindsight).",
)
MINOR = option(
    "RULE",
    "What misses of minor experts cost: drop@4 (rank 4 and later: not computed), substitute@4 (a resident stands in), "
    "half@4 (half the bytes), or by gate weight: drop@0.05. What that does to the text is not known.",
)
MACHINE = option("X", "The machine to time: a name from `sim machine list`, a file, parts, or this.")
MACHINES = option("X,X", "The machines to time: names from `sim machine list`, files, or parts.")

IN_CHUNKS = option("", "For traces larger than memory: unpack TRACE into temporary files.", on_command_line=True)


@dataclass(frozen=True, kw_only=True)
class BankOptions:
    """One bank and its policy."""

    bank: OneBank = field(metadata=BANK)
    policy: OnePolicy = field(default="lru", metadata=POLICY)
    contract: str = field(default="protected", metadata=CONTRACT)


@dataclass(frozen=True, kw_only=True)
class SetupOptions(BankOptions):
    """One replay."""

    scope: str = field(default="layer", metadata=SCOPE)
    prefetch: OnePredictor = option_field("none", "F", f"Predictor: {PREDICTORS}.")
    warm: str | None = field(default=None, metadata=WARM)
    io_split: int = field(default=4, metadata=IO_SPLIT)


@dataclass(frozen=True, kw_only=True)
class ConditionOptions(ContextOptions):
    """How a setup runs on a machine."""

    group: ClassVar[str] = "Seconds"

    execution: str | None = option_field(
        None,
        "E",
        f"The order in which a call is read, uploaded and computed: {EXECUTIONS}; default: the execution model of "
        "the engine that uses this policy.",
    )
    direct_io: bool = option_field(False, "", "Reads bypass the page cache.")
    hot: bool = option_field(False, "", "Assume that the SSD is thermally throttled: it reads at its hot_share.")


@dataclass(frozen=True, kw_only=True)
class SeveralOptions:
    """Several banks and policies."""

    bank: OneBank | Iterable[OneBank] = field(metadata=SIZES)
    bank_step: str = option_field("auto", "S", "Steps of a range: auto, 16, or x2.")
    policy: OnePolicy | Iterable[OnePolicy] = field(default="lru", metadata=RULES)
    contract: str = field(default="protected", metadata=CONTRACT)
    scope: str = field(default="layer", metadata=SCOPE)


@dataclass(frozen=True, kw_only=True)
class SweepOptions(SeveralOptions, ConditionOptions):
    """Several replays, and the machines that they run on."""

    prefetch: OnePredictor | Iterable[OnePredictor] = option_field("none", "F,F", f"Predictors, or all: {PREDICTORS}.")
    warm: str | None = field(default=None, metadata=WARM)
    minor: str | None = field(default=None, metadata=MINOR)
    io_split: int = field(default=4, metadata=IO_SPLIT)
    machine: OneMachine | Iterable[OneMachine] | None = field(default=None, metadata=MACHINES)
    measured: Several = field(default=(), metadata=MEASURED)


LAST = (*CONDITIONS, "reserve", "buffers")  # of a verb's options


def in_order(verb: type) -> list[Field[Any]]:
    """A verb's options as its help shows them: its own first, then what is shared with other verbs."""
    last = LAST if issubclass(verb, ContextOptions) else ()

    def place(one: Field[Any]) -> tuple[bool, bool, int]:
        return (
            bool(one.kw_only),
            bool(one.metadata["on_command_line"]),
            last.index(one.name) + 1 if one.name in last else 0,
        )

    return sorted(fields(verb), key=place)


def flag_of(question: Any, name: str) -> str:
    """The option of a field on the command line."""
    metadata = next(item.metadata for item in in_order(type(question)) if item.name == name)
    return str(metadata["flag"] or f"--{name.replace('_', '-')}").partition("/")[0]


def command_line(verb: str, question: Any) -> str:
    """The command that asks the same, without --force."""
    words = ["sim", *verb.split()]
    for item in in_order(type(question)):
        value = getattr(question, item.name)
        if value == item.default or item.name == "force":
            continue
        flag = [] if item.metadata["positional"] else [flag_of(question, item.name)]
        for one in value if isinstance(value, tuple) else (value,):
            words += [*flag, *([] if one is True else [str(one)])]
    return shlex.join(words)


def bank_meaning(setup: Setup) -> str:
    """The meaning of a bank's number."""
    if setup.bank.unit == "share":
        return "of each layer's experts" if setup.scope == "layer" else "of all experts, in one bank"
    if setup.bank.in_slots:
        return "slots of each layer" if setup.scope == "layer" else "slots of each layer, in one bank"
    return "bytes, shared equally by the layers" if setup.scope == "layer" else "bytes of one bank for all layers"


def bank_text(setup: Setup) -> str:
    """The bank, short enough for a heading, and the meaning of its number."""
    return f"bank {setup.bank} ({bank_meaning(setup)})"


def slots_hint(trace: RoutingTrace, contract: str) -> str:
    """The caption's addition for a trace with recorded slots, unless the table reproduces the recording engine."""
    if trace.slot is None or contract == "runtime":
        return ""
    return "slots are recorded: --contract runtime reproduces the counts of their engine"
