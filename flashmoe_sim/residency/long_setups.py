"""Which setups can be replayed on a trace that is read in chunks."""

from __future__ import annotations

from flashmoe_sim.io.notes import Note
from flashmoe_sim.policies.base import EvictingPolicy, PinningPolicy, ProfiledPolicy
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.prefetchers.base import PastOnly
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.setup import Setup


def why_not_in_chunks(setup: Setup) -> Note | None:
    """Why a setup cannot be replayed in chunks, with a code for the rule; None if it can."""
    policy, prefetch = setup.policy, setup.prefetch
    whole = "replay the whole trace, or a part (`sim trace cut`)"
    if isinstance(policy, ProfiledPolicy) and (not policy.profile or policy.profile.startswith("first-")):
        return Note(
            "profile in chunks",
            f"policy {policy.spec} counts requests in the trace before it is replayed; "
            f"give it another trace as profile ({policy.name}:profile=FILE), or {whole}",
        )
    if isinstance(policy, PinningPolicy) and policy.by_routing and not isinstance(policy, ProfiledPolicy):
        return Note("pinned in chunks", f"policy {policy.spec} pins by the requests of the whole trace; {whole}")
    if not isinstance(policy, EvictingPolicy | PinningPolicy):
        return Note("plan in chunks", f"policy {policy.spec} plans over all steps of a trace at once; {whole}")
    if reads_twice(setup):
        predicts = f"policy {policy.spec} with a predictor needs the whole trace; leave out the predictor, or {whole}"
        return None if isinstance(prefetch, NoPrefetch) else Note("min and predictor in chunks", predicts)
    knows_all = isinstance(policy, EvictingPolicy) and policy.hindsight
    if knows_all or prefetch.hindsight:
        chosen = f"policy {policy.spec}" if knows_all else f"predictor {prefetch.spec}"
        says = f"{chosen} needs future requests, which a trace read in chunks does not provide; {whole}"
        return Note(f"{'policy' if knows_all else 'predictor'} with hindsight in chunks", says)
    if not isinstance(prefetch, NoPrefetch | PastOnly):
        says = f"predictor {prefetch.spec} predicts for all of a trace at once; make it a PastOnly, or {whole}"
        return Note("predictor in chunks", says)
    return None


def reads_twice(setup: Setup) -> bool:
    """Whether a setup needs the next use of each reference, which takes another reading before the replay."""
    return type(setup.policy) in (Min, MinForced)
