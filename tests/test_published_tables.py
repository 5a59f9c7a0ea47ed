"""Tables that others published, replayed from their own traces."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup
from reports.published import conformance
from reports.published.page import PAGE, markdown
from reports.published.sampled import FACTOR, STEP, SampledLfu
from reports.published.tables import ENGINE, LINES, SCRIPT, Line, as_printed, of_one_cache, over_seeds, shown

ROOT = Path(__file__).parents[1]


def test_the_page_is_made_from_the_replays() -> None:
    assert PAGE.read_text("utf-8") == markdown(), "run python -m reports.published"


@pytest.mark.parametrize(
    "line", [one for one in LINES if one.policy != ENGINE], ids=lambda one: f"{one.table}: {one.what}"
)
def test_what_was_printed_comes_out(line: Line) -> None:
    if (line.table, line.what) == ("warp, gate 2, Kimi-Linear", "LRU, 3%"):  # at a cliff: see the page
        assert shown(line) < line.said < shown(line._replace(slots=208))
    else:
        assert as_printed(line)


def test_the_engines_rule_explains_what_it_measured_in_few_slots() -> None:
    promised, measured = (
        next(one for one in LINES if one.policy == rule and one.slots == 201) for rule in (SCRIPT, ENGINE)
    )
    least, most = over_seeds(measured)
    assert abs(least - measured.said) < 0.5
    assert most < promised.said - 10


@pytest.mark.parametrize("policy", [SampledLfu(), SampledLfu(draws=3, keep=True), SampledLfu(draws=1, seed=7)])
@pytest.mark.parametrize("slots", [5, 12, 40])
def test_the_sampled_rule_against_a_plain_twin(policy: SampledLfu, slots: int) -> None:
    workload = of_one_cache("switch-base-8")
    total = replay(workload, Setup(Bank(slots=slots), policy, "sequential")).counts.total()
    assert total["hits"] == twin(workload.trace.expert.tolist(), slots, policy)


def twin(references: list[int], slots: int, policy: SampledLfu) -> int:
    held: list[int | None] = [None] * slots
    uses: dict[int, int] = {}
    last: dict[int, int] = {}
    state, found = policy.seed, 0
    for now, key in enumerate(references):
        if key in held:
            found += 1
            uses[key] += 1
        else:
            if None in held:
                slot = held.index(None)
            else:
                drawn = []
                for _ in range(policy.draws):
                    state = (state * FACTOR + STEP) % 2**32
                    drawn.append(state % slots)
                slot = min(drawn, key=lambda one: (uses[held[one]], last[held[one]]))  # type: ignore[index]
            held[slot] = key
            uses[key] = uses.get(key, 0) + 1 if policy.keep else 0
        last[key] = now
    return found


def test_event_atomic_replay_is_as_the_toy_trace_says() -> None:
    """Event by event. Its counts tell LRU from demand, and not the contracts from one another."""
    stream = conformance.replayed(Lru(), "atomic").stream
    assert stream is not None
    said = conformance.events()
    assert stream.hits.tolist() == [one.hits for one in said]
    assert stream.misses.tolist() == [one.misses for one in said]
    assert conformance.counts() == conformance.SAID == {"accesses": 30, "hits": 12, "misses": 18, "evictions": 12}
    assert conformance.counts("sequential") == conformance.SAID
    assert conformance.replayed(Demand(), "atomic").counts.total()["hits"] != conformance.SAID["hits"]


def test_draws_of_another_kind_change_little() -> None:
    """The script draws different residents, the rule here any: the hit rates are the same to a few tenths."""
    references, slots = of_one_cache("warp-kimi-300").trace.expert.tolist()[:20_000], 402
    rng, held, uses, last, found = random.Random(0), dict[int, None](), dict[int, int](), dict[int, int](), 0
    for now, key in enumerate(references):
        if key in held:
            found += 1
        elif len(held) == slots:
            del held[min(rng.sample(list(held), 32), key=lambda one: (uses[one], last[one]))]
        held[key] = None
        uses[key], last[key] = uses.get(key, 0) + 1, now
    assert abs(found - twin(references, slots, SCRIPT)) < 0.01 * len(references)
