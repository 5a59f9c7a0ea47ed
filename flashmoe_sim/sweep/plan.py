"""From what a person asks for, in the words of the command line or as objects, to setups and workloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

from flashmoe_sim.errors import BadInput
from flashmoe_sim.policies.bank import Bank, Scope, parse_bank, parse_banks, parse_size
from flashmoe_sim.policies.base import EvictingPolicy, Policy
from flashmoe_sim.policies.min_ import Min
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.table import PREFETCHERS, parse_prefetcher
from flashmoe_sim.residency.setup import FIXED_SLOT_CONTRACTS, Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.execution import parse_execution
from flashmoe_sim.timeline.timed import default_execution
from flashmoe_sim.trace.cut import cut

One = TypeVar("One")
OneBank = str | int | Bank
OnePolicy = str | Policy | type[Policy]
OnePredictor = str | Prefetcher | type[Prefetcher]
ALL = "all"
REQUIRED_KERNELS = {"on_hit", "on_install", "choose_victim"}


def plan_setup(
    bank: OneBank,
    *,
    policy: OnePolicy = "lru",
    contract: str = "protected",
    scope: str = "layer",
    prefetch: OnePredictor = "none",
    io_split: int = 4,
) -> Setup:
    """One setup from words or objects.

    Raises BadInput for words that mean nothing and for a combination that cannot be.
    """
    return Setup(parse_bank(str(bank)), _policy(policy), contract, _predictor(prefetch), cast(Scope, scope), io_split)


def plan_conditions(
    setup: Setup,
    *,
    execution: str | None = None,
    dense: str | int | None = None,
    kv: str | int | None = None,
    direct_io: bool = False,
    hot: bool = False,
) -> Conditions:
    """How a setup runs on a machine: by default under the execution model of the systems that have its policy.

    dense, kv: sizes with their unit (`2GiB`), or bytes.
    Raises BadInput for an execution model that there is not, and for what is no size.
    """
    return Conditions(
        execution=default_execution(setup) if execution is None else parse_execution(execution),
        dense_bytes=None if dense is None else _size("--dense", dense),
        kv_bytes=0 if kv is None else _size("--kv", kv),
        direct_io=direct_io,
        hot=hot,
    )


def need_machine(machine: object, **conditions: object) -> None:
    """Raise BadInput if there are conditions, such as execution or hot, but no machine that they apply to."""
    given = ", ".join(f"--{name.replace('_', '-')}" for name, value in conditions.items() if value not in (None, False))
    if given and not machine:
        raise BadInput(f"{given}: how a model runs on a machine; give --machine too, see `sim machine list`")


def plan_setups(
    bank: OneBank | Iterable[OneBank],
    *,
    bank_step: str = "auto",
    policy: OnePolicy | Iterable[OnePolicy] = "lru",
    contract: str = "protected",
    scope: str = "layer",
    prefetch: OnePredictor | Iterable[OnePredictor] = "none",
    io_split: int = 4,
) -> list[Setup]:
    """A setup for every bank, policy and predictor, in that order: `16..256` and `lru,min`, or lists.

    policy, prefetch: `all` means those that can be under the contract, and one with the other. `min` with bypass is the
        ceiling of the banks: where the contract is `runtime` or `protected`, it is counted under `atomic`, without a
        predictor.
    Raises BadInput for words that mean nothing, and for a combination that cannot be.
    """
    banks = parse_banks(bank if isinstance(bank, str) else ",".join(map(str, _each(bank))), step=bank_step)
    chosen = list(dict.fromkeys(_policy(one) for one in _named(policy, POLICIES)))
    predictors = plan_predictors(prefetch)
    if not chosen:
        raise BadInput("no policies given; give at least one, such as lru")
    for right in (NoPrefetch(),) if prefetch == ALL else predictors:  # for some policy
        plan_setup(banks[0], contract=contract, scope=scope, prefetch=right, io_split=io_split)
    setups = []
    for one in banks:
        for rule in chosen:
            ceiling = type(rule) is Min and contract in FIXED_SLOT_CONTRACTS
            under = "atomic" if ceiling else contract
            for ahead in (NoPrefetch(),) if ceiling else predictors:
                try:
                    setups.append(
                        plan_setup(one, policy=rule, contract=under, scope=scope, prefetch=ahead, io_split=io_split)
                    )
                except BadInput:
                    if ALL not in (policy, prefetch):
                        raise
    return setups


def plan_predictors(prefetch: OnePredictor | Iterable[OnePredictor]) -> list[Prefetcher]:
    """The predictors that are meant, each once: `eam,hot:width=4`, `all`, an object, or a list.

    Raises BadInput for words that mean nothing, and for none at all.
    """
    chosen = list(dict.fromkeys(_predictor(one) for one in _named(prefetch, PREFETCHERS)))
    if not chosen:
        raise BadInput("no predictors given; give at least one, such as none")
    return chosen


def cut_to_top_ks(workload: Workload, top_ks: str | int | Iterable[int] | None) -> list[Workload]:
    """The workload cut to each of these experts per token (`4,8`), named after it; itself for None.

    Raises BadInput for what is no such number, and where the trace cannot be cut to it.
    """
    if top_ks is None:
        return [workload]
    pieces = top_ks.split(",") if isinstance(top_ks, str) else [str(one) for one in _each(top_ks)]
    wanted = list(dict.fromkeys(piece.strip() for piece in pieces))
    if not all(re.fullmatch("0*[1-9][0-9]{0,8}", piece) for piece in wanted):
        raise BadInput(f"top-k {','.join(pieces)!r}: expected numbers of experts per token, such as 4,8")
    name = workload.trace.name
    return [
        prepare(cut(workload.trace, top_k=int(piece)).with_(name=f"{name}, top-{piece}"), workload.geometry)
        for piece in wanted
    ]


def _size(option: str, given: str | int) -> int:
    if isinstance(given, int) and given >= 0:
        return given
    size = parse_size(given) if isinstance(given, str) else None
    if size is None:
        raise BadInput(f"{option} {given!r}: expected a size with its unit, such as 5GiB")
    return size


def _named(given: Any, table: Iterable[str]) -> Iterable[Any]:
    """What a list with commas, `all` of a table, one object or several of them name."""
    if isinstance(given, str):
        return table if given == ALL else given.split(",")
    return _each(given)


def _predictor(given: OnePredictor) -> Prefetcher:
    if isinstance(given, str):
        return parse_prefetcher(given.strip())
    predictor = given() if isinstance(given, type) else given
    if not isinstance(predictor, Prefetcher) or not hasattr(predictor, "name"):
        raise BadInput(f"predictor {given!r}: expected a name, or a subclass of Prefetcher with a `name`")
    return predictor


def _each(given: One | Iterable[One]) -> Iterator[One]:
    yield from given if isinstance(given, Iterable) else (given,)


def _policy(given: OnePolicy) -> Policy:
    if isinstance(given, str):
        return parse_policy(given.strip())
    policy = given() if isinstance(given, type) else given
    if not isinstance(policy, Policy) or not hasattr(policy, "name"):
        raise BadInput(
            f"policy {given!r}: expected a name, or a subclass of EvictingPolicy or PinningPolicy with a `name`"
        )
    if isinstance(policy, EvictingPolicy) and (missing := REQUIRED_KERNELS - set(getattr(policy, "kernels", ()))):
        raise BadInput(f"policy {policy.name}: its `kernels` lack {', '.join(sorted(missing))}")
    return policy
