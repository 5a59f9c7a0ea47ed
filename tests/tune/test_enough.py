"""How much of a trace a choice needs: traces whose working set is known, laws, and traces that are too short."""

from __future__ import annotations

import pytest

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.schema import PARTS
from flashmoe_sim.systems.compare import NEAR, at_setting
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.tune.enough import LEAST_TOKENS, MOST_SIZES, Convergence, check_length, converged
from flashmoe_sim.tune.objective import Objective
from tests.systems.cases import case, workload
from tests.tune.made import drawn, tried

DECODE = Objective()
SIX, FOUR, TWELVE = range(6), range(4), range(12)


def of(working_sets: list[range]) -> Convergence:
    small = case(arch="gemma4")  # the slots are on the GPU
    made = drawn(small, working_sets)
    return converged(made, small, tried(made, small), objective=DECODE)


def chosen_slots(found: Convergence) -> list[int]:
    slots = []
    for part in found.parts:
        assert isinstance(part.chosen, SlotBank)
        slots.append(part.chosen.slots)
    return slots


def test_a_working_set_that_stays_is_settled() -> None:
    found = of([SIX] * 512)
    assert [part.tokens for part in found.parts] == [32, 64, 128, 256, 512]
    assert chosen_slots(found) == [6] * 5  # six slots hold all; more hit no more
    assert [part.seconds_more for part in found.parts] == [0.0] * 5
    assert (found.since_tokens, found.largest, found.settled, found.wanted_tokens) == (32, False, True, None)
    assert not found.speed_moves
    assert found.sentences == (
        "slot-bank:slots=6 is the choice from 32 of 512 tokens on, within 3%; a longer trace is unlikely to change it",
    )


def test_a_first_half_that_misleads() -> None:
    found = of([FOUR] * 256 + [TWELVE] * 256)
    assert chosen_slots(found) == [4, 4, 4, 4, 12]
    assert found.since_tokens == 512
    assert not found.settled
    assert found.wanted_tokens == 2048
    moves, advice = found.sentences
    assert moves == (
        "the choice still moves: the first 256 tokens lead to slot-bank:slots=4, which takes 78% longer on all 512; "
        "record about 2,000 tokens"
    )
    assert "may prefer a larger size" in advice


def test_a_short_trace_settles_only_the_largest_size() -> None:
    found = of([SIX] * 128)
    assert chosen_slots(found) == [6] * 3
    assert not found.settled
    assert found.sentences[0] == (
        "128 decoded tokens are too few to choose below the largest size; record about 500 tokens"
    )
    assert found.speed_moves  # the bank fills in the first half
    assert "moved by +10% from half" in found.sentences[-1]
    largest = of([range(16)] * 128)
    assert chosen_slots(largest)[-1] == 16
    assert largest.settled
    assert largest.sentences[0].startswith("slot-bank:slots=16 fills the memory that it may take;")


def test_the_whole_trace_agrees_with_itself() -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    recorded = workload(small.model, tokens=300)
    found = converged(recorded, small, tried(recorded, small), objective=DECODE)
    assert found.whole.seconds_more == 0
    assert found.whole.chosen is not None
    assert found.whole.tokens == 300
    speeds = {one.system: one.tok_s for one in tried(recorded, small)}
    for part in found.parts:
        assert part.chosen is not None
        assert part.seconds_more >= -NEAR
        assert part.seconds_more == pytest.approx(speeds[found.whole.chosen] / speeds[part.chosen] - 1)
        assert set(part.as_row()) == {column.name for column in PARTS}


def test_a_part_is_the_first_tokens_alone() -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    half, all_of_it = drawn(small, [SIX] * 128), drawn(small, [SIX] * 128 + [TWELVE] * 128)
    found = converged(all_of_it, small, tried(all_of_it, small), objective=DECODE)
    part = found.parts[-2]
    assert part.chosen is not None
    assert part.tok_s == pytest.approx(at_setting(half, small, part.chosen, interval=False).tok_s)


def test_one_setting_and_many() -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    made = drawn(small, [SIX] * 256)
    only = converged(made, small, tried(made, small, [SlotBank(slots=4)]), objective=DECODE)
    assert only.settled
    assert "is the only setting" in only.sentences[0]
    every = [SlotBank(slots=slots) for slots in range(2, 17)]
    assert len(every) > MOST_SIZES
    steps: list[tuple[int, int]] = []
    many = converged(
        made, small, tried(made, small, every), objective=DECODE, progress=lambda *step: steps.append(step)
    )
    assert chosen_slots(many)[-1] == 6
    assert steps == [(number, 3) for number in range(3)]


def test_steps_of_many_tokens() -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    batches = drawn(small, [SIX] * 5, tokens=48)
    found = converged(batches, small, tried(batches, small), objective=DECODE)
    assert [part.tokens for part in found.parts] == [96, 144, 240]  # whole steps
    single = drawn(small, [SIX], tokens=240)
    found = converged(single, small, tried(single, small), objective=DECODE)
    assert [part.tokens for part in found.parts] == [240]
    assert found.speed_change is None


def test_tokens_of_a_prompt_do_not_count() -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    made = drawn(small, [SIX] * 192, prompt=64)
    both = Objective(goal="both", prompt_tokens=100)
    found = converged(made, small, tried(made, small), objective=both)
    assert [part.tokens for part in found.parts] == [32, 64, 128]
    assert all(part.chosen is not None for part in found.parts)


@pytest.mark.parametrize("tokens", [2, LEAST_TOKENS - 1])
def test_too_short(tokens: int) -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    with pytest.raises(Incomplete, match=f"made: has {tokens} decoded tokens; a recommendation needs 64 or more"):
        check_length(drawn(small, [SIX] * (tokens + 100), prompt=100))
    check_length(drawn(small, [SIX] * LEAST_TOKENS))
