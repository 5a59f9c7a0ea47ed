"""What was requested but has no row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flashmoe_sim.io.notes import code_of
from flashmoe_sim.residency.workload import Setup

NAMED = 3


class LeftOut(NamedTuple):
    """One setup without a row, and why.

    trace, bank: None for a policy and predictor included by `all` that cannot be combined under the contract.
    """

    trace: str | None
    bank: str | None
    policy: str
    contract: str
    prefetch: str
    reason: str

    @classmethod
    def of(cls, setup: Setup, reason: str, *, trace: str | None = None) -> LeftOut:
        """A setup whose bank does not fit a trace; without a trace, one that is refused with every bank."""
        bank = None if trace is None else str(setup.bank)
        return cls(trace, bank, setup.policy.spec, setup.contract, setup.prefetch.spec, reason)


def reasons(left_out: Sequence[LeftOut]) -> list[str]:
    """One line per kind: what is left out, and the reason for the first."""
    return [*_combinations([one for one in left_out if one.bank is None]), *_banks(left_out)]


def _combinations(left_out: list[LeftOut]) -> list[str]:
    kinds: dict[tuple[str, str | None], list[LeftOut]] = {}
    for one in left_out:
        kinds.setdefault((one.policy, code_of(one.reason)), []).append(one)
    alike: dict[tuple[str | None, tuple[str, ...]], list[LeftOut]] = {}
    for (_, kind), ones in kinds.items():
        alike.setdefault((kind, tuple(one.prefetch for one in ones)), []).append(ones[0])
    lines = []
    for (_, ahead), ones in alike.items():
        having = "" if ahead == ("none",) else f" with {_some(ahead, 'predictors')}"
        lines.append(f"left out: {', '.join(one.policy for one in ones)}{having}: {ones[0].reason}")
    return lines


def _banks(left_out: Sequence[LeftOut]) -> list[str]:
    setups: dict[tuple[str, str], list[LeftOut]] = {}
    for one in left_out:
        if one.trace is not None and one.bank is not None:
            setups.setdefault((one.trace, one.bank), []).append(one)
    alike: dict[tuple[str, tuple[str, ...]], list[LeftOut]] = {}
    for (trace, _), ones in setups.items():
        policies = tuple(dict.fromkeys(one.policy for one in ones))
        alike.setdefault((trace, policies), []).append(ones[0])
    return [
        f"left out of {trace}: bank {', '.join(str(one.bank) for one in ones)} "
        f"with {_some(policies, 'policies')}: {ones[0].reason}"
        for (trace, policies), ones in alike.items()
    ]


def _some(names: Sequence[str], what: str) -> str:
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} {what}"
