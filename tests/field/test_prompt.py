"""How rows read their prompts, what that takes by hand, and how good the predictions are."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reports.field import printed_page, prompt_page, prompt_printed
from reports.field.predict import Raw, raw_of
from reports.field.prompt import Prompt, prompt_of
from reports.field.prompt_fit import KINDS, PARTS, TOLD, Line, Prompts, fitted, left_out, line_of, load, with_spread
from reports.field.prompt_parts import distinct_share, part_seconds
from reports.field.prompt_printed import sd_of
from reports.field.tune import load as load_tuned
from tests.field.builders import row


@pytest.mark.parametrize(
    ("cells", "prompt"),
    [
        ({}, Prompt(512, 512, 0, False)),
        ({"flags": "llama-bench -ub 2048, pp4096"}, Prompt(4096, 2048, 0, True)),
        ({"flags": "llama-bench -d 32768", "context": "32768"}, Prompt(512, 512, 32768, True)),
        ({"flags": "12.4K-13.7K-token prompt", "batch_ubatch": "2048/1024"}, Prompt(12400, 1024, 0, True)),
        ({"notes": "a prompt of about 1000 tokens in two turns", "context": "131072"}, Prompt(500, 500, 0, True)),
        ({"flags": "prompts 10K-50K", "engine": "krasis"}, Prompt(20000, 16384, 0, True)),
        ({"flags": "short game prompts"}, Prompt(128, 128, 0, True)),
        ({"strategy": "slot_bank_ssd"}, Prompt(24, 24, 0, False)),
        ({"engine": "Strata 0.1.37", "context": "98599"}, Prompt(98599, 8192, 0, True)),
    ],
)
def test_a_row_says_how_long_its_prompt_was(tmp_path: Path, cells: dict[str, str], prompt: Prompt) -> None:
    assert prompt_of(row(tmp_path, **cells)) == prompt


def priced(folder: Path, **cells: str) -> Raw:
    return raw_of(row(folder, **cells), load_tuned().curves)


def test_parts_by_hand(tmp_path: Path) -> None:
    """Qwen3-30B-A3B with all 48 layers' experts in RAM: 512 tokens use 98% of 128 experts, each is copied once."""
    raw = priced(tmp_path, experts_on_cpu_layers="48", flags="llama-bench")
    machine, model = raw.way.machine, raw.way.model
    used = 1 - (1 - 8 / 128) ** (512**0.6)
    found = part_seconds(raw)
    assert 0.9 < used < 0.95
    copied_bytes = used * model.routed_bytes / 512
    assert found["copy"] == pytest.approx(copied_bytes / machine.link.pageable_gb_s.value / 1e9)
    loaded = part_seconds(priced(tmp_path, experts_on_cpu_layers="48", flags="llama-bench --no-mmap"))
    assert loaded["copy"] == pytest.approx(copied_bytes / machine.link.pinned_gb_s.value / 1e9)
    assert found["cpu"] == found["storage"] == 0
    assert found["layer"] == pytest.approx(48 * 1e-4 / 512)
    assert 2 * 3.3e9 < found["gpu"] * machine.gpu.operations_s < 2 * 3.4e9
    few = part_seconds(priced(tmp_path, experts_on_cpu_layers="48", flags="llama-bench -p 31"))
    assert few["copy"] == 0  # the CPU computes micro-batches below 32 tokens
    assert few["cpu"] > 0


def test_a_larger_micro_batch_copies_less_and_pads_less(tmp_path: Path) -> None:
    small, large = (
        part_seconds(priced(tmp_path, experts_on_cpu_layers="48", flags=f"llama-bench -p 4096 ub {size}"))
        for size in (512, 4096)
    )
    assert large["copy"] < small["copy"] / 7
    assert large["padding"] < small["padding"] / 7
    assert large["gpu"] == small["gpu"]


