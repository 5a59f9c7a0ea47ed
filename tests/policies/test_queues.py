"""Queue policies, worked by hand: one expert a call, so that every contract but `atomic` makes room first."""

from __future__ import annotations

import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.policies.base import ALL_CONTRACTS
from tests.residency.builders import Call, one_layer, run, trace_of

CONTRACTS = ("runtime", "protected", "sequential")


def replayed(experts: list[int], slots: int, policy: str, contract: str) -> tuple[str, list[int]]:
    """What each reference was, h for a hit and m for a miss, and what the bank holds at the end."""
    result = run(trace_of(one_layer([[expert] for expert in experts]), 8), slots, policy, contract, record=True)
    return "".join("mh"[hit] for hit in result.hit), result.contents[0].tolist()


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_clock(contract: str) -> None:
    """From old to new, * if the bit is set.

    0 1 2   three misses         0 1 2
    0       hit                  0* 1 2
    3       0 goes round, 1 out  2 0 3
    1       2 out                0 3 1
    3       hit                  0 3* 1
    4       0 out                3* 1 4
    5       3 goes round, 1 out  4 3 5
    3       hit                  4 3* 5
    """
    assert replayed([0, 1, 2, 0, 3, 1, 3, 4, 5, 3], 3, "clock", contract) == ("mmmhmmhmmh", [3, 4, 5])


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_clock_where_all_were_hit_is_fifo(contract: str) -> None:
    """0* 1*: both go round, 0 is the oldest again and leaves. A single one goes round to its own place."""
    assert replayed([0, 1, 0, 1, 2], 2, "clock", contract) == ("mmhhm", [1, 2])
    assert replayed([0, 0, 1, 1], 1, "clock", contract) == ("mhmh", [1])


@pytest.mark.parametrize("contract", CONTRACTS)
def test_clock_hand(contract: str) -> None:
    """By slot, * if the bit is set, > where the hand is.

    0 1 2   three misses, all bits set        >0* 1* 2*
    3       the hand clears all, then 0 out   3* >1 2
    1       hit                               3* >1* 2
    4       1 is passed and cleared, 2 out    >3* 1 4*
    1       hit                               >3* 1* 4*
    5       all are cleared, then 3 out       5* >1 4
    """
    assert replayed([0, 1, 2, 3, 1, 4, 1, 5], 3, "clock-hand", contract) == ("mmmmhmhm", [1, 4, 5])


def test_the_clock_hand_passes_what_the_call_needs() -> None:
    """0 1 and the hand at 0; the call of 0 and 2 may not evict 0, so the hand passes it, bit set, and takes 1; for 3 it
    goes on from 0, which it clears, clears 2 and takes 0."""
    calls = one_layer([[0], [1], [0, 2], [3]])
    result = run(trace_of(calls, 8), 2, "clock-hand", "protected", record=True)
    assert result.contents[0].tolist() == [2, 3]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_sieve(contract: str) -> None:
    """From old to new, * where visited, > where the hand is; it begins at the oldest.

    0 1 2   three misses         >0 1 2
    0       hit                  >0* 1 2
    3       0 cleared, 1 out     0 >2 3     0 stays where it is
    0       hit                  0* >2 3
    4       2 out                0* >3 4
    3       hit                  0* >3* 4
    5       3 cleared, 4 out     >0* 3 5    4 was the newest: the hand is back at the oldest
    6       0 cleared, 3 out     0 >5 6
    0       hit                  0* >5 6
    """
    assert replayed([0, 1, 2, 0, 3, 0, 4, 3, 5, 6, 0], 3, "sieve", contract) == ("mmmhmhmhmmh", [0, 5, 6])


