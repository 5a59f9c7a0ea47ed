"""What a machine runs: files, groups, order, and the same answers as for one model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes, named_model, named_models
from flashmoe_sim.io.errors import Malformed, TooLarge
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.schema import RUNS_HERE
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.borrow import borrow
from flashmoe_sim.systems.resolve import parse_systems, resolve
from flashmoe_sim.tune.recommend import chosen
from flashmoe_sim.tune.runs_here import LIKELY, NO, SLOW, WELL, usual_files, what_runs
from flashmoe_sim.tune.search import search

SMALL = ["gpt-oss-20b", "lfm2-8b-a1b", "mixtral-8x7b", "olmoe-1b-7b", "qwen1.5-moe-a2.7b"]
PC, MAC, CPU = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 16GiB + nvme-gen4", "m2-16", "ryzen-5600 + 16GiB"


def cases(machine: str, memory: MemoryOptions | None = None) -> Callable[[ModelGeometry], Case]:
    on = load_machine(machine)
    return lambda model: resolve(workload=None, model=model, machine=on, memory=memory, may_borrow=False).case


@pytest.mark.parametrize("machine", [PC, MAC, CPU])
def test_each_row_is_the_answer_of_a_full_search(machine: str) -> None:
    """The same system, and a speed within 3%, though sizes are tried on a part of the trace and none is refined."""
    of, common = cases(machine), [one for one in parse_systems("all") if one.common]
    ran = 0
    for one in what_runs(of, parse_systems("all"), names=SMALL).models:
        found = search(borrow(one.model)[0], of(one.model), common, borrowed=True)
        best = chosen(found, of(one.model))
        if one.how == NO or best is None:
            assert best is None or (best.best.tok_s or 0) < 1
            continue
        ran += 1
        assert one.found.system.name == best.best.system.name
        assert one.found.tok_s == pytest.approx(best.best.tok_s, rel=0.03)
        assert one.found.tok_s_lo == pytest.approx(best.best.tok_s_lo, rel=0.05)
    assert ran >= 4


@pytest.mark.parametrize("at_least", [2.0, 10.0, 60.0])
def test_a_file_is_the_largest_that_likely_reaches_the_speed(at_least: float) -> None:
    found = what_runs(cases(PC), parse_systems("all"), at_least_tok_s=at_least, names=SMALL)
    for one in found.models:
        files = [file.name for file in usual_files(one.model.base_name)]
        assert (one.how == WELL) == (one.likely >= LIKELY)
        if one.how != WELL:
            assert one.model.name == files[-1]
        elif larger := files[: files.index(one.model.name)]:
            name = one.model.base_name
            more = what_runs(cases(PC), parse_systems("all"), at_least_tok_s=1e-3, names=[name]).models[0]
            assert more.model.name == files[0]  # which is slower than asked
            assert (more.found.tok_s or 0) < (one.found.tok_s or 0), larger


def test_a_higher_speed_takes_no_larger_file_and_no_more_models() -> None:
    runs = [
        {
            one.model.base_name: one
            for one in what_runs(cases(PC), parse_systems("all"), at_least_tok_s=speed, names=SMALL).of(WELL)
        }
        for speed in (5.0, 20.0, 80.0)
    ]
    for slower, faster in pairwise(runs):
        assert set(faster) <= set(slower)
        for name, one in faster.items():
            assert file_bytes(one.model) <= file_bytes(slower[name].model)
    assert len(runs[0]) > len(runs[-1]) > 0


def test_groups_come_in_order_each_with_the_most_weights_first() -> None:
    names = [*SMALL, "kimi-k3", "qwen3-30b-a3b"]
    found = what_runs(cases(PC), parse_systems("all"), names=names)
    place = [((WELL, SLOW, NO).index(one.how), -one.weights_b) for one in found.models]
    assert place == sorted(place)
    assert {one.model.base_name for one in found.models} == set(names)
    assert [one.model.base_name for one in found.of(NO)][:1] == ["kimi-k3"]
    assert [set(row) for row in found.rows()] == [{column.name for column in RUNS_HERE}] * len(names)


def test_weights_are_as_their_names_say() -> None:
    found = what_runs(cases("rtx-5090 + 128GiB"), parse_systems("all"), names=["olmoe-1b-7b", "qwen1.5-moe-a2.7b"])
    olmoe = next(one for one in found.models if one.model.base_name == "olmoe-1b-7b")
    assert olmoe.weights_b == pytest.approx(6.9, rel=0.02)
    assert olmoe.active_b == pytest.approx(1.3, rel=0.03)
    assert olmoe.model.quant == "q8_0"  # there is room


def test_usual_files_are_gguf_files_the_largest_first() -> None:
    for name in named_models():
        files = usual_files(name)
        sizes = [file_bytes(file) for file in files]
        assert sizes == sorted(sizes, reverse=True)
        assert {file.format for file in files} == {"gguf"} or [file.name for file in files] == [named_model(name).name]
    assert [file.quant for file in usual_files("gpt-oss-20b")] == ["mxfp4"]


def test_a_machine_that_runs_nothing_says_what_would() -> None:
    with pytest.raises(TooLarge, match=r"none of 2 models reaches 1 tok/s there; the smallest file is .*more memory"):
        what_runs(cases("vm-2core"), parse_systems("all"), names=["kimi-k3", "deepseek-v3"])


def test_a_wrong_option_is_an_error_and_not_a_model_that_does_not_run() -> None:
    with pytest.raises(Malformed, match="--reserve"):
        what_runs(cases(PC, MemoryOptions(reserve="much")), parse_systems("all"), names=SMALL[:2])