def test_more_tokens_use_more_experts() -> None:
    shares = [distinct_share(experts=128, top_k=8, tokens=tokens) for tokens in (1, 8, 512, 100_000)]
    assert shares[0] == pytest.approx(8 / 128)
    assert shares == sorted(shares)
    assert shares[-1] <= 1


def made_lines(*, machines: int) -> list[Line]:
    """Rows whose GPU takes twice as long as on paper, and whose copies take as long; alone half of one, then half."""
    rng, lines = random.Random(3), []
    for number in range(machines):
        for place in range(4):
            gpu, copy = (0.0, 1e-3) if place % 2 else (1e-3, 0.0)
            seconds = tuple({"gpu": gpu, "copy": copy}.get(part, 0.0) for part in PARTS)
            measured = math.log(2 * gpu + copy) + rng.gauss(0, 0.05)
            groups = tuple(f"{kind} x" for kind in KINDS)
            lines.append(Line(f"{number}-{place}", f"m{number}", TOLD, seconds, groups, measured))
    return lines


def test_known_factors_are_found_and_machines_left_out_are_predicted() -> None:
    lines = made_lines(machines=12)
    found = Prompts(fitted(lines), {})
    gpu, copy = lines[0], lines[1]
    assert found.tok_s(gpu) == pytest.approx(500, rel=0.05)
    assert found.tok_s(copy) == pytest.approx(1000, rel=0.05)
    left = left_out(lines)
    assert set(left) == {line.row_id for line in lines}
    assert all(abs(math.log(left[line.row_id]) + (line.measured or 0)) < 0.3 for line in lines)
    spread = with_spread(found.factors, [*lines, of_unknown_length(lines[0])], left | {"u": 500.0})
    assert spread.spread[TOLD] < 0.15
    lo, hi = spread.interval(gpu)
    assert lo < spread.tok_s(gpu) < hi


def of_unknown_length(line: Line) -> Line:
    return line._replace(row_id="u", length="not told")


def test_an_engine_that_nobody_measured_leans_on_the_others(tmp_path: Path) -> None:
    known, unknown = (line_of(priced(tmp_path, engine=engine)) for engine in ("llama.cpp", "nobody.cpp"))
    assert known is not None
    assert unknown is not None
    assert 0.4 < load().tok_s(unknown) / load().tok_s(known) < 2.5


def test_prompts_are_predicted_as_the_page_says() -> None:
    """Goals: a median error of 30%, and 80% within a factor of two, without the row's machine."""
    rows = pl.read_csv(prompt_page.TABLE)
    one = prompt_page.scored(rows, prompt_page.WITHOUT)
    assert one.rows >= 260
    assert one.error <= 0.33
    assert one.within_2 >= 0.77
    assert 0.88 <= one.covered <= 0.96


def test_printed_prompts_are_inside_their_interval_as_often_as_it_says() -> None:
    rows = pl.read_csv(prompt_printed.TABLE)
    assert 0.9 <= printed_page.inside(rows) <= 0.96


def test_the_spread_of_engines_is_what_the_machine_does_not_explain() -> None:
    """Nine of ten within a factor of e: 1 / 1.645 in all, or nothing beside a machine that explains as much."""
    times, rng = np.exp(np.append(np.ones(9), 5.0)), np.random.default_rng(1)
    draws, same = rng.standard_normal((2, 10, 50_000)), np.ones(10)
    assert sd_of(times, 0 * draws[0], draws[1], same) == pytest.approx(1 / 1.645, abs=0.015)
    assert sd_of(times, 0.7 * draws[0], draws[1], same) == pytest.approx(0.1)
    assert sd_of(times, -0.7 * abs(draws[0]), draws[1], same) > 1 / 1.645  # which explains slower ones only
    assert sd_of(times, 0 * draws[0], draws[1], np.append(same[:9], 2.0)) == prompt_printed.SDS[-1]


def test_a_row_without_a_price_has_no_prompt(tmp_path: Path) -> None:
    assert line_of(priced(tmp_path, model="Nobody-7B")) is None
    assert part_seconds(replace(priced(tmp_path), way=None)) == {}