def test_sieve_where_the_newcomer_is_in_the_queue_before_the_victim_leaves() -> None:
    """As above up to the eviction of 4, after which the hand now finds the newcomer 5 rather than the end.

    5       3 cleared, 4 out     0* 3 >5
    6       5 out                0* 3 >6
    """
    assert replayed([0, 1, 2, 0, 3, 0, 4, 3, 5, 6, 0], 3, "sieve", "atomic") == ("mmmhmhmhmmh", [0, 3, 6])


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_slru(contract: str) -> None:
    """Three slots, of which 80% are two; probation | protected, each from old to new.

    0 1 2   three misses         0 1 2 |
    0       promoted             1 2 | 0
    1       promoted             2 | 0 1
    2       promoted, 0 demoted  0 | 1 2
    3       0 out                3 | 1 2
    0       3 out                0 | 1 2
    1       hit                  0 | 2 1
    0       promoted, 2 demoted  2 | 1 0
    4       2 out                4 | 1 0
    """
    assert replayed([0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 4], 3, "slru", contract) == ("mmmhhhmmhhm", [0, 1, 4])


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_slru_evicts_a_protected_one_where_there_is_no_other(contract: str) -> None:
    """The only slot may be protected: 0 is promoted and must leave all the same."""
    assert replayed([0, 0, 1, 0], 1, "slru", contract) == ("mhmm", [0])


@pytest.mark.parametrize("contract", CONTRACTS)
def test_2q(contract: str) -> None:
    """Four slots: one for A1in, and A1out remembers two. A1in | Am | A1out, each from old to new.

    0 1 2 3  four misses                       0 1 2 3 | |
    0        hit: nothing moves                0 1 2 3 | |
    4        A1in has more than one: 0 out     1 2 3 4 | | 0
    0        remembered; 1 out                 2 3 4 | 0 | 1
    1        remembered; 2 out                 3 4 | 0 1 | 2
    2        remembered; 3 out                 4 | 0 1 2 | 3
    3        remembered; Am's turn: 0 out      4 | 1 2 3 |     0 is not remembered
    0        Am's turn: 1 out                  4 0 | 2 3 |
    2        hit                               4 0 | 3 2 |
    5        4 out                             0 5 | 3 2 | 4
    """
    assert replayed([0, 1, 2, 3, 0, 4, 0, 1, 2, 3, 0, 2, 5], 4, "2q", contract) == ("mmmmhmmmmmmhm", [0, 2, 3, 5])


@pytest.mark.parametrize("contract", CONTRACTS)
def test_2q_forgets_the_oldest_it_remembers(contract: str) -> None:
    """Two slots: one for A1in, and A1out remembers one.

    0 1      two misses                        0 1 | |
    2        0 out                             1 2 | | 0
    0        remembered; 1 out                 2 | 0 | 1
    3        Am's turn: 0 out                  2 3 | | 1
    4        2 out, 1 forgotten                3 4 | | 2
    1        as if new; 3 out                  4 1 | | 3
    3        remembered, though 4 pushes on    1 | 3 | 4
    """
    assert replayed([0, 1, 2, 0, 3, 4, 1, 3], 2, "2q", contract) == ("mmmmmmmm", [1, 3])
    # 3 is in Am: a newcomer takes its slot, not that of 1.
    assert replayed([0, 1, 2, 0, 3, 4, 1, 3, 5], 2, "2q", contract)[1] == [1, 5]


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_mq(contract: str) -> None:
    """Three slots, a life of four requests; list 0 | list 1, each from old to new, with the request of entry.

     1  0   miss                                  0@1 |
     2  0   second use                            | 0@2
     3  1   miss                                  1@3 | 0@2
     4  2   miss                                  1@3 2@4 | 0@2
     5  3   1 out, remembered with one use        2@4 3@5 | 0@2
     6  2   second use; 0 is there for 4          3@5 | 0@2 2@6
     7  1   0 is there for 5, demoted; 3 out;
            second use of 1, which is remembered  0@7 | 2@6 1@7
     8  4   0 out                                 4@8 | 2@6 1@7
     9  3   4 out; second use, remembered         | 2@6 1@7 3@9
    10  5   list 0 is empty: 2 out                5@10 | 1@7 3@9
    """
    experts = [0, 0, 1, 2, 3, 2, 1, 4, 3, 5]
    assert replayed(experts, 3, "mq:life_time=4", contract) == ("mhmmmhmmmm", [1, 3, 5])


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_a_life_of_mq_is_two_bank_sizes_unless_given(contract: str) -> None:
    """0 enters list 1 at 2 and has six requests there: at 9 it joins 5 and 6 in list 0, and leaves third, at 11."""
    experts = [0, 0, 1, 2, 3, 4, 5, 6, 7, 1, 2]
    for policy in ("mq", "mq:life_time=6"):
        assert 0 in replayed(experts[:10], 3, policy, contract)[1]
        assert 0 not in replayed(experts, 3, policy, contract)[1]
    assert 0 not in replayed(experts[:10], 3, "mq:life_time=5", contract)[1]
    assert 0 in replayed(experts, 3, "mq:life_time=7", contract)[1]


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_class_lru(contract: str) -> None:
    """Three slots; class 0 | class 1, each from old to new, with the token of the last use.

     1  0   miss, count 1                          0@1 |
     2  0   count 1.99                             0@2 |
     3  0   count 2.98                             | 0@3
     4  1   miss                                   1@4 | 0@3
     5  2   miss                                   1@4 2@5 | 0@3
     6  3   1 at 2 for 0 at 3/2: 1 out             2@5 3@6 | 0@3
     7  1   2 at 2 for 0 at 4/2, a tie: 2 out;
            count 1.98, from before it left        3@6 1@7 | 0@3
     8  1   count 2.97                             3@6 | 0@3 1@8
     9  1   count 3.95                             3@6 | 0@3 1@9
    10  2   3 at 4 for 0 at 7/2: 3 out             2@10 | 0@3 1@9
    11  4   2 at 1 for 0 at 8/2: 0 out             2@10 4@11 | 1@9
    12  0   2 at 2 for 1 at 3/2: 2 out;
            count 3.84, from before it left        4@11 | 1@9 0@12
    """
    experts = [0, 0, 0, 1, 2, 3, 1, 1, 1, 2, 4, 0]
    assert replayed(experts, 3, "class-lru", contract) == ("mhhmmmmhhmmm", [0, 1, 4])


