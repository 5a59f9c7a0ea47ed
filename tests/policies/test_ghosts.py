"""Policies that remember what they evicted, worked by hand, one reference at a time unless it says otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.residency.builders import one_layer, run, trace_of


def replayed(policy: str, experts: list[int], slots: int) -> tuple[list[int], list[int]]:
    """Whether each reference hit, and what the bank holds at the end."""
    trace = trace_of(one_layer([[expert] for expert in experts]), max(experts) + 1)
    result = run(trace, slots, policy, "sequential", record=True)
    return result.hit.tolist(), result.contents[0].tolist()


def test_arc_moves_its_target_by_what_it_remembers() -> None:
    """Oldest first; p is the target of list 1.

    0 1  T1 [0 1]
    0    T1 [1]  T2 [0]
    2    p = 0 < |T1|: 1 goes to B1. T1 [2], T2 [0], B1 [1]
    1    in B1: p = 1. |T1| = 1 is not above it: 0 goes to B2. T1 [2], T2 [1], B2 [0]
    0    in B2: p = 0. 2 goes to B1. T2 [1 0], B1 [2]
    2    in B1: p = 1. 1 goes to B2. T2 [0 2], B2 [1]
    1    in B2: p = 0 = |T1|, but list 1 is empty: 0 goes to B2. T2 [2 1], B2 [0]
    """
    assert replayed("arc", [0, 1, 0, 2, 1, 0, 2, 1], 2) == ([0, 0, 1, 0, 0, 0, 0, 0], [1, 2])


def test_arc_forgets_what_leaves_a_list_1_as_long_as_the_bank() -> None:
    """0 1 fill list 1, so that 2 drives 0 out without a trace. 0 comes back to list 1, and goes by age: 3 evicts 2.

    Were 0 remembered, it would be in list 2 and p = 1, and 3 would evict it.
    """
    assert replayed("arc", [0, 1, 2, 0, 3], 2) == ([0] * 5, [0, 3])


def figure_4(experts: list[int], c: int) -> list[int]:
    """ARC(c) as Figure 4 writes it, with the ghost lists shortened before the eviction; lists are LRU first."""
    t1, t2, b1, b2 = [], [], [], []
    p = 0.0
    hits = []

    def replace(x: int) -> None:
        if t1 and (len(t1) > p or (x in b2 and len(t1) == p)):
            b1.append(t1.pop(0))
        else:
            b2.append(t2.pop(0))

    for x in experts:
        hits.append(int(x in t1 or x in t2))
        if x in t1 or x in t2:
            (t1 if x in t1 else t2).remove(x)
            t2.append(x)
        elif x in b1:
            p = min(float(c), p + max(1.0, len(b2) / len(b1)))
            replace(x)
            b1.remove(x)
            t2.append(x)
        elif x in b2:
            p = max(0.0, p - max(1.0, len(b1) / len(b2)))
            replace(x)
            b2.remove(x)
            t2.append(x)
        else:
            if len(t1) + len(b1) == c:
                if len(t1) < c:
                    b1.pop(0)
                    replace(x)
                else:
                    t1.pop(0)
            elif len(t1) + len(t2) + len(b1) + len(b2) >= c:
                if len(t1) + len(t2) + len(b1) + len(b2) == 2 * c:
                    b2.pop(0)
                replace(x)
            t1.append(x)
    return hits


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 13, 20])
def test_arc_is_figure_4(slots: int) -> None:
    rng = np.random.default_rng(slots)
    experts = [int(draw) for draw in 24 * rng.random(1500) ** 2]
    assert replayed("arc", experts, slots)[0] == figure_4(experts, slots)


def test_lirs_takes_in_what_is_used_again_while_in_the_stack() -> None:
    """Two slots for LIR, one for HIR. The stack bottom first, ghosts in brackets.

    0 1  LIR                                     S 0 1
    2    HIR                                     S 0 1 2       Q 2
    3    2 goes, and stays in the stack          S 0 1 (2) 3   Q 3
    2    3 goes; 2 was in the stack: it becomes
         LIR, and 0, lowest, the newest HIR      S 1 (3) 2     Q 0
    0    a hit, outside the stack: stays HIR     S 1 (3) 2 0   Q 0
    0    a hit, in the stack: LIR for 1; what
         was below 2 leaves                      S 2 0         Q 1
    3    not remembered any more; 1 goes         S 2 0 3       Q 3
    2    a hit                                   S 0 3 2       Q 3
    4    3 goes                                  S 0 (3) 2 4   Q 4
    """
    hits, held = replayed("lirs:hir=0.34", [0, 1, 2, 3, 2, 0, 0, 3, 2, 4], 3)
    assert (hits, held) == ([0, 0, 0, 0, 0, 1, 1, 0, 1, 0], [0, 2, 4])


def test_lirs_remembers_as_much_as_its_stack_holds() -> None:
    """Two slots, one of each kind: 1, 2, 3 pass through the HIR slot and stay in the stack above 0.

    In a stack of six 1 is still remembered when it comes back: it becomes LIR, and 0 the HIR that 4 drives out. In a
    stack of two only 0 and the newest fit, 1 is forgotten, and 4 drives it out again.
    """
    experts = [0, 1, 2, 3, 1, 4]
    assert replayed("lirs", experts, 2)[1] == [1, 4]
    assert replayed("lirs:stack=1", experts, 2)[1] == [0, 4]


def test_lirs_gives_up_the_lowest_lir_where_a_call_has_more_misses_than_hir() -> None:
    """Three slots, two for LIR: 0 and 1. The call 3 4 finds the HIR 2, which goes, and 3 may not go again: 0 does.

    3 and 4 are HIR. The call 5 therefore takes 3, the oldest of them, not 1.
    """
    calls = one_layer([[0], [1], [2], [3, 4], [5]])
    assert run(trace_of(calls, 6), 3, "lirs:hir=0.34", "protected").contents[0].tolist() == [1, 4, 5]
    assert run(trace_of(calls, 6), 3, "lirs:hir=0.34", "atomic").contents[0].tolist() == [1, 4, 5]


def test_lru_2_compares_the_uses_before_the_last() -> None:
    """Times of the last two uses:

    0 1 0  0: 3 1, 1: 2
    2      1 has no second use: it goes.                 0: 3 1, 2: 4
    1      its first use is remembered; 2 has but one.   0: 3 1, 1: 5 2
    2      1 of 0 is the oldest: 0 goes.                 1: 5 2, 2: 6 4
    0      2 of 1 is: 1 goes.                            2: 6 4, 0: 7 3
    """
    experts = [0, 1, 0, 2, 1, 2, 0]
    assert replayed("lru-k", experts, 2) == ([0, 0, 1, 0, 0, 0, 0], [0, 2])
    # Where uses are forgotten, 1 comes back with one use and goes for 2; 0 is still there.
    assert replayed("lru-k:history=restart", experts, 2) == ([0, 0, 1, 0, 0, 0, 1], [0, 2])
    assert replayed("lru-k:k=1", experts, 2) == replayed("lru", experts, 2)


def test_lru_2_takes_uses_close_together_for_one() -> None:
    """0 0 is one use, begun at 1. At 4 the last use of 1, at 3, is too recent for it to go, so 0 does."""
    assert replayed("lru-k:correlated=1", [0, 0, 1, 2], 2)[1] == [1, 2]
    assert replayed("lru-k", [0, 0, 1, 2], 2)[1] == [0, 2]


def test_lru_2_leaves_out_the_time_that_close_uses_took() -> None:
    """Uses at most 1 apart are one. 0 is used at 1 to 3 and at 5, 1 at 4 and 6: the time from 1 to 3 is taken out.

    So the second last use of 0 counts as at 3, that of 1 as at 4. At 8, after 2 has taken the third slot at 7, the
    latest uses of 0 and 1 are 3 and 2 ago: 2, with one use, is too recent to go, and of the others 0 goes.
    """
    experts = [0, 0, 0, 1, 0, 1, 2, 3]
    assert replayed("lru-k:correlated=1", experts, 3)[1] == [1, 2, 3]
    assert replayed("lru-k", experts, 3)[1] == [0, 1, 3]


def test_w_tinylfu_admits_what_is_used_more_often() -> None:
    """One slot is the window; of two in the main region one is protected. Counts after each reference in brackets.

    0 1 2  window 2, probation 0 1              (0:1 1:1 2:1)
    0      window 2, probation 1, protected 0   (0:2 1:1 2:1)
    3      2 against 1, equal: 2 goes           (3:1)
    2      3 against 1, equal: 3 goes           (2:2)
    3      2 against 1: 1 goes, 2 to probation  (3:2)
    1      3 against 2, equal: 3 goes           (1:2)
    1      hit in the window                    (1:3)
    4      1 against 2: 2 goes, 1 to probation  (4:1)
    """
    hits, held = replayed("w-tinylfu:window=0.34", [0, 1, 2, 0, 3, 2, 3, 1, 1, 4], 3)
    assert (hits, held) == ([0, 0, 0, 1, 0, 0, 0, 0, 1, 0], [0, 1, 4])


def test_w_tinylfu_forgets_by_halves() -> None:
    """Two slots: 0 is used three times, then 1 three times, then 2 comes, for which the newest or 0 must go.

    Halved at the fourth use and, since the number of uses is halved as well, at the sixth: 0 has 3/2/2 = 0 and 1 has
    (1/2 + 2)/2 = 1, so that 0 goes. Without that they are equal, and 1 goes, which is in the window.
    """
    experts = [0, 0, 0, 1, 1, 1, 2]
    assert replayed("w-tinylfu:sample=2", experts, 2)[1] == [1, 2]
    assert replayed("w-tinylfu", experts, 2)[1] == [0, 2]


def test_lecar_draws_lru_or_lfu() -> None:
    """The first draws of seed 1 are 0.0001, 0.016 and 0.62. (expert: count, last use)

    0 0 1  0:2,2 1:1,3
    2      LRU says 0, LFU 1; 0.0001 < 0.5: 0 goes, remembered for LRU.       1:1,3 2:1,4
    0      the weight of LRU falls to 0.49. Both say 1: it goes, forgotten.   2:1,4 0:3,5
    1      both say 2                                                         0:3,5 1:1,6
    1      hit                                                                0:3,5 1:2,7
    2      LRU says 0, LFU 1; 0.016 < 0.49: 0 goes.                           1:2,7 2:1,8
    0      the weight falls to 0.48. LRU says 1, LFU 2; 0.62: 2 goes.         1:2,7 0:4,9
    """
    assert replayed("lecar", [0, 0, 1, 2, 0, 1, 1, 2, 0], 2) == ([0, 1, 0, 0, 0, 0, 1, 0, 0], [0, 1])


def test_lecar_leaves_the_rule_that_is_wrong() -> None:
    """Two experts in turn, and each time one that does not come again soon, in two slots.

    LRU gives up what comes back; LFU gives up one of the two for good, and hits the other.
    """
    experts = [0, 1] * 10 + [expert for turn in range(300) for expert in (0, 1, 2 + turn % 40)]
    hits = {policy: sum(replayed(policy, experts, 2)[0][20:]) for policy in ("lru", "lfu", "lecar")}
    assert hits["lru"] <= 2
    assert hits["lfu"] >= 300
    assert hits["lecar"] > 0.7 * hits["lfu"]


def test_cacheus_adapts_the_number_of_the_reused() -> None:
    """Four slots, three for the reused at first; each rule remembers two. Draws of seed 1: 0.0001, 0.016.

    0 1 2 3  all new                            others 0 1 2 3
    0        used again                         others 1 2 3     reused 0
    4        SR-LRU says 1; CR-LFU 3, the latest of those used once; 0.0001 < 0.5: 1 goes, remembered as new.
                                                others 2 3 4     reused 0
    1        comes back: reused, of which there may now be 2. The weight falls to 0.44; SR-LRU says 2, CR-LFU 4; 0.016:
             2 goes, remembered as new.         others 3 4       reused 0 1
    3        used again: 0 is demoted.          others 4 0       reused 1 3
    0        used again: as many new are remembered as are demoted here, 1, so there may now be 3 reused.
                                                others 4         reused 1 3 0
    5        both say 4: it goes, forgotten.    others 5         reused 1 3 0
    6, 4     likewise                           others 4         reused 1 3 0
    """
    hits, held = replayed("cacheus", [0, 1, 2, 3, 0, 4, 1, 3, 0, 5, 6, 4], 4)
    assert (hits, held) == ([0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0], [0, 1, 3, 4])


def test_cacheus_gives_up_the_latest_of_those_used_least() -> None:
    """All are used once. SR-LRU says 0, CR-LFU 3; the first draw of seed 14336 is 0.9: 3 goes."""
    assert replayed("cacheus:seed=14336", [0, 1, 2, 3, 4], 4)[1] == [0, 1, 2, 4]
