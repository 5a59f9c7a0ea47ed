"""Work and costs: by hand, and at random."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from flashmoe_sim.timeline.models.base import NEVER
from flashmoe_sim.timeline.work import Costs, Work

# Experts read ahead: after which call, row, whether the page cache serves it, the call that uses it; perhaps whether it
# fills a slot for the first time.
AheadOf = tuple[int, int, int, int] | tuple[int, int, int, int, int]


def work_of(calls: Sequence[dict[str, int]], ahead: Sequence[AheadOf] = ()) -> Work:
    """Work from one dict per call; what is not given is 0, but one token, as many refs as requests, and decode."""

    def column(name: str, default: int = 0) -> list[int]:
        return [call.get(name, default) for call in calls]

    after, row, warm, used, cold = zip(*((*one, 0)[:5] for one in ahead), strict=True) if ahead else ((),) * 5
    return Work(
        row=np.array(column("row"), np.int32),
        step=np.array(column("step"), np.int32),
        n_tokens=np.array(column("n_tokens", 1), np.int32),
        n_text=np.array([call.get("n_text", call.get("n_tokens", 1)) for call in calls], np.int32),
        drafted=np.array(column("drafted"), np.int32),
        refs=np.array([call.get("refs", call.get("requests", 0)) for call in calls], np.int32),
        requests=np.array(column("requests"), np.int32),
        misses=np.array(column("misses"), np.int32),
        warm=np.array(column("warm"), np.int32),
        cold=np.array(column("cold"), np.int32),
        installs=np.array([call.get("installs", call.get("misses", 0)) for call in calls], np.int32),
        phase=np.array(column("phase", 2), np.uint8),
        ahead_after=np.array(after, np.int64),
        ahead_row=np.array(row, np.int32),
        ahead_warm=np.array(warm, np.uint8),
        ahead_cold=np.array(cold, np.uint8),
        ahead_used=np.array(used, np.int64),
    )


def costs_of(*, rows: int = 1, lanes: int = 2, **given: Any) -> Costs:
    """Costs that are the same for all rows and depths; what is not given takes no time."""
    per_row = {
        name: np.full(rows, float(given.pop(name, 0.0)))
        for name in ("dense_s", "expert_s", "cold_expert_s", "upload_s", "fill_s", "memory_s")
    }
    read_s = {name: np.full((rows, lanes), float(given.pop(name, 0.0))) for name in ("chunk_s", "warm_chunk_s")}
    chunks = np.full(rows, given.pop("chunks", 1), np.int32)
    each = given.pop("families", np.array([chunks[0]]))  # reads of each tensor family of an expert
    families = len(each)
    scalars = {
        "dense_knee_tokens": 1e9,
        "knee_tokens": 1e9,
        "cold_knee_tokens": 1e9,
        "added_from": NEVER,
        "padded_tokens": 0.0,
        "attention_s": 0.0,
        "attention_token_s": 0.0,
        "call_s": 0.0,
        "hit_call_s": 0.0,
        "install_s": 0.0,
        "resume_s": 0.0,
        "merge_s": 0.0,
        "step_s": 0.0,
    }
    return Costs(
        **per_row,
        **read_s,
        chunks=chunks,
        family_chunks=np.tile(np.array(each, np.int32), (rows, 1)),
        family_chunk_s=np.repeat(read_s["chunk_s"][:, None], families, 1),
        family_warm_chunk_s=np.repeat(read_s["warm_chunk_s"][:, None], families, 1),
        family_fill_s=np.repeat(per_row["fill_s"][:, None], families, 1),
        family_upload_s=np.repeat(per_row["upload_s"][:, None] / families, families, 1),
        **(scalars | given),
    )


@cache
def random_cases(seed: int, number: int) -> tuple[tuple[Work, Costs], ...]:
    """The same ones for every execution model."""
    rng = np.random.default_rng(seed)
    return tuple(random_case(rng) for _ in range(number))


def random_case(rng: np.random.Generator) -> tuple[Work, Costs]:
    """A small machine with small work: storage, link or the unit that computes may be the slowest by far."""
    rows, lanes, n_calls = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(1, 13))
    row = (
        np.sort(rng.integers(0, rows, (n_calls, 1)), axis=0)[:, 0] if rng.random() < 0.2 else np.arange(n_calls) % rows
    )
    step = np.cumsum(np.diff(row, prepend=rows) <= 0) - 1
    requests = rng.integers(0, 7, n_calls)
    misses = rng.binomial(requests, rng.random())
    installs = rng.binomial(misses, rng.choice([0.0, 0.5, 1.0]))
    many_tokens = rng.random() < 0.3
    times = rng.choice([1, 8]) if many_tokens else 1  # calls are of more and fewer than 32 tokens, or than 256
    n_tokens = (times * rng.integers(0, 64 if many_tokens else 3, n_calls)).astype(np.int32)
    work = Work(
        row=row.astype(np.int32),
        step=step.astype(np.int32),
        n_tokens=n_tokens,
        n_text=n_tokens,
        drafted=np.where(np.arange(n_calls) % 3 > 0, np.maximum(n_tokens - 1, 0), 0).astype(np.int32),
        refs=(times * requests * rng.integers(1, 20 if many_tokens else 3, n_calls)).astype(np.int32),
        requests=requests.astype(np.int32),
        misses=misses.astype(np.int32),
        warm=rng.binomial(misses, rng.choice([0.0, 0.5, 1.0])).astype(np.int32),
        cold=rng.binomial(installs, rng.choice([0.0, 0.5, 1.0])).astype(np.int32),
        installs=installs.astype(np.int32),
        phase=np.full(n_calls, 2, np.uint8),
        **random_ahead(rng, row, requests - misses),
    )
    slow = 10.0 ** rng.uniform(-1.5, 1.0, 3)  # storage, link, the unit that computes
    read_s = slow[0] * rng.uniform(0.5, 1.5, (2, rows, lanes)) * 10.0 ** rng.uniform(-1.5, 0.0, (rows, 1))
    upload_s = slow[1] * rng.uniform(0.5, 1.5, rows)
    if rng.random() < 0.3:
        upload_s[rng.random(rows) < rng.choice([0.5, 1.0])] = 0.0
    chunks = rng.integers(1, 6, rows).astype(np.int32)
    costs = Costs(
        dense_s=slow[2] * rng.uniform(0.5, 1.5, rows),
        expert_s=slow[2] * rng.uniform(0.1, 0.5, rows),
        cold_expert_s=slow[2] * rng.uniform(0.1, 2.0, rows),
        dense_knee_tokens=float(times * rng.uniform(1.0, 20.0)),
        knee_tokens=float(times * rng.uniform(1.0, 20.0)),
        cold_knee_tokens=float(times * rng.uniform(1.0, 20.0)),
        added_from=int(rng.choice([2, 9, NEVER])),
        padded_tokens=float(rng.choice([0.0, 4.0])),
        chunks=chunks,
        chunk_s=read_s[0],
        warm_chunk_s=read_s[1] * rng.uniform(0.05, 1.0),
        fill_s=slow[0] * rng.choice([0.0, 1.0]) * rng.uniform(0.0, 1.5, rows),
        upload_s=upload_s,
        memory_s=rng.choice([0.0, 1.0]) * slow[0] * rng.uniform(0.0, 1.0, rows),
        **random_families(rng, chunks, read_s, upload_s, slow_storage=slow[0]),
        call_s=float(rng.uniform(0.0, 0.2)),
        hit_call_s=float(rng.uniform(0.0, 0.2)),
        install_s=float(rng.uniform(0.01, 0.2)),
        resume_s=float(rng.uniform(0.0, 0.2)),
        merge_s=float(rng.uniform(0.0, 0.2)),
        step_s=float(rng.uniform(0.0, 2.0)),
        attention_s=float(rng.choice([0.0, 1.0]) * slow[2] * rng.uniform(0.0, 1.0)),
        attention_token_s=float(slow[2] * rng.uniform(0.0, 0.2)),
        layer_s=float(slow[2] * rng.uniform(0.0, 0.5)),
        draft_s=float(slow[2] * rng.uniform(0.0, 0.2)),
        verify_call_s=float(slow[2] * rng.uniform(0.0, 0.2)),
        verify_times=float(rng.uniform(1.0, 2.0)),
    )
    return work, costs


def random_families(
    rng: np.random.Generator, chunks: Any, read_s: Any, upload_s: Any, *, slow_storage: float
) -> dict[str, Any]:
    """The chunks of each row in one to three families, whose reads and uploads take different times."""
    families = int(rng.integers(1, 4))
    shares = np.array([np.bincount(rng.integers(0, families, n), minlength=families) for n in chunks.tolist()])
    family_s = read_s[:, :, None] * rng.uniform(0.5, 1.5, (1, 1, families, 1))
    return {
        "family_chunks": shares.astype(np.int32),
        "family_chunk_s": family_s[0],
        "family_warm_chunk_s": family_s[1],
        "family_fill_s": slow_storage * rng.choice([0.0, 1.0]) * rng.uniform(0.0, 1.5, (len(chunks), families)),
        "family_upload_s": upload_s[:, None] * rng.uniform(0.1, 1.0, (len(chunks), families)),
    }


def random_ahead(rng: np.random.Generator, row: Any, hits: Any) -> dict[str, Any]:
    """Experts read ahead at random, used by hits or never."""
    n_calls, found = len(row), []
    left = hits.copy()
    for _ in range(int(rng.choice([0, 2, 6, 20]))):
        after = int(rng.integers(-1, n_calls))
        later = [call for call in range(after + 1, min(after + 6, n_calls)) if left[call] > 0]
        use = int(rng.choice(later)) if later and rng.random() < 0.8 else -1
        if use >= 0:
            left[use] -= 1
        found.append((after, int(row[use]) if use >= 0 else int(rng.choice(row)), int(rng.random() < 0.3), use))
    found.sort(key=lambda expert: expert[0])
    after, rows, warm, used = zip(*found, strict=True) if found else ((), (), (), ())
    return {
        "ahead_after": np.array(after, np.int64),
        "ahead_row": np.array(rows, np.int32),
        "ahead_warm": np.array(warm, np.uint8),
        "ahead_cold": rng.integers(0, 2, len(found)).astype(np.uint8),
        "ahead_used": np.array(used, np.int64),
    }