@pytest.mark.parametrize(
    ("share", "outcome"),
    [(0.0, ("mmmmmm", [4, 5])), (0.5, ("mmmmmm", [2, 4])), (0.75, ("mmmmmm", [1, 2])), (1.0, ("mmmmmm", [0, 1]))],
)
def test_shared_class_lru_leaves_out_a_share_in_turn(share: float, outcome: tuple[str, list[int]]) -> None:
    """Two slots. Of the misses 2, 3, 4, 5 every second is left out, or all but the first, or all."""
    for contract in ("atomic", "sequential"):
        assert replayed([0, 1, 2, 3, 4, 5], 2, f"shared-class-lru:share={share}", contract) == outcome


@pytest.mark.parametrize(("tokens", "left"), [(1, [0, 2]), (2, [1, 2])])
def test_ages_of_class_lru_are_in_tokens(tokens: int, left: list[int]) -> None:
    """0 is in class 1 and waits for `tokens` and one more, 1 in class 0 for one: 2/2 to 1 is a tie, 3/2 is not."""
    calls: list[Call] = [(0, [0], 1), (0, [0], 1), (0, [0], 1), (0, [1], tokens), (0, [2], 1)]
    for contract in ALL_CONTRACTS:
        assert run(trace_of(calls, 8), 2, "class-lru", contract).contents[0].tolist() == left


def test_ages_of_class_lru_are_in_tokens_of_the_layer() -> None:
    """Two layers share two slots. 1 of layer 1 is in class 1, and a token of its layer has passed; 0 of layer 0 is in
    class 0, and none has. The experts of layer 1 are keys 8 to 15."""
    calls: list[Call] = [(1, [1], 1), (1, [1], 1), (1, [1], 1), (0, [0], 1), (1, [2], 1)]
    for contract in ALL_CONTRACTS:
        assert run(trace_of(calls, 8), 1, "class-lru", contract, scope="global").contents[0].tolist() == [0, 8 + 2]


