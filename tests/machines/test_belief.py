"""Draws: what they are made of, and that they agree with the numbers they stand for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.machines.belief import DRAWS, SD_90, Whose, ends, error_draws, errors, moved, normals
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Anchors


def test_normals_are_normal_and_independent_and_the_same_each_time() -> None:
    one, other = normals("one"), normals("other")
    assert np.array_equal(np.sort(one), np.sort(other))
    assert (abs(one.mean()), one.std()) == (pytest.approx(0, abs=1e-12), pytest.approx(1, abs=0.01))
    names = [normals(f"unknown {number}") for number in range(20)]
    together = np.corrcoef(names) - np.eye(20)
    assert abs(together).max() < 4 / math.sqrt(DRAWS)
    assert one is normals("one")
    with pytest.raises(ValueError, match="read-only"):
        one[0] = 0


def test_a_move_is_at_its_ends_where_it_is_said_to_be() -> None:
    draws = moved(normals("one"), -0.4, 0.1)
    assert ends(10.0, draws) == pytest.approx((10 * math.exp(-0.4), 10 * math.exp(0.1)), rel=0.01)
    assert ends(10.0, moved(normals("one"), 0.3, 0.3)) == pytest.approx(
        (10.0, 10 * math.exp(0.36)), rel=0.1
    )  # holds its value


def test_what_engines_and_settings_have_in_common() -> None:
    on, known = load_machine("rtx-4090"), errors()
    one = error_draws(on, Whose("placed", "llama-cpp", "placed:cpu_layers=3", "m"))
    others = (
        Whose("placed", "llama-cpp", "placed:cpu_layers=9", "m"),
        Whose("hot-cache", "hot-cache", "hot-cache", "m"),
        Whose("hot-cache", "hot-cache", "hot-cache", "n"),
    )
    common, program, model = (known["shares"][name] for name in ("common", "program", "model"))
    assert one.std() == pytest.approx(known["sd"]["placed"], rel=0.1)
    rho = [np.corrcoef(one, error_draws(on, other))[0, 1] for other in others]
    assert rho == pytest.approx([common + program + model, common + model, common], abs=0.1)
    assert not error_draws(on, None).any()


def test_a_machine_that_was_fitted_on_runs_of_an_engine_has_its_error_in_its_numbers() -> None:
    fitted = replace(load_machine("rtx-4090"), anchors=Anchors(("run",), "m", "2026-01-01", "sim machine fit"))
    assert not error_draws(fitted, Whose("slot-bank", "slot-bank", "slot-bank")).any()
    assert error_draws(fitted, Whose("placed", "llama-cpp", "placed")).std() * SD_90 > 0.1
