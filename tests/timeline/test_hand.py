"""Timelines worked out by hand: one call under every execution model, and experts read ahead.

The machine: two lanes, two chunks of 1 s per expert (0.5 s from the page cache), 0.75 s to upload an expert, 1/8 s to
install it, 0.25 s to compute it (0.5 s on the cold lane); 1 s of dense work and 0.5 s on the host before the experts,
1/16 s to join two lanes, 2 s of output. The call: four experts, of which three are missing, the last of these in the
page cache. All times are exact in binary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.names import LATE, ON_LINK, ON_STORAGE, PARTS
from flashmoe_sim.timeline.run import simulate
from tests.timeline.cases import costs_of, work_of

MACHINE: dict[str, Any] = {
    "chunks": 2,
    "chunk_s": 1.0,
    "warm_chunk_s": 0.5,
    "upload_s": 0.75,
    "install_s": 0.125,
    "expert_s": 0.25,
    "cold_expert_s": 0.5,
    "dense_s": 1.0,
    "call_s": 0.5,
    "hit_call_s": 0.5,
    "merge_s": 0.0625,
    "step_s": 2.0,
}
CALL = {"requests": 4, "misses": 3, "warm": 1}
IN_RAM: dict[str, Any] = {"warm": 3, "installs": 0}


def parts_of(
    name: str, *, n_tokens: int = 1, cold: int = 0, warm: int = 1, installs: int = 3, **given: float
) -> dict[str, float]:
    """The parts of the call that are not 0, less what all models have: dense 1, host 0.5, output 2."""
    work = work_of([CALL | {"n_tokens": n_tokens, "cold": cold, "warm": warm, "installs": installs}])
    timeline = simulate(work, costs_of(**(MACHINE | given)), parse_execution(name))
    parts = dict(zip(PARTS, timeline.parts[0].tolist(), strict=True))
    assert sum(parts.values()) == timeline.end[0]
    assert (parts.pop("dense"), parts.pop("output")) == (1.0, 2.0)
    parts["host"] -= 0.5
    return {name: seconds for name, seconds in parts.items() if seconds}


def test_resident() -> None:
    assert parts_of("resident") == {"experts": 4 * 0.25}


def test_mapped() -> None:
    """Two experts of two chunks from storage on two lanes, 1 s each; the third lies in RAM and takes no read."""
    assert parts_of("mapped", warm_chunk_s=0.0) == {"read": 2.0, "experts": 1.0}


@pytest.mark.parametrize(("misses", "host_s"), [(0, 0.125), (1, 0.5)])
def test_the_host_takes_its_time_for_a_call_that_misses_and_for_one_that_does_not(misses: int, host_s: float) -> None:
    work = work_of([CALL | {"misses": misses, "warm": 0, "installs": 0}])
    timeline = simulate(work, costs_of(**(MACHINE | {"hit_call_s": 0.125})), parse_execution("mapped"))
    assert timeline.parts[0][PARTS.index("host")] == host_s


def test_sync_install() -> None:
    # 2 x 1 s, 2 x 1 s and 2 x 0.5 s one after another, each followed by its upload and its install
    assert parts_of("sync-install") == {"read": 2.0 + 2.0 + 1.0, "upload": 3 * 0.75, "host": 3 * 0.125, "experts": 1.0}


def test_split_install() -> None:
    """A family of three chunks and one of a single chunk: on two lanes two rounds and one, 1 s each, 0.5 s if warm.

    Each family is uploaded before the next is read: 0.375 s.
    """
    assert parts_of("split-install", families=[3, 1], chunks=4) == {
        "read": 3.0 + 3.0 + 1.5,
        "upload": 6 * 0.375,
        "host": 3 * 0.125,
        "experts": 1.0,
    }


def test_split_install_reads_a_family_at_the_depth_of_its_chunks() -> None:
    # on 8 lanes a family of 4 chunks has 4 reads in flight, whatever else is missing; the other family has one
    costs = costs_of(lanes=8, chunks=5, families=[4, 1])
    costs.family_chunk_s[0] = [[9, 9, 9, 2, 9, 9, 9, 9], [3, 9, 9, 9, 9, 9, 9, 9]]
    timeline = simulate(work_of([{"requests": 2, "misses": 2}]), costs, parse_execution("split-install"))
    assert timeline.end.tolist() == [2 * (2.0 + 3.0)]
    assert timeline.busy[ON_STORAGE] == 2 * (4 * 2.0 + 3.0) / 8


def test_split_install_reads_ahead_by_families_too() -> None:
    # two experts after the call, the second from the page cache: families of 3 and 1 chunks on two lanes, as above
    work = work_of([{"requests": 0}], [(0, 0, 0, -1), (0, 0, 1, -1)])
    costs = costs_of(families=[3, 1], chunks=4, chunk_s=1.0, warm_chunk_s=0.5, upload_s=0.75)
    timeline = simulate(work, costs, parse_execution("split-install"))
    assert timeline.end.tolist() == [3.0 + 1.5 + 2 * 0.75]


@pytest.mark.parametrize("name", ["parallel-install", "page-cache"])
def test_parallel_install(name: str) -> None:
    # lane 0: 1 + 1 + 0.5, lane 1 the same; then the uploads and installs
    assert parts_of(name) == {"read": 2.5, "upload": 3 * 0.75, "host": 3 * 0.125, "experts": 1.0}


def test_slots_filled_for_the_first_time() -> None:
    # each read of the first two misses takes 0.25 s more
    assert parts_of("sync-install", cold=2, fill_s=0.25)["read"] == 2 * 1.25 + 2 * 1.25 + 2 * 0.5
    assert parts_of("parallel-install", cold=2, fill_s=0.25)["read"] == 1.25 + 1.25 + 0.5
    assert parts_of("parallel-install", cold=3, fill_s=0.25)["read"] == 1.25 + 1.25 + 0.75
    # if all misses are alike; and experts read ahead, of which the first fills a slot: both at once, two chunks each
    work = work_of([{"requests": 2, "misses": 2, "cold": 2}], [(0, 0, 0, -1, 1), (0, 0, 0, -1, 0)])
    timeline = simulate(work, costs_of(chunks=2, chunk_s=1.0, fill_s=0.25), parse_execution("parallel-install"))
    parts = dict(zip(PARTS, timeline.parts[0].tolist(), strict=True))
    assert (parts["read"], parts["ahead"]) == (2 * 1.25, 1.25 + 1.0)


@pytest.mark.parametrize("name", EXECUTION_MODELS)
def test_a_call_that_waited_for_reads_resumes_later(name: str) -> None:
    waits = name in ("sync-install", "split-install", "parallel-install", "async-upload", "page-cache", "k-materialize")
    before, after = parts_of(name), parts_of(name, resume_s=0.25)
    assert after == (before | {"host": before["host"] + 0.25} if waits else before)
    hits = work_of([{"requests": 4}])
    assert simulate(hits, costs_of(resume_s=0.25), parse_execution(name)).total_s == 0


def test_async_upload() -> None:
    # two chunks each are read by 1, 2 and 2.5; each chunk is uploaded in 0.375 s: 1..1.75, 2..2.75, 2.75..3.5: one
    # second after the last read; then three installs
    assert parts_of("async-upload") == {"read": 2.5, "upload": 1.0, "host": 3 * 0.125, "experts": 1.0}


def test_async_upload_does_not_wait_for_the_other_chunks_of_an_expert() -> None:
    # one lane: chunks are read by 1, 2, ... 5.5 s and each uploaded beside the next; the last one from 5.5 to 5.875
    assert parts_of("async-upload", lanes=1)["upload"] == 0.375


def test_overlap_prefetch() -> None:
    # since the experts are known: the hit 0..0.25; uploads end at 1.75, 2.75 and 3.5, installs 0.125 later
    # first miss: read until 1 (0.75 waited), upload until 1.75, install until 1.875, computed until 2.125
    # second: has arrived at 2; upload until 2.75 (0.625 waited), install, computed until 3.125
    # third: upload until 3.5 (0.375 waited), install, computed until 3.875
    expected = {"read": 0.75, "upload": 0.75 + 0.625 + 0.375, "host": 3 * 0.125, "experts": 1.0}
    assert parts_of("overlap-prefetch") == expected
    assert sum(expected.values()) == 3.875


def test_hot_cold() -> None:
    # the hit takes 0.25 s; three misses 1.5 s on the cold lane at the same time; joining them
    assert parts_of("hot-cold", **IN_RAM) == {"experts": 0.25, "cold_lane": 1.25, "merge": 0.0625}


def test_hot_cold_padded() -> None:
    # the hit and an empty expert for each of three misses take 1 s beside the 1.5 s of the cold lane
    assert parts_of("hot-cold-padded", **IN_RAM) == {"experts": 1.0, "cold_lane": 0.5, "merge": 0.0625}
    # without a hit the GPU computes nothing
    work = work_of([{"requests": 4, "misses": 4, **IN_RAM, "warm": 4}])
    timeline = simulate(work, costs_of(**MACHINE), parse_execution("hot-cold-padded"))
    assert timeline.parts[0, PARTS.index("experts")] == 0
    assert timeline.parts[0, PARTS.index("cold_lane")] == 2.0


def test_hot_cold_reads_what_ram_does_not_hold_and_uploads_what_is_installed() -> None:
    # two of three misses are read until 2, then the cold lane takes until 3.5, and joining until 3.5625; meanwhile
    # three uploads, 2..4.25; then three installs
    expected = {"experts": 0.25, "read": 1.75, "cold_lane": 1.5, "merge": 0.0625, "upload": 0.6875, "host": 0.375}
    assert parts_of("hot-cold") == expected


def test_prefill_copy_of_a_small_call() -> None:
    assert parts_of("prefill-copy", n_tokens=31, **IN_RAM) == {"experts": 0.25, "cold_lane": 1.5}
    # the hit until 0.25, two misses read until 2.25, the cold lane until 3.75; uploads 2.25..4.5; installs
    expected = {"experts": 0.25, "read": 2.0, "cold_lane": 1.5, "upload": 0.75, "host": 0.375}
    assert parts_of("prefill-copy", n_tokens=31) == expected


def test_prefill_copy_of_a_batch() -> None:
    assert parts_of("prefill-copy", n_tokens=32, **IN_RAM) == {"upload": 3 * 0.75, "experts": 1.0}
    # what RAM holds is uploaded until 0.75; the other two are read by 1 and by 2, and uploaded until 1.75 and 2.75
    expected = {"read": 2.0, "upload": 0.75, "host": 3 * 0.125, "experts": 1.0}
    assert parts_of("prefill-copy", n_tokens=32) == expected


def test_a_padded_hot_cache_copies_the_misses_of_a_batch() -> None:
    small = {"experts": 1.0, "cold_lane": 0.5, "merge": 0.0625}
    assert parts_of("hot-cold-padded", n_tokens=255, **IN_RAM) == small
    assert parts_of("hot-cold-padded", n_tokens=256, **IN_RAM) == {"upload": 3 * 0.75, "experts": 1.0}
    # what RAM holds is uploaded until 0.75; the other two are read by 1 and by 2, and uploaded until 1.75 and 2.75
    expected = {"read": 2.0, "upload": 0.75, "host": 3 * 0.125, "experts": 1.0}
    assert parts_of("hot-cold-padded", n_tokens=256) == expected


def test_k_materialize() -> None:
    # reads and installs as sync-install; then all four experts are copied
    assert parts_of("k-materialize") == {"read": 5.0, "host": 3 * 0.125, "upload": 4 * 0.75, "experts": 1.0}


def test_service_time_is_that_of_the_depth_of_the_batch() -> None:
    # three misses of two chunks on 8 lanes: six reads in flight, one round
    costs = costs_of(lanes=8, chunks=2, chunk_s=1.0)
    costs.chunk_s[0] = [1, 1, 1, 1, 1, 4, 5, 6]
    timeline = simulate(work_of([{"requests": 3, "misses": 3}]), costs, parse_execution("parallel-install"))
    assert timeline.end.tolist() == [4.0]
    # five misses: ten chunks, two rounds of five
    timeline = simulate(work_of([{"requests": 5, "misses": 5}]), costs, parse_execution("parallel-install"))
    assert timeline.end.tolist() == [2 * 1.0]


def test_many_tokens_cost_more_beyond_the_knee() -> None:
    # 8 tokens at a knee of 4: dense work twice; 12 references to 2 experts, 6 tokens each: 1.5 times
    work = work_of([{"requests": 2, "refs": 12, "n_tokens": 8}])
    costs = costs_of(dense_s=1.0, expert_s=0.5, dense_knee_tokens=4.0, knee_tokens=4.0)
    assert simulate(work, costs, parse_execution("resident")).end.tolist() == [2.0 + 2 * 0.75]
    # with experts of twice the bits, 6 tokens of each take as long as one
    costs = replace(costs, knee_tokens=8.0)
    assert simulate(work, costs, parse_execution("resident")).end.tolist() == [2.0 + 2 * 0.5]
    # kernels for batches compute an expert after they have read it
    costs = replace(costs, added_from=8)
    assert simulate(work, costs, parse_execution("resident")).end.tolist() == [2.0 + 2 * 0.5 * (1 + 0.75)]
    assert simulate(work, replace(costs, added_from=9), parse_execution("resident")).end.tolist() == [3.0]
    # tiles are padded by a quarter of the 8 tokens, or by one
    for padded, tokens in ((64.0, 2), (1.0, 1)):
        end = simulate(work, replace(costs, padded_tokens=padded), parse_execution("resident")).end
        assert end.tolist() == [2.0 + 2 * 0.5 * (1 + (6 + tokens) / 8)]


AHEAD_MACHINE = MACHINE | {"lanes": 1, "upload_s": 0.5, "step_s": 0.0}


def test_reads_ahead_run_beside_the_next_call_and_behind_its_reads() -> None:
    # call 0: 1 + 0.5 + 0.25; X and Y are issued at 1.75. Call 1 is ready at 3.25 and uses X, and misses M.
    # lane: X 1.75..2.75..3.75, M 3.75..4.75..5.75, Y from 5.75 on. link: X 3.75..4.25, M 5.75..6.25; install to 6.375
    # unit: waits for X until 4.25 (late), computes it until 4.5, waits for M until 6.375, computes it until 6.625
    work = work_of([{"requests": 1}, {"requests": 2, "misses": 1}], [(0, 0, 0, 1), (0, 0, 0, -1)])
    timeline = simulate(work, costs_of(**AHEAD_MACHINE), parse_execution("overlap-prefetch"))
    assert timeline.end.tolist() == [1.75, 6.625]
    parts = dict(zip(PARTS, timeline.parts[1].tolist(), strict=True))
    assert [parts[name] for name in ("late", "read", "upload", "host")] == [1.0, 1.25, 0.5, 0.5 + 0.125]
    assert timeline.busy[ON_STORAGE] == 4.0 + (6.625 - 5.75)  # what Y is read beyond the end does not count


def test_what_a_call_waits_for_breaks_off_reads_ahead() -> None:
    # as above with Y first: Y 1.75..3.25, then X 3.25..5.25, M 5.25..7.25, and what is left of Y 7.25..7.75
    # link: X 5.25..5.75 (computed until 6), M 7.25..7.75, installed and computed until 8.125; then Y's, until the end
    work = work_of([{"requests": 1}, {"requests": 2, "misses": 1}], [(0, 0, 0, -1), (0, 0, 0, 1)])
    timeline = simulate(work, costs_of(**AHEAD_MACHINE), parse_execution("overlap-prefetch"))
    assert timeline.end.tolist() == [1.75, 8.125]
    assert timeline.parts[1, LATE] == 5.75 - 3.25
    assert timeline.busy[ON_STORAGE] == 7.75 - 1.75
    assert timeline.busy[ON_LINK] == 0.5 + 0.5 + (8.125 - 7.75)


def test_what_a_call_waits_for_breaks_off_uploads_in_the_background() -> None:
    # A and B are issued at 1.75 and read together in 0.25 s, A by 1.875 and B by 2; link: A 1.875..3.375, then B
    # M, missed by call 1 at 3.25, is read by 3.5 and uploaded 3.5..5; what is left of B from 5 on
    # M is installed and computed until 5.375
    machine = MACHINE | {"chunks": 1, "warm_chunk_s": 0.25, "upload_s": 1.5, "step_s": 0.0}
    work = work_of([{"requests": 1}, {"requests": 1, "misses": 1, "warm": 1}], [(0, 0, 1, -1)] * 2)
    timeline = simulate(work, costs_of(**machine), parse_execution("overlap-prefetch"))
    assert timeline.end.tolist() == [1.75, 5.375]
    parts = dict(zip(PARTS, timeline.parts[1].tolist(), strict=True))
    assert (parts["read"], parts["upload"]) == (0.25, 1.5)
    assert timeline.busy[ON_LINK] == 1.5 + 0.125 + 1.5 + 0.375


def test_reads_ahead_in_time_cost_nothing() -> None:
    costs = costs_of(**(AHEAD_MACHINE | {"chunk_s": 0.25}))
    ahead, without = (
        simulate(work_of([{"requests": 1}] * 2, experts), costs, parse_execution("overlap-prefetch"))
        for experts in ([(0, 0, 0, 1)], [])
    )
    assert ahead.end.tolist() == without.end.tolist()
    assert (ahead.busy[ON_STORAGE], ahead.busy[ON_LINK]) == (0.5, 0.5)


@pytest.mark.parametrize("name", ["hot-cold", "prefill-copy"])
def test_promotions_are_uploads_and_a_call_waits_for_those_it_uses(name: str) -> None:
    # X and Y are issued at 1.75; X 1.75..3.25 on the link; Y is used at 3.25, which breaks off X: Y 3.25..5.25
    work = work_of([{"requests": 1}] * 2, [(0, 0, 1, -1), (0, 0, 1, 1)])
    timeline = simulate(work, costs_of(**(AHEAD_MACHINE | {"upload_s": 2.0})), parse_execution(name))
    assert timeline.end.tolist() == [1.75, 5.25 + 0.25]
    assert timeline.parts[1, LATE] == 5.25 - 3.25
    # not in RAM: Y is read only from 3.25 on, for 2 s, and uploaded for 2 s
    work = work_of([{"requests": 1}] * 2, [(0, 0, 0, -1), (0, 0, 0, 1)])
    timeline = simulate(work, costs_of(**(AHEAD_MACHINE | {"upload_s": 2.0})), parse_execution(name))
    assert timeline.end.tolist() == [1.75, 7.25 + 0.25]


@pytest.mark.parametrize("name", ["sync-install", "parallel-install", "async-upload", "page-cache", "k-materialize"])
def test_reads_ahead_without_a_background_are_waited_for(name: str) -> None:
    # two lanes: two experts of two chunks in 2 s, then their uploads, of which k-materialize has none
    work = work_of([{"requests": 0}] * 2, [(-1, 0, 0, -1), (0, 0, 0, 1), (0, 0, 1, -1)])
    with pytest.raises(ValueError, match="hits of their layer"):
        simulate(work, costs_of(**MACHINE), parse_execution(name))
    work = work_of([{"requests": 0}, {"requests": 1}], [(-1, 0, 0, -1), (0, 0, 0, 1), (0, 0, 1, -1)])
    timeline = simulate(work, costs_of(**(MACHINE | {"upload_s": 1.0})), parse_execution(name))
    uploads = 0 if name == "k-materialize" else 1
    before_first, after_first = 1.0 + uploads, 1.0 + 0.5 + 2 * uploads  # cold and warm, 1 s and 0.5 s on both lanes
    assert timeline.parts[:, PARTS.index("ahead")].tolist() == [before_first + after_first, 0.0]
    assert timeline.end[0] == before_first + 1.5 + after_first


@pytest.mark.parametrize("name", EXECUTION_MODELS)
def test_a_call_without_tokens_takes_no_time(name: str) -> None:
    work = work_of([{"requests": 1}, {"requests": 0, "n_tokens": 0}])
    timeline = simulate(work, costs_of(**(MACHINE | {"step_s": 0.0})), parse_execution(name))
    assert timeline.end[1] == timeline.end[0] > 0
