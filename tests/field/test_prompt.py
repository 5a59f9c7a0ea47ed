"""How rows read their prompts, what that takes by hand, and how good the predictions are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reports.field import prompts
from reports.field.prompt import Prompt, prompt_of
from reports.field.prompts import sd_of
from reports.field.residuals import score
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


def test_printed_prompts_are_inside_their_interval_as_often_as_it_says() -> None:
    assert 0.9 <= score(pl.read_csv(prompts.TABLE)).inside <= 0.96


def test_the_spread_of_engines_is_what_the_machine_does_not_explain() -> None:
    """Nine of ten within a factor of e: 1 / 1.645 in all, or nothing beside a machine that explains as much."""
    times, rng = np.exp(np.append(np.ones(9), 5.0)), np.random.default_rng(1)
    draws, same = rng.standard_normal((2, 10, 50_000)), np.ones(10)
    assert sd_of(times, 0 * draws[0], draws[1], same) == pytest.approx(1 / 1.645, abs=0.015)
    assert sd_of(times, 0.7 * draws[0], draws[1], same) == pytest.approx(0.1)
    assert sd_of(times, -0.7 * abs(draws[0]), draws[1], same) > 1 / 1.645  # which explains slower ones only
    assert sd_of(times, 0 * draws[0], draws[1], np.append(same[:9], 2.0)) == prompts.SDS[-1]
