"""From the user's arguments, as words of the command line or objects, to setups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from flashmoe_sim.budget import Context
from flashmoe_sim.drafts import check_drafts, given_drafts
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Incomplete, Malformed, Unsupported
from flashmoe_sim.io.sizes import given_size
from flashmoe_sim.outside import blaming
from flashmoe_sim.policies.bank import Bank, OneBank, Scope, parse_bank, parse_banks
from flashmoe_sim.policies.base import EvictingPolicy, OnePolicy, Policy
from flashmoe_sim.policies.minor import parse_minor
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.base import OnePredictor, Prefetcher
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.prefetchers.table import WITHOUT_FILE, parse_prefetcher
from flashmoe_sim.question import CONDITIONS, SIZED, BankOptions, ConditionOptions, SeveralOptions
from flashmoe_sim.residency.workload import Setup, why_not, why_not_on_disk
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import default_execution
from flashmoe_sim.timeline.models.table import parse_execution

One = TypeVar("One")
Rules: TypeAlias = dict[Policy, bool]  # and whether each is named by itself
ALL = "all"


def plan(question: BankOptions) -> tuple[Setup, Callable[[ModelGeometry | None], Conditions]]:
    """The setup of one replay, and its conditions once the model is known, from which the context's size follows.

    Raises BadInput for unknown words, for an impossible combination, and for conditions without a machine.
    """
    setup = plan_setup(**_of(question, SIZED))
    return setup, partial(conditions_of(question, setup), setup)


def plan_sweep(
    question: SeveralOptions, *, in_chunks: bool = False, left_out: list[LeftOut] | None = None
) -> tuple[list[Setup], Callable[[Setup, ModelGeometry | None], Conditions]]:
    """The setups of a sweep, from `plan_setups`, and the conditions of each with a model."""
    given = _of(question, (*SIZED, "bank_step"))
    rules = _rules(given.pop("policy"), given.pop("warm", None), given.pop("minor", None))
    setups = plan_setups(**given, policy=rules, left_out=left_out)
    if in_chunks:
        setups = _in_chunks(question, setups, left_out)
    return setups, conditions_of(question, *setups[:1])


def conditions_of(
    question: SeveralOptions | BankOptions | ConditionOptions, *setups: Setup
) -> Callable[[Setup, ModelGeometry | None], Conditions]:
    """Resolve the words on conditions; some setups check them at once, before any trace is read."""
    options = question if isinstance(question, ConditionOptions) else ConditionOptions()
    names = [name for name in CONDITIONS if getattr(options, name) not in (None, False)]
    if not getattr(question, "machine", None):
        if not names:
            return lambda setup, geometry: plan_conditions(setup, options, geometry)
        given = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise Incomplete(f"{given}: how a model runs on a machine; give --machine too, see `sim machine list`")
    Context.of_options(options.context, options.kv, options.kv_type, options.depth)
    check_drafts(options.draft, options.accept, options.drafter)
    for setup in setups:
        plan_conditions(setup, replace(options, context=None, depth=None, draft=None, accept=None, drafter=None))
    return lambda setup, geometry: plan_conditions(setup, options, geometry)


def _in_chunks(question: SeveralOptions, setups: Sequence[Setup], left_out: list[LeftOut] | None) -> list[Setup]:
    """The setups whose memory does not grow with a trace; BadInput for one that does, unless it comes from `all`."""
    policies = _rules(question.policy, getattr(question, "warm", None), getattr(question, "minor", None))
    predictors = _named(getattr(question, "prefetch", "none"), WITHOUT_FILE, _predictor)
    kept, impossible = [], []
    for setup in setups:
        reason = why_not_on_disk(setup)
        if reason is None:
            kept.append(setup)
        elif policies[setup.policy] and predictors.get(setup.prefetch, True):
            raise Unsupported(reason)
        else:
            impossible.append(LeftOut.of(setup, reason))
    if not kept:
        raise Unsupported(impossible[0].reason)
    if left_out is not None:
        left_out += dict.fromkeys(impossible)
    return kept


def _of(question: SeveralOptions | BankOptions, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(question, name) for name in names if hasattr(question, name)}


def plan_setup(
    bank: OneBank,
    *,
    policy: OnePolicy = "lru",
    contract: str = "protected",
    scope: str = "layer",
    prefetch: OnePredictor = "none",
    io_split: int = 4,
    warm: str | None = None,
    minor: str | None = None,
) -> Setup:
    """One setup from words or objects. warm, minor: of a policy unless it has its own.

    Raises BadInput for unknown words and for an impossible combination.
    """
    return Setup(
        bank if isinstance(bank, Bank) else parse_bank(str(bank)),
        _completed(plan_policy(policy), warm, minor),
        contract,
        _predictor(prefetch),
        cast(Scope, scope),
        io_split,
    )


def plan_conditions(setup: Setup, options: ConditionOptions, geometry: ModelGeometry | None = None) -> Conditions:
    """How a setup runs on a machine: by default under the execution model of the systems with its policy.

    The bytes of a context follow from the model unless they are given.
    Raises BadInput for an unknown execution model, for an invalid size, and for a context if the model does not record
    what it takes.
    """
    context = Context.of_options(options.context, options.kv, options.kv_type, options.depth)
    return Conditions(
        execution=default_execution(setup) if options.execution is None else parse_execution(options.execution),
        dense_bytes=None if options.dense is None else given_size("--dense", options.dense),
        kv_bytes=context.bytes_of(geometry),
        direct_io=options.direct_io,
        hot=options.hot,
        depth=context.depth,
        kv_type=context.kv_type,
        drafts=given_drafts(options.draft, options.accept, options.drafter, geometry),
    )


def plan_setups(
    bank: OneBank | Iterable[OneBank],
    *,
    bank_step: str = "auto",
    policy: OnePolicy | Iterable[OnePolicy] | Rules = "lru",
    contract: str = "protected",
    scope: str = "layer",
    prefetch: OnePredictor | Iterable[OnePredictor] = "none",
    io_split: int = 4,
    left_out: list[LeftOut] | None = None,
) -> list[Setup]:
    """A setup for every bank, policy and predictor, in that order: `16..256` and `lru,min`, or lists.

    policy, prefetch: `all`, alone or among others, means all that are possible under the contract and with each other.
        `min` with bypass is the ceiling of the banks: if the contract is `runtime` or `protected`, it is counted under
        `atomic`, without a predictor.
    left_out: receives the impossible parts of `all`, and why.
    Raises BadInput for unknown words, for an impossible combination unless it comes from `all`, and if nothing in `all`
    is possible.
    """
    banks = parse_banks(bank if isinstance(bank, str) else ",".join(map(str, _each(bank))), step=bank_step)
    chosen = policy if isinstance(policy, dict) else _rules(policy, None, None)
    predictors = _named(prefetch, WITHOUT_FILE, _predictor)
    for what, given in (("policies", chosen), ("predictors", predictors)):
        if not given:
            raise Incomplete(f"no {what} given; give at least one, such as {'lru' if given is chosen else 'none'}")
    plan_setup(banks[0], contract=contract, scope=scope, io_split=io_split)
    for right, itself in predictors.items():  # for some policy
        if itself:
            plan_setup(banks[0], contract=contract, scope=scope, prefetch=right, io_split=io_split)
    for rule, itself in chosen.items():  # with some predictor
        if itself and not _is_ceiling(rule, contract):
            plan_setup(banks[0], policy=rule, contract=contract, scope=scope, io_split=io_split)
    setups, impossible = [], []
    for one in banks:
        for rule, itself in chosen.items():
            ceiling = _is_ceiling(rule, contract)
            under = "atomic" if ceiling else contract
            for ahead in (NoPrefetch(),) if ceiling else predictors:
                reason = why_not(rule, under, ahead)
                if reason is None:
                    setups.append(
                        plan_setup(one, policy=rule, contract=under, scope=scope, prefetch=ahead, io_split=io_split)
                    )
                elif itself and predictors[ahead]:
                    raise Unsupported(reason)
                else:
                    impossible.append(LeftOut(None, None, rule.spec, under, ahead.spec, reason))
    if not setups:
        raise Unsupported(impossible[0].reason)
    if left_out is not None:
        left_out += dict.fromkeys(impossible)
    return setups


def _rules(policy: Any, warm: str | None, minor: str | None) -> Rules:
    """The policies, each with its start and its minor experts, and whether it is named by itself."""
    return {_completed(rule, warm, minor): itself for rule, itself in _named(policy, POLICIES, plan_policy).items()}


def _completed(policy: Policy, warm: str | None, minor: str | None) -> Policy:
    """The policy with its start and its minor experts, unless it has its own; one that never installs has none."""
    if not isinstance(policy, EvictingPolicy):
        return policy
    if warm == "":
        raise Malformed("an empty warm; give first-N, such as first-100, the file or bundled name of a trace, or trace")
    if minor == "":
        parse_minor(minor)
    return replace(policy, warm=policy.warm or warm or "", minor=policy.minor or minor or "")


def names_all(policy: Any) -> bool:
    """Whether `all` is among the words."""
    return isinstance(policy, str) and ALL in [word.strip() for word in policy.split(",")]


def _is_ceiling(rule: Policy, contract: str) -> bool:
    return rule.textbook == "min" and contract not in rule.contracts


def plan_policy(given: OnePolicy) -> Policy:
    """A policy that is given by name, with parameters, as a class or as an object.

    Raises BadInput for anything else.
    """
    if isinstance(given, str):
        return parse_policy(given.strip())
    policy = _instance("policy", given)
    if not isinstance(policy, Policy) or not hasattr(policy, "name"):
        raise Malformed(
            f"policy {given!r}: expected a name, or a subclass of EvictingPolicy or PinningPolicy with a `name`"
        )
    return policy


def plan_predictors(prefetch: OnePredictor | Iterable[OnePredictor]) -> list[Prefetcher]:
    """The named predictors, each once: `eam,hot:width=4`, `all,mine:Guess`, an object, or a list.

    Raises BadInput for unknown words, and if there are none.
    """
    chosen = list(_named(prefetch, WITHOUT_FILE, _predictor))
    if not chosen:
        raise Incomplete("no predictors given; give at least one, such as none")
    return chosen


def _named(given: Any, table: Iterable[str], parse: Callable[[Any], One]) -> dict[One, bool]:
    """What words with commas, one object or several of either name, each once; and whether not just by `all`."""
    found: dict[One, bool] = {}
    for one in _each(given) if not isinstance(given, str) else (given,):
        for word in one.split(",") if isinstance(one, str) else (one,):
            if isinstance(word, str) and word.strip() == ALL:
                found = dict.fromkeys(map(parse, table), False) | found
            else:
                found[parse(word)] = True
    return found


def _predictor(given: OnePredictor) -> Prefetcher:
    if isinstance(given, str):
        return parse_prefetcher(given.strip())
    predictor = _instance("predictor", given)
    if not isinstance(predictor, Prefetcher) or not hasattr(predictor, "name"):
        raise Malformed(f"predictor {given!r}: expected a name, or a subclass of Prefetcher with a `name`")
    return predictor


def _instance(kind: str, given: Any) -> Any:
    with blaming(kind, given):
        return given() if isinstance(given, type) else given


def _each(given: One | Iterable[One]) -> Iterator[One]:
    yield from given if isinstance(given, Iterable) else (given,)
