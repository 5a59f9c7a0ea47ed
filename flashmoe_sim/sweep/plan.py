"""From what a person asks for, in the words of the command line or as objects, to setups and workloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar, cast

from flashmoe_sim.errors import BadInput
from flashmoe_sim.policies.bank import Bank, Scope, parse_bank, parse_banks
from flashmoe_sim.policies.base import EvictingPolicy, Policy
from flashmoe_sim.policies.min_ import Min
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.setup import FIXED_SLOT_CONTRACTS, Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.cut import cut

One = TypeVar("One")
OneBank = str | int | Bank
OnePolicy = str | Policy | type[Policy]
ALL = "all"
REQUIRED_KERNELS = {"on_hit", "on_install", "choose_victim"}


def plan_setup(
    bank: OneBank,
    *,
    policy: OnePolicy = "lru",
    contract: str = "runtime",
    scope: str = "layer",
    prefetch: str | Prefetcher = "none",
    io_split: int = 4,
) -> Setup:
    """One setup from words or objects.

    Raises BadInput for words that mean nothing and for a combination that cannot be.
    """
    predictor = parse_prefetcher(prefetch) if isinstance(prefetch, str) else prefetch
    return Setup(parse_bank(str(bank)), _policy(policy), contract, predictor, cast(Scope, scope), io_split)


def plan_setups(
    bank: OneBank | Iterable[OneBank],
    *,
    bank_step: str = "auto",
    policy: OnePolicy | Iterable[OnePolicy] = "lru",
    contract: str = "runtime",
    scope: str = "layer",
    prefetch: str | Prefetcher = "none",
    io_split: int = 4,
) -> list[Setup]:
    """A setup for every bank and policy, in that order: `16..256` and `lru,min`, or lists.

    policy: `all` means those that can be under the contract, with the predictor. `min` with bypass is the ceiling of
        the banks: where the contract is `runtime` or `protected`, it is counted under `atomic`, without the predictor.
    Raises BadInput for words that mean nothing, and for a combination that cannot be.
    """
    banks = parse_banks(bank if isinstance(bank, str) else ",".join(map(str, _each(bank))), step=bank_step)
    plan_setup(banks[0], contract=contract, scope=scope, prefetch=prefetch, io_split=io_split)  # right for some policy
    every = policy == ALL
    names: Iterable[OnePolicy] = POLICIES
    if not every:
        names = policy.split(",") if isinstance(policy, str) else _each(policy)
    chosen = list(dict.fromkeys(_policy(name) for name in names))
    if not chosen:
        raise BadInput("no policies given; give at least one, such as lru")
    setups = []
    for one in banks:
        for rule in chosen:
            ceiling = type(rule) is Min and contract in FIXED_SLOT_CONTRACTS
            under, predictor = ("atomic", NoPrefetch()) if ceiling else (contract, prefetch)
            try:
                setups.append(
                    plan_setup(one, policy=rule, contract=under, scope=scope, prefetch=predictor, io_split=io_split)
                )
            except BadInput:
                if not every:
                    raise
    return setups


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