@pytest.mark.parametrize(
    ("trace", "rates"), [("deepseek-v2-lite", [28.0, 44.4, 70.5]), ("gpt-oss-120b", [77.7, 87.5, 94.9])]
)
def test_class_lru_hits_as_often_as_elsewhere(trace: str, rates: list[float]) -> None:
    """One bank of an eighth, a quarter and half of all experts; the hit rates, in percent, are of another program."""
    workload = sim.load_trace(trace)
    experts = max(workload.n_experts)
    policy = "class-lru:stamp=hits-first-sorted"
    for slots, rate in zip((experts // 8, experts // 4, experts // 2), rates, strict=True):
        found = sim.replay(workload, bank=slots, policy=policy, contract="atomic", scope="global")
        assert round(100 * found["hit_rate"].item(), 1) == rate


@pytest.mark.parametrize("contract", CONTRACTS)
def test_s3fifo(contract: str) -> None:
    """Four slots, of which the small queue has two; it remembers two. Small | main | ghosts, with ' for each hit.

    0 1 2 3  four misses                                  0 1 2 3 | |
    0 0 1    hits                                         0'' 1' 2 3 | |
    4        0 has two and moves, 1 has one and is out    2 3 4 | 0 | 1
    1        remembered; 2 out                            3 4 | 0 1 | 2
    0        hit                                          3 4 | 0' 1 | 2
    5        3 out                                        4 5 | 0' 1 | 2 3
    2        remembered; 4 out                            5 | 0' 1 2 | 3 4
    6        main's turn: 0 goes round, 1 out             5 6 | 2 0 | 3 4
    1        was not remembered; 5 out                    6 1 | 2 0 | 4 5
    """
    experts = [0, 1, 2, 3, 0, 0, 1, 4, 1, 0, 5, 2, 6, 1]
    assert replayed(experts, 4, "s3fifo:small=0.5", contract) == ("mmmmhhhmmhmmmm", [0, 1, 2, 6])


@pytest.mark.parametrize("contract", CONTRACTS)
def test_hits_in_the_head_of_the_small_queue_of_s3fifo_do_not_count(contract: str) -> None:
    """Four slots, two in the small queue, the newest of which counts no hits. 0 is hit twice as the newest, 1 later.

    0 0 0 1 2  0 is the newest for both hits                  0 1 2 | |
    1 1 3      two for 1                                      0 1'' 2 3 | |
    4          0 has none and is out                          1'' 2 3 4 | | 0
    5          1 has two and moves, 2 is out                  3 4 5 | 1 | 0 2
    """
    experts = [0, 0, 0, 1, 2, 1, 1, 3, 4, 5]
    skipping = replayed(experts, 4, "s3fifo:small=0.5:skip=0.5", contract)
    assert skipping == ("mhhmmhhmmm", [1, 3, 4, 5])
    assert replayed(experts, 4, "s3fifo:small=0.5", contract) == ("mhhmmhhmmm", [0, 1, 4, 5])


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_an_expert_that_returns_to_s3fifo_is_no_newcomer_of_the_small_queue(contract: str) -> None:
    """Two slots, one for the small queue; it remembers one. Small | main | ghosts.

    0 2      two misses                                           0 2 | |
    1        0 out                                                2 1 | | 0
    2 2      two hits                                             2'' 1 | | 0
    4        2 moves, 1 out                                       4 | 2 | 1
    1        remembered, so it enters main; the small queue has
             its share without it, and 4 is out                   | 2 1 | 4
    4        remembered; nothing is in the small queue: 2 is out  | 1 4 |
    """
    assert replayed([0, 2, 1, 2, 2, 4, 1, 4], 2, "s3fifo", contract) == ("mmmhhmmm", [1, 4])


@pytest.mark.parametrize("contract", [*CONTRACTS, "atomic"])
def test_s3fifo_of_one_slot(contract: str) -> None:
    """0 is hit twice and moves to the main queue, which has no share at all, without hits: it leaves as any other."""
    assert replayed([0, 0, 0, 1, 1], 1, "s3fifo", contract) == ("mhhmh", [1])


def test_a_queue_may_remember_more_than_there_is() -> None:
    for ratio in ("1e300", "inf"):
        assert replayed([0, 1, 2, 3, 0], 2, f"2q:a1out={ratio}", "sequential") == ("mmmmm", [0, 3])
